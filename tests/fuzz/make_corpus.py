"""Writes the fuzzer's seeds into corpus/: small valid inputs of every target, made by the encoders.

    python -m tests.fuzz.make_corpus

Run it when a form or a variant is added, and look at what git says has changed.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from app.codecs.forms import RECORDS_CODECS, TENSOR_CODECS, FormName
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions, TensorEncodeOptions
from app.codecs.schemas.features_json import serialize_features
from app.codecs.schemas.pbtxt import serialize_pbtxt
from app.domain.schema import Schema
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.runtime.streams import MemoryStream
from app.runtime.workspace import Workspace
from app.services.convert.examples import ROW_FORMS, RowForm, convert_row
from app.services.convert.records import encode_records, open_records
from app.services.convert.tensors import TensorConversion, convert_tensors
from tests.fuzz.foreign_seeds import FOREIGN_RECORDS, FOREIGN_TENSORS
from tests.fuzz.framing import FRAMINGS
from tests.fuzz.targets import (
    DENSE,
    ENCODED,
    KINDS,
    LABELLED,
    RECORDS_VARIANTS,
    SALVAGE_VARIANTS,
    SCALARS,
    SEQUENCE,
    TARGETS,
    TENSOR_VARIANTS,
    image_processes,
    run,
)
from tests.support.zstandard import zstd

CORPUS: Final = Path(__file__).parent / "corpus"

#: How gzip begins, and zlib at any level.
_COMPRESSED: Final = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_B64: Final = {"b64": "AP8="}
_PLAIN_ROWS: Final[list[dict[str, Any]]] = [
    {"x": [[1.5, -2.25], [0.0, 1e-3]], "label": 7, "text": "a"},
    {"x": [[0.5, 3.0], [2.0, 1e3]], "label": -1, "text": "β"},
]
_NUMBER_ROWS: Final[list[dict[str, Any]]] = [
    {name: row[name] for name in ("x", "label")} for row in _PLAIN_ROWS
]
_SCALAR_ROWS: Final[list[dict[str, Any]]] = [
    {"label": 7, "flag": True, "half": 0.5, "text": 'a "b"'},
    {"label": -1, "flag": None, "half": 1e3, "text": ""},
]
_DENSE_ROWS: Final[list[dict[str, Any]]] = [
    {
        **_PLAIN_ROWS[0],
        "flag": True,
        "small": [1, -2],
        "half": 0.5,
        "id": [_B64, _B64],
        "raw": [1, 2],
        "z": [[[1.0, 2.0]]],
    },
    {"label": 2**62, "small": []},
]
_ENCODED_ROWS: Final[list[dict[str, Any]]] = [
    {
        "wide": [[1.5, 2.5], [1e300, 0]],
        "big": [2**64 - 1, 1],
        "narrow": [-8, 0, 7],
        "tiny": [0.5, 448],
        "names": [["a", "β"], ["", "c"]],
        "flags": [True, False],
    },
    {"wide": [], "big": [], "narrow": [1, 2, 3], "tiny": [], "names": [[], []], "flags": [False, False]},
]
_LABELLED_ROWS: Final[list[dict[str, Any]]] = [
    {"x": {"values": [0.5, -2], "indices": [[3], [0]], "dense_shape": [9]}, "qid": 7, "label": -1},
    {"x": {"values": [], "indices": [], "dense_shape": [9]}, "label": 2},
]
_KINDS_ROWS: Final[list[dict[str, Any]]] = [
    {
        "r": [[1.0], [], [2.0, 3.0]],
        "deep": [[[["a", "b"]], []], []],
        "s": {"values": [5, 6], "indices": [[0, 1], [3, 2]], "dense_shape": [4, 3]},
    },
    {"r": [], "s": {"values": [], "indices": [], "dense_shape": [4, 3]}},
]
_SEQUENCE_ROWS: Final[list[dict[str, Any]]] = [
    {
        "context": {"length": 2, "tags": ["a"]},
        "feature_lists": {"frames": [[1.0, 2.0], [3.0, 4.0]], "words": [[_B64], []]},
    },
    {"context": {}, "feature_lists": {"frames": []}},
]
_TENSORS: Final[dict[int, list[Any]]] = {
    0: [
        {"dtype": "float32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]},
        {"dtype": "string", "shape": [2], "data": [_B64, {"b64": ""}]},
        {"dtype": "int64", "shape": [], "data": [9007199254740993]},
        {"dtype": "bfloat16", "shape": [0, 2], "data": []},
    ],
    1: [{"values": [1.5], "indices": [[0, 1]], "dense_shape": [2, 3], "dtype": "float32"}],
    2: [{"values": [1, 2, 3], "row_splits": [[0, 1, 3]], "dtype": "int32"}],
    3: [{"dtype": "float32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}],
    4: [{"dtype": "complex64", "shape": [2, 2], "data": [[1, 2], [3, 4], [5, 6], [7, 8]]}],
    5: [{"dtype": "bool", "shape": [2], "data": [True, False]}],
    6: [{"dtype": "string", "shape": [1], "data": [_B64]}],
}


def _encoded_records(rows: list[dict[str, Any]], schema: Schema | None, form: FormName) -> bytes:
    budget = Budget()
    with Workspace(budget, Spool(None, 0)) as workspace:
        options = RecordsDecodeOptions(schema=schema)
        body = MemoryStream(json.dumps(rows).encode())
        records = open_records(body, "json", options, workspace)
        converted = encode_records(records, form, RecordsEncodeOptions(lossy=True), budget)
        return _framed(form, b"".join(converted.chunks))


def _encoded_tensors(tensors: list[Any], variant: int, form: FormName) -> bytes:
    options = TENSOR_VARIANTS[variant]
    encode = TensorEncodeOptions(byte_order=options.byte_order, order=options.order)
    plain = TENSOR_VARIANTS[0]
    body = MemoryStream(json.dumps({"tensors": tensors} if len(tensors) > 1 else tensors[0]).encode())
    conversion = TensorConversion("json", form, True, plain, encode).with_images(image_processes())
    converted = convert_tensors(body, conversion, Workspace(Budget(), Spool(None, 0)))
    return _framed(form, b"".join(converted.chunks))


def _framed(form: FormName, body: bytes) -> bytes:
    """For `oip`, the length of the JSON in front, which is a header in HTTP."""
    if form != "oip":
        return body
    _, end = json.JSONDecoder().raw_decode(body.decode("latin-1"))
    return end.to_bytes(2, "little") + body


_RECORD_SEEDS: Final = (
    (0, (_PLAIN_ROWS, _NUMBER_ROWS, _SCALAR_ROWS), None),
    (1, (_DENSE_ROWS, _PLAIN_ROWS, _NUMBER_ROWS), DENSE),
    (7, (_SCALAR_ROWS,), SCALARS),
    (2, (_KINDS_ROWS,), KINDS),
    (3, (_SEQUENCE_ROWS, _SEQUENCE_ROWS[:1]), SEQUENCE),
    (4, (_SEQUENCE_ROWS, _SEQUENCE_ROWS[:1]), SEQUENCE),
    (5, (_PLAIN_ROWS, _NUMBER_ROWS), None),
    (6, (_DENSE_ROWS,), DENSE),
    (8, (_ENCODED_ROWS, _ENCODED_ROWS[:1]), ENCODED),
    (9, (_LABELLED_ROWS,), LABELLED),
)


def _without_metadata(form: FormName, body: bytes) -> bytes:
    out = pa.BufferOutputStream()
    if form == "arrow":
        table = pa.ipc.open_stream(body).read_all().replace_schema_metadata(None)
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
    elif form == "parquet":
        pq.write_table(pq.read_table(pa.BufferReader(body)).replace_schema_metadata(None), out)
    else:
        return body
    return out.getvalue().to_pybytes()


def _record_seeds(form: FormName) -> Iterator[bytes]:
    for variant, samples, schema in _RECORD_SEEDS:
        for rows in samples:
            try:
                body = _encoded_records(rows, schema, form)
                # Where the variant declares a schema, the body must not carry one as well.
                declared = RECORDS_VARIANTS[variant].schema is not None
                yield bytes([variant]) + (_without_metadata(form, body) if declared else body)
            except InputError:  # not every form holds every kind
                continue
    yield from FOREIGN_RECORDS.get(form, lambda: iter(()))()


def _tensor_seeds(form: FormName) -> Iterator[bytes]:
    for variant, tensors in _TENSORS.items():
        for chosen in (tensors, *([tensor] for tensor in tensors)):
            try:
                yield bytes([variant]) + _encoded_tensors(chosen, variant, form)
            except InputError:
                continue
    yield from FOREIGN_TENSORS.get(form, lambda: iter(()))()


def _framed_seeds(form: FormName, seeds: Iterator[bytes]) -> Iterator[bytes]:
    for seed in seeds:
        if form != "tfrecord" or not seed[1:].startswith(_COMPRESSED):
            yield seed[:1] + FRAMINGS[form].input_of(seed[1:])


def _row_seeds(form: RowForm) -> Iterator[bytes]:
    for variant, samples, _ in _RECORD_SEEDS:
        options = RECORDS_VARIANTS[variant]
        if variant in (0, 5) and form != "json":
            options = RecordsDecodeOptions()
        body = MemoryStream(json.dumps(samples[0][0]).encode())
        encode = RecordsEncodeOptions()
        row, _ = convert_row(body, "json", form, options, encode, Workspace(Budget(), Spool(None, 0)))
        yield bytes([variant]) + row


def _salvage_seeds() -> Iterator[bytes]:
    body = _encoded_records(_PLAIN_ROWS, None, "tfrecord")
    number = body.index(b"label")
    for damaged in (body, b"\0" * 20 + body, body[:number] + b"L" + body[number + 1 :], body[:-3]):
        for variant in range(len(SALVAGE_VARIANTS)):
            yield bytes([variant]) + damaged
            yield bytes([variant + len(SALVAGE_VARIANTS)]) + damaged + body
    yield b"\1" + gzip.compress(body, mtime=0)
    yield b"\1" + gzip.compress(body, mtime=0)[:-20]
    yield b"\1" + zlib.compress(body) + b"more"


def _undamaged_seeds() -> Iterator[bytes]:
    for variant in range(2 * len(SALVAGE_VARIANTS)):
        yield bytes([variant]) + _encoded_records(_PLAIN_ROWS, None, "tfrecord")


def _encoding_seeds() -> Iterator[bytes]:
    text = b"some text, " * 20
    for variant in (0, 3):
        yield bytes([variant]) + gzip.compress(text, mtime=0) + gzip.compress(b"", mtime=0)
        yield bytes([variant + 1]) + zlib.compress(text)
        for checksum in (0, 1):
            frame = zstd.compress(text, options={zstd.CompressionParameter.checksum_flag: checksum})
            yield bytes([variant + 2]) + frame
        yield bytes([variant + 2]) + b"\x50\x2a\x4d\x18\x02\0\0\0ab" + frame + zstd.compress(bytes(1000))


def _multipart_seeds() -> Iterator[bytes]:
    part = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n%s\r\n%s\r\n'
    body = part % (b"schema", b"", b'{"features": {"x": {"dtype": "int64"}}}')
    body += part % (b"data", b"Content-Type: application/x-ndjson\r\n", b'{"x": 1}\n') + b"--b--\r\n"
    yield b"\0" + body
    yield b"\1multipart/form-data; charset=utf-8; boundary=b\n" + body
    yield b"\1multipart/form-data; boundary=b\n" + b"\n{preamble\r\n" + body


def _header_seeds() -> Iterator[bytes]:
    yield b"\0application/json; charset=utf-8\ntext/html, application/x-npy;q=0.5, */*;q=0.1\n120"
    yield b"\0application/octet-stream\napplication/octet-stream"
    yield b"\0\napplication/*;q=1.000;ext=1"
    yield b"\0application/json\n*/*\n1\nidentity, gzip\nzstd;q=0.5, gzip;q=0.25, identity;q=0, *"


def _schema_seeds() -> Iterator[bytes]:
    for schema in (DENSE, ENCODED, KINDS, SEQUENCE):
        for serialize in (_schema_json, serialize_pbtxt, serialize_features):
            with contextlib.suppress(InputError):  # a features.json holds no SequenceExample
                yield b"\0" + serialize(schema)


def _schema_json(schema: Schema) -> bytes:
    return json.dumps(schema.to_json()).encode()


def _seeds() -> Iterator[tuple[str, Iterator[bytes]]]:
    for form in TENSOR_CODECS:
        yield f"tensors-{form}", _tensor_seeds(form)
        if form in FRAMINGS:
            yield f"tensors-{form}-framed", _framed_seeds(form, _tensor_seeds(form))
    for form in RECORDS_CODECS:
        yield f"records-{form}", _record_seeds(form)
        if form in FRAMINGS:
            yield f"records-{form}-framed", _framed_seeds(form, _record_seeds(form))
    for row_form in ROW_FORMS:
        yield f"examples-{row_form}", _row_seeds(row_form)
    yield "salvage", _salvage_seeds()
    yield "salvage-framed", _framed_seeds("tfrecord", _undamaged_seeds())
    yield "content-encoding", _encoding_seeds()
    yield "multipart", _multipart_seeds()
    yield "headers", _header_seeds()
    yield "schema", _schema_seeds()


def main() -> None:
    for name, seeds in _seeds():
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for number, seed in enumerate(dict.fromkeys(seeds)):
            if (error := run(TARGETS[name], seed)) is not None:
                print(f"{name}: a seed is refused, and left out: {error}")
                continue
            (folder / f"{number:02}").write_bytes(seed)
        print(f"{name}: {len(list(folder.iterdir()))} seeds")


if __name__ == "__main__":
    main()
