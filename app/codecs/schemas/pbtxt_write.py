"""Writing a `schema.pbtxt`.

Source: `tensorflow_metadata/proto/v0/schema.proto` 1.21. A feature that every row has carries a
`shape`; one that a row may lack or whose length varies carries a `value_count`, because TensorFlow
Transform and TFX refuse a shape unless `min_fraction` is 1.

| kind       | becomes                                                                                |
|------------|----------------------------------------------------------------------------------------|
| `dense`    | a `feature`                                                                            |
| `ragged`   | a `feature` a component, and a `ragged_tensor` in the `tensor_representation_group` "" |
| `sparse`   | a `feature` a component, and a `sparse_feature`                                        |
| `sequence` | a feature in the `struct_domain` of `##SEQUENCE##`, with the extent of one step, where |
|            | tfx_bsl (`tfxio/tf_sequence_example_record.py`) looks for feature lists                |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ...domain.feature import Feature, stored_features
from ...domain.schema import Schema, message_keys
from .text_format import quote

#: The STRUCT feature of a SequenceExample whose fields are its feature lists.
SEQUENCE: Final = "##SEQUENCE##"

#: The bounds of each dtype in an Int64List; 64-bit integers need none.
_INT_DOMAINS: Final = {
    f"{prefix}int{bits}": (low, high)
    for bits in (8, 16, 32)
    for prefix, low, high in (("", -(2 ** (bits - 1)), 2 ** (bits - 1) - 1), ("u", 0, 2**bits - 1))
}


def pbtxt_lines(schema: Schema, notes: dict[str, str]) -> Iterator[str]:
    """The schema as TensorFlow Metadata reads it, in the order of its features, line by line.

    Args:
        schema: what to write.
        notes: comments to write beside features, by name.
    """
    context = [feature for feature in schema if feature.kind != "sequence"]
    for feature in context:
        note = notes.get(feature.name)
        if feature.kind == "dense":
            yield from _feature(feature, _comments(feature, note))
        else:
            yield from _components(feature, note)
    if schema.message == "sequence_example":
        yield from _sequence(schema, notes)
    for feature in context:
        if feature.kind == "sparse":
            yield from _sparse_feature(feature)
    if ragged := [feature for feature in context if feature.kind == "ragged"]:
        yield from _representations(ragged)


def _components(feature: Feature, note: str | None) -> Iterator[str]:
    for axis, component in enumerate(stored_features(feature)):
        domain = ""
        if feature.kind == "sparse" and axis < len(feature.shape) and (dim := feature.shape[axis]):
            # From which tfx_bsl takes the dense shape.
            domain = f"int_domain {{ min: 0 max: {dim - 1} }}"
        yield from _feature(component, () if note is None or axis else (note,), domain)


def _sequence(schema: Schema, notes: dict[str, str]) -> Iterator[str]:
    yield "feature {"
    yield f"  name: {quote(SEQUENCE)}"
    yield "  type: STRUCT"
    yield "  struct_domain {"
    keys = message_keys(schema)
    for feature in schema:
        if feature.kind != "sequence":
            continue
        comments = _comments(feature.step, notes.get(feature.name))
        step = replace(feature.step, name=keys[feature.name])
        for line in _feature(step, comments, nullable=feature.nullable, counted=True):
            yield f"    {line}"
    yield "  }"
    yield "}"


def _feature(
    feature: Feature,
    comments: Iterable[str],
    domain: str = "",
    *,
    nullable: bool | None = None,
    counted: bool = False,
) -> Iterator[str]:
    """One `feature`; `counted` writes a count even if a shape could say the extent."""
    nullable = feature.nullable if nullable is None else nullable
    yield "feature {"
    yield f"  name: {quote(feature.name)}"
    yield f"  type: {_type(feature)}"
    if not nullable:
        yield "  presence { min_fraction: 1 min_count: 1 }"
    yield f"  {_extent(feature, counted=counted or nullable)}"
    if annotation := " ".join(f"comment: {quote(comment)}" for comment in comments):
        yield f"  annotation {{ {annotation} }}"
    if domain := domain or _domain(feature):
        yield f"  {domain}"
    yield "}"


def _domain(feature: Feature) -> str:
    if feature.encoding != "list":
        return ""
    if feature.dtype.kind == "bool":
        return "bool_domain { }"
    if feature.dtype.name in _INT_DOMAINS:
        low, high = _INT_DOMAINS[feature.dtype.name]
        return f"int_domain {{ min: {low} max: {high} }}"
    return ""


def _type(feature: Feature) -> str:
    if feature.encoding != "list" or feature.dtype.is_string:
        return "BYTES"
    return "FLOAT" if feature.dtype.is_float else "INT"


def _extent(feature: Feature, *, counted: bool) -> str:
    """How many values a row has, as a shape if possible."""
    stored_shape = feature.shape if feature.encoding == "list" else ()
    if None in stored_shape:
        return "value_count { min: 0 }"
    if counted:
        count = feature.known_values if feature.encoding == "list" else 1
        return f"value_count {{ min: {count} max: {count} }}"
    return "shape { " + "".join(f"dim {{ size: {dim} }} " for dim in stored_shape) + "}"


def _sparse_feature(feature: Feature) -> Iterator[str]:
    *indices, values = stored_features(feature)
    yield "sparse_feature {"
    yield f"  name: {quote(feature.name)}"
    yield "  dense_shape { " + "".join(f"dim {{ size: {dim} }} " for dim in feature.shape) + "}"
    for index in indices:
        yield f"  index_feature {{ name: {quote(index.name)} }}"
    yield f"  value_feature {{ name: {quote(values.name)} }}"
    yield "}"


def _representations(features: Iterable[Feature]) -> Iterator[str]:
    """How the components of ragged features become one tensor, in the group that tfx_bsl reads by default."""
    yield "tensor_representation_group {"
    yield '  key: ""'
    yield "  value {"
    for feature in features:
        values, *cuts = stored_features(feature)
        partitions = [f"row_length: {quote(cut.name)}" for cut in cuts]
        partitions += [f"uniform_row_length: {dim}" for dim in feature.inner_shape]
        yield "    tensor_representation {"
        yield f"      key: {quote(feature.name)}"
        yield "      value {"
        yield "        ragged_tensor {"
        yield f"          feature_path {{ step: {quote(values.name)} }}"
        for partition in partitions:
            yield f"          partition {{ {partition} }}"
        yield "        }"
        yield "      }"
        yield "    }"
    yield "  }"
    yield "}"


def _comments(feature: Feature, note: str | None) -> Iterator[str]:
    """Comments: how to read what is encoded, and the note."""
    if feature.encoding != "list":
        shape = ", ".join("None" if dim is None else str(dim) for dim in feature.shape)
        function = "tf.io.parse_tensor" if feature.encoding == "tensor" else "tf.io.decode_raw"
        dtype = "string" if feature.dtype.is_string else feature.dtype.name
        yield f"{function}, {dtype}, shape [{shape}]"
    if note is not None:
        yield note
