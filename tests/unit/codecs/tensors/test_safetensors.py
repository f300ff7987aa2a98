from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from app.codecs.arrays.safetensors import decode, encode
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.domain.dtypes import DTYPES
from app.domain.tensor import NamedTensor, tensor_from_array
from app.errors import UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream


def decoded(data: bytes, **options: Any) -> list[NamedTensor]:
    return decode(MemoryStream(data), TensorDecodeOptions(**options), Budget())


def encoded(*tensors: NamedTensor) -> bytes:
    return b"".join(bytes(piece) for piece in encode(tensors, TensorEncodeOptions()))


def tensor(name: str | None, *values: int) -> NamedTensor:
    return NamedTensor(tensor_from_array(np.array(values, "<i4"), DTYPES["int32"]), name)


def test_every_array_is_a_tensor_under_its_name() -> None:
    found = decoded(save({"x": np.zeros((2, 2), "<f4"), "label": np.array(7, "<i4")}))
    assert [(item.name, item.tensor.dtype.name, item.tensor.shape) for item in found] == [
        ("x", "float32", (2, 2)),
        ("label", "int32", ()),
    ]


def test_the_bytes_are_the_librarys() -> None:
    data = encoded(tensor("x", 1, 2), tensor("a", 3))
    assert data == save({"x": np.array([1, 2], "<i4"), "a": np.array([3], "<i4")})
    assert [(item.name, item.tensor.values.tolist()) for item in decoded(data)] == [("a", [3]), ("x", [1, 2])]


def test_tensors_without_a_name_are_counted() -> None:
    assert sorted(load(encoded(tensor(None, 1), tensor("x", 2), tensor(None, 3)))) == [
        "tensor_0",
        "tensor_2",
        "x",
    ]


def test_more_dimensions_than_numpy_has() -> None:
    deep = NamedTensor(tensor_from_array(np.ones((1,) * 64, "<f4"), DTYPES["float32"]), "x")
    assert decoded(encoded(deep))[0].tensor.shape == (1,) * 64


def test_a_declaration_holds_for_every_array() -> None:
    data = save({"x": np.zeros(2, "<f4"), "y": np.zeros(2, "<f8")})
    with pytest.raises(UnprocessableInput) as caught:
        decoded(data, dtype=DTYPES["float32"])
    assert (caught.value.code, caught.value.location.feature) == ("dtype_mismatch", "y")


def test_strings_have_no_place() -> None:
    strings = tensor_from_array(np.array([b"a"], object), DTYPES["string"])
    with pytest.raises(UnprocessableInput) as caught:
        encode([NamedTensor(strings, "s")], TensorEncodeOptions())
    assert (caught.value.code, caught.value.location.feature) == ("not_expressible", "s")
