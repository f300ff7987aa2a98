from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from app.codecs.arrays.raw import decode, encode
from app.codecs.content import sign_extended
from app.codecs.options import ByteOrder, TensorDecodeOptions, TensorEncodeOptions
from app.domain.dtypes import BOOL, DTYPES, STRING, dtype_from_numpy
from app.domain.limits import Limits
from app.domain.tensor import NamedTensor, Tensor, tensor_from_array
from app.errors import LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.elements import element_bytes

NUMERIC = [dtype for dtype in DTYPES.values() if not dtype.is_string]
INT16 = DTYPES["int16"]


def decoded(data: bytes, **options: Any) -> Tensor:
    [named] = decode(MemoryStream(data), TensorDecodeOptions(**options), Budget())
    return named.tensor


def encoded(tensor: Tensor, **options: Any) -> bytes:
    return b"".join(encode([NamedTensor(tensor)], TensorEncodeOptions(**options)))


@pytest.mark.parametrize(("order", "data"), [("little", b"\1\2\3\4"), ("big", b"\2\1\4\3")])
def test_literal_bytes_both_ways(order: ByteOrder, data: bytes) -> None:
    tensor = decoded(data, dtype=INT16, shape=(2, 1), byte_order=order)
    assert (tensor.shape, tensor.values.tolist()) == ((2, 1), [0x0201, 0x0403])
    assert encoded(tensor, byte_order=order) == data


@given(st.data(), st.sampled_from(NUMERIC), st.sampled_from(["little", "big"]))
@settings(deadline=None)
def test_round_trip(data: st.DataObject, dtype: Any, order: ByteOrder) -> None:
    shape = data.draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=0))
    size = int(np.prod(shape)) * dtype.itemsize
    content = data.draw(st.binary(min_size=size, max_size=size))
    content = element_bytes(content, dtype)
    written = sign_extended(np.frombuffer(content, dtype.numpy), dtype).tobytes()
    for data_order in ("C", "F"):
        tensor = decoded(content, dtype=dtype, shape=shape, byte_order=order, order=data_order)
        assert (tensor.dtype, tensor.shape) == (dtype, shape)
        assert encoded(tensor, byte_order=order, order=data_order) == written


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_big_endian_is_numpys(dtype: Any) -> None:
    array = np.array([1, 0, 1]).astype(dtype.numpy)
    swapped = array.byteswap() if dtype.name != "bfloat16" else array.view("<u2").byteswap()
    tensor = tensor_from_array(array, dtype)
    assert encoded(tensor, byte_order="big") == swapped.tobytes()
    assert decoded(swapped.tobytes(), dtype=dtype, byte_order="big").values.tolist() == array.tolist()


def test_without_a_shape_it_has_one_dimension() -> None:
    assert decoded(bytes(6), dtype=INT16).shape == (3,)
    assert decoded(b"", dtype=INT16).shape == (0,)
    assert decoded(bytes(2), dtype=INT16, shape=()).shape == ()


def test_without_a_dtype_it_says_which_parameter_is_missing() -> None:
    with pytest.raises(MalformedInput, match=r"\?dtype=") as caught:
        decoded(bytes(4))
    assert caught.value.code == "missing_dtype"


@pytest.mark.parametrize(("size", "shape"), [(5, None), (5, (2,)), (3, (2,)), (6, (2,)), (2, (0,)), (0, ())])
def test_the_length_must_be_exact(size: int, shape: tuple[int, ...] | None) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        decoded(bytes(size), dtype=INT16, shape=shape)
    assert caught.value.code == "content_size_mismatch"


def test_strings_have_no_raw_form() -> None:
    strings = Tensor(STRING, (1,), np.array([b"x"], object))
    for attempt in (lambda: decoded(b"x", dtype=STRING), lambda: encoded(strings)):
        with pytest.raises(UnprocessableInput) as caught:
            attempt()
        assert caught.value.code == "no_raw_form"


def test_bools_are_zero_or_one() -> None:
    assert decoded(b"\0\1", dtype=BOOL).values.tolist() == [False, True]
    with pytest.raises(UnprocessableInput) as caught:
        decoded(b"\0\2", dtype=BOOL)
    assert (caught.value.code, caught.value.location.offset) == ("invalid_bool", 1)


def test_several_tensors_have_no_raw_form() -> None:
    tensor = NamedTensor(tensor_from_array(np.zeros(1, "<i2"), INT16))
    with pytest.raises(UnprocessableInput) as caught:
        encode([tensor, tensor], TensorEncodeOptions())
    assert caught.value.code == "several_tensors"


def test_output_is_the_tensors_own_memory() -> None:
    tensor = tensor_from_array(np.arange(4, dtype="<i2"), INT16)
    [piece] = encode([NamedTensor(tensor)], TensorEncodeOptions())
    assert np.shares_memory(np.frombuffer(piece, np.uint8), tensor.values)


def test_the_body_is_charged() -> None:
    budget = Budget(Limits(max_decoded_bytes=100))
    with pytest.raises(LimitExceeded):
        decode(MemoryStream(bytes(101)), TensorDecodeOptions(dtype=DTYPES["uint8"]), budget)
    with pytest.raises(LimitExceeded):
        decode(MemoryStream(bytes(60)), TensorDecodeOptions(dtype=INT16, byte_order="big"), budget)


@pytest.mark.parametrize(
    ("order", "byte_order", "dtype"),
    [("F", "little", "<c16"), ("F", "big", ">c16"), ("C", "big", ">c8"), ("F", "big", ">i4")],
)
def test_orders_are_numpys(order: Any, byte_order: ByteOrder, dtype: str) -> None:
    array = (np.arange(24) - 3).reshape(2, 3, 4).astype(dtype)
    content = array.tobytes(order=order)
    ours = dtype_from_numpy(array.dtype)
    tensor = decoded(content, dtype=ours, shape=(2, 3, 4), byte_order=byte_order, order=order)
    assert tensor.values.tolist() == array.reshape(-1).tolist()
    assert encoded(tensor, byte_order=byte_order, order=order) == content


def test_turning_the_order_is_charged_before_it_is_done() -> None:
    options = TensorDecodeOptions(dtype=INT16, shape=(10, 10), order="F")
    with pytest.raises(LimitExceeded):
        decode(MemoryStream(bytes(200)), options, Budget(Limits(max_decoded_bytes=300)))
