"""Sparse and ragged tensors through every form: which takes them, as what, and how they come back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.codecs.array import AnyTensor, Array, RaggedTensor, SparseTensor
from app.codecs.forms import TENSOR_CODECS, FormName
from app.domain.dtypes import FLOAT32, INT64
from tests.support.format_cases import Refusal, read_tensors, values_of, write_tensors

DENSE = Array.of(np.arange(3, dtype="<f4"), FLOAT32)
SPARSE = SparseTensor((3, 4), np.array([[0, 1], [2, 3]]), Array.of(np.array([1, 2]), FLOAT32))
RAGGED = RaggedTensor(DENSE, (np.array([0, 2, 2]), np.array([0, 1, 3])))
KINDS: dict[str, SparseTensor | RaggedTensor] = {"sparse": SPARSE, "ragged": RAGGED}
ONE = ("npy", "raw", "tensorproto", "jpeg", "png", "webp", "gif", "bmp")
SEVERAL: list[FormName] = [form for form in TENSOR_CODECS if form not in ONE]


def written(form: FormName, *tensors: AnyTensor, **options: Any) -> tuple[bytes, dict[str, Any]]:
    """A body, and what has to be said of it."""
    body = write_tensors(form, tensors, **options)
    assert isinstance(body, bytes), body
    return body, {"json_bytes": body.index(b"]}") + 2} if form == "oip" else {}


@pytest.mark.parametrize("form", SEVERAL)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["x", None])
def test_forms_of_several_tensors_return_them(form: FormName, kind: Any, name: str | None) -> None:
    tensor = replace(KINDS[kind], name=name)
    body, options = written(form, tensor)
    for declared in [kind] if form != "json" else [kind, None]:
        found = read_tensors(form, body, kind=declared, **options)
        assert found == [replace(values_of(tensor), name=None if form in ("tfrecord", "b64") else name)]


@pytest.mark.parametrize("form", ["npz", "safetensors", "oip", "arrow"])
def test_names_of_the_components_are_those_documented(form: FormName) -> None:
    tensors = (replace(SPARSE, name="x"), RAGGED, replace(DENSE, name="d"))
    body, options = written(form, *tensors)
    found = read_tensors(form, body, **options)
    assert isinstance(found, list)
    assert sorted(str(values.name) for values in found) == [
        "d",
        "row_splits_0",
        "row_splits_1",
        "values",
        "x/dense_shape",
        "x/indices",
        "x/values",
    ]
    assert [values.parts for values in found] == [None] * 7
    refusal = write_tensors(form, [SPARSE, RAGGED])
    assert isinstance(refusal, Refusal)
    assert (refusal.code, "Give each tensor a name" in refusal.detail) == ("duplicate_name", True)


def test_a_single_tensor_proto_holds_a_sparse_tensor_but_no_ragged_one() -> None:
    for way in ("single", "many"):
        body, _ = written("tensorproto", SPARSE, sparse=way)
        assert read_tensors("tensorproto", body, kind="sparse") == [values_of(SPARSE)]
    [strings] = read_tensors("tensorproto", written("tensorproto", SPARSE)[0])  # type: ignore[misc]  # not refused
    assert (strings.dtype, strings.shape, strings.parts) == ("string", (3,), None)
    assert write_tensors("tensorproto", [RAGGED]) == Refusal("several_tensors")
    for kind in KINDS:
        found = read_tensors("tensorproto", written("tensorproto", DENSE)[0], kind=kind)
        assert found == Refusal("missing_component")


def test_sparse_tensors_of_a_tfrecord_are_one_record_each() -> None:
    body, _ = written("tfrecord", SPARSE, SPARSE)
    assert read_tensors("tfrecord", body, kind="sparse") == [values_of(SPARSE)] * 2
    dense = read_tensors("tfrecord", body)
    assert isinstance(dense, list)
    assert len(dense) == 2
    body, _ = written("tfrecord", SPARSE, DENSE)
    assert read_tensors("tfrecord", body, kind="sparse") == Refusal("missing_component")


@pytest.mark.parametrize("form", ["npz", "safetensors", "arrow", "tensorproto", "tfrecord", "b64", "json"])
def test_declared_shape_covers_the_whole_sparse_tensor(form: FormName) -> None:
    body, _ = written(form, SPARSE)
    found = read_tensors(form, body, kind="sparse", dtype=FLOAT32, shape=(3, 4))
    assert found == [replace(values_of(SPARSE), name=None)]
    for options, code in (({"dtype": INT64}, "dtype_mismatch"), ({"shape": (2,)}, "shape_mismatch")):
        refusal = read_tensors(form, body, kind="sparse", **options)
        assert isinstance(refusal, Refusal)
        assert refusal.code == code


@pytest.mark.parametrize("form", ["npz", "arrow", "tfrecord", "json"])
def test_a_ragged_tensor_has_no_shape_to_declare(form: FormName) -> None:
    refusal = read_tensors(form, written(form, RAGGED)[0], kind="ragged", shape=(3,))
    assert isinstance(refusal, Refusal)
    assert refusal.code == "shape_mismatch"
