import io
from typing import Any

import numpy as np
import pytest

from app.codecs.arrays.npy import decode, encode
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.domain.dtypes import DTYPES, STRING
from app.domain.tensor import NamedTensor, Tensor, tensor_from_array
from app.errors import UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream


def saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def decoded(data: bytes, **options: Any) -> Tensor:
    [named] = decode(MemoryStream(data), TensorDecodeOptions(**options), Budget())
    assert named.name is None
    return named.tensor


def test_an_array_is_a_tensor_and_comes_back_as_the_same_bytes() -> None:
    data = saved(np.arange(6, dtype="<i2").reshape(2, 3))
    tensor = decoded(data)
    assert (tensor.dtype.name, tensor.shape, tensor.values.tolist()) == ("int16", (2, 3), [0, 1, 2, 3, 4, 5])
    assert b"".join(encode([NamedTensor(tensor)], TensorEncodeOptions())) == data


def test_text_and_bytes_are_strings() -> None:
    assert decoded(saved(np.array(["é"]))).dtype is STRING
    assert decoded(saved(np.array([b"e"]))).values.tolist() == [b"e"]


def test_big_endian_input_leaves_little_endian() -> None:
    tensor = decoded(saved(np.array([1, 2], ">f8")))
    assert b"".join(encode([NamedTensor(tensor)], TensorEncodeOptions())) == saved(np.array([1, 2], "<f8"))


def test_bfloat16_comes_in_where_declared_and_goes_out_as_two_bytes() -> None:
    array = np.array([1, 2], DTYPES["bfloat16"].numpy)
    tensor = decoded(saved(array), dtype=DTYPES["bfloat16"])
    assert b"".join(encode([NamedTensor(tensor)], TensorEncodeOptions())) == saved(array)


def test_a_declaration_must_agree() -> None:
    data = saved(np.zeros((2, 3), "<f4"))
    assert decoded(data, dtype=DTYPES["float32"], shape=(2, 3)).shape == (2, 3)
    for wrong in ({"dtype": DTYPES["float64"]}, {"shape": (6,)}):
        with pytest.raises(UnprocessableInput):
            decoded(data, **wrong)


def test_several_tensors_are_refused_before_the_first_byte() -> None:
    tensor = NamedTensor(tensor_from_array(np.zeros(1, "<f4"), DTYPES["float32"]))
    with pytest.raises(UnprocessableInput) as caught:
        encode([tensor, tensor], TensorEncodeOptions())
    assert caught.value.code == "several_tensors"
