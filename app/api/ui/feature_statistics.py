"""Statistics of one feature -> what is shown of them; also those of two sides, next to each other.

The pages of versions and of files show them by this alone: `describe_statistics` makes the view, and the
macro `feature_statistics` of the template of the same name draws it. Without detail there is no histogram.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ...domain.feature import Feature
from ...domain.wording import looks_like_text
from ...services.convert.distribution import ValuesJson
from ...services.convert.statistics import DetailedStatisticsJson
from .charts import Histogram, histogram
from .features import shape_text, shorten

#: Characters of a name and of a value.
_NAME: Final = 200
_VALUE: Final = 80
_HEX: Final = 12
#: Values that are seen at once; the others are folded.
_TOP: Final = 6
_LISTED: Final = 4 * _TOP
#: Numbers are listed if one of them is this share of all.
_FREQUENT: Final = 0.01
_NONE: Final = "\N{EN DASH}"
_ABOUT: Final = "\N{ALMOST EQUAL TO} "
_BETWEEN: Final = " \N{EN DASH} "
_QUANTILES: Final = (("5 %", 0.05), ("25 %", 0.25), ("Median", 0.5), ("75 %", 0.75), ("95 %", 0.95))

#: A feature that one side alone has, or whose type is another one; empty: none of these.
Change = Literal["", "new", "gone", "changed"]
Found = DetailedStatisticsJson | None
#: Where the rows with a value are: the number of the side, the feature, the value as one searches for it.
RowsLink = Callable[[int, str, str], str]


@dataclass(frozen=True, slots=True)
class Line:
    """A name, and what each side has of it."""

    title: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopValue:
    """A value that is frequent.

    Attributes:
        text: empty for the string that is empty.
        counts: for each side; None where it is not known, since the value is not among the frequent ones.
        widths: the shares of all values, of 100.
        href: where the rows with it are; empty: nowhere.
    """

    text: str
    counts: tuple[int | None, ...]
    widths: tuple[float, ...]
    shares: tuple[str, ...]
    href: str


@dataclass(frozen=True, slots=True)
class StatisticsView:
    """What is shown of a feature, of one side or two.

    Attributes:
        place: a number that no other feature of the page has.
        sides: their titles.
        change: with two sides; `was` is what it was before, if that changed.
        drift: how far apart they are, from 0 to 1.
        histograms: of the values or their lengths, and of the number of values of a row.
        counts: rows, values, and what is special about them.
        spread: from the least to the greatest.
        top, more: the most frequent values, and those that are folded.
        note: about the values.
    """

    place: int
    name: str
    dtype: str
    shape: str
    kind: str
    sides: tuple[str, ...]
    change: Change
    was: str
    drift: float | None
    histograms: list[Histogram]
    counts: list[Line]
    spread_title: str
    spread: list[Line]
    images: list[Line]
    top: list[TopValue]
    more: list[TopValue]
    note: str


def describe_statistics(
    place: int,
    features: Sequence[Feature | None],
    found: Sequence[Found],
    sides: Sequence[str] = ("",),
    *,
    drift: float | None = None,
    rows_link: RowsLink | None = None,
) -> StatisticsView:
    """What is shown of a feature.

    Args:
        features: the feature as each side has it; None: that side has none. One side at least has it.
        found: the statistics of each side.
        sides: how the sides are called.
        rows_link: makes links to the rows that have a value.
    """
    feature = next(each for each in features if each is not None)
    is_text = feature.dtype.is_string
    top = list(_top_values(feature, found, rows_link)) if _is_worth_listing(feature, found) else []
    was = features[-1]
    change = change_of(features)
    return StatisticsView(
        place=place,
        name=shorten(feature.name, _NAME),
        dtype=feature.dtype.name,
        shape=shape_text(feature.shape),
        kind=feature.kind,
        sides=tuple(sides),
        change=change,
        was=f"{was.dtype.name} {shape_text(was.shape)}" if change == "changed" and was is not None else "",
        drift=drift,
        histograms=list(_histograms(feature, found, sides)),
        counts=list(_count_lines(found)),
        spread_title="Length in bytes" if is_text else "Values",
        spread=[] if _is_named(feature, found) else list(_spread_lines(found, is_text=is_text)),
        images=list(_image_lines(found)),
        top=top[:_TOP],
        more=top[_TOP:],
        note=_note_of_values(found, is_listed=bool(top)),
    )


def change_of(features: Sequence[Feature | None]) -> Change:
    """What distinguishes the feature of the first side from that of the second."""
    if len(features) == 1:
        return ""
    one, other = features
    if one is None or other is None:
        return "gone" if one is None else "new"
    before = (other.dtype, other.shape, other.kind)
    return "" if (one.dtype, one.shape, one.kind) == before else "changed"


def number_text(number: float | None) -> str:
    """`1,234` or `0.123457`: whole numbers with all digits, others with six or more."""
    if number is None:
        return _NONE
    if isinstance(number, int) or (number.is_integer() and abs(number) < 1e15):
        return f"{int(number):,}"
    if 1e6 <= abs(number) < 1e15:
        return f"{number:,.0f}"
    return f"{number:,.6g}"


def share_text(share: float) -> str:
    """`12.5 %`."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.1f} %" if percent < 99.95 or percent == 100 else "> 99.9 %"


def _each(found: Sequence[Found], text: Callable[[Any], str]) -> tuple[str, ...]:
    return tuple(_NONE if each is None else text(each) for each in found)


def _any(found: Sequence[Found], member: str) -> bool:
    """Whether a side has something else than 0 of it."""
    return any(each is not None and each.get(member) for each in found)


def _count_lines(found: Sequence[Found]) -> Iterator[Line]:
    yield Line("Rows with it", _each(found, lambda side: f"{side['num_present']:,}"))
    yield Line("Missing", _each(found, _missing))
    if any(side is not None and side["num_values"] != side["num_present"] for side in found):
        yield Line("Values", _each(found, lambda side: f"{side['num_values']:,}"))
    if any(side is not None and "min_num_values" in side for side in found):
        yield Line("Values of a row", _each(found, _values_of_a_row))
    if any(side is not None and "values" in side for side in found):
        yield Line("Different", _each(found, _different))
    for member, title in (
        ("num_zeros", "Zeros"),
        ("num_empty", "Empty"),
        ("num_nan", "NaN"),
        ("num_infinite", "Infinite"),
    ):
        if _any(found, member):
            yield Line(title, _each(found, lambda side, member=member: f"{side.get(member, 0):,}"))  # type: ignore[misc]  # mypy sees two parameters


def _missing(side: DetailedStatisticsJson) -> str:
    num_rows = side["num_present"] + side["num_missing"]
    if not side["num_missing"]:
        return "0"
    return f"{side['num_missing']:,} ({share_text(side['num_missing'] / num_rows)})"


def _values_of_a_row(side: DetailedStatisticsJson) -> str:
    return _range(side.get("min_num_values"), side.get("max_num_values"))


def _range(low: float | None, high: float | None) -> str:
    return number_text(low) if low == high else f"{number_text(low)}{_BETWEEN}{number_text(high)}"


def _different(side: DetailedStatisticsJson) -> str:
    values = side.get("values")
    if values is None or values["num_different"] is None:
        return _NONE
    if values["exact"]:
        return f"{values['num_different']:,}"
    return f"{_ABOUT}{min(values['num_different'], side['num_values']):,}"


def _spread_lines(found: Sequence[Found], *, is_text: bool) -> Iterator[Line]:
    """From the least to the greatest, then the mean."""
    names = ("min_length", "max_length", "mean_length") if is_text else ("min", "max", "mean")
    if not any(side is not None and names[0] in side for side in found):
        return  # complex numbers
    yield Line("Min", _each(found, lambda side: number_text(side.get(names[0]))))
    if any(side is not None and side.get("distribution") for side in found):
        for title, share in _QUANTILES:
            yield Line(title, _each(found, lambda side, share=share: _quantile(side, share)))  # type: ignore[misc]  # as above
    yield Line("Max", _each(found, lambda side: number_text(side.get(names[1]))))
    yield Line("Mean", _each(found, lambda side: number_text(side.get(names[2]))))
    if not is_text:
        yield Line("Deviation", _each(found, lambda side: number_text(side.get("std"))))


def _quantile(side: DetailedStatisticsJson, share: float) -> str:
    spread = side.get("distribution")
    if spread is None:
        return _NONE
    quantiles = spread["quantiles"]
    return ("" if spread["exact"] else _ABOUT) + number_text(quantiles[round(share * (len(quantiles) - 1))])


def _image_lines(found: Sequence[Found]) -> Iterator[Line]:
    if not _any(found, "images"):
        return
    images = [None if side is None else side.get("images") for side in found]

    def each(text: Callable[[Any], str]) -> tuple[str, ...]:
        return tuple(_NONE if image is None else text(image) for image in images)

    yield Line(
        "Formats",
        each(lambda image: ", ".join(f"{name} {count:,}" for name, count in image["formats"].items())),
    )
    yield Line("Width", each(lambda image: _range(image["min_width"], image["max_width"])))
    yield Line("Height", each(lambda image: _range(image["min_height"], image["max_height"])))
    yield Line("Mostly", each(lambda image: _sizes(image["sizes"])))
    if any(image is not None and image["num_other"] for image in images):
        yield Line("No image", each(lambda image: f"{image['num_other']:,}"))
    yield Line("Looked at", each(lambda image: f"{image['num_looked_at']:,}"))


def _sizes(sizes: Sequence[Any]) -> str:
    return ", ".join(f"{size['width']} \N{MULTIPLICATION SIGN} {size['height']}" for size in sizes[:2])


def _histograms(feature: Feature, found: Sequence[Found], sides: Sequence[str]) -> Iterator[Histogram]:
    is_text = feature.dtype.is_string
    if not _is_named(feature, found):
        drawn = histogram(
            "Lengths in bytes" if is_text else "Values",
            [None if side is None else side.get("distribution") for side in found],
            [_listed_numbers(side) for side in found],
            sides,
            is_whole=is_text or not feature.dtype.is_float,
            number=number_text,
        )
        if drawn is not None:
            yield drawn
    drawn = histogram(
        "Number of values of a row",
        [None if side is None else side.get("num_values_distribution") for side in found],
        [None for _ in found],
        sides,
        is_whole=True,
        number=number_text,
    )
    if drawn is not None:
        yield drawn


def _is_named(feature: Feature, found: Sequence[Found]) -> bool:
    """Whether the values are names that happen to be numbers: their list says all that there is to say."""
    if feature.dtype.name != "bool" and not feature.meaning.class_names:
        return False
    listed = [side["values"] for side in found if side is not None and "values" in side]
    return all(values["exact"] and len(values["top"]) <= _LISTED for values in listed)


def _listed_numbers(side: Found) -> Sequence[tuple[float, int]] | None:
    """All values and their counts, where they are known and numbers."""
    values = None if side is None else side.get("values")
    if side is None or values is None or not values["exact"] or "num_empty" in side:
        return None
    return [(float(each["value"]), each["count"]) for each in values["top"]]  # type: ignore[arg-type]  # numbers


def _is_worth_listing(feature: Feature, found: Sequence[Found]) -> bool:
    """Whether some values are more frequent than others; most numbers of measurements are not."""
    if all(_all_differ(side) for side in found):
        return False
    if feature.dtype.is_string or feature.meaning.class_names:
        return True
    return any(
        each["count"] >= _FREQUENT * side["num_values"]
        for side in found
        if side is not None and "values" in side
        for each in side["values"]["top"]
    )


def _all_differ(side: Found) -> bool:
    values = None if side is None else side.get("values")
    if side is None or values is None or not values["exact"]:
        return False
    return values["num_different"] == side["num_values"] > _TOP


def _note_of_values(found: Sequence[Found], *, is_listed: bool) -> str:
    if all(_all_differ(side) for side in found):
        return "Every value is there once."
    listed = [side["values"] for side in found if side is not None and "values" in side]
    if is_listed and not all(values["exact"] for values in listed):
        return "Estimated; less frequent ones are not listed."
    return ""


def _top_values(feature: Feature, found: Sequence[Found], rows_link: RowsLink | None) -> Iterator[TopValue]:
    """The values that are frequent on one side, in the order of the first that has them."""
    listed = [_counts_of(side) for side in found]
    seen: dict[str, Any] = {}
    for counts in listed:
        for key, (value, _) in counts.items():
            seen.setdefault(key, value)
    for key, value in list(seen.items())[:_LISTED]:
        counted = [
            counts[key][1] if key in counts else _count_of_unlisted(side)
            for counts, side in zip(listed, found, strict=True)
        ]
        parts = [
            0.0 if count is None or side is None else count / max(1, side["num_values"])
            for count, side in zip(counted, found, strict=True)
        ]
        owner = next(number for number, counts in enumerate(listed) if key in counts)
        wanted = _searched(value)
        yield TopValue(
            _value_text(feature, value),
            tuple(counted),
            tuple(round(100 * min(1.0, part), 2) for part in parts),
            tuple(
                _NONE if count is None else share_text(min(1.0, part))
                for count, part in zip(counted, parts, strict=True)
            ),
            "" if rows_link is None or wanted is None else rows_link(owner, feature.name, wanted),
        )


def _counts_of(side: Found) -> dict[str, tuple[Any, int]]:
    values: ValuesJson | None = None if side is None else side.get("values")
    if values is None:
        return {}
    return {repr(each["value"]): (each["value"], each["count"]) for each in values["top"]}


def _count_of_unlisted(side: Found) -> int | None:
    values = None if side is None else side.get("values")
    return 0 if values is not None and values["exact"] else None


def _value_text(feature: Feature, value: Any) -> str:
    names = feature.meaning.class_names
    if isinstance(value, dict) or (isinstance(value, str) and not looks_like_text(value.encode())):
        code = value.encode() if isinstance(value, str) else b64decode(value["b64"])
        return code[:_HEX].hex(" ") + ("\N{HORIZONTAL ELLIPSIS}" if len(code) > _HEX else "")
    if isinstance(value, str):
        return shorten(value, _VALUE)
    if feature.dtype.name == "bool":
        return "true" if value else "false"
    if names and isinstance(value, int) and 0 <= value < len(names):
        return f"{shorten(names[value], _VALUE)} ({value})"
    return number_text(value)


def _searched(value: Any) -> str | None:
    """The value as the form that searches rows takes it; None where it takes none."""
    if isinstance(value, dict) or value == "":
        return None
    return value if isinstance(value, str) else repr(value)
