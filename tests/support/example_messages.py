"""Serialized Examples and SequenceExamples, put together by hand, and what is read in files of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.domain.schema import Schema
from tests.support.feature_values import field, varint
from tests.support.format_cases import Refusal, Rows, read, schema_of
from tests.support.tfrecord_frames import frame


def floats(*values: float) -> bytes:
    return field(0x12, field(0x0A, np.array(values, "<f4").tobytes()))


def ints(*values: int) -> bytes:
    return field(0x1A, field(0x0A, b"".join(varint(value % 2**64) for value in values)))


def strings(*values: bytes) -> bytes:
    return field(0x0A, b"".join(field(0x0A, value) for value in values))


def entry(key: bytes, value: bytes) -> bytes:
    """An entry of one of the two maps: a Feature or a FeatureList under its key."""
    return field(0x0A, field(0x0A, key) + field(0x12, value))


def example(features: dict[str, bytes] | None = None, /, **more: bytes) -> bytes:
    """An Example, or the context of a SequenceExample."""
    named = {**(features or {}), **more}
    return field(0x0A, b"".join(entry(name.encode(), value) for name, value in named.items()))


def lists(**features: list[bytes]) -> bytes:
    """The feature lists of a SequenceExample, each a list of steps."""
    steps = {name: b"".join(field(0x0A, step) for step in value) for name, value in features.items()}
    return field(0x12, b"".join(entry(name.encode(), value) for name, value in steps.items()))


def file_of(*messages: bytes) -> bytes:
    """A TFRecord file."""
    return b"".join(map(frame, messages))


def tfrecord(*messages: bytes, **options: Any) -> Rows | Refusal:
    """What is read in a file of these messages; all memory is given back."""
    found = read("tfrecord", file_of(*messages), **options)
    assert not isinstance(found, Rows) or found.left == 0
    return found


def x(dtype: str, shape: list[int | None] | None = None, **more: Any) -> Schema:
    """The schema of one feature x."""
    return schema_of(x={"dtype": dtype, "shape": shape or [], **more})


def xs(dtype: str, shape: list[int | None] | None = None, **more: Any) -> Schema:
    """The schema of one sequence x, whose steps have this shape."""
    return x(dtype, [None, *(shape or [])], kind="sequence", **more)


def refused(code: str, row: int | None = None, feature: str | None = None, offset: int | None = None) -> Any:
    """The error of a file."""
    return Refusal(code, row, feature, offset)


def inferred(found: Rows | Refusal) -> dict[str, str]:
    """The features of a schema that was inferred, in short."""
    assert isinstance(found, Rows), found
    return found.features


ONE = example(x=ints(1))
STEP = lists(x=[ints(1)])
