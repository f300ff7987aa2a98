from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from app.codecs.json.out import PIECE_BYTES
from app.codecs.messages.tensor_b64 import decode, encode
from app.codecs.messages.tensor_proto import serialize_tensor_proto
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.domain.dtypes import DTYPES, FLOAT32, INT64
from app.domain.limits import Limits
from app.domain.tensor import NamedTensor, Tensor
from app.errors import AmbiguousInput, InputError, LimitExceeded
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile

#: `tf.io.serialize_tensor(tf.constant([1.0]))`: dtype 1, one dimension of 1, four bytes of content.
ONE = bytes.fromhex("08 01 12 04 12 02 08 01 22 04 00 00 80 3f")
ONE_B64 = base64.b64encode(ONE).decode()
TENSOR = Tensor(FLOAT32, (1,), np.array([1], np.float32))


def read(body: Any, limits: Limits | None = None, **options: Any) -> list[NamedTensor]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return decode(MemoryFile(text), TensorDecodeOptions(**options), Budget(limits))


def written(*tensors: Tensor) -> bytes:
    return b"".join(encode(list(map(serialize_tensor_proto, tensors)), TensorEncodeOptions()))


def refused(body: Any, limits: Limits | None = None, **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(body, limits, **options)
    return caught.value


def test_one_message() -> None:
    assert written(TENSOR) == b'{"b64":"' + ONE_B64.encode() + b'"}'
    [named] = read(written(TENSOR))
    assert (named.name, named.tensor.dtype, named.tensor.shape, named.tensor.values.tolist()) == (
        None,
        FLOAT32,
        (1,),
        [1],
    )


def test_the_websafe_alphabet_has_no_padding() -> None:
    tensor = Tensor(FLOAT32, (1,), np.array([-np.inf], np.float32))
    options = TensorEncodeOptions(b64="websafe")
    text = b"".join(encode([serialize_tensor_proto(tensor)], options))
    assert text == b'{"b64":"CAESBBICCAEiBAAAgP8"}'
    assert read(text)[0].tensor.values.tolist() == [-np.inf]


def test_several_messages() -> None:
    assert json.loads(written(TENSOR, TENSOR)) == {"instances": [{"b64": ONE_B64}] * 2}
    assert [named.tensor.values.tolist() for named in read(written(TENSOR, TENSOR))] == [[1], [1]]
    assert json.loads(written()) == {"instances": []}


def test_instances_of_one_are_read_too() -> None:
    body = {"instances": [{"b64": ONE_B64.rstrip("=")}], "signature_name": "serving_default"}
    assert len(read(body)) == 1


def test_a_large_message_leaves_in_pieces() -> None:
    values = np.random.default_rng(0).integers(0, 255, 3 * PIECE_BYTES, np.uint8)
    large = Tensor(DTYPES["uint8"], (len(values),), values)
    pieces = list(encode([serialize_tensor_proto(large)], TensorEncodeOptions()))
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert (read(b"".join(pieces))[0].tensor.values == values).all()


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        "x",
        {"b64": ONE_B64, "x": 1},
        {"instances": [ONE_B64]},
        {"instances": {"b64": ONE_B64}},
        {"inputs": []},
    ],
)
def test_other_bodies_are_ambiguous(body: Any) -> None:
    assert isinstance(refused(body), AmbiguousInput)


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"b64": "A"}, "invalid_base64", "/b64"),
        ({"b64": 5}, "invalid_base64", "/b64"),
        (
            {"instances": [{"b64": ONE_B64}, {"b64": base64.b64encode(ONE[:-1]).decode()}]},
            "truncated",
            "/instances/1/b64",
        ),
    ],
)
def test_the_pointer_leads_to_the_fault(body: Any, code: str, pointer: str) -> None:
    error = refused(body)
    assert (error.code, error.location.pointer, error.location.offset) == (code, pointer, None)


def test_another_dtype_or_shape_than_declared_is_refused() -> None:
    assert refused({"b64": ONE_B64}, dtype=INT64).code == "dtype_mismatch"
    assert refused({"b64": ONE_B64}, shape=(2,)).code == "shape_mismatch"
    assert len(read({"b64": ONE_B64}, dtype=FLOAT32, shape=(1,))) == 1


def test_the_number_of_messages_is_bounded() -> None:
    error = refused({"instances": [{"b64": ONE_B64}] * 3}, Limits(max_members=2))
    assert isinstance(error, LimitExceeded)
    assert error.code == "too_many_tensors"


def test_a_repeated_value_is_charged_before_it_is_made() -> None:
    # 17 bytes that declare 2^23 float32 of the value 1.
    bomb = bytes.fromhex("08 01 12 07 12 05 08 80 80 80 04 2a 04 00 00 80 3f")
    error = refused({"b64": base64.b64encode(bomb).decode()}, Limits(max_decoded_bytes=1_000_000))
    assert isinstance(error, LimitExceeded)
