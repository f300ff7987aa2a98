"""TensorFlow Metadata's `schema.pbtxt`: a `tensorflow.metadata.v0.Schema` in protobuf's text format.

Source: `tensorflow_metadata/proto/v0/schema.proto` 1.21. A feature that every row has carries a
`shape`; one that a row may lack or whose length varies carries a `value_count`, because TensorFlow
Transform and TFX refuse a shape unless `min_fraction` is 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...domain.schema import Feature, Schema

__all__ = ["serialize_pbtxt"]

#: What an Example's Int64List holds of each dtype; 64-bit integers need no bounds.
_INT_DOMAINS: Final = {
    f"{prefix}int{bits}": (low, high)
    for bits in (8, 16, 32)
    for prefix, low, high in (("", -(2 ** (bits - 1)), 2 ** (bits - 1) - 1), ("u", 0, 2**bits - 1))
}


def serialize_pbtxt(schema: Schema) -> bytes:
    """The schema as TensorFlow Metadata reads it, in the order of its features."""
    return "".join(line + "\n" for feature in schema for line in _feature(feature)).encode()


def _feature(feature: Feature) -> Iterator[str]:
    yield "feature {"
    yield f"  name: {_quoted(feature.name)}"
    yield f"  type: {_type(feature)}"
    if not feature.nullable:
        yield "  presence { min_fraction: 1 min_count: 1 }"
    yield f"  {_extent(feature)}"
    if feature.encoding != "list":
        yield f"  annotation {{ comment: {_quoted(_how_to_read(feature))} }}"
    elif feature.dtype.kind == "bool":
        yield "  bool_domain { }"
    elif feature.dtype.name in _INT_DOMAINS:
        low, high = _INT_DOMAINS[feature.dtype.name]
        yield f"  int_domain {{ min: {low} max: {high} }}"
    yield "}"


def _type(feature: Feature) -> str:
    if feature.encoding != "list" or feature.dtype.is_string:
        return "BYTES"
    return "FLOAT" if feature.dtype.is_float else "INT"


def _extent(feature: Feature) -> str:
    """How many values a row has, as a shape where it can be one."""
    stored_shape = feature.shape if feature.encoding == "list" else ()
    if None in stored_shape:
        return "value_count { min: 0 }"
    if feature.nullable:
        count = feature.known_values if feature.encoding == "list" else 1
        return f"value_count {{ min: {count} max: {count} }}"
    return "shape { " + "".join(f"dim {{ size: {dim} }} " for dim in stored_shape) + "}"


def _how_to_read(feature: Feature) -> str:
    shape = ", ".join("None" if dim is None else str(dim) for dim in feature.shape)
    function = "tf.io.parse_tensor" if feature.encoding == "tensor" else "tf.io.decode_raw"
    dtype = "string" if feature.dtype.is_string else feature.dtype.name
    return f"{function}, {dtype}, shape [{shape}]"


def _quoted(text: str) -> str:
    """A string literal of the text format: printable ASCII as it is, all other bytes in octal."""
    plain = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in text.encode()
    )
    return f'"{"".join(plain)}"'
