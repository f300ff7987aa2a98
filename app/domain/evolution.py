"""How the schema of a dataset may change after rows are stored under it: it only widens.

Every allowed change leaves every stored row readable under the wider schema, with the same values. All but
the last leave the stored bytes as they are:

| change                           | allowed                                                              |
|----------------------------------|----------------------------------------------------------------------|
| another feature                  | always; it becomes nullable, since the rows before lack it           |
| a feature that rows may lack     | always                                                               |
| a dimension that was fixed       | becomes unknown, in dense features and steps of sequences; not rank  |
| another dtype                    | encoding `list` alone, to one that is stored in the same list and    |
|                                  | holds every value: int8 to int32, float16 to float32, text to bytes  |
| an inferred int64                | becomes float32, as long as that holds every stored value exactly;   |
|                                  | a publication writes the lists of earlier rows anew                  |

If the rows are narrower than the stored schema, the stored schema stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ..errors import InputError, SchemaConflict
from .dtypes import FLOAT32, INT64, DType
from .feature import Feature, FeatureShape
from .meaning import PLAIN
from .schema import Schema, message_keys

#: What to do if a dtype cannot be widened.
DECLARE_ANEW: Final = "Append to a new dataset, and declare its schema."

#: Of the JSON of a feature in an error, in characters: a vocabulary takes megabytes.
_MAX_QUOTED: Final = 400

#: dtype -> those that are stored alike and hold all its values. An Int64List holds no uint64, a FloatList no
#: float64; a bool is no number; float16 and bfloat16 hold different values.
_WIDER: Final[dict[str, frozenset[str]]] = {
    "int8": frozenset({"int16", "int32", "int64"}),
    "int16": frozenset({"int32", "int64"}),
    "int32": frozenset({"int64"}),
    "uint8": frozenset({"int16", "int32", "int64", "uint16", "uint32"}),
    "uint16": frozenset({"int32", "int64", "uint32"}),
    "uint32": frozenset({"int64"}),
    "float16": frozenset({"float32"}),
    "bfloat16": frozenset({"float32"}),
    "text": frozenset({"bytes"}),
}


def widen(stored: Schema, offered: Schema) -> Schema:
    """The smallest schema that holds rows of both; `stored` itself if `offered` adds nothing.

    The features of `stored` keep their order, others follow as `offered` has them.

    Raises:
        SchemaConflict: there is none, by the rules above; `feature` says where.
    """
    if stored.message != offered.message:
        raise SchemaConflict(
            f"These rows are {offered.message}s, but those of the dataset are {stored.message}s, which is "
            f"fixed. Append them to another dataset.",
            extra={"schema": stored.to_json()},
        )
    features = [_with(feature, offered.by_name.get(feature.name), stored) for feature in stored]
    features += [_as_nullable(feature) for feature in offered if feature.name not in stored.by_name]
    widened = Schema(tuple(features), stored.message)
    if widened.to_json(stored=True) == stored.to_json(stored=True):
        return stored
    _require_same_keys(widened, stored)
    return _check(widened, stored)


def _require_same_keys(widened: Schema, stored: Schema) -> None:
    """Refuse a new feature of the context whose name changes the key of a feature list that is stored."""
    keys = message_keys(widened)
    for name, key in message_keys(stored).items():
        if keys[name] != key:
            raise SchemaConflict(
                f"The dataset has the feature list {name!r}. With a feature {keys[name]!r} in the context, "
                f"that name would stand for the feature list {keys[name]!r}, and the stored values would not "
                f"be found. {DECLARE_ANEW}",
                feature=keys[name],
                extra={"schema": stored.to_json()},
            )


def _with(feature: Feature, offered: Feature | None, stored: Schema) -> Feature:
    """The feature for rows of both schemas; rows of the schema without it may lack it."""
    if offered is None:
        return _as_nullable(feature)
    for member in ("kind", "encoding", "transforms"):
        if getattr(feature, member) != getattr(offered, member):
            raise _conflict(feature, offered, stored, f"its {member} is fixed")
    if feature.made_from is not None or offered.made_from is not None:
        if _as_nullable(feature) != _as_nullable(offered):
            raise _conflict(feature, offered, stored, "its transforms are fixed")
        return feature if offered == feature else _as_nullable(feature)
    dtype = _wider_dtype(feature, offered, stored)
    if not feature.meaning.agrees_with(offered.meaning):
        raise _conflict(feature, offered, stored, "what its values mean is fixed")
    return replace(
        feature,
        meaning=offered.meaning if feature.meaning == PLAIN else feature.meaning,
        dtype=dtype,
        shape=_wider_shape(feature, offered, stored),
        nullable=feature.nullable or offered.nullable,
        beyond_float32=feature.beyond_float32 or (feature.may_become_float32 and offered.beyond_float32),
        was_int64=feature.was_int64 or (feature.dtype == INT64 and dtype == FLOAT32),
    )


def _as_nullable(feature: Feature) -> Feature:
    made_from = feature.made_from and replace(feature.made_from, nullable=True)
    return replace(feature, nullable=True, made_from=made_from)


def _wider_dtype(feature: Feature, offered: Feature, stored: Schema) -> DType:
    old, new = feature.dtype, offered.dtype
    if feature.may_become_float32 and new == FLOAT32:
        return new
    if feature.was_int64 and new == INT64 and not offered.beyond_float32:
        return old  # rows that were read before it was widened
    if old == new or old.name in _WIDER.get(new.name, ()):
        same_bytes, wider = feature.encoding == "list" or old == new, old
    else:
        same_bytes, wider = feature.encoding == "list" and new.name in _WIDER.get(old.name, ()), new
    if not same_bytes:
        allowed = sorted(_WIDER.get(old.name, ())) if feature.encoding == "list" else []
        may = f"it may become {' or '.join(allowed)}" if allowed else f"{old} stays {old}"
        if feature.beyond_float32 and new == FLOAT32:
            may = "float32 does not hold all its integers exactly"
        raise _conflict(feature, offered, stored, may)
    return wider


def _wider_shape(feature: Feature, offered: Feature, stored: Schema) -> FeatureShape:
    if feature.shape == offered.shape:
        return feature.shape
    if feature.kind in ("ragged", "sparse"):
        raise _conflict(feature, offered, stored, f"the shape of a {feature.kind} feature is fixed")
    if len(feature.shape) != len(offered.shape):
        raise _conflict(feature, offered, stored, "its number of dimensions is fixed")
    return tuple(old if old == new else None for old, new in zip(feature.shape, offered.shape, strict=True))


def _check(schema: Schema, stored: Schema) -> Schema:
    """The combined schema, if it could have been declared."""
    try:
        return Schema.from_json(schema.to_json(stored=True), stored=True)
    except InputError as error:
        raise SchemaConflict(
            f"The dataset cannot be widened by these rows. {error.detail}",
            feature=error.location.feature,
            extra={"schema": stored.to_json()},
        ) from error


def _conflict(feature: Feature, offered: Feature, stored: Schema, allowed: str) -> SchemaConflict:
    ours, theirs = quote_both(offered, feature)
    return SchemaConflict(
        f"Feature {feature.name!r} is {ours} in these rows and {theirs} in the "
        f"dataset, and is not widened to both: {allowed}. A feature may be added, be absent, have a "
        f"dimension of another length, or a wider dtype that is stored alike; nothing else changes. "
        f"{DECLARE_ANEW}",
        feature=feature.name,
        extra={"schema": stored.to_json()},
    )


def quote_both(ours: Feature | None, theirs: Feature | None) -> tuple[str, str]:
    """The JSON of two features that differ, for an error; of long ones the members that differ, cut."""
    if ours is None or theirs is None:
        return _quote(ours), _quote(theirs)
    first, second = dict(ours.to_json()), dict(theirs.to_json())
    if max(len(_dump(first)), len(_dump(second))) > _MAX_QUOTED:
        names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
        first, second = ({name: found.get(name) for name in names} for found in (first, second))
    texts = _dump(first), _dump(second)
    differ_at = next((at for at, (one, other) in enumerate(zip(*texts, strict=False)) if one != other), 0)
    return _cut(texts[0], differ_at), _cut(texts[1], differ_at)


def _quote(feature: Feature | None) -> str:
    return "absent" if feature is None else _cut(_dump(feature.to_json()))


def _dump(feature: Mapping[str, object]) -> str:
    return json.dumps(feature, separators=(",", ":"))


def _cut(text: str, shown: int = 0) -> str:
    """The text, or of a long one a part that has the character `shown` in it."""
    begin = max(0, shown - _MAX_QUOTED // 2) if len(text) > _MAX_QUOTED else 0
    end = begin + _MAX_QUOTED
    return ("..." if begin else "") + text[begin:end] + ("..." if end < len(text) else "")
