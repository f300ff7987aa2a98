"""Tensors that leave while they arrive: what streams is what would be held, and takes no memory."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.codecs.array import Array
from app.codecs.columns import Strings
from app.codecs.forms import TENSOR_CODECS, FormName
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.domain.dtypes import BOOL, DTYPES, DType
from app.domain.limits import Limits
from app.domain.tensor import Shape, num_elements
from app.errors import InputError, LimitExceeded
from app.runtime.budget import Budget
from app.runtime.streams import ByteStream
from tests.support.bodies import stream_of
from tests.support.format_cases import Refusal, alike, read_tensors, same_tensors, values_of, write_tensors
from tests.support.tfrecord_frames import frame

#: Forms whose arrays arrive.
FORMS: tuple[FormName, ...] = ("npy", "raw", "tensorproto", "safetensors", "tfrecord")
NUMBERS = [dtype for dtype in DTYPES.values() if not dtype.is_string]
#: A codec that has to read an array into memory fails with it.
LITTLE = Limits(max_decoded_bytes=60_000)


def array_of(dtype: DType, shape: Shape = (3, 4), name: str | None = None) -> Array:
    raw = np.arange(num_elements(shape) * dtype.itemsize, dtype=np.uint8) % (2 if dtype is BOOL else 4)
    return Array(dtype, shape, raw.astype(np.uint8).view(dtype.numpy), name)


FLOATS = array_of(DTYPES["float32"])
#: Records of TFRecord that are shorter are read many at a time.
LONG = array_of(DTYPES["float32"], (300, 250))
STRINGS = Array(DTYPES["string"], (2,), Strings.pack([b"a", b"x" * 40]))


def written(form: FormName, *arrays: Array, **options: Any) -> bytes:
    found = write_tensors(form, arrays, **options)
    assert isinstance(found, bytes), found
    return found


def declared(form: FormName, array: Array) -> dict[str, Any]:
    """What has to be said of it, as far as its form does not."""
    needed = form == "raw" or (form == "npy" and array.dtype.name == "bfloat16")
    return {"dtype": array.dtype, "shape": array.shape} if needed else {}


def arriving(
    form: FormName,
    body: bytes | ByteStream,
    num_bytes: int | None = None,
    *,
    chunk: int | None = None,
    limits: Limits = LITTLE,
    **options: Any,
) -> Any:
    """The tensors, with less memory than a long one takes."""
    source = stream_of(body, chunk) if isinstance(body, bytes) else body
    given = TensorDecodeOptions(**options, body_bytes=num_bytes)
    return TENSOR_CODECS[form].decode(source, given, Budget(limits))


def leaving(form: FormName, tensors: Any, **options: Any) -> bytes:
    """The bytes of the tensors, written with next to no memory."""
    return b"".join(
        map(bytes, TENSOR_CODECS[form].encode(tensors, TensorEncodeOptions(**options), Budget(LITTLE)))
    )


def code_of(function: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        function(*arguments, **options)
    return caught.value.code


@pytest.mark.parametrize("form", FORMS)
def test_every_dtype_that_a_form_holds_arrives(form: FormName) -> None:
    for dtype in NUMBERS:
        shape = (3, 90_000 // dtype.itemsize) if form == "tfrecord" else (3, 4)
        array = array_of(dtype, shape)
        body = write_tensors(form, [array])
        if isinstance(body, Refusal) or (form == "tfrecord" and array.dtype.itemsize < 4):
            continue
        options = declared(form, array)
        [found] = arriving(form, body, len(body), **options)
        assert found.is_arriving
        held = read_tensors(form, body, pieces=(None, 7 if len(body) < 2000 else 70_000), **options)
        assert same_tensors(held, [values_of(found)])
        assert isinstance(held, list)
        assert alike(held[0].values, values_of(array).values)


@pytest.mark.parametrize("output", [*FORMS, "json", "b64"])
@pytest.mark.parametrize("form", FORMS)
def test_arriving_tensor_equals_one_in_memory(form: FormName, output: FormName) -> None:
    body = written(form, LONG)
    for options in [{}, *([{"layout": "nested"}, {"layout": "oip"}] if output == "json" else [])]:
        streams = arriving(form, body, len(body), chunk=999_983, **declared(form, LONG))
        name = {"safetensors": "tensor_0"}.get(form)
        assert leaving(output, streams, **options) == written(output, replace(LONG, name=name), **options)


@pytest.mark.parametrize("output", ["tfrecord", "tensorproto", "raw", "json"])
def test_every_dtype_leaves_as_of_an_array_in_memory(output: FormName) -> None:
    for array in map(array_of, NUMBERS):
        raw = written("raw", array)
        for options in [{}, *([{"byte_order": "big"}] if output == "raw" else [])]:
            streams = arriving("raw", raw, chunk=5, **declared("raw", array))
            assert leaving(output, streams, **options) == written(output, array, **options), array.dtype


@pytest.mark.parametrize("order", ["little", "big"])
def test_byte_orders_are_turned_wherever_pieces_are_cut(order: Any) -> None:
    array = Array(DTYPES["complex128"], (9,), np.arange(9, dtype="<c16") * (1 + 2j))
    body = written("raw", array, byte_order=order)
    for chunk in range(1, 40):
        [found] = arriving("raw", body, chunk=chunk, byte_order=order, **declared("raw", array))
        assert values_of(found).values == array.values.tolist()
    [found] = arriving("npy", written("npy", array_of(DTYPES["int16"])).replace(b"<i2", b">i2"), chunk=3)
    assert values_of(found).values == array_of(DTYPES["int16"]).values.byteswap().tolist()


def test_pieces_are_handed_on_without_a_copy() -> None:
    class Whole:
        def __init__(self, *pieces: bytes) -> None:
            self._pieces = list(pieces)

        def read(self, n: int, /) -> bytes:
            assert not self._pieces or n >= len(self._pieces[0])
            return self._pieces.pop(0) if self._pieces else b""

    pieces = [bytes(64), bytes(64)]
    [found] = arriving("raw", Whole(*pieces), dtype=DTYPES["int32"], shape=(32,))
    assert [found is piece for found, piece in zip(found.content, pieces, strict=True)] == [True, True]


def fortran(*shape: int) -> bytes:
    body = written("npy", array_of(DTYPES["float32"], shape))
    return body.replace(b"'fortran_order': False", b"'fortran_order': True ")


def test_array_that_needs_memory_is_held() -> None:
    assert [found.is_arriving for found in arriving("npy", fortran(3, 4))] == [False]
    assert [found.is_arriving for found in arriving("npy", fortran(12))] == [True]
    for form in ("npy", "tensorproto", "tfrecord"):
        body = written(form, STRINGS)
        [found] = arriving(form, body, len(body), limits=Limits())
        assert (found.is_arriving, found.strings.unpack()) == (False, [b"a", b"x" * 40])
    [found] = arriving("raw", bytes(24), dtype=DTYPES["int32"], shape=(2, 3), order="F")
    assert not found.is_arriving


def test_a_raw_body_of_unknown_shape_arrives_if_its_length_is_known() -> None:
    for num_bytes in (None, 24):
        [found] = arriving("raw", bytes(24), num_bytes, dtype=DTYPES["int32"])
        assert (found.is_arriving, found.shape) == (num_bytes is not None, (6,))


def test_safetensors_arrive_in_the_order_of_their_header_alone() -> None:
    first, second = replace(FLOATS, name="b"), array_of(BOOL, (5,), "a")
    body = written("safetensors", first, second)
    found = arriving("safetensors", body, chunk=3)
    assert [(array.name, values_of(array).values) for array in found] == [
        ("b", FLOATS.values.tolist()),
        ("a", second.values.tolist()),
    ]
    b, a = (
        b'"b":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]}',
        b'"a":{"dtype":"BOOL","shape":[5],"data_offsets":[48,53]}',
    )
    swapped = body.replace(b + b"," + a, a + b"," + b)
    assert swapped != body
    assert [(array.name, array.is_arriving) for array in arriving("safetensors", swapped)] == [
        ("a", False),
        ("b", False),
    ]


def test_array_in_another_order_is_held() -> None:
    body = written("npy", LONG)
    assert code_of(leaving, "raw", arriving("npy", body), order="F") == "payload_too_large"
    body = written("safetensors", replace(LONG, name="a"), replace(LONG, name="b"))
    arrays = arriving("safetensors", body)
    renamed = [replace(array, name=name) for array, name in zip(arrays, "ba", strict=True)]
    assert code_of(leaving, "safetensors", renamed) == "payload_too_large"


@pytest.mark.parametrize("form", FORMS)
def test_bodies_are_refused_alike_wherever_they_are_cut(form: FormName) -> None:
    body, options = written(form, FLOATS), declared(form, FLOATS)
    for end in range(1, len(body)):
        found = read_tensors(form, body[:end], pieces=(None, 50), **options)
        assert isinstance(found, Refusal) or form == "tensorproto"  # 08 01 is a whole TensorProto
    assert isinstance(read_tensors(form, body + b"\x08", pieces=(None, 50), **options), Refusal)


@pytest.mark.parametrize("form", FORMS)
def test_a_bad_bool_is_refused_with_its_place(form: FormName) -> None:
    array = Array(BOOL, (300_000,), np.zeros(300_000, np.bool_))
    body = bytearray(written(form, array))
    body[-5 if form == "tfrecord" else -1] = 2
    if form == "tfrecord":
        body[:] = frame(bytes(body[12:-4]))
    found = read_tensors(form, bytes(body), pieces=(None, 70_000), **declared(form, array))
    assert isinstance(found, Refusal)
    assert (found.code, "Element 299999" in found.detail) == ("invalid_bool", True)


class Zeros:
    """Zeros between a head and a tail, of which no more is there than asked for."""

    def __init__(self, head: bytes, num_bytes: int, tail: bytes = b"") -> None:
        self._head, self._left, self._tail = head, num_bytes, tail

    def read(self, n: int, /) -> bytes:
        if self._head:
            piece, self._head = self._head[:n], self._head[n:]
            return piece
        if not self._left:
            piece, self._tail = self._tail[:n], self._tail[n:]
            return piece
        size = min(n, self._left, 65_536)
        self._left -= size
        return bytes(size)


@pytest.mark.parametrize("form", FORMS)
def test_an_array_that_arrives_takes_no_more_of_the_budget_than_its_header(form: FormName) -> None:
    count = 1_000_000
    array = Array(DTYPES["float32"], (count,), np.zeros(count, "<f4"))
    body = written(form, array)
    tail = body[-4:] if form == "tfrecord" else b""
    head = body[: len(body) - 4 * count - len(tail)]

    def found(num_bytes: int | None) -> Iterator[Array]:
        return iter(arriving(form, Zeros(head, 4 * count, tail), num_bytes, **declared(form, array)))

    assert sum(len(piece) for array in found(None) for piece in array.pieces()) == 4 * count
    with pytest.raises(LimitExceeded):
        next(found(len(body))).read(Budget(LITTLE))


def test_a_record_alone_is_known_by_the_length_of_the_body() -> None:
    body = written("tfrecord", LONG)
    assert isinstance(arriving("tfrecord", body, len(body)), list)
    assert not isinstance(arriving("tfrecord", body), list)
    packed = gzip.compress(body)
    assert not isinstance(arriving("tfrecord", packed, len(packed), limits=Limits()), list)


@pytest.mark.parametrize("array", [FLOATS, LONG], ids=["short", "long"])
def test_more_records_than_allowed_are_refused(array: Array) -> None:
    records = arriving("tfrecord", written("tfrecord", *[array] * 4), limits=Limits(max_members=3))
    assert code_of(lambda: [found.read(Budget()) for found in records]) == "too_many_tensors"
