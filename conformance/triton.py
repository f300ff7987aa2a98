"""What Triton's client has converted is what TensorFlow writes: live, ready, metadata, infer with bytes.

`python triton.py URL`, with `tritonclient[http]`; the bytes of TensorFlow are those of tests/golden.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

GOLDEN: Final = Path(__file__).parents[1] / "tests" / "golden" / "files" / "tensors"
#: The dtypes that numpy has and the protocol, too.
DATATYPES: Final = {
    "bool": "BOOL", "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "uint8": "UINT8",
    "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "float16": "FP16", "float32": "FP32",
    "float64": "FP64", "string": "BYTES",
}  # fmt: skip


def cases() -> dict[str, Any]:
    """The tensors by name, as numpy has them."""
    with np.load(GOLDEN / "dense.npz") as arrays:
        found = {name: _as_objects(array) for name, array in arrays.items()}
    return {name: array for name, array in found.items() if dtype_of(array) in DATATYPES}


def _as_objects(array: Any) -> Any:
    """Strings as the client takes them."""
    return array.astype(object) if array.dtype.kind == "S" else array


def dtype_of(array: Any) -> str:
    return "string" if array.dtype == object else str(array.dtype.name)


def input_of(name: str, array: Any, datatype: str) -> Any:
    """An input whose elements go as bytes."""
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=True)
    return made


def serialized_by_service(url: str, array: Any, dtype: str) -> bytes:
    """What the service's own route makes of an array of numbers."""
    shape = ",".join(map(str, array.shape))
    params = {"from": "raw", "dtype": dtype, "shape": shape}
    answer = httpx.post(f"{url}/v1/tensors/serialize", params=params, content=array.tobytes(), timeout=60)
    return answer.raise_for_status().content


def check(client: Any, url: str, name: str, array: Any) -> None:
    """A tensor becomes TensorFlow's message, and that the tensor again."""
    message, datatype = (GOLDEN / f"{name}.pb").read_bytes(), DATATYPES[dtype_of(array)]
    wanted = [triton.InferRequestedOutput("x", binary_data=True)]
    result = client.infer(
        "serialize_tensor", [input_of("x", array, datatype)], "1", outputs=wanted, request_id="7"
    )
    assert result.get_response()["id"] == "7"
    [found] = result.as_numpy("x")
    assert found == message, name
    if datatype != "BYTES":
        assert found == serialized_by_service(url, array, dtype_of(array))
    # Without outputs the client asks for all of them as bytes.
    back = client.infer("parse_tensor", [input_of("x", np.array([message, None], object)[:1], "BYTES")])
    again = back.as_numpy("x")
    assert again.shape == array.shape
    assert again.tolist() == array.tolist() or again.tobytes() == array.tobytes()


def main() -> None:
    url = sys.argv[1]
    client = triton.InferenceServerClient(url.removeprefix("http://"))
    assert client.is_server_live()
    assert client.is_server_ready()
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    for model in ("serialize_tensor", "parse_tensor"):
        assert client.is_model_ready(model)
        metadata = client.get_model_metadata(model)
        assert metadata["name"] == model
        [version] = metadata["versions"]
        assert client.is_model_ready(model, version)
        assert client.get_model_metadata(model, version) == metadata
    assert not client.is_model_ready("resnet")
    arrays = cases()
    for name, array in arrays.items():
        check(client, url, name, array)
    assert set(map(dtype_of, arrays.values())) == set(DATATYPES)
    # Several inputs at once: the outputs that are asked for, in that order, compressed on their way.
    inputs = {name: np.full(1000, index, np.float32) for index, name in enumerate("abc")}
    result = client.infer(
        "serialize_tensor",
        [input_of(name, array, "FP32") for name, array in inputs.items()],
        outputs=[triton.InferRequestedOutput(name) for name in "ca"],
        request_compression_algorithm="gzip",
        response_compression_algorithm="gzip",
    )
    assert [output["name"] for output in result.get_response()["outputs"]] == ["c", "a"]
    assert result.as_numpy("a")[0] == serialized_by_service(url, inputs["a"], "float32")
    try:
        client.infer("parse_tensor", [input_of("x", np.zeros(1, np.float32), "FP32")])
    except InferenceServerException as error:
        assert "one element of BYTES" in str(error)  # noqa: PT017  # no test of pytest
    else:
        raise AssertionError("an input of floats was parsed as a message")
    sys.stdout.write(
        f"live, ready, metadata; {len(arrays)} tensors of {len(DATATYPES)} datatypes, there and back\n"
    )


if __name__ == "__main__":
    main()
