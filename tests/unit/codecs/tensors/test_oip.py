import json
import struct
from typing import Any

import numpy as np
import pytest

from app.codecs.arrays.oip import decode, encode
from app.codecs.compression.encoded import headers_of
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.domain.dtypes import DTYPES
from app.domain.tensor import NamedTensor, tensor_from_array
from app.errors import InputError, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream


def decoded(data: bytes, json_bytes: int | None, **options: Any) -> list[NamedTensor]:
    return decode(MemoryStream(data), TensorDecodeOptions(json_bytes=json_bytes, **options), Budget())


def request_of(*inputs: dict[str, Any], data: bytes = b"") -> tuple[bytes, int]:
    text = json.dumps({"inputs": inputs}).encode()
    return text + data, len(text)


def sized(datatype: str, shape: list[int], size: int, name: str = "x") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


def encoded(*tensors: NamedTensor) -> tuple[bytes, int]:
    chunks = encode(tensors, TensorEncodeOptions())
    return b"".join(bytes(piece) for piece in chunks), int(
        headers_of(chunks)["Inference-Header-Content-Length"]
    )


def tensor(name: str | None, values: Any, dtype: str) -> NamedTensor:
    found = DTYPES[dtype]
    return NamedTensor(tensor_from_array(np.array(values, found.numpy), found), name)


def listed(tensors: list[NamedTensor]) -> list[tuple[str | None, str, tuple[int, ...], list[Any]]]:
    return [(t.name, t.tensor.dtype.name, t.tensor.shape, t.tensor.values.tolist()) for t in tensors]


def test_tensors_go_out_as_outputs_and_come_back() -> None:
    body = encoded(
        tensor("x", [[1, 2]], "float32"), tensor("s", [b"\xff", b""], "string"), tensor("h", 1.5, "bfloat16")
    )
    assert listed(decoded(*body)) == [
        ("x", "float32", (1, 2), [1, 2]),
        ("s", "string", (2,), [b"\xff", b""]),
        ("h", "bfloat16", (), [1.5]),
    ]


def test_tensors_without_a_name_are_outputs_by_their_position() -> None:
    body = encoded(tensor(None, 1, "int8"), tensor("x", 2, "int8"), tensor(None, 3, "int8"))
    assert [item.name for item in decoded(*body)] == ["output_0", "x", "output_2"]
    assert decoded(*request_of({**sized("INT8", [], 1), "name": None}, data=b"\1"))[0].name is None


def test_values_in_the_json_are_read_as_json_is() -> None:
    in_json = {"name": "j", "datatype": "FP32", "shape": [2, 1], "data": ["NaN", 0.5]}
    text = {"name": "t", "datatype": "BYTES", "shape": [2], "data": ["é", {"b64": "/w=="}]}
    body = request_of(in_json, sized("UINT8", [1], 1), text, data=b"\7")
    [floats, octet, strings] = decoded(*body)
    assert np.isnan(floats.tensor.values[0])
    assert (floats.tensor.shape, octet.tensor.values.tolist()) == ((2, 1), [7])
    assert strings.tensor.values.tolist() == ["é".encode(), b"\xff"]
    data = b'{"inputs":[{"name":"j","datatype":"FP32","shape":[1],"data":[NaN]}]}'
    assert np.isnan(decoded(data, len(data), nonfinite="bare")[0].tensor.values[0])


@pytest.mark.parametrize(
    ("item", "error", "code"),
    [
        ({"datatype": "INT8", "shape": [2], "data": [1, 300]}, InputError, "out_of_range"),
        ({"datatype": "INT8", "shape": [2], "data": [1, None]}, UnprocessableInput, "null_value"),
        ({"datatype": "INT8", "shape": [3], "data": [1, 2]}, UnprocessableInput, "shape_mismatch"),
        ({"datatype": "INT8", "shape": [2], "data": [[1], 2]}, UnprocessableInput, "ragged"),
    ],
)
def test_an_error_in_the_json_has_its_pointer(
    item: dict[str, Any], error: type[InputError], code: str
) -> None:
    with pytest.raises(error) as caught:
        decoded(*request_of(sized("INT8", [1], 1), item, data=b"\1"))
    assert caught.value.code == code
    assert str(caught.value.location.pointer).startswith("/inputs/1/data")


def test_a_length_of_0_is_one_raw_tensor() -> None:
    data = struct.pack("<2h", 1, -2)
    assert listed(decoded(data, 0, dtype=DTYPES["int16"], shape=(2, 1))) == [(None, "int16", (2, 1), [1, -2])]
    with pytest.raises(MalformedInput) as caught:
        decoded(data, 0)
    assert caught.value.code == "missing_dtype"


def test_without_the_length_of_the_json_nothing_is_read() -> None:
    with pytest.raises(MalformedInput) as caught:
        decoded(*request_of()[:1], None)
    assert caught.value.code == "missing_json_length"


def test_a_declaration_holds_for_every_tensor_wherever_it_stands() -> None:
    in_json = {"name": "j", "datatype": "INT8", "shape": [1], "data": [1]}
    body = request_of(sized("INT8", [1], 1), in_json, data=b"\1")
    assert len(decoded(*body, dtype=DTYPES["int8"], shape=(1,))) == 2
    with pytest.raises(UnprocessableInput) as caught:
        decoded(*body, dtype=DTYPES["uint8"])
    assert caught.value.code == "dtype_mismatch"


def test_complex_numbers_have_no_datatype() -> None:
    with pytest.raises(UnprocessableInput) as caught:
        encode([tensor("c", [1j], "complex64")], TensorEncodeOptions())
    assert (caught.value.code, caught.value.location.feature) == ("not_expressible", "c")
