"""The results of a run as a page of Markdown. Run: python -m benchmarks.table"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Answer

__all__ = ["RESULTS", "TABLE", "Results", "format_ratio", "newest_results", "read_results", "results_table"]

RESULTS: Final = Path(__file__).parent / "results"
TABLE: Final = RESULTS / "README.md"

_NOTE: Final = """\
Made by `python -m benchmarks.run`; do not edit. All figures of a block come from one process on one core,
where ours and its peers took turns: medians of processor time. A ratio of 2 says that ours is twice as fast
as the peer, 0.5 that the peer is twice as fast. `memcpy` is the share of the speed at which the same bytes
are copied in the same run; it is above 1 where nothing is copied. The peer `10 GB/s` is no program, but a
speed aimed at. Where a question ends in `by the clock`, several processes take part, on all cores, and the
time is that of a clock."""


@dataclass(frozen=True)
class Results:
    """One run: where and when, and its answers in order."""

    machine: dict[str, Any]
    answers: list[Answer]


def newest_results() -> Path:
    """The file of the last run; its name begins with the day."""
    return max(RESULTS.glob("*.jsonl"))


def read_results(path: Path) -> Results:
    """What `benchmarks.run` has written: the machine, then one answer a line."""
    machine, *answers = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return Results(machine, [Answer.from_json(answer) for answer in answers])


def format_ratio(ratio: float) -> str:
    """Three digits, as far as they mean something."""
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.3g}"


def results_table(path: Path) -> str:
    """The page for the run in `path`."""
    results = read_results(path)
    targets = [answer for answer in results.answers if answer.target is not None]
    reached = sum(answer.is_reached for answer in targets)
    parts = [
        "# Results of the benchmarks",
        _NOTE,
        _table(["machine", ""], [[name, str(value)] for name, value in results.machine.items()]),
        "## Targets",
        f"{reached} of {len(targets)} are reached.",
        _table(
            ["question", "case", "peer", "ratio", "target", "reached"],
            [
                [
                    answer.question,
                    answer.case,
                    f"`{answer.peer}`",
                    format_ratio(answer.ratio),
                    f"{answer.target:g}",
                    "yes" if answer.is_reached else "**no**",
                ]
                for answer in targets
            ],
        ),
        "## Everything",
        _table(
            ["question", "case", "ours", "GB/s", "memcpy", "peer", "theirs", "ratio"],
            [
                row
                for _, answers in groupby(results.answers, lambda answer: (answer.question, answer.case))
                for row in _rows(list(answers))
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _rows(answers: list[Answer]) -> Iterable[list[str]]:
    """One a peer; what is the same in all stands in the first."""
    first = answers[0]
    shared = [first.question, first.case, _rate(first.seconds, first.unit), *_shares(first)]
    for answer in answers:
        theirs = _rate(answer.peer_seconds, answer.unit)
        yield [*shared, f"`{answer.peer}`", theirs, format_ratio(answer.ratio)]
        shared = [""] * len(shared)


def _shares(answer: Answer) -> list[str]:
    return ["" if share is None else f"{share:.2f}" for share in (answer.gigabytes, answer.memcpy)]


def _rate(seconds: float, unit: str) -> str:
    return f"{float(f'{1 / seconds:.3g}'):,.0f} {unit}/s"


def _table(titles: list[str], rows: list[list[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    TABLE.write_text(results_table(newest_results()), encoding="utf-8")
