"""Large arrays are read as rows are drawn, with the outcome that they have when they are held."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import save

from app.codecs.arrays import named_arrays
from app.codecs.arrays import npz_records as npz
from app.codecs.arrays import oip_records as oip
from app.codecs.arrays import safetensors_records as safetensors
from app.codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from app.codecs.records.columns import Records
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Form:
    module: ModuleType
    written: Callable[[Arrays], bytes]
    json_bytes: Callable[[bytes], int | None] = lambda _: None


def _npz(save_arrays: Callable[..., None]) -> Callable[[Arrays], bytes]:
    def written(arrays: Arrays) -> bytes:
        sink = io.BytesIO()
        save_arrays(sink, **arrays)
        return sink.getvalue()

    return written


_OIP = {"float32": "FP32", "int64": "INT64", "int32": "INT32", "bool": "BOOL", "float64": "FP64"}


def _oip(arrays: Arrays) -> bytes:
    inputs = [
        {
            "name": name,
            "datatype": _OIP[array.dtype.name],
            "shape": array.shape,
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in arrays.items()
    ]
    return json.dumps({"inputs": inputs}).encode() + b"".join(array.tobytes() for array in arrays.values())


FORMS = {
    "npz": Form(npz, _npz(np.savez)),
    "npz, deflated": Form(npz, _npz(np.savez_compressed)),
    "safetensors": Form(safetensors, save),
    "oip": Form(oip, _oip, lambda data: data.index(b"]}") + 2 if b"]}" in data else len(data)),
}
ARRAYS: Arrays = {
    "x": np.arange(60, dtype="<f4").reshape(20, 3),
    "n": np.arange(20, dtype="<i8"),
    "flag": np.arange(20) % 3 == 0,
}


def decoded(
    form: Form, data: bytes, streamed_from: int, json_bytes: int | None, limits: Limits | None, **options: Any
) -> Records:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(form.module, "STREAMED_FROM", streamed_from)
        given = RecordsDecodeOptions(json_bytes=json_bytes, **options)
        records: Records = form.module.decode(MemoryFile(data), given, Budget(limits))
    return records


def outcome(
    form: Form,
    data: bytes,
    streamed_from: int,
    *,
    json_bytes: int | None = None,
    limits: Limits | None = None,
    **options: Any,
) -> Any:
    """The schema and the rows, or the error and where it is."""
    json_bytes = form.json_bytes(data) if json_bytes is None else json_bytes
    try:
        records = decoded(form, data, streamed_from, json_bytes, limits, **options)
        batches = [pa.RecordBatch.to_pylist(batch) for batch in records.batches]
        return records.schema, records.num_rows, [row for batch in batches for row in batch]
    except InputError as error:
        return type(error), error.code, error.location


@pytest.fixture(autouse=True)
def _several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_arrays, "_BATCH_BYTES", 100)


def same(form: str, data: bytes, **options: Any) -> Any:
    held, streamed = (outcome(FORMS[form], data, limit, **options) for limit in (1 << 60, 1))
    assert streamed == held
    return held


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_those_of_arrays_in_memory(form: str) -> None:
    _, num_rows, rows = same(form, FORMS[form].written(ARRAYS))
    assert num_rows == 20
    assert rows[7] == {"x": [21, 22, 23], "n": 7, "flag": False}


@pytest.mark.parametrize("form", FORMS)
def test_a_schema_converts_them_and_names_the_row(form: str) -> None:
    declared = {"x": {"dtype": "float32", "shape": [3]}, "n": {"dtype": "int8"}, "flag": {"dtype": "bool"}}
    schema = Schema.from_json({"features": declared})
    assert len(same(form, FORMS[form].written(ARRAYS), schema=schema)[2]) == 20
    large = np.where(np.arange(20) == 17, 128, ARRAYS["n"])
    _, code, where = same(form, FORMS[form].written(ARRAYS | {"n": large}), schema=schema)
    assert (code, where.row, where.feature) == ("out_of_range", 17, "n")
    assert (
        same(form, FORMS[form].written(ARRAYS | {"n": large[:5]}), schema=schema)[1] == "row_count_mismatch"
    )
    assert same(form, FORMS[form].written(ARRAYS), schema=schema, undeclared="drop")[1] == 20


@pytest.mark.parametrize("form", FORMS)
def test_what_is_dropped_is_read_all_the_same(form: str) -> None:
    schema = Schema.from_json({"features": {"n": {"dtype": "int64"}}})
    data = bytearray(FORMS[form].written({"flag": ARRAYS["flag"], "n": ARRAYS["n"]}))
    assert len(same(form, bytes(data), schema=schema, undeclared="drop")[2]) == 20
    if form == "npz, deflated":
        return
    at = data.index(ARRAYS["flag"].tobytes())
    data[at + 5] = 7
    code = same(form, bytes(data), schema=schema, undeclared="drop")[1]
    assert code == ("invalid_bool" if not form.startswith("npz") else code)
    assert code in ("invalid_bool", "invalid_npz")


@pytest.mark.parametrize("form", FORMS)
def test_a_body_cut_anywhere_is_refused_alike(form: str) -> None:
    data = FORMS[form].written({"x": ARRAYS["x"][:2], "n": ARRAYS["n"][:2]})
    json_bytes = FORMS[form].json_bytes(data)
    for end in range(len(data)):
        found = same(form, data[:end], json_bytes=json_bytes)
        assert issubclass(found[0], InputError), end
    assert same(form, data + b"\0", json_bytes=json_bytes)[1] == "trailing_bytes"


@pytest.mark.parametrize("form", FORMS)
def test_mutated_bytes_have_one_outcome(form: str) -> None:
    """Which of two faults is found first may differ."""
    data = FORMS[form].written({"x": ARRAYS["x"][:2], "n": ARRAYS["n"][:2]})
    json_bytes = FORMS[form].json_bytes(data)
    for at in range(len(data)):
        for flip in (1, 0x10, 0xFF):
            mutated = bytearray(data)
            mutated[at] ^= flip
            held, streamed = (
                outcome(FORMS[form], bytes(mutated), limit, json_bytes=json_bytes) for limit in (1 << 60, 1)
            )
            refused = [isinstance(found[0], type) for found in (held, streamed)]
            assert refused == [True, True] or repr(streamed) == repr(held), (at, flip)


def test_two_lengths_that_differ_are_refused_at_once() -> None:
    """The archive and the array inside do not agree: nothing is handed out of it."""
    sink = io.BytesIO()
    np.save(sink, ARRAYS["n"])
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr("n.npy", sink.getvalue() + b"\0" * 8)
    with pytest.raises(InputError) as caught:
        decoded(FORMS["npz"], archive.getvalue(), 1, None, None)
    assert caught.value.code == "trailing_bytes"


@pytest.mark.parametrize("form", ["npz", "safetensors", "oip"])
def test_memory_is_that_of_a_batch(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    count = 3 * MIB
    data = FORMS[form].written({name: np.zeros((count, 4), "<f4") for name in ("a", "b")})
    limits = Limits(max_decoded_bytes=64 * MIB)
    records = decoded(FORMS[form], data, 8 * MIB, FORMS[form].json_bytes(data), limits)
    assert sum(batch.num_rows for batch in records.batches) == count
    with pytest.raises(InputError) as caught:
        decoded(FORMS[form], data, 1 << 60, FORMS[form].json_bytes(data), limits)
    assert caught.value.code == "payload_too_large"


def test_they_go_out_gathered_as_arrays_in_memory_do() -> None:
    data = FORMS["npz"].written(ARRAYS)
    held, streamed = (
        b"".join(npz.encode(decoded(FORMS["npz"], data, limit, None, None), RecordsEncodeOptions(), Budget()))
        for limit in (1 << 60, 1)
    )
    assert streamed == held


@pytest.mark.parametrize("form", FORMS)
def test_a_single_row_is_held_once(form: str) -> None:
    data = FORMS[form].written({"x": np.zeros((1, 4 * MIB), np.float32)})
    limits = Limits(max_decoded_bytes=28 * MIB)
    records = decoded(FORMS[form], data, 8 * MIB, FORMS[form].json_bytes(data), limits)
    assert [batch.num_rows for batch in records.batches] == [1]
