"""The ratios of the newest results as a picture for the README. Run: python -m benchmarks.figure"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from benchmarks.measure import Answer
from benchmarks.table import format_ratio, newest_results, read_results

FIGURE: Final = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.png"

# On a card of its own, which is read on a light page as on a dark one.
_CARD, _INK, _MUTED, _GRID = "#f6f8fa", "#1f2328", "#59636e", "#d8dee4"
_FASTER, _SLOWER, _TARGET = "#1a7f64", "#c9803a", "#b3261e"

_COLORS: Final = 40
_DPI: Final = 120
_WIDTH: Final = 10.0
#: Inches: of one line, above the first, and below the last.
_LINE, _TOP, _BOTTOM = 0.235, 0.75, 0.42
#: Where columns begin, in parts of the width.
_QUESTION, _CASE, _PEER, _BARS, _END = 0.014, 0.028, 0.29, 0.545, 0.97


def lines_of(answers: list[Answer]) -> list[str | Answer]:
    """What has a target, and the forms of other libraries: the name of each question, then its answers."""
    groups: dict[str, list[Answer]] = {}
    for answer in answers:
        if answer.target is not None or "forms" in answer.question.lower():
            groups.setdefault(answer.question, []).append(answer)
    lines: list[str | Answer] = []
    for question, group in groups.items():
        lines += [question, *group]
    return lines


def draw(lines: list[str | Answer], caption: str, path: Path) -> None:
    """One bar an answer, from 1 to its ratio, with a mark where the target is."""
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 8.5, "text.color": _INK})
    height = len(lines) * _LINE + _TOP + _BOTTOM
    figure: Any = plt.figure(figsize=(_WIDTH, height), dpi=_DPI, facecolor=_CARD)
    box = (_BARS, _BOTTOM / height, _END - _BARS, 1 - (_TOP + _BOTTOM) / height)
    axes = figure.add_axes(box, facecolor=_CARD)
    ratios = [line.ratio for line in lines if isinstance(line, Answer)]
    _style(axes, min(ratios), max(ratios), len(lines))
    for row, line in enumerate(lines):
        if isinstance(line, str):
            _write(axes, row, _QUESTION, line, weight="bold", size=9)
        else:
            _write(axes, row, _CASE, line.case)
            _write(axes, row, _PEER, line.peer, color=_MUTED)
            _bar(axes, row, line)
    title = "How many times faster than the peer"
    figure.text(_QUESTION, 1 - 0.3 / height, title, size=13, weight="bold", va="center")
    figure.text(_QUESTION, 0.2 / height, caption, size=8, color=_MUTED, va="center")
    figure.canvas.draw()
    # A palette holds these few colours as well, in a third of the bytes.
    pixels = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    pixels.quantize(_COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
    plt.close(figure)


def _style(axes: Any, least: float, most: float, num_lines: int) -> None:
    axes.set_xscale("log")
    axes.set_xlim(min(0.5, least * 0.7), 3 * most)
    axes.set_ylim(num_lines - 0.5, -0.5)
    axes.set_yticks([])
    axes.xaxis.tick_top()
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.tick_params(axis="x", which="both", length=0, labelcolor=_MUTED, labelsize=8)
    axes.minorticks_off()
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.axvline(1, color=_MUTED, linewidth=1.2)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _write(axes: Any, row: int, column: float, text: str, **style: Any) -> None:
    axes.annotate(text, (column, row), xycoords=("figure fraction", "data"), va="center", **style)


def _bar(axes: Any, row: int, answer: Answer) -> None:
    left, right = sorted((1.0, answer.ratio))
    axes.barh(row, right - left, left=left, height=0.6, color=_FASTER if answer.ratio >= 1 else _SLOWER)
    if answer.target is not None:
        axes.plot([answer.target] * 2, [row - 0.4, row + 0.4], color=_TARGET, linewidth=2.2)
    behind = max(right, answer.target or 0)
    axes.annotate(
        format_ratio(answer.ratio), (behind, row), xytext=(5, 0), textcoords="offset points", va="center"
    )


def main() -> None:
    results = read_results(newest_results())
    caption = (
        "Green: faster than the peer; ochre: slower; red marks: targets. Logarithmic. "
        f"One core of {results.machine['processor']}, {results.machine['date']}."
    )
    draw(lines_of(results.answers), caption, FIGURE)


if __name__ == "__main__":
    main()
