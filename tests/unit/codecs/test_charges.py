"""What a codec takes in memory is charged to the budget of the request, but for pieces of a few MiB."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import repeat
from typing import Any

import numpy as np
import pytest

from app.codecs.array import Array
from app.codecs.columns import Batch, Column, Records, Strings
from app.codecs.forms import RECORDS_CODECS, TENSOR_CODECS, FormName
from app.codecs.options import (
    RecordsDecodeOptions,
    RecordsEncodeOptions,
    TensorDecodeOptions,
    TensorEncodeOptions,
)
from app.domain.dtypes import BYTES, DTYPES, TEXT, DType
from app.domain.limits import Limits
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile, MemoryStream
from tests.support.archives import form_of
from tests.support.format_cases import schema_of
from tests.support.peak_memory import peak_bytes

MIB = 2**20
SIZE = 16 * MIB
#: What need not be charged: some pieces of a MiB each.
FREE = 6 * MIB

Work = Callable[[Budget], object]


def read_tensor(form: FormName, body: bytes, **options: Any) -> Work:
    def work(budget: Budget) -> object:
        codec = TENSOR_CODECS[form]
        source: Any = MemoryFile(body) if codec.needs == "file" else MemoryStream(body)
        return list(codec.decode(source, TensorDecodeOptions(held=True, **options), budget))

    return work


def write_tensor(form: FormName, array: Array, **options: Any) -> Work:
    return lambda budget: drain(TENSOR_CODECS[form].encode([array], TensorEncodeOptions(**options), budget))


def read_rows(form: FormName, body: bytes, **options: Any) -> Work:
    def work(budget: Budget) -> None:
        decoder: Any = RECORDS_CODECS[form].decode
        drain(decoder(MemoryStream(body), RecordsDecodeOptions(**options), budget).batches)

    return work


def write_rows(
    form: FormName, column: Column, rows: int, batches: int = 1, feature: Any = "text", **options: Any
) -> Work:
    def work(budget: Budget) -> None:
        records = Records(schema_of(x=feature), repeat(Batch(rows, (column,)), batches))
        drain(RECORDS_CODECS[form].encode(records, RecordsEncodeOptions(**options), budget))

    return work


def drain(pieces: Iterable[object]) -> None:
    for _ in pieces:
        pass


def strings_of(size: int, count: int) -> Strings:
    """`count` strings of `size` bytes in all."""
    offsets = np.linspace(0, size, count + 1).astype(np.int64)
    return Strings(np.full(size, ord("a"), np.uint8), offsets)


def numbers(dtype: str) -> Array:
    return Array.of(np.zeros((SIZE // 4096, 4096 // DTYPES[dtype].itemsize)), DTYPES[dtype])


def one_string(dtype: DType) -> Array:
    return Array(dtype, (1,), strings_of(SIZE, 1))


def oip_strings() -> Work:
    """200,000 empty elements of BYTES."""
    count = 200_000
    parameters = {"binary_data_size": 4 * count}
    tensor = {"name": "x", "datatype": "BYTES", "shape": [count], "parameters": parameters}
    head = json.dumps({"inputs": [tensor]}).encode()
    return read_tensor("oip", head + bytes(4 * count), json_bytes=len(head))


def npy_string() -> Work:
    header = b"{'descr': '|S%d', 'fortran_order': False, 'shape': (1,)}" % SIZE
    body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"a" * SIZE
    return read_tensor("npy", body)


def npy_strings() -> Work:
    """Strings that are read in some pieces, and joined."""
    body = io.BytesIO()
    np.save(body, np.full(2 * SIZE // 8, b"aaaaaaaa", "S8"))
    return read_tensor("npy", body.getvalue())


def serialized_sparse() -> Work:
    """200,000 rows that are not there: TensorFlow repeats the last string."""
    return refused(
        read_tensor("tensorproto", bytes.fromhex("0807120a120408c09a0c120208034200"), kind="sparse")
    )


def refused(work: Work) -> Work:
    def work_and_fail(budget: Budget) -> None:
        with suppress(InputError):
            work(budget)

    return work_and_fail


#: What is done, made when it is needed: the bodies are large.
WORKS: dict[str, Callable[[], Work]] = {
    "read oip, many strings": oip_strings,
    "read raw, big-endian": lambda: read_tensor(
        "raw", bytes(SIZE), dtype=DTYPES["float32"], byte_order="big"
    ),
    "read raw, int4": lambda: read_tensor("raw", bytes(SIZE), dtype=DTYPES["int4"]),
    "read npy, one string": npy_string,
    "read npy, many strings": npy_strings,
    "read tensorproto, sparse, of one string": serialized_sparse,
    "read multipart, one file": lambda: read_rows(
        "multipart", form_of("cat", ("a.jpg", bytes(SIZE))), boundary=b"b"
    ),
    "write raw, big-endian": lambda: write_tensor("raw", numbers("float32"), byte_order="big"),
    "write raw, column-major": lambda: write_tensor("raw", numbers("float32"), order="F"),
    "write raw, int4": lambda: write_tensor("raw", numbers("int4")),
    "write tensorproto, int4": lambda: write_tensor("tensorproto", numbers("int4")),
    "write arrow": lambda: write_tensor("arrow", numbers("float32")),
    "write npy, one text": lambda: write_tensor("npy", one_string(TEXT)),
    "write npy, one string": lambda: write_tensor("npy", one_string(BYTES)),
    "write csv, a large row": lambda: write_rows("csv", Column(strings_of(SIZE, 1)), 1),
    "write json, a large row": lambda: write_rows("json", Column(strings_of(SIZE, 1)), 1),
    "write json, a large row of escapes": lambda: write_rows(
        "json", Column(Strings(np.zeros(SIZE // 4, np.uint8), np.array([0, SIZE // 4]))), 1
    ),
    "write json, a large row of bytes": lambda: write_rows(
        "json", Column(strings_of(SIZE, 1)), 1, feature="bytes"
    ),
    "write ndjson, a large row of numbers": lambda: write_rows(
        "ndjson",
        Column(np.random.default_rng(0).random(SIZE // 8), (np.array([0, SIZE // 8]),)),
        1,
        feature={"dtype": "float64", "shape": [None]},
    ),
    "write json, columns with a large value": lambda: write_rows(
        "json", Column(strings_of(SIZE, 1)), 1, layout="columns"
    ),
    "write arrow, a large row": lambda: write_rows("arrow", Column(strings_of(SIZE, 1)), 1),
    "write npz, rows of strings": lambda: write_rows("npz", Column(strings_of(MIB, 1000)), 1000, SIZE // MIB),
}


@pytest.mark.parametrize("name", WORKS)
def test_taken_memory_is_charged(name: str) -> None:
    work, budget = WORKS[name](), Budget()
    work(Budget())  # kernels are compiled now
    taken = peak_bytes(lambda: work(budget))
    assert taken < budget.peak + FREE


@pytest.mark.parametrize("form", ["csv", "libsvm"])
def test_a_line_that_does_not_fit_twice_is_refused_before_it_is_copied(form: FormName) -> None:
    work = read_rows(form, b"x\n" + b"1" * SIZE + b"\n")
    codes: list[str] = []

    def read() -> None:
        try:
            work(Budget(Limits(max_decoded_bytes=SIZE + MIB)))
        except InputError as error:
            codes.append(error.code)

    read()  # kernels are compiled now
    assert peak_bytes(read) < SIZE + FREE
    assert codes == ["payload_too_large"] * 2
