import zlib
from typing import Any

import numpy as np
import pytest

from app.codecs.messages.framing import frame_footer, frame_header
from app.codecs.messages.tensor_proto import serialize_tensor_proto
from app.codecs.messages.tensor_tfrecord import decode, encode
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.domain.compression import Compression
from app.domain.dtypes import DTYPES
from app.domain.limits import Limits
from app.domain.tensor import NamedTensor, Tensor, tensor_from_array
from app.errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream


def tensor(*values: float) -> Tensor:
    return tensor_from_array(np.array(values, "<f4"), DTYPES["float32"])


def encoded(*tensors: Tensor, **options: Any) -> bytes:
    return b"".join(encode(map(serialize_tensor_proto, tensors), TensorEncodeOptions(**options)))


def decoded(data: bytes, limits: Limits | None = None, **options: Any) -> list[NamedTensor]:
    return decode(MemoryStream(data), TensorDecodeOptions(**options), Budget(limits))


#: One record: a float32 vector of no elements, whose TensorProto is 08 01 12 02 12 00.
LITERAL = bytes.fromhex("0600000000000000 7369d537 080112021200 7a0851b8")


def test_literal_bytes_both_ways() -> None:
    assert encoded(tensor()) == LITERAL
    [found] = decoded(LITERAL)
    assert found.tensor.shape == (0,)


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_tensors_come_back_in_their_order(compression: Compression) -> None:
    tensors = [tensor(1, 2), tensor(), tensor(3)]
    found = decoded(encoded(*tensors, compression=compression))
    assert [item.tensor.values.tolist() for item in found] == [[1, 2], [], [3]]
    assert [item.name for item in found] == [None] * 3


def test_compression_wraps_the_same_bytes() -> None:
    assert zlib.decompress(encoded(tensor(1), compression="zlib")) == encoded(tensor(1))


def test_no_tensors_are_an_empty_file() -> None:
    assert encoded() == b""
    assert decoded(b"") == []


def test_tensors_share_no_memory_with_the_file() -> None:
    [found] = decoded(encoded(tensor(*range(1000))))
    assert found.tensor.values.base is None


def test_a_fault_in_a_message_names_its_record_and_its_place() -> None:
    good = encoded(tensor(1))
    bad = b"".join(serialize_tensor_proto(tensor(1)))[:-1]
    data = good * 2 + frame_header(len(bad)) + bad + frame_footer(bad)
    with pytest.raises(MalformedInput) as caught:
        decoded(data)
    assert (caught.value.code, caught.value.location.row) == ("truncated", 2)
    assert caught.value.location.offset == 2 * len(good) + 12 + 8


@pytest.mark.parametrize("position", [0, 9, 13, -1])
def test_a_flipped_bit(position: int) -> None:
    data = bytearray(encoded(tensor(1)))
    data[position] ^= 4
    with pytest.raises(InputError) as caught:
        decoded(bytes(data))
    assert caught.value.location.row == 0


def test_a_declaration_holds_for_every_record() -> None:
    data = encoded(tensor(1), tensor(1, 2))
    assert len(decoded(data, dtype=DTYPES["float32"])) == 2
    with pytest.raises(UnprocessableInput) as caught:
        decoded(data, shape=(1,))
    assert (caught.value.code, caught.value.location.row) == ("shape_mismatch", 1)


def test_too_many_tensors() -> None:
    data = encoded(tensor(1)) * 3
    assert len(decoded(data, Limits(max_members=3))) == 3
    with pytest.raises(LimitExceeded) as caught:
        decoded(data, Limits(max_members=2))
    assert caught.value.code == "too_many_tensors"
