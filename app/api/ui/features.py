"""The features of a schema as a table shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ...domain.feature import Feature
from ...domain.wording import printable

#: Features of a table, and characters of a name.
_FEATURES: Final = 400
_NAME: Final = 400
#: Characters of source that loads rows; longer is not shown.
MOST_SOURCE: Final = 64 * 1024
#: Names of classes that are listed.
_CLASSES: Final = 8
_CLASS: Final = 60
_TIMES: Final = " \N{MULTIPLICATION SIGN} "


@dataclass(frozen=True, slots=True)
class FeatureLine:
    """A feature as a line of a table; `meaning` is what its values stand for, or empty."""

    name: str
    dtype: str
    shape: str
    kind: str
    meaning: str
    is_optional: bool


def describe_features(features: Iterable[Feature]) -> list[FeatureLine]:
    """A line for each feature. Characters of names that steer are escapes, and long names are cut."""
    return [
        FeatureLine(
            shorten(feature.name, _NAME),
            feature.dtype.name,
            shape_text(feature.shape),
            feature.kind,
            _meaning(feature),
            feature.nullable,
        )
        for feature in features
    ]


@dataclass(frozen=True, slots=True)
class FeatureLines:
    """The features of a schema, and how many are not shown."""

    shown: list[FeatureLine]
    left_out: int


def describe_schema(features: Sequence[Feature]) -> FeatureLines:
    """The first features of a schema: it may have ten thousand, each with a long name."""
    return FeatureLines(describe_features(features[:_FEATURES]), max(0, len(features) - _FEATURES))


def shorten(text: str, most: int) -> str:
    """Text of a stranger: characters that steer as escapes, and no more than so many of them."""
    safe = printable(text[: most + 1])
    return safe if len(safe) <= most else f"{safe[:most]}…"


def shape_text(shape: Iterable[int | None]) -> str:
    """`28 × 28 × 1`; a dimension that differs from row to row is a question mark."""
    return _TIMES.join("?" if dim is None else str(dim) for dim in shape) or "scalar"


def _meaning(feature: Feature) -> str:
    meaning = feature.meaning
    if meaning.image is not None:
        known = [str(dim) for dim in meaning.image.shape if dim is not None]
        size = f", {shape_text(meaning.image.shape)}" if known else ""
        return f"{meaning.image.format or 'any'} image{size}"
    if meaning.class_names:
        named = ", ".join(shorten(name, _CLASS) for name in meaning.class_names[:_CLASSES])
        more = len(meaning.class_names) - _CLASSES
        return f"{len(meaning.class_names)} classes: {named}" + (f" and {more} more" if more > 0 else "")
    if meaning.quantized is not None:
        return "quantized"
    return ""
