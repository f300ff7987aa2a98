"""What streams is what would be held: the same bytes, the same refusals, at every split of the input."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.forms import TENSOR_CODECS, FormName
from app.codecs.messages import tensor_tfrecord
from app.codecs.messages.framing import frame_footer, frame_header
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.codecs.tensors.arriving import ArrivingOneByOne
from app.codecs.tensors.forms import in_memory, read_named
from app.domain.dtypes import BOOL, DTYPES, DType
from app.domain.limits import MIB, Limits
from app.domain.tensor import NamedTensor, Shape, Tensor, num_elements
from app.errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import ByteStream, MemoryStream
from tests.bodies import body_of
from tests.feature_values import varint

FORMS: tuple[FormName, ...] = ("npy", "raw", "tensorproto", "safetensors", "tfrecord")


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


NUMBERS = [dtype for dtype in DTYPES.values() if not dtype.is_string]


def tensor(dtype: DType, shape: Shape = (3, 4)) -> Tensor:
    raw = np.arange(num_elements(shape) * dtype.itemsize, dtype=np.uint8) % (2 if dtype is BOOL else 4)
    return Tensor(dtype, shape, raw.astype(np.uint8).view(dtype.numpy))


#: A writer that has to read an array into memory fails with it.
NOTHING = Budget(Limits(max_decoded_bytes=0))
FLOATS = tensor(DTYPES["float32"])


def written(form: FormName, *tensors: NamedTensor | Tensor, **options: Any) -> bytes:
    encode = TENSOR_CODECS[form].encode
    named = [item if isinstance(item, NamedTensor) else NamedTensor(item) for item in tensors]
    return b"".join(encode(named, TensorEncodeOptions(**options), Budget()))


class Splits:
    """A stream in pieces of one size, or in two that meet at `at`."""

    def __init__(self, data: bytes, at: int | None = None, chunk: int | None = None) -> None:
        self._pieces = [data[:at], data[at:]] if at is not None else [data]
        self._chunk = chunk

    def read(self, n: int, /) -> bytes:
        while self._pieces and not self._pieces[0]:
            self._pieces.pop(0)
        if not self._pieces:
            return b""
        size = n if self._chunk is None else min(n, self._chunk)
        piece, self._pieces[0] = self._pieces[0][:size], self._pieces[0][size:]
        return piece


def arriving(
    form: FormName,
    source: ByteStream,
    num_bytes: int | None = None,
    budget: Budget | None = None,
    **options: Any,
) -> Any:
    decode = TENSOR_CODECS[form].decode
    if form == "tfrecord":  # in which short records are not streamed
        decode = read_named(tensor_tfrecord.decode, partial(tensor_tfrecord.decode_stream, streamed_from=16))
    return decode(source, TensorDecodeOptions(**options, body_bytes=num_bytes), budget or Budget())


def read(form: FormName, source: ByteStream, num_bytes: int | None = None, **options: Any) -> list[Any]:
    return [in_memory(item, Budget()) for item in arriving(form, source, num_bytes, **options)]


def same(found: Any, wanted: Tensor) -> bool:
    item = found.tensor
    return (item.dtype, item.shape, item.values.tobytes()) == (
        wanted.dtype,
        wanted.shape,
        wanted.values.tobytes(),
    )


def declared(form: FormName, item: Tensor) -> dict[str, Any]:
    needed = form == "raw" or (form == "npy" and item.dtype.name == "bfloat16")
    return {"dtype": item.dtype, "shape": item.shape} if needed else {}


def holds(form: FormName, item: Tensor) -> bool:
    try:
        written(form, item)
    except UnprocessableInput:
        return False
    return True


@pytest.mark.parametrize("form", FORMS)
def test_every_dtype_that_a_form_holds_streams(form: FormName) -> None:
    for item in filter(lambda item: holds(form, item), map(tensor, NUMBERS)):
        data = written(form, item)
        [found] = arriving(form, MemoryStream(data), len(data), **declared(form, item))
        assert found.is_arriving
        [wanted] = whole(form, data, **declared(form, item))
        assert same(in_memory(found, Budget()), wanted.tensor)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("known", [True, False], ids=["length known", "length not known"])
def test_a_stream_is_the_same_at_every_split(form: FormName, known: bool) -> None:
    data = written(form, FLOATS)
    num_bytes = len(data) if known else None
    for at in range(len(data)):
        [found] = read(form, Splits(data, at), num_bytes, **declared(form, FLOATS))
        assert same(found, FLOATS)
    [found] = read(form, Splits(data, chunk=1), num_bytes, **declared(form, FLOATS))
    assert same(found, FLOATS)


@pytest.mark.parametrize("output", [*FORMS, "json"])
@pytest.mark.parametrize("form", FORMS)
def test_what_leaves_is_what_leaves_of_a_tensor_in_memory(form: FormName, output: FormName) -> None:
    data = written(form, FLOATS)
    encode = TENSOR_CODECS[output].encode
    for options in [{}, *([{"layout": "nested"}, {"layout": "oip"}] if output == "json" else [])]:
        streams = arriving(form, Splits(data, chunk=7), len(data), **declared(form, FLOATS))
        chunks = encode(streams, TensorEncodeOptions(**options), NOTHING)  # type: ignore[arg-type]  # as they are above
        named = NamedTensor(FLOATS, {"safetensors": "tensor_0"}.get(form))
        assert b"".join(chunks) == written(output, named, **options)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("output", ["tfrecord", "tensorproto", "raw", "json"])
def test_every_dtype_leaves_as_of_a_tensor_in_memory(output: FormName, dtype: DType) -> None:
    item = tensor(dtype)
    raw = written("raw", item)
    encode = TENSOR_CODECS[output].encode
    for options in [{}, *([{"byte_order": "big"}] if output == "raw" else [])]:
        streams = arriving("raw", Splits(raw, chunk=5), **declared("raw", item))
        chunks = encode(streams, TensorEncodeOptions(**options), NOTHING)  # type: ignore[arg-type]  # as they are above
        assert b"".join(chunks) == written(output, item, **options)


def test_pieces_are_handed_on_without_a_copy() -> None:
    class Whole:
        def __init__(self, *pieces: bytes) -> None:
            self._pieces = list(pieces)

        def read(self, n: int, /) -> bytes:
            assert not self._pieces or n >= len(self._pieces[0])
            return self._pieces.pop(0) if self._pieces else b""

    pieces = [bytes(64), bytes(64)]
    [found] = arriving("raw", Whole(*pieces), dtype=DTYPES["int32"], shape=(32,))
    chunks = list(found.content)
    assert [chunk is piece for chunk, piece in zip(chunks, pieces, strict=True)] == [True, True]


@pytest.mark.parametrize("big_endian", [False, True])
@given(chunk=st.integers(1, 40), count=st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_byte_orders_are_turned_wherever_pieces_are_cut(big_endian: bool, chunk: int, count: int) -> None:
    values = np.arange(count, dtype="<c16") * (1 + 2j)
    order: Literal["big", "little"] = "big" if big_endian else "little"
    data = written("raw", Tensor(DTYPES["complex128"], (count,), values), byte_order=order)
    options: dict[str, Any] = {"dtype": DTYPES["complex128"], "shape": (count,), "byte_order": order}
    [found] = read("raw", Splits(data, chunk=chunk), **options)
    assert found.tensor.values.tolist() == values.tolist()


def test_big_endian_npy_streams() -> None:
    head = written("npy", tensor(DTYPES["int16"])).replace(b"<i2", b">i2")
    [found] = read("npy", Splits(head, chunk=3))
    assert found.tensor.values.tolist() == tensor(DTYPES["int16"]).values.byteswap().tolist()


def fortran(*shape: int) -> bytes:
    data = written("npy", tensor(DTYPES["float32"], shape))
    return data.replace(b"'fortran_order': False", b"'fortran_order': True ")


def test_what_has_to_be_in_memory_is() -> None:
    [found] = arriving("npy", MemoryStream(fortran(3, 4)))
    assert not found.is_arriving
    [vector] = arriving("npy", MemoryStream(fortran(12)))
    assert vector.is_arriving
    strings = Tensor(DTYPES["string"], (2,), np.array([b"a", b"x" * 40], object))
    for form in ("npy", "tensorproto", "tfrecord"):
        data = written(form, strings)
        [found] = arriving(form, MemoryStream(data), len(data))
        assert not found.is_arriving
        assert found.values.tolist() == [b"a", b"x" * 40]
    [found] = arriving("raw", MemoryStream(bytes(24)), dtype=DTYPES["int32"], shape=(2, 3), order="F")
    assert not found.is_arriving


def test_a_raw_body_of_unknown_shape_streams_where_its_length_is_known() -> None:
    options: dict[str, Any] = {"dtype": DTYPES["int32"]}
    [held] = arriving("raw", MemoryStream(bytes(24)), **options)
    [stream] = arriving("raw", MemoryStream(bytes(24)), 24, **options)
    assert not held.is_arriving
    assert stream.is_arriving
    assert held.shape == stream.shape == (6,)


def test_raw_of_another_order_is_written_from_memory() -> None:
    encode = TENSOR_CODECS["raw"].encode
    streams = arriving("npy", MemoryStream(written("npy", FLOATS)))
    with pytest.raises(LimitExceeded):
        encode(streams, TensorEncodeOptions(order="F"), NOTHING)


def test_safetensors_stream_in_the_order_of_their_header_alone() -> None:
    first, second = NamedTensor(FLOATS, "b"), NamedTensor(tensor(BOOL, (5,)), "a")
    data = written("safetensors", first, second)
    found = arriving("safetensors", Splits(data, chunk=3))
    assert [
        (item.name, same(in_memory(item, Budget()), wanted))
        for item, wanted in zip(found, (FLOATS, second.tensor), strict=True)
    ] == [("b", True), ("a", True)]
    swapped = data[:8] + data[8:].replace(
        b'"b":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]},"a":{"dtype":"BOOL","shape":[5],"data_offsets":[48,53]}',
        b'"a":{"dtype":"BOOL","shape":[5],"data_offsets":[48,53]},"b":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]}',
    )
    assert swapped != data
    held = arriving("safetensors", MemoryStream(swapped))
    assert [(item.name, item.is_arriving) for item in held] == [("a", False), ("b", False)]


def test_tensors_that_arrive_in_another_order_are_written_from_memory() -> None:
    encode = TENSOR_CODECS["safetensors"].encode
    data = written("safetensors", NamedTensor(FLOATS, "a"), NamedTensor(FLOATS, "b"))
    streams = [
        replace(item, name=name)
        for item, name in zip(arriving("safetensors", MemoryStream(data)), "ba", strict=True)
    ]
    with pytest.raises(LimitExceeded):
        encode(streams, TensorEncodeOptions(), NOTHING)


def code_of(function: Callable[..., object], *arguments: Any, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        function(*arguments, **options)
    return caught.value.code


def whole(form: FormName, data: bytes, **options: Any) -> Any:
    decode = TENSOR_CODECS[form].decode
    source = body_of(TENSOR_CODECS[form], data)
    found = decode(source, TensorDecodeOptions(**options, held=True), Budget())
    return [in_memory(item, Budget()) for item in found]


def outcome(function: Callable[..., list[NamedTensor]], *arguments: Any, **options: Any) -> object:
    try:
        found = function(*arguments, **options)
        return [(item.tensor.shape, item.tensor.values.tolist()) for item in found]
    except InputError as error:
        return error.code


@pytest.mark.parametrize("form", FORMS)
def test_a_body_cut_anywhere_is_refused_alike(form: FormName) -> None:
    data, options = written(form, FLOATS), declared(form, FLOATS)
    for end in range(1, len(data)):
        short = data[:end]
        wanted = outcome(whole, form, short, **options)  # 08 01 is a whole TensorProto
        for num_bytes in (None, len(short)):
            assert outcome(read, form, Splits(short, chunk=50), num_bytes, **options) == wanted, end


@pytest.mark.parametrize("form", FORMS)
def test_bytes_behind_the_end_are_refused(form: FormName) -> None:
    data, options = written(form, FLOATS) + b"\x08", declared(form, FLOATS)
    wanted = code_of(whole, form, data, **options)
    for num_bytes in (None, len(data)):
        assert code_of(read, form, Splits(data, chunk=50), num_bytes, **options) == wanted


@pytest.mark.parametrize("form", FORMS)
def test_a_bad_bool_is_refused_with_its_place(form: FormName) -> None:
    item = Tensor(BOOL, (200,), np.zeros(200, np.bool_))
    data = bytearray(written(form, item))
    data[-5 if form == "tfrecord" else -1] = 2
    if form == "tfrecord":
        data[-4:] = frame_footer(data[12:-4])
    with pytest.raises(UnprocessableInput, match="Element 199") as caught:
        read(form, Splits(bytes(data), chunk=7), **declared(form, item))
    assert caught.value.code == "invalid_bool"


def test_another_dtype_or_shape_than_declared_is_refused_at_once() -> None:
    for form in ("npy", "tensorproto", "safetensors", "tfrecord"):
        data = written(form, FLOATS)
        for options, code in (
            ({"dtype": DTYPES["int32"]}, "dtype_mismatch"),
            ({"shape": (12,)}, "shape_mismatch"),
        ):
            assert code_of(read, form, MemoryStream(data), **options) == code


# TensorProto: what may stand around the elements.

CONTENT = field(4, bytes(48))
SHAPE = field(2, field(2, b"\x08\x03") + field(2, b"\x08\x04"))


@pytest.mark.parametrize(
    "message",
    [
        SHAPE + b"\x08\x01" + CONTENT,
        b"\x08\x01" + field(1000, b"unknown") + SHAPE + b"\x18\x07" + CONTENT,
        b"\x08\x03" + SHAPE + b"\x08\x01" + CONTENT,
    ],
    ids=["shape first", "unknown fields", "dtype twice"],
)
def test_fields_in_front_of_the_elements_may_come_in_any_order(message: bytes) -> None:
    [found] = arriving("tensorproto", MemoryStream(message))
    assert found.is_arriving
    assert same(in_memory(found, Budget()), whole("tensorproto", message)[0].tensor)


LATE = {
    "dtype": CONTENT + b"\x08\x09",
    "shape": CONTENT + field(2, field(2, b"\x08\x01")),
    "content": CONTENT + field(4, bytes(range(48))),
    "values": CONTENT + field(5, bytes(4)),
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_a_field_behind_the_elements_is_refused_unless_it_is_seen_beforehand(late: bytes) -> None:
    message = b"\x08\x01" + SHAPE + late
    assert code_of(read, "tensorproto", MemoryStream(message)) == "late_field"
    assert outcome(read, "tensorproto", MemoryStream(message), len(message)) == outcome(
        whole, "tensorproto", message
    )


def test_an_unknown_field_behind_the_elements_is_passed_over() -> None:
    message = b"\x08\x01" + SHAPE + CONTENT + field(1000, b"unknown")
    [found] = read("tensorproto", MemoryStream(message))
    assert same(found, whole("tensorproto", message)[0].tensor)
    long = b"\x08\x01" + SHAPE + CONTENT + field(1000, bytes(5000))
    assert code_of(read, "tensorproto", MemoryStream(long)) == "late_field"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\x08\x01" + SHAPE + field(4, bytes(44)), "content_size_mismatch"),
        (SHAPE + CONTENT, "missing_dtype"),
        (b"\x08\x14" + SHAPE + CONTENT, "unsupported_dtype"),
        (b"\x08\x01" + field(5, bytes(4)) + SHAPE + CONTENT, "conflicting_values"),
    ],
)
def test_a_tensor_proto_that_contradicts_itself_is_refused_before_its_elements(
    message: bytes, code: str
) -> None:
    assert code_of(arriving, "tensorproto", MemoryStream(message)) == code
    assert code_of(whole, "tensorproto", message) == code


def test_two_gib_are_refused_by_what_is_declared() -> None:
    shape = field(2, field(2, b"\x08" + varint(2**30)))
    message = b"\x08\x01" + shape + b"\x22" + varint(2**32)
    assert code_of(read, "tensorproto", MemoryStream(message)) in ("payload_too_large", "truncated")
    with pytest.raises(LimitExceeded):
        arriving("tensorproto", MemoryStream(message), 2**32)


# TFRecord.


def record_codes(data: bytes) -> tuple[str, int | None]:
    with pytest.raises(InputError) as caught:
        read("tfrecord", Splits(data, chunk=50))
    return caught.value.code, caught.value.location.row


def test_a_flipped_bit_is_found_wherever_it_is() -> None:
    data = written("tfrecord", FLOATS, FLOATS)
    for at in range(0, len(data), 3):
        broken = bytearray(data)
        broken[at] ^= 1
        with pytest.raises(InputError) as caught:
            read("tfrecord", Splits(bytes(broken), chunk=50))
        assert caught.value.location.row == at // (len(data) // 2)


def test_a_record_longer_than_protobuf_reads_is_refused_by_its_length() -> None:
    for length in (2**31, 2**40, 2**63 - 1):
        assert record_codes(frame_header(length) + bytes(40)) == ("record_too_large", 0)


def test_a_record_alone_is_known_by_the_length_of_the_body() -> None:
    data = written("tfrecord", FLOATS)
    assert isinstance(arriving("tfrecord", MemoryStream(data), len(data)), list)
    assert isinstance(arriving("tfrecord", MemoryStream(data)), ArrivingOneByOne)
    packed = gzip.compress(data)
    assert isinstance(arriving("tfrecord", MemoryStream(packed), len(packed)), ArrivingOneByOne)
    # A length that is not that of the body is no length to rely on.
    with pytest.raises(MalformedInput) as caught:
        [in_memory(item, Budget()) for item in arriving("tfrecord", MemoryStream(2 * data), len(data))]
    assert caught.value.code == "trailing_bytes"


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_records_go_from_tfrecord_to_tfrecord_one_by_one(compression: Any) -> None:
    strings = Tensor(DTYPES["string"], (1,), np.array([b"x" * 100], object))
    tensors = [FLOATS, strings, tensor(DTYPES["int64"]), strings]
    data = written("tfrecord", *tensors, compression=compression)
    budget = Budget()
    records = arriving("tfrecord", Splits(data, chunk=9), budget=budget)
    chunks = TENSOR_CODECS["tfrecord"].encode(records, TensorEncodeOptions(), Budget())
    assert b"".join(chunks) == written("tfrecord", *tensors)


def records_of(data: bytes, streamed_from: int, limits: Limits) -> Any:
    stream = partial(tensor_tfrecord.decode_stream, streamed_from=streamed_from)
    read_records = read_named(tensor_tfrecord.decode, stream)
    return read_records(MemoryStream(data), TensorDecodeOptions(), Budget(limits))


@pytest.mark.parametrize("streamed_from", [16, 10_000])
def test_what_was_handed_on_is_no_longer_charged(streamed_from: int) -> None:
    strings = Tensor(DTYPES["string"], (1,), np.array([b"x" * 5000], object))
    data = written("tfrecord", *[strings] * 400)
    limits = Limits(max_decoded_bytes=MIB + 200_000)
    records = records_of(data, streamed_from, limits)
    assert len(b"".join(TENSOR_CODECS["tfrecord"].encode(records, TensorEncodeOptions(), Budget()))) == len(
        data
    )
    kept = records_of(data, streamed_from, limits)
    kept.kept = True
    with pytest.raises(LimitExceeded):
        list(kept)


@pytest.mark.parametrize("streamed_from", [16, 10_000])
def test_more_records_than_allowed_are_refused(streamed_from: int) -> None:
    data = written("tfrecord", *[FLOATS] * 4)
    records = records_of(data, streamed_from, Limits(max_members=3))
    assert code_of(lambda: [in_memory(item, Budget()) for item in records]) == "too_many_tensors"


def test_a_stream_takes_no_more_of_the_budget_than_its_header() -> None:
    class Zeros:
        """16 MiB behind a header, of which no more is there than asked for."""

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

    def drained(items: Any) -> int:
        return sum(len(piece) for item in items for piece in item.content)

    count = 4 * MIB
    item = Tensor(DTYPES["float32"], (count,), np.zeros(count, "<f4"))
    for form in FORMS:
        data = written(form, item)
        tail = data[-4:] if form == "tfrecord" else b""
        head = data[: len(data) - 4 * count - len(tail)]
        budget = Budget(Limits(max_decoded_bytes=100_000))
        source = Zeros(head, 4 * count, tail)
        assert drained(arriving(form, source, budget=budget, **declared(form, item))) == 4 * count
        num_bytes = len(data)
        source = Zeros(head, 4 * count, tail)
        [arrival] = arriving(form, source, num_bytes, budget, **declared(form, item))
        with pytest.raises(LimitExceeded):
            in_memory(arrival, budget)
