"""`describe?to=torch`: the source, executed, reads the rows that went in.

PyTorch is large. Where it is not installed, some lines over numpy stand in for what the source asks of it;
its reader of TFRecord and Examples runs as it is.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest


class Tensor(np.ndarray[Any, Any]):
    """What the source asks of a tensor."""

    is_sparse = False

    def to(self, dtype: Any) -> "Tensor":
        return self.astype(dtype).view(Tensor)

    def split(self, sizes: list[int]) -> list[Any]:
        return np.split(self, np.cumsum(sizes)[:-1]) if sizes else []


def _sparse(indices: Any, values: Any, size: Any, check_invariants: bool) -> Tensor:
    dense = np.zeros(size, values.dtype).view(Tensor)
    dense[tuple(indices)] = values
    dense.is_sparse = True
    return dense


def stand_in() -> dict[str, ModuleType]:
    """Modules of the names of PyTorch's."""
    torch, utils, data = (ModuleType(name) for name in ("torch", "torch.utils", "torch.utils.data"))
    names = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
             "float32", "float64", "complex64", "complex128")  # fmt: skip
    of_numpy = {name: np.dtype(name) for name in names}
    torch.__dict__.update(of_numpy, bfloat16=np.dtype(ml_dtypes.bfloat16), Tensor=Tensor)
    torch.__dict__.update(
        from_numpy=lambda values: values.view(Tensor),
        frombuffer=lambda data, dtype: np.frombuffer(data, dtype).view(Tensor),
        zeros=lambda size, dtype: np.zeros(size, dtype).view(Tensor),
        stack=lambda values: np.stack(values).view(Tensor),
        sparse_coo_tensor=_sparse,
    )

    def load(rows: Any, batch_size: int, num_workers: int, collate_fn: Any) -> Any:
        every = list(rows)
        return [collate_fn(every[at : at + batch_size]) for at in range(0, len(every), batch_size)]

    data.__dict__.update(DataLoader=load, IterableDataset=object, get_worker_info=lambda: None)
    return {"torch": torch, "torch.utils": utils, "torch.utils.data": data}


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("torch") is None:
        for name, module in stand_in().items():
            monkeypatch.setitem(sys.modules, name, module)


def plain(value: Any) -> Any:
    """Lists, strings and None."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return (value.to_dense() if hasattr(value, "to_dense") and value.is_sparse else value).tolist()
    return value


def loader(client: httpx.Client, features: Any, rows: Any, path: Path, **asked: str) -> dict[str, Any]:
    """The names that the source defines, for a file of these rows."""
    query = {} if features is None else {"schema": json.dumps({"features": features})}
    written = client.post("/v1/records/serialize", json=rows, params=query | asked).raise_for_status().content
    path.write_bytes(written)
    headers = {"Content-Type": "application/x-tfrecord"}
    answer = client.post(
        "/v1/records/describe", content=written, params={"to": "torch", **query}, headers=headers
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/x-python; charset=utf-8"
    defined: dict[str, Any] = {}
    exec(compile(answer.text, "<answer>", "exec"), defined)  # noqa: S102  # which is the test
    return defined


CASES: dict[str, tuple[Any, list[Any]]] = {
    "numbers of Int64Lists": ({"dtype": "int64", "shape": []}, [0, 1, 127, 128, -1, 2**63 - 1, -(2**63)]),
    "unsigned": ({"dtype": "uint32", "shape": []}, [0, 2**32 - 1]),
    "bool": ({"dtype": "bool", "shape": [2]}, [[True, False], [False, True]]),
    "float32": ({"dtype": "float32", "shape": [2, 2]}, [[[1.5, -0.0], [2.0**60, 4]], [[0, 1], [2, 3]]]),
    "float16 in a list": ({"dtype": "float16", "shape": []}, [0.5, -2]),
    "a length that varies": ({"dtype": "int64", "shape": [None]}, [[1, 300, -5], [], [7]]),
    "rows of a width": ({"dtype": "float32", "shape": [None, 2]}, [[[1, 2]], [], [[3, 4], [5, 6]]]),
    "what may be absent": ({"dtype": "int64", "shape": [], "nullable": True}, [1, None, 0]),
    "raw": ({"dtype": "float64", "shape": [2], "encoding": "raw"}, [[0.1, 1e300], [2, 3]]),
    "raw bfloat16": ({"dtype": "bfloat16", "shape": [1], "encoding": "raw"}, [[1.5], [-2]]),
    "raw uint64": ({"dtype": "uint64", "shape": [], "encoding": "raw"}, [2**64 - 1, 0]),
    "raw that may be absent": (
        {"dtype": "float64", "shape": [None], "encoding": "raw", "nullable": True}, [[1.5], None, []],
    ),
    "text": ({"dtype": "text", "shape": []}, ["é", "", "a" * 300]),
    "texts": ({"dtype": "text", "shape": [None]}, [["a", "b"], []]),
    "text that may be absent": ({"dtype": "text", "shape": [], "nullable": True}, [None, "x"]),
    "ragged": ({"dtype": "int64", "shape": [None, None], "kind": "ragged"}, [[[1, 2], [], [3]], []]),
    "ragged of vectors": (
        {"dtype": "float32", "shape": [None, None, 2], "kind": "ragged"}, [[[[1, 2]], [[3, 4], [5, 6]]]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
@pytest.mark.parametrize("case", CASES)
def test_rows_come_back(client: httpx.Client, tmp_path: Path, case: str, compression: str) -> None:
    feature, values = CASES[case]
    name = 'it\'s "x"\n'
    rows = [{name: value} for value in values]
    source = loader(client, {name: feature}, rows, tmp_path / "a.tfrecord", compression=compression)
    kind = "" if compression == "none" else compression.upper()
    found = source["load"](str(tmp_path / "*.tfrecord"), compression_type=kind)
    assert [plain(row[name]) for row in found] == values


def test_a_sparse_tensor_has_its_places(client: httpx.Client, tmp_path: Path) -> None:
    feature = {"dtype": "float32", "shape": [2, 3], "kind": "sparse"}
    rows = [{"x": {"indices": [[0, 1], [1, 2]], "values": [0.5, 2]}}, {"x": {"indices": [], "values": []}}]
    source = loader(client, {"x": feature}, rows, tmp_path / "a.tfrecord")
    found = [plain(row["x"]) for row in source["load"](str(tmp_path / "a.tfrecord"))]
    assert found == [[[0, 0.5, 0], [0, 0, 2]], [[0, 0, 0], [0, 0, 0]]]


def test_batches_are_tensors_where_shapes_are_the_same(client: httpx.Client, tmp_path: Path) -> None:
    rows = [{"x": [k, 1], "y": [1.5] * k, "z": "t"} for k in range(1, 6)]
    source = loader(client, None, rows, tmp_path / "a.tfrecord")
    first, second, last = source["load"](str(tmp_path / "a.tfrecord"), 2)
    assert plain(first["x"]) == [[1, 1], [2, 1]]
    assert plain(second["y"]) == [[1.5] * 3, [1.5] * 4]
    assert plain(last["y"]) == [[1.5] * 5]
    assert [len(batch["z"]) for batch in (first, second, last)] == [2, 2, 1]


def test_truncated_file_is_an_error(client: httpx.Client, tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    source = loader(client, None, [{"x": 1}, {"x": 2}], path)
    whole = path.read_bytes()
    assert len(list(source["load"](str(path)))) == 2
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        if size == len(whole) // 2:
            assert len(list(source["load"](str(path)))) == 1
            continue
        with pytest.raises(EOFError):
            list(source["load"](str(path)))
    with pytest.raises(FileNotFoundError):
        source["load"](str(tmp_path / "none-*"))


def test_names_of_classes_are_there(client: httpx.Client, tmp_path: Path) -> None:
    label = {"dtype": "int64", "shape": [], "class_names": ["cat", "dog"]}
    source = loader(client, {"y": label}, [{"y": 1}], tmp_path / "a.tfrecord")
    [row] = source["load"](str(tmp_path / "a.tfrecord"))
    assert source["class_names"]["y"][int(row["y"])] == "dog"


@pytest.mark.parametrize(
    "feature",
    [
        {"dtype": "int64", "shape": [None], "kind": "sequence"},
        {"dtype": "float32", "shape": [2], "encoding": "tensor"},
        {"dtype": "int4", "shape": [2], "encoding": "raw"},
        {"dtype": "text", "shape": [2, 2]},
        {"dtype": "text", "shape": [None, None], "kind": "ragged"},
        {"dtype": "int64", "shape": [None, None, None], "kind": "ragged"},
        {"dtype": "text", "shape": [9], "kind": "sparse"},
    ],
    ids=lambda feature: " ".join(map(str, feature.values())),
)
def test_unreadable_feature_is_refused(client: httpx.Client, feature: dict[str, Any]) -> None:
    query = {"to": "torch", "schema": json.dumps({"features": {"x": feature}})}
    answer = client.post("/v1/records/describe", json=[], params=query)
    assert (answer.status_code, answer.json()["code"]) == (422, "inexpressible_schema")
