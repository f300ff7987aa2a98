"""What is fuzzed: every decoder of the registry, and whatever else reads bytes that a client sent.

The first byte of an input chooses among the target's variants (declared schema, kind, options), the rest
is the body. A target must come back with a value or an `InputError`; anything else is a finding. What a
decoder hands on is checked against the layouts it promises, and goes through an encoder as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from app.api.multipart import open_multipart
from app.codecs.options import (
    RecordsDecodeOptions,
    RecordsEncodeOptions,
    TensorDecodeOptions,
    TensorEncodeOptions,
)
from app.codecs.records.columns import arrow_schema
from app.codecs.registry import RECORDS_CODECS, TENSOR_CODECS, FormName
from app.codecs.schemas.declared import parse_schema
from app.domain.dtypes import parse_dtype
from app.domain.limits import MIB, Budget, Limits
from app.domain.schema import Schema
from app.domain.streams import MemoryStream
from app.errors import InputError
from app.services.examples import RowForm, convert_row
from app.services.records import encode_records, open_records
from app.services.tensors import TensorConversion, convert_tensors
from app.storage.spool import Spool

__all__ = ["DENSE", "KINDS", "LIMITS", "SCALARS", "SEQUENCE", "TARGETS", "Target", "run"]

#: Small, so that a declared size that is believed before it is checked stands out.
LIMITS: Final = Limits(
    max_body_bytes=4 * MIB,
    max_decoded_bytes=16 * MIB,
    max_json_depth=64,
    max_members=64,
    max_features=64,
    max_record_bytes=1 * MIB,
)

DENSE: Final = Schema.from_json(
    {
        "features": {
            "x": {"dtype": "float32", "shape": [2, 2], "nullable": True},
            "label": {"dtype": "int64", "nullable": True},
            "flag": {"dtype": "bool", "nullable": True},
            "small": {"dtype": "int8", "shape": [None], "nullable": True},
            "half": {"dtype": "bfloat16", "nullable": True},
            "text": {"dtype": "text", "nullable": True},
            "id": {"dtype": "bytes", "shape": [None], "nullable": True},
            "raw": {"dtype": "uint16", "shape": [2], "encoding": "raw", "nullable": True},
            "z": {"dtype": "complex64", "shape": [None, None], "nullable": True},
        }
    }
)
#: What CSV holds of them.
SCALARS: Final = Schema(tuple(DENSE.by_name[name] for name in ("label", "flag", "half", "text")))
KINDS: Final = Schema.from_json(
    {
        "features": {
            "r": {"dtype": "float32", "shape": [None, None], "kind": "ragged", "nullable": True},
            "deep": {"dtype": "text", "shape": [None, None, None, 2], "kind": "ragged", "nullable": True},
            "s": {"dtype": "int32", "shape": [4, 3], "kind": "sparse", "nullable": True},
        }
    }
)
SEQUENCE: Final = Schema.from_json(
    {
        "features": {
            "length": {"dtype": "int64", "nullable": True},
            "tags": {"dtype": "text", "shape": [None], "nullable": True},
            "frames": {"dtype": "float32", "shape": [None, 2], "kind": "sequence", "nullable": True},
            "words": {"dtype": "bytes", "shape": [None, None], "kind": "sequence", "nullable": True},
        }
    }
)

RECORDS_VARIANTS: Final = (
    RecordsDecodeOptions(),
    RecordsDecodeOptions(schema=DENSE),
    RecordsDecodeOptions(schema=KINDS),
    RecordsDecodeOptions(schema=SEQUENCE),
    RecordsDecodeOptions(message="sequence_example"),
    RecordsDecodeOptions(infer="all", nonfinite="null"),
    RecordsDecodeOptions(schema=DENSE, undeclared="drop", nonfinite="bare"),
    RecordsDecodeOptions(schema=SCALARS),
)
TENSOR_VARIANTS: Final = (
    TensorDecodeOptions(),
    TensorDecodeOptions(kind="sparse"),
    TensorDecodeOptions(kind="ragged"),
    TensorDecodeOptions(dtype=parse_dtype("float32"), shape=(2, 3)),
    TensorDecodeOptions(dtype=parse_dtype("complex64"), byte_order="big", order="F", shape=(2, 2)),
    TensorDecodeOptions(dtype=parse_dtype("bool"), nonfinite="null"),
    TensorDecodeOptions(dtype=parse_dtype("string")),
)


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that reads foreign bytes; `variants` takes a body each, by the input's first byte."""

    name: str
    variants: Sequence[Callable[[bytes], object]]

    def __call__(self, data: bytes) -> None:
        """Run the variant that `data` chooses.

        Raises:
            InputError: what was sent is at fault.
        """
        if data:
            self.variants[data[0] % len(self.variants)](data[1:])


def _oip_parts(form: FormName, body: bytes) -> tuple[bytes, int | None]:
    """For `oip` two bytes in front are the length of the JSON, which comes in a header."""
    if form != "oip":
        return body, None
    return body[2:], int.from_bytes(body[:2], "little")


def _tensors(form: FormName, options: TensorDecodeOptions, body: bytes) -> None:
    body, json_bytes = _oip_parts(form, body)
    options = replace(options, json_bytes=json_bytes)
    conversion = TensorConversion(form, "json", True, options, TensorEncodeOptions())
    for _ in convert_tensors(MemoryStream(body), conversion, Budget(LIMITS)).chunks:
        pass


def _records(form: FormName, options: RecordsDecodeOptions, body: bytes) -> None:
    body, json_bytes = _oip_parts(form, body)
    options = replace(options, json_bytes=json_bytes)
    budget = Budget(LIMITS)
    with ExitStack() as resources:
        records = open_records(MemoryStream(body), form, options, budget, Spool(None, 0), resources)
        checked = replace(records, batches=map(partial(_checked, records.schema), records.batches))
        for _ in encode_records(checked, "tfrecord", RecordsEncodeOptions(lossy=True), budget).chunks:
            pass


def _checked(schema: Schema, batch: Any) -> Any:
    batch.validate(full=True)
    if not batch.schema.equals(arrow_schema(schema)):
        raise AssertionError(f"{batch.schema} is not the layout of {schema}")
    return batch


def _row(form: RowForm, options: RecordsDecodeOptions, body: bytes) -> None:
    convert_row(MemoryStream(body), form, "json", options, RecordsEncodeOptions(), Budget(LIMITS))


def _multipart(body: bytes) -> None:
    parts = open_multipart(MemoryStream(body), 'multipart/form-data; boundary="b"')
    while parts.data.read(1000):
        pass


def _schema(body: bytes) -> None:
    schema = parse_schema(body, LIMITS)
    if Schema.from_json(schema.to_json(), LIMITS) != schema:
        raise AssertionError(f"{schema} does not survive its own JSON")


def _all_targets() -> list[Target]:
    tensors = [
        Target(f"tensors-{form}", [partial(_tensors, form, options) for options in TENSOR_VARIANTS])
        for form, codec in TENSOR_CODECS.items()
        if codec.decode
    ]
    records = [
        Target(f"records-{form}", [partial(_records, form, options) for options in RECORDS_VARIANTS])
        for form, codec in RECORDS_CODECS.items()
        if codec.decode
    ]
    forms: tuple[RowForm, ...] = ("json", "example", "b64")
    rows = [
        Target(f"examples-{form}", [partial(_row, form, options) for options in RECORDS_VARIANTS])
        for form in forms
    ]
    return [*tensors, *records, *rows, Target("multipart", [_multipart]), Target("schema", [_schema])]


TARGETS: Final = {target.name: target for target in _all_targets()}


def run(target: Target, data: bytes) -> InputError | None:
    """One execution; what was wrong with the input, or None where it was read.

    Raises:
        Exception: a finding: anything that the documentation does not promise.
    """
    try:
        target(data)
    except InputError as error:
        return error
    return None
