"""The binary form of the Open Inference Protocol: JSON, then the elements of the tensors."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.arrays.array import Array, ChunkedArray
from app.codecs.arrays.oip_body import JSON_LENGTH_HEADER, OipBody, check_dtype, read_oip, serialize_oip
from app.domain.dtypes import BYTES, DTYPES
from app.domain.limits import Limits
from app.errors import AmbiguousInput, InputError, LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream

HELD = [name for name, dtype in DTYPES.items() if dtype.oip is not None and not dtype.is_string]


def item(
    name: str | None = "x", datatype: str = "UINT8", shape: Any = None, size: Any = 1, **members: Any
) -> dict[str, Any]:
    named = {} if name is None else {"name": name}
    sized = {"parameters": {"binary_data_size": size}}
    return {**named, "datatype": datatype, "shape": [1] if shape is None else shape, **sized, **members}


def body_of(
    *items: dict[str, Any], data: bytes = b"", key: str = "inputs", **members: Any
) -> tuple[bytes, int]:
    text = json.dumps({key: items, **members}).encode()
    return text + data, len(text)


def read(
    body: tuple[bytes, int | None], limits: Limits | None = None, chunk: int | None = None, **options: Any
) -> OipBody[Array]:
    return read_oip(MemoryStream(body[0], chunk=chunk), body[1], Budget(limits), read_json, **options)


def read_json(found: dict[str, Any], pointer: str) -> Array:
    return Array(DTYPES["int8"], (len(found["data"]),), np.array(found["data"], "i1"))


def described(body: OipBody[Array]) -> list[tuple[str | None, str, tuple[int, ...], list[Any]]]:
    return [
        (found.name, found.array.dtype.name, found.array.shape, found.array.values.tolist())
        for found in body.tensors
    ]


def refused(
    body: tuple[bytes, int | None], error: type[InputError], code: str, limits: Limits | None = None
) -> InputError:
    with pytest.raises(error) as caught:
        read(body, limits)
    assert caught.value.code == code
    return caught.value


def strings(*values: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def written(*arrays: ChunkedArray) -> tuple[bytes, int]:
    encoded = serialize_oip(arrays)
    length = int(encoded.headers[JSON_LENGTH_HEADER])
    return b"".join(bytes(piece) for piece in encoded), length


# The example of the specification, with its model's answer.
EXAMPLE = b"""\
{
  "model_name" : "mymodel",
  "inputs" : [
    {"name" : "input0", "shape" : [ 2, 2 ], "datatype" : "UINT32", "parameters" : {"binary_data_size" : 16}},
    {"name" : "input1", "shape" : [ 3 ], "datatype" : "BOOL", "parameters" : {"binary_data_size" : 3}}
  ],
  "outputs" : [
    {"name" : "output0", "parameters" : {"binary_data" : true}}
  ]
}
"""


def test_the_example_of_the_specification() -> None:
    body = (EXAMPLE + struct.pack("<4I", 1, 2, 3, 4) + b"\1\0\1", len(EXAMPLE))
    assert described(read(body)) == [
        ("input0", "uint32", (2, 2), [1, 2, 3, 4]),
        ("input1", "bool", (3,), [True, False, True]),
    ]


def test_the_literal_bytes_of_an_answer() -> None:
    head = (
        b'{"model_name":"shardsmith","outputs":['
        b'{"name":"a","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}},'
        b'{"name":"\xc3\xa9\\"","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":11}}]}'
    )
    values = np.array([b"", b"abc"], object)
    found = written(
        ChunkedArray("a", DTYPES["float32"], (1, 2), [np.array([0.5, -1], "<f4")]),
        ChunkedArray('é"', DTYPES["string"], (2,), [values]),
    )
    assert found == (head + struct.pack("<2f", 0.5, -1) + b"\0\0\0\0\3\0\0\0abc", len(head))
    assert described(read(found)) == [
        ("a", "float32", (1, 2), [0.5, -1]),
        ('é"', "bytes", (2,), [b"", b"abc"]),
    ]


@pytest.mark.parametrize("name", HELD)
def test_every_dtype_goes_out_and_comes_back(name: str) -> None:
    dtype = DTYPES[name]
    array = np.array([0, 1, 1]).astype(dtype.numpy)
    body = written(ChunkedArray("x", dtype, (3, 1), [array[:1], array[1:]]))
    assert json.loads(body[0][: body[1]])["outputs"][0]["datatype"] == dtype.oip
    [found] = read(body).tensors
    assert (found.array.dtype, found.array.shape) == (dtype, (3, 1))
    assert found.array.values.tobytes() == array.tobytes()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=9), max_size=5), max_size=4), st.integers(1, 50))
def test_strings_of_any_bytes_come_back_at_any_split(columns: list[list[bytes]], chunk: int) -> None:
    arrays = [
        ChunkedArray(str(index), DTYPES["string"], (len(column),), [np.array([*column, b""], object)[:-1]])
        for index, column in enumerate(columns)
    ]
    assert [column for *_, column in described(read(written(*arrays), chunk=chunk))] == columns


def test_many_long_strings_leave_in_pieces() -> None:
    values = np.array([bytes([index]) * 300_000 for index in range(9)], object)
    encoded = serialize_oip([ChunkedArray("x", BYTES, (9,), [values])])
    pieces = [bytes(piece) for piece in encoded]
    assert max(map(len, pieces)) < 1_500_000
    assert described(read((b"".join(pieces), len(pieces[0]))))[0][3] == values.tolist()


def test_a_response_is_read_like_a_request() -> None:
    body = body_of(
        item(), data=b"\7", key="outputs", model_name="m", model_version="1", id="i", parameters={}
    )
    assert described(read(body)) == [("x", "uint8", (1,), [7])]


def test_json_and_binary_tensors_mix() -> None:
    in_json = {"name": "j", "datatype": "INT8", "shape": [2], "data": [1, -2], "parameters": {"a": 1}}
    body = body_of(item("a"), in_json, item("b", "INT16", [2], 4), data=b"\1\2\0\3\0")
    assert described(read(body)) == [
        ("a", "uint8", (1,), [1]),
        ("j", "int8", (2,), [1, -2]),
        ("b", "int16", (2,), [2, 3]),
    ]


def test_json_alone_and_no_tensors_at_all() -> None:
    assert read(body_of()).tensors == []
    assert written()[0] == b'{"model_name":"shardsmith","outputs":[]}'
    body = body_of({"name": "j", "datatype": "INT8", "shape": [1], "data": [5]})
    assert described(read(body)) == [("j", "int8", (1,), [5])]


def test_other_members_are_handed_over_where_they_are_asked_for() -> None:
    body = body_of(item(), data=b"\1", schema={"features": {}})
    refused(body, AmbiguousInput, "ambiguous_json")
    assert read(body, members=frozenset({"schema", "more"})).members == {"schema": {"features": {}}}


def test_equal_at_every_split() -> None:
    body = body_of(
        item("s", "BYTES", [2], 11), item("x", "FP16", [2, 1], 4), data=strings(b"abc", b"") + b"\0<\0@"
    )
    whole = described(read(body))
    assert whole == [("s", "bytes", (2,), [b"abc", b""]), ("x", "float16", (2, 1), [1.0, 2.0])]
    for chunk in range(1, len(body[0]) + 1):
        assert described(read(body, chunk=chunk)) == whole


def test_every_cut_is_refused_and_so_is_every_byte_more() -> None:
    data, length = body_of(
        item("s", "BYTES", [1], 7), item("x", "FP16", [2], 4), data=strings(b"abc") + b"\0<\0@"
    )
    for end in range(len(data)):
        error = refused((data[:end], length), MalformedInput, "truncated")
        assert error.location.offset == end
    error = refused((data + b"\0", length), MalformedInput, "trailing_bytes")
    assert error.location.offset == len(data)
    # A length that is too short or too long leaves no JSON.
    refused((data, length - 1), MalformedInput, "invalid_json")
    refused((data, length + 1), MalformedInput, "invalid_json")


def test_the_json_must_say_how_long_it_is() -> None:
    error = refused((body_of()[0], None), MalformedInput, "missing_json_length")
    assert "Inference-Header-Content-Length" in error.detail


HOSTILE: list[tuple[tuple[bytes, int], type[InputError], str]] = [
    ((b"{}", 2**62), LimitExceeded, "payload_too_large"),
    ((b"{}", 3), MalformedInput, "truncated"),
    ((b"", 1), MalformedInput, "truncated"),
    ((b"\xff", 1), MalformedInput, "invalid_utf8"),
    ((b"[" * 100_000, 100_000), LimitExceeded, "json_too_deep"),
    ((b'{"inputs":[],"inputs":[]}', 25), MalformedInput, "duplicate_key"),
    ((b'{"inputs":[NaN]}', 16), MalformedInput, "nonfinite_token"),
    ((b"[]", 2), AmbiguousInput, "ambiguous_json"),
    ((b"{}", 2), AmbiguousInput, "ambiguous_json"),
    ((b'{"inputs":{}}', 13), AmbiguousInput, "ambiguous_json"),
    ((b'{"inputs":[1]}', 14), AmbiguousInput, "ambiguous_json"),
    ((b'{"inputs":[{}]}', 15), AmbiguousInput, "ambiguous_json"),
    ((b'{"columns":[]}', 14), AmbiguousInput, "ambiguous_json"),
    (body_of(item(), data=b"x", instances=[]), AmbiguousInput, "ambiguous_json"),
    (body_of(item(), data=b"x", outputs=[item()]), AmbiguousInput, "ambiguous_json"),
    (body_of(item(), data=b"x", outputs={}), AmbiguousInput, "ambiguous_json"),
    (body_of(item(), data=b"x", outputs=[1]), AmbiguousInput, "ambiguous_json"),
    (body_of(item(data=[1]), data=b"x"), MalformedInput, "invalid_tensor"),
    (body_of(item(extra=1), data=b"x"), MalformedInput, "invalid_tensor"),
    (body_of({"name": "x", "datatype": "UINT8", "shape": [1]}), MalformedInput, "invalid_tensor"),
    (body_of({**item(), "parameters": [1]}, data=b"x"), MalformedInput, "invalid_tensor"),
    (body_of({**item(), "shape": None}, data=b"x"), MalformedInput, "invalid_tensor"),
    (body_of({**item(), "datatype": None}, data=b"x"), MalformedInput, "invalid_tensor"),
    (body_of({**item(), "name": 3}, data=b"x"), MalformedInput, "invalid_tensor"),
    (body_of(item(size="1"), data=b"x"), MalformedInput, "invalid_tensor"),
    (body_of(item(size=1.0), data=b"x"), MalformedInput, "invalid_tensor"),
    (body_of(item(size=True), data=b"x"), MalformedInput, "invalid_tensor"),
    (body_of(item(size=-1)), MalformedInput, "invalid_tensor"),
    (body_of(item(datatype="FP8"), data=b"x"), MalformedInput, "unknown_dtype"),
    (body_of(item(datatype="complex64", size=8), data=b"12345678"), MalformedInput, "unknown_dtype"),
    (body_of(item(shape=[-1]), data=b"x"), MalformedInput, "invalid_shape"),
    (body_of(item(shape=[1.0]), data=b"x"), MalformedInput, "invalid_shape"),
    (body_of(item(shape=[2**63, 0], size=0)), MalformedInput, "invalid_shape"),
    (body_of(item(shape=[2**62, 4])), LimitExceeded, "shape_too_large"),
    (body_of(item(shape=[1] * 255), data=b"x"), LimitExceeded, "rank_too_large"),
    (body_of(item(datatype="FP64", shape=[2**60], size=2**63)), LimitExceeded, "payload_too_large"),
    (body_of(item(datatype="BYTES", shape=[2**60], size=2**62)), LimitExceeded, "payload_too_large"),
    (body_of(item(size=2), data=b"xy"), MalformedInput, "binary_data_size_mismatch"),
    (body_of(item(shape=[0]), data=b"x"), MalformedInput, "binary_data_size_mismatch"),
    (body_of(item("s", "BYTES", [0], 4), data=b"\0\0\0\0"), MalformedInput, "binary_data_size_mismatch"),
    (body_of(item("s", "BYTES", [2], 7), data=strings(b"abc")), MalformedInput, "binary_data_size_mismatch"),
    (
        body_of(item("s", "BYTES", [2], 9), data=strings(b"abcde")),
        MalformedInput,
        "binary_data_size_mismatch",
    ),
    (
        body_of(item("s", "BYTES", [1], 8), data=strings(b"abc") + b"x"),
        MalformedInput,
        "binary_data_size_mismatch",
    ),
    (
        body_of(item("s", "BYTES", [1], 7), data=b"\xff\xff\xff\xffabc"),
        MalformedInput,
        "binary_data_size_mismatch",
    ),
    (body_of(item("s", "BYTES", [1], 7), data=b"\4\0\0\0abc"), MalformedInput, "binary_data_size_mismatch"),
    (body_of(item(datatype="BOOL"), data=b"\2"), UnprocessableInput, "invalid_bool"),
    (body_of(item(), item(), data=b"xy"), UnprocessableInput, "duplicate_name"),
]


@pytest.mark.parametrize(("body", "error", "code"), HOSTILE)
def test_hostile_bodies(body: tuple[bytes, int], error: type[InputError], code: str) -> None:
    refused(body, error, code)


def test_an_error_names_pointer_feature_and_offset() -> None:
    body = body_of(item("a"), item("s", "BYTES", [2], 12), data=b"x" + strings(b"abc") + b"\2\0\0\0y")
    error = refused(body, MalformedInput, "binary_data_size_mismatch")
    assert (error.location.pointer, error.location.feature) == ("/inputs/1", "s")
    assert error.location.offset == body[1] + 1 + 7
    body = body_of(item("a"), item("b", size=3), data=b"xyzw", key="outputs")
    error = refused(body, MalformedInput, "binary_data_size_mismatch")
    assert error.location.pointer == "/outputs/1/parameters/binary_data_size"
    body = body_of(item("a"), item("b", "BOOL", [2], 2), data=b"x\0\7")
    error = refused(body, UnprocessableInput, "invalid_bool")
    assert (error.location.pointer, error.location.offset) == ("/inputs/1", len(body[0]) - 1)


def test_what_is_wrong_in_the_json_is_said_before_the_bytes_are_awaited() -> None:
    class Stopped:
        """Hands out the JSON and then fails the test."""

        def __init__(self, text: bytes) -> None:
            self._rest = text

        def read(self, n: int, /) -> bytes:
            assert self._rest, "read beyond the JSON"
            piece, self._rest = self._rest[:n], self._rest[n:]
            return piece

    text, length = body_of(item("a", "FP64", [2**20], 2**23), item("b", size=2))
    with pytest.raises(MalformedInput):
        read_oip(Stopped(text), length, Budget(), read_json)


def test_limits() -> None:
    body = body_of(item("a"), item("b"), data=b"xy")
    refused(body, LimitExceeded, "too_many_tensors", Limits(max_members=1))
    refused(body_of(item("a" * 9), data=b"x"), LimitExceeded, "name_too_long", Limits(max_name_bytes=8))
    many = body_of(item("s", "BYTES", [100_000], 400_000), data=bytes(400_000))
    refused(many, LimitExceeded, "payload_too_large", Limits(max_decoded_bytes=4_000_000))


def test_only_the_arrays_stay_charged() -> None:
    budget = Budget()
    in_json = {"name": "j", "datatype": "INT8", "shape": [2], "data": [1, 2]}
    data, length = body_of(item("x", "FP64", [100], 800), in_json, item("s", "BYTES", [1], 7))
    read_oip(MemoryStream(data + bytes(800) + strings(b"abc")), length, budget, read_json)
    assert budget.limits.max_decoded_bytes - budget.remaining == 800 + 2 + (7 + 41)


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_dtypes_without_a_datatype_are_not_written(name: str) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        check_dtype("x", DTYPES[name])
    assert (caught.value.code, caught.value.location.feature) == ("not_expressible", "x")
    with pytest.raises(UnprocessableInput):
        serialize_oip([ChunkedArray("x", DTYPES[name], (0,), [])])


def test_two_tensors_of_one_name_are_not_written() -> None:
    array = ChunkedArray("x", DTYPES["int8"], (1,), [np.zeros(1, "i1")])
    with pytest.raises(UnprocessableInput) as caught:
        serialize_oip([array, array])
    assert (caught.value.code, caught.value.location.feature) == ("duplicate_name", "x")


def test_a_string_that_is_too_long_for_its_length() -> None:
    class Endless(bytes):
        def __len__(self) -> int:
            return 2**32

    values = np.empty(1, object)
    values[0] = Endless()
    with pytest.raises(UnprocessableInput) as caught:
        serialize_oip([ChunkedArray("x", BYTES, (1,), [values])])
    assert caught.value.code == "not_expressible"


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_mutated_bodies_raise_nothing_undocumented(data: st.DataObject) -> None:
    original, length = body_of(
        item("s", "BYTES", [2], 11), item("x", "FP16", [2], 4), data=strings(b"abc", b"") + b"\0<\0@"
    )
    mutated = bytearray(original)
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    try:
        read((bytes(mutated), length + data.draw(st.integers(-1, 1))))
    except InputError:
        return
