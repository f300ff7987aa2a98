"""Reading any `schema.pbtxt`.

Source: `tensorflow_metadata/proto/v0/schema.proto` 1.21. A feature becomes:

| there                                         | becomes                                               |
|-----------------------------------------------|-------------------------------------------------------|
| `INT`                                         | int64, whatever its `int_domain`; by `bool_domain` bool |
| `FLOAT`                                       | float32                                               |
| `BYTES`                                       | bytes; by a string, language, URL or MID domain text  |
| `shape`                                       | the shape                                             |
| `value_count` of a fixed number               | a scalar if that is 1, else one dimension             |
| any other `value_count`, or none              | one unknown dimension                                 |
| `presence` with `min_fraction: 1`             | in every row; any other feature is nullable           |
| `deprecated`, a `lifecycle_stage` not looked at | nullable                                            |
| a `ragged_tensor`, a `sparse_feature`         | that kind, if its components have the names that ours |
|                                               | are stored under; else the components, as they are    |
| the `struct_domain` of `##SEQUENCE##`         | the feature lists of a SequenceExample                |

Unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ...domain.dtypes import BOOL, BYTES, FLOAT32, INT64, TEXT, DType
from ...domain.feature import Feature, FeatureShape, stored_features
from ...domain.schema import LIST_PREFIX
from ...domain.tensor import MAX_DIM, MAX_RANK, check_shape
from ...errors import MalformedInput, UnprocessableInput
from .note import by_name
from .pbtxt_write import SEQUENCE
from .text_format import Message, literal, message_of, messages, string, text

_TEXT_DOMAINS: Final = frozenset({"string_domain", "natural_language_domain", "url_domain", "mid_domain"})
_INT_DOMAINS: Final = frozenset({"int_domain", "bool_domain", "time_of_day_domain"})
#: Stages in which TensorFlow Data Validation does not look at a feature.
_NOT_VALIDATED: Final = frozenset({"PLANNED", "ALPHA", "DEPRECATED", "DEBUG_ONLY", "DISABLED"})


def plain_features(message: Message) -> tuple[list[Feature], bool]:
    """The features as they are read without notes, and whether they are those of a SequenceExample.

    Raises:
        MalformedInput: a feature without a name or a type (`invalid_schema`).
        UnprocessableInput: one that no row of ours can have, or two of one name.
    """
    features: list[Feature] = []
    texts = _text_domains(message)
    is_sequence = False
    for item in messages(message, "feature"):
        if string(item, "name") == SEQUENCE and literal(item, "type") == "STRUCT":
            is_sequence = True
            for domain in messages(item, "struct_domain"):
                features += [_sequence(step, texts) for step in messages(domain, "feature")]
        else:
            features.append(_feature(item, texts))
    context = {feature.name for feature in features if feature.kind != "sequence"}
    features = [
        replace(item, name=LIST_PREFIX + item.name)
        if item.kind == "sequence" and item.name in context
        else item
        for item in features
    ]
    return _combine(by_name(features), [*_ragged_features(message), *_sparse(message)]), is_sequence


def _combine(features: dict[str, Feature], candidates: Iterable[Feature]) -> list[Feature]:
    """The features, with components combined into a candidate if they are exactly its components."""
    places = {name: place for place, name in enumerate(features)}
    for candidate in candidates:
        components = stored_features(candidate)
        found = [features.get(component.name) for component in components]
        nullable = found[0] is not None and found[0].nullable
        if candidate.name not in features and found == [
            replace(component, nullable=nullable) for component in components
        ]:
            for component in components:
                del features[component.name]
            features[candidate.name] = replace(candidate, nullable=nullable)
            places[candidate.name] = min(places[component.name] for component in components)
    return sorted(features.values(), key=lambda feature: places[feature.name])


def _feature(item: Message, texts: set[str]) -> Feature:
    name = string(item, "name")
    if not name:
        raise _invalid("", "has no name")
    if item.keys() & {"value_counts"} and len(messages(message_of(item, "value_counts"), "value_count")) > 1:
        raise _inexpressible(name, "is a nested list of several `value_counts`")
    presence = message_of(item, "presence")
    required = _number(name, presence, "min_fraction", 0) >= 1
    ignored = literal(item, "deprecated") in ("true", "True", "t", "1")
    ignored = ignored or literal(item, "lifecycle_stage") in _NOT_VALIDATED
    return Feature(name, _dtype(name, item, texts), _shape(name, item), nullable=ignored or not required)


def _sequence(item: Message, texts: set[str]) -> Feature:
    step = _feature(item, texts)
    return replace(step, shape=(None, *step.shape), kind="sequence")


def _dtype(name: str, item: Message, texts: set[str]) -> DType:
    type_ = literal(item, "type")
    is_text = bool(item.keys() & _TEXT_DOMAINS) or string(item, "domain") in texts
    if type_ in ("", "TYPE_UNKNOWN"):
        # A domain decides the type; TensorFlow Data Validation reads schemas in the same way.
        if is_text:
            return TEXT
        type_ = "INT" if item.keys() & _INT_DOMAINS else "FLOAT" if "float_domain" in item else ""
    if type_ == "INT":
        return BOOL if "bool_domain" in item else INT64
    if type_ == "FLOAT":
        return FLOAT32
    if type_ == "BYTES":
        return TEXT if is_text else BYTES
    if type_ == "STRUCT":
        raise _inexpressible(name, f"is a STRUCT; only {SEQUENCE!r} may be one")
    raise _invalid(name, f"has the type {type_!r}" if type_ else "has no type")


def _shape(name: str, item: Message) -> FeatureShape:
    if "shape" in item:
        dims = [_integer(name, dim, "size", -1) for dim in messages(message_of(item, "shape"), "dim")]
        known = check_shape([dim for dim in dims if dim >= 0])
        if len(dims) - len(known) > 1:
            raise _inexpressible(name, "has several unknown dimensions, which a list of values does not keep")
        return tuple(None if dim < 0 else dim for dim in dims)
    count = message_of(message_of(item, "value_counts"), "value_count") or message_of(item, "value_count")
    least, most = _integer(name, count, "min", 0), _integer(name, count, "max", -1)
    if least != most:
        return (None,)
    return () if least == 1 else check_shape([least])


def _ragged_features(message: Message) -> Iterator[Feature]:
    """The ragged features that the representations describe, if they are stored under our names."""
    dtypes = _stored_dtypes(message)
    for group in messages(message, "tensor_representation_group"):
        for entry in messages(message_of(group, "value"), "tensor_representation"):
            name = string(entry, "key")
            ragged = message_of(message_of(entry, "value"), "ragged_tensor")
            steps = [text(step) for step in message_of(ragged, "feature_path").get("step", [])]
            partitions = messages(ragged, "partition")
            cuts = [string(partition, "row_length") for partition in partitions]
            num_cuts = len(cuts) - cuts.count("")
            inner = [
                _integer(name, partition, "uniform_row_length", 0) for partition in partitions[num_cuts:]
            ]
            if not steps or steps[0] not in dtypes or not 0 < num_cuts < MAX_RANK - len(inner):
                continue
            if all(dim > 0 for dim in inner):
                shape = (None,) * (num_cuts + 1) + check_shape(inner)
                candidate = Feature(name, dtypes[steps[0]], shape, "ragged")
                if [steps[0], *filter(None, cuts)] == [item.name for item in stored_features(candidate)]:
                    yield candidate


def _sparse(message: Message) -> Iterator[Feature]:
    """The sparse features of known shape, if they are stored under our names."""
    dtypes = _stored_dtypes(message)
    for item in messages(message, "sparse_feature"):
        name, values = string(item, "name"), string(message_of(item, "value_feature"), "name")
        indices = [string(index, "name") for index in messages(item, "index_feature")]
        dims = [_integer(name, dim, "size", -1) for dim in messages(message_of(item, "dense_shape"), "dim")]
        if dims and min(dims) >= 0 and values in dtypes:
            candidate = Feature(name, dtypes[values], check_shape(dims), "sparse")
            if [*indices, values] == [component.name for component in stored_features(candidate)]:
                yield candidate


def _stored_dtypes(message: Message) -> dict[str, DType]:
    texts = _text_domains(message)
    return {
        name: _dtype(name, item, texts)
        for item in messages(message, "feature")
        if literal(item, "type") != "STRUCT" and (name := string(item, "name"))
    }


def _text_domains(message: Message) -> set[str]:
    """The names of the string domains that features may refer to."""
    return {string(domain, "name") for domain in messages(message, "string_domain")} - {""}


def _number(name: str, message: Message, field: str, default: float) -> float:
    digits = literal(message, field)
    try:
        return float(digits.rstrip("fF") or digits) if digits and len(digits) <= 40 else default
    except ValueError:
        raise _invalid(name, f"has {field}: {digits[:40]}, which is no number") from None


def _integer(name: str, message: Message, field: str, default: int) -> int:
    digits = literal(message, field)
    try:
        value = int(digits, 0) if digits and len(digits) <= 40 else default
    except ValueError:
        value = MAX_DIM + 1
    if abs(value) > MAX_DIM:
        raise _invalid(name, f"has {field}: {digits[:40]}, which is no 64-bit integer")
    return value


def _invalid(name: str, what: str) -> MalformedInput:
    return MalformedInput(
        f"Feature {name!r} of the schema.pbtxt {what}.", code="invalid_schema", feature=name[:64] or None
    )


def _inexpressible(name: str, what: str) -> UnprocessableInput:
    return UnprocessableInput(
        f"Feature {name!r} of the schema.pbtxt {what}. Leave it out, or give the schema as JSON.",
        code="inexpressible_feature",
        feature=name[:64],
    )
