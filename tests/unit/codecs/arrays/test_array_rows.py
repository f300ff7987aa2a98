"""Rows as NPZ, safetensors and the binary form of Open Inference: one array a feature."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from app.codecs.columns import MAX_BATCH_ROWS
from app.codecs.forms import FormName
from app.domain.dtypes import DTYPES
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
from app.errors import InputError, LossyConversion
from app.runtime.budget import Budget
from tests.support.format_cases import Refusal, Rows, assert_rows, decode, read, records, schema_of, write
from tests.support.peak_memory import peak_bytes

Arrays = dict[str, Any]
FORMS: tuple[FormName, ...] = ("npz", "safetensors", "oip")


def npz(*, compressed: bool = False, **arrays: Any) -> bytes:
    sink = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(sink, **arrays)
    return sink.getvalue()


def header_of(descr: str, shape: str) -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def npz_of_header(descr: str, shape: str) -> bytes:
    """An archive of one array without any content."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("x.npy", header_of(descr, shape))
    return sink.getvalue()


_OIP = {
    "float32": "FP32",
    "int64": "INT64",
    "int8": "INT8",
    "int32": "INT32",
    "bool": "BOOL",
    "float64": "FP64",
}


def sized(name: str | None, datatype: str, shape: list[int], size: int) -> dict[str, Any]:
    named = {} if name is None else {"name": name}
    return {**named, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


def oip(*inputs: dict[str, Any], data: bytes = b"", **members: Any) -> tuple[bytes, dict[str, Any]]:
    text = json.dumps({"inputs": inputs, **members}).encode()
    return text + data, {"json_bytes": len(text)}


def body_of(form: FormName, arrays: Arrays, *, compressed: bool = False) -> tuple[bytes, dict[str, Any]]:
    """The arrays in that form, and the options to read them with."""
    if form == "npz":
        return npz(compressed=compressed, **arrays), {}
    if form == "safetensors":
        return save(arrays), {}
    inputs = [sized(name, _OIP[a.dtype.name], list(a.shape), a.nbytes) for name, a in arrays.items()]
    return oip(*inputs, data=b"".join(array.tobytes() for array in arrays.values()))


def rows_of(form: FormName, body: bytes, **options: Any) -> list[dict[str, Any]]:
    found = read(form, body, **options)
    assert isinstance(found, Rows), found
    return found.rows


def refused(found: Any, code: str, feature: str | None = None, row: int | None = None) -> Refusal:
    assert isinstance(found, Refusal), found
    assert (found.code, found.feature, found.row) == (code, feature or found.feature, row), found.detail
    return found


def again(body: bytes, **options: Any) -> Arrays:
    """NPZ through rows to NPZ, as numpy loads it."""
    found = write("npz", decode("npz", body, Budget(), **options))
    assert isinstance(found, bytes)
    with np.load(io.BytesIO(found)) as loaded:
        return dict(loaded)


@pytest.mark.parametrize("form", FORMS)
def test_the_first_axis_of_every_array_counts_the_rows(form: FormName) -> None:
    arrays = {
        "x": np.arange(6, dtype="<f4").reshape(2, 3),
        "n": np.array([7, -8]),
        "ok": np.array([True, False]),
    }
    body, options = body_of(form, arrays)
    found = read(form, body, **options)
    assert isinstance(found, Rows)
    assert found.features == {"x": "float32[3]", "n": "int64", "ok": "bool"}
    assert sorted(found.rows[1].items()) == [("n", -8), ("ok", False), ("x", [3.0, 4.0, 5.0])]


def test_strings_of_npz_are_text_or_bytes() -> None:
    texts = np.array(["", "é", "a\0b", "\N{GRINNING FACE}xyz"])
    values = np.array([b"\xff", b"", b"a\0b", b"cd"])
    body = npz(t=texts, big=texts.astype(">U5"), b=values, pair=np.array([["a", "b"]] * 4))
    found = read("npz", body)
    assert isinstance(found, Rows)
    assert found.features == {"t": "text", "big": "text", "b": "bytes", "pair": "text[2]"}
    assert [row["t"] for row in found.rows] == [row["big"] for row in found.rows]
    assert [row["t"] for row in found.rows] == [text.encode() for text in texts.tolist()]
    assert [row["b"] for row in found.rows] == values.tolist()
    assert found.rows[0]["pair"] == [b"a", b"b"]


@pytest.mark.parametrize("code", ["?", "i1", "<i8", "<u8", "<f2", "<f8", "<c16", "S3", "<U2", ">i4", ">U2"])
@pytest.mark.parametrize("row_shape", [(), (2, 2), (0,)])
def test_arrays_go_in_and_out(code: str, row_shape: tuple[int, ...]) -> None:
    array = np.ones((3, *row_shape), "i1").astype(code)
    body = npz(x=array)
    assert again(body)["x"].tolist() == again(npz(x=np.asfortranarray(array)))["x"].tolist() == array.tolist()
    once = write("npz", decode("npz", body, Budget()))
    assert isinstance(once, bytes)
    assert write("npz", decode("npz", once, Budget())) == once


def test_complex_numbers_are_tensors_and_bfloat16_is_declared() -> None:
    found = read("npz", npz(c=np.array([[1j, 2]], "<c8")))
    assert isinstance(found, Rows)
    assert (found.schema.by_name["c"].encoding, found.rows) == ("tensor", [{"c": [1j, 2 + 0j]}])
    body = npz(x=np.array([1.5, 2], DTYPES["bfloat16"].numpy))
    declared = schema_of(x="bfloat16")
    assert rows_of("npz", body, schema=declared) == [{"x": 1.5}, {"x": 2.0}]
    with np.load(io.BytesIO(body)) as loaded:
        assert again(body, schema=declared)["x"].tobytes() == loaded["x"].tobytes()
    refused(read("npz", body), "unsupported_dtype", "x")


def test_batches_have_at_most_so_many_rows_and_bytes() -> None:
    found = read("npz", npz(x=np.arange(3 * MAX_BATCH_ROWS + 1)))
    assert isinstance(found, Rows)
    assert found.batches == [MAX_BATCH_ROWS] * 3 + [1]
    assert [row["x"] for row in found.rows] == list(range(3 * MAX_BATCH_ROWS + 1))
    batches = decode("npz", npz(x=np.zeros((10, 2**22), "u1")), Budget()).batches
    assert [batch.num_rows for batch in batches] == [4, 4, 2]


def test_no_rows_and_no_arrays() -> None:
    assert rows_of("npz", npz(x=np.zeros((0, 2), "<f4"))) == []
    assert read("npz", npz()) == Rows(Schema(()), [])


STEPS = {"dtype": "int16", "shape": [None, 2], "kind": "sequence"}
X4 = np.zeros((4, 2))


@pytest.mark.parametrize(
    ("arrays", "features", "code", "feature"),
    [
        ({"x": np.zeros(2), "y": np.array(1)}, None, "no_rows", "y"),
        ({"x": np.zeros(2), "y": np.zeros(3)}, None, "row_count_mismatch", "y"),
        (
            {"x": np.zeros(2)},
            {"x": {"dtype": "float64", "shape": [2], "kind": "sparse"}},
            "schema_conflict",
            "x",
        ),
        *(
            (
                {"x": X4},
                {"x": {"dtype": "float64", "shape": shape, "encoding": "tensor"}},
                "schema_conflict",
                "x",
            )
            for shape in ([], [3], [2, 1], [None, None])
        ),
        ({"x": X4, "y": X4}, {"x": {"dtype": "float64", "shape": [2]}}, "schema_conflict", "y"),
        ({"x": X4}, {"x": {"dtype": "float64", "shape": [2]}, "z": "int8"}, "schema_conflict", "z"),
        ({"x": X4}, {"x": {"dtype": "text", "shape": [2]}}, "schema_conflict", "x"),
        ({"x": X4 * 1j}, {"x": {"dtype": "float64", "shape": [2]}}, "schema_conflict", "x"),
        ({"x": np.zeros((2, 3, 4), "i2")}, {"x": STEPS}, "schema_conflict", "x"),
        *(
            (
                {"x": np.zeros((2, 3, 4), "i2")},
                {"x": {"dtype": "int16", "shape": shape, "kind": "ragged"}},
                "schema_conflict",
                "x",
            )
            for shape in ([2, None], [None, None, None])
        ),
        (
            {"x": np.zeros((1, 2), "i8")},
            {"x": {"dtype": "int64", "shape": [2], "kind": "sparse"}},
            "unsupported_kind",
            "x",
        ),
        *(
            (
                {"x": np.zeros((*outer, 4, 0), "i8")},
                {"x": {"dtype": "int64", "shape": [*steps, None, 0], "kind": kind, "encoding": "tensor"}},
                "schema_conflict",
                "x",
            )
            for kind, outer, steps in (("dense", (2,), []), ("sequence", (2, 3), [None]))
        ),
    ],
)
def test_arrays_that_are_not_rows_are_refused(arrays: Arrays, features: Any, code: str, feature: str) -> None:
    options: dict[str, Any] = {} if features is None else {"schema": schema_of(**features)}
    if code == "schema_conflict" and features["x"] != "x" and "sparse" in str(features):
        code = "unsupported_kind"
    refused(read("npz", npz(**arrays), **options), code, feature)


def test_object_arrays_are_never_read() -> None:
    declared = schema_of(x={"dtype": "int64", "shape": [None, None], "kind": "ragged"})
    assert isinstance(read("npz", npz(x=np.array([[1], [2, 3]], object)), schema=declared), Refusal)


def test_a_declared_dtype_converts_exactly_or_not_at_all() -> None:
    declared = schema_of(x={"dtype": "int8", "shape": [2]}, y="float32")
    body = npz(x=np.array([[1, 2], [3, -4]]), y=np.array([0.1, 2]))
    found = read("npz", body, schema=declared)
    assert isinstance(found, Rows)
    assert found.schema == declared
    assert_rows(found, [{"x": [1, 2], "y": float(np.float32(0.1))}, {"x": [3, -4], "y": 2.0}])
    body = npz(x=np.array([[1, 2], [3, 300]]))
    refused(read("npz", body, schema=schema_of(x={"dtype": "int8", "shape": [2]})), "out_of_range", "x", 1)
    body = npz(s=np.array([b"a", b"\xff"]))
    refused(read("npz", body, schema=schema_of(s="text")), "invalid_utf8", "s", 1)
    assert rows_of("npz", npz(s=np.array([b"a"])), schema=schema_of(s="text")) == [{"s": b"a"}]
    assert rows_of("npz", npz(s=np.array(["\xe9"])), schema=schema_of(s="bytes")) == [{"s": b"\xc3\xa9"}]


def test_features_may_be_absent_or_dropped() -> None:
    body = npz(x=np.arange(3), y=np.zeros(3, "<f4"))
    error = refused(read("npz", body, schema=schema_of(x="int64")), "schema_conflict", "y")
    assert "undeclared=drop" in error.detail
    assert rows_of("npz", body, schema=schema_of(x="int64"), undeclared="drop")[2] == {"x": 2}
    declared = schema_of(x="int64", y="float32", z={"dtype": "float32", "shape": [2], "nullable": True})
    assert rows_of("npz", body, schema=declared)[0] == {"x": 0, "y": 0.0, "z": None}
    error = refused(
        read("npz", body, schema=schema_of(x="int64", y="float32", z="int8")), "schema_conflict", "z"
    )
    assert "declare the feature nullable" in error.detail
    for kind, shape in (("ragged", [None, None]), ("sparse", [2**40]), ("sequence", [None, None])):
        absent = {"dtype": "float32", "shape": shape, "kind": kind, "nullable": True}
        declared = schema_of(x=absent, y="int64")
        assert rows_of("npz", npz(y=np.zeros(3, "<i8")), schema=declared)[2] == {"x": None, "y": 0}


@pytest.mark.parametrize(
    ("shape", "row_shape", "rows"),
    [
        ([None], (2,), [[0, 1], [2, 3]]),
        ([None, 1], (3, 1), [[[0], [1], [2]], [[3], [4], [5]]]),
        ([None, None], (1, 2), [[[0, 1]], [[2, 3]]]),
    ],
)
def test_unknown_dimensions_take_any_length(shape: Any, row_shape: Any, rows: Any) -> None:
    declared = schema_of(x={"dtype": "int64", "shape": shape, "encoding": "tensor"})
    array = np.arange(2 * int(np.prod(row_shape))).reshape(2, *row_shape)
    assert [row["x"] for row in rows_of("npz", npz(x=array), schema=declared)] == rows


@pytest.mark.parametrize(
    ("feature", "row_shape"),
    [
        (STEPS, (3, 2)),
        (STEPS | {"shape": [None]}, (3,)),
        (STEPS | {"shape": [None, None]}, (1, 2)),
        (STEPS, (0, 2)),
        (STEPS | {"shape": [None, None, None]}, (1, 2, 1)),
    ],
)
def test_a_sequence_is_an_array_of_rows_of_steps(feature: Any, row_shape: Any) -> None:
    array = np.arange(2 * int(np.prod(row_shape)), dtype="<i8").reshape(2, *row_shape)
    declared = schema_of(x=feature)
    assert [row["x"] for row in rows_of("npz", npz(x=array), schema=declared)] == array.tolist()
    if feature["shape"] in ([None], [None, 2]):
        found = again(npz(x=array), schema=declared)["x"]
        assert (found.dtype, found.tolist()) == (np.dtype("<i2"), array.tolist())


def test_strings_of_steps_go_in_and_out() -> None:
    array = np.array([["a", "bc"], ["é", ""]])
    declared = schema_of(x={"dtype": "text", "shape": [None], "kind": "sequence"})
    assert again(npz(x=array), schema=declared)["x"].tolist() == array.tolist()
    assert again(npz(x=array[:0]), schema=declared)["x"].shape == (0, 0)


@pytest.mark.parametrize(
    ("shape", "row_shape"),
    [
        ([None, None], (1, 2)),
        ([2, None], (2, 1)),
        ([None, None, 2], (1, 1, 2)),
        ([None, 1, None], (2, 1, 1)),
        ([None, None], (2, 0)),
        ([None, None], (0, 2)),
    ],
)
def test_a_rectangular_array_is_ragged_where_declared(shape: list[int | None], row_shape: Any) -> None:
    array = np.arange(2 * int(np.prod(row_shape))).reshape(2, *row_shape)
    declared = schema_of(x={"dtype": "int64", "shape": shape, "kind": "ragged"})
    expected = [[] if 0 in row_shape[:1] else row for row in array.tolist()]
    assert [row["x"] for row in rows_of("npz", npz(x=array), schema=declared)] == expected


@pytest.mark.parametrize("kind", ["ragged", "sequence"])
@pytest.mark.parametrize("code", ["<f8", "<u8"])
def test_wide_arrays_are_lossy_in_a_list(kind: str, code: str) -> None:
    array = np.ones((2, 2, 2), code)
    declared = schema_of(x={"dtype": str(array.dtype), "shape": [None, None], "kind": kind})
    found = decode("npz", npz(x=array), Budget(), schema=declared)
    with pytest.raises(LossyConversion):
        found.schema.require_lossless()


def test_arrays_of_a_sequence_example_are_its_context() -> None:
    found = decode("npz", npz(x=np.zeros((2, 3))), Budget(), message="sequence_example").schema
    assert (found.message, found.by_name["x"].kind) == ("sequence_example", "dense")


@pytest.mark.parametrize(
    ("shape", "feature"),
    [
        ("(1152921504606846976, 0)", None),
        *(
            ("(1, 1099511627776, 0)", {"dtype": "float32", "shape": shape, "kind": kind})
            for shape, kind in (([None, None], "ragged"), ([None, None], "sequence"), ([None, 0], "sequence"))
        ),
    ],
)
def test_a_few_bytes_that_declare_endless_rows_or_lists(shape: str, feature: Any) -> None:
    options: dict[str, Any] = {} if feature is None else {"schema": schema_of(x=feature)}
    refused(read("npz", npz_of_header("<f4", shape), **options), "payload_too_large")


def test_limits() -> None:
    body = npz(x=np.zeros(9, "<i8"), y=np.zeros(9))
    refused(read("npz", body, limits=Limits(max_features=1)), "too_many_features")
    declared = schema_of(x="int64", z={"dtype": "float32", "shape": [2**20], "nullable": True})
    absent = npz(x=np.zeros(9, "<i8"))
    assert next(decode("npz", absent, Budget(), schema=declared).batches).num_rows == 3
    refused(read("npz", absent, limits=Limits(max_decoded_bytes=2**20), schema=declared), "payload_too_large")


# Large arrays are read as rows are drawn.

WIDE = 300_000  # elements of a row; 20 rows of them are more than 8 MiB in any of these dtypes


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compressed", [False, True])
def test_large_arrays_are_read_as_rows_are_drawn(form: FormName, compressed: bool) -> None:
    if compressed and form != "npz":
        return
    array = (np.arange(20 * WIDE) % 100).reshape(20, WIDE)
    arrays = {"x": array, "n": np.arange(20), "y": array.astype("<i4")}
    body, options = body_of(form, arrays, compressed=compressed)
    budget = Budget(Limits(max_decoded_bytes=90 * MIB))
    declared = schema_of(
        x={"dtype": "float64", "shape": [WIDE]}, n="int8", y={"dtype": "int32", "shape": [WIDE]}
    )
    found = decode(form, body, budget, schema=declared, **options)
    out = write("npz", found, limits=Limits(max_decoded_bytes=512 * MIB))
    assert isinstance(out, bytes)
    with np.load(io.BytesIO(out)) as loaded:
        assert (loaded["x"] == array).all()
        assert loaded["x"].dtype == np.float64
        assert (loaded["y"] == array).all()
        assert loaded["n"].tolist() == list(range(20))


@pytest.mark.parametrize("form", FORMS)
def test_faults_of_large_arrays_name_the_row(form: FormName) -> None:
    array = np.zeros((20, WIDE), "<i8")
    array[17, 5] = 128
    body, options = body_of(form, {"x": array, "n": np.arange(20)})
    declared = schema_of(x={"dtype": "int8", "shape": [WIDE]}, n="int64")
    with pytest.raises(InputError) as caught:
        list(decode(form, body, Budget(), schema=declared, **options).batches)
    where = caught.value.location
    assert (caught.value.code, where.row, where.feature) == ("out_of_range", 17, "x")
    # What is dropped is read all the same.
    flags = np.zeros((20, WIDE * 2), "?")
    body, options = body_of(form, {"flag": flags, "n": np.arange(20)})
    at = body.index(bytes(1000)) + 500
    broken = body[:at] + b"\7" + body[at + 1 :]
    with pytest.raises(InputError) as caught:
        list(
            decode(form, broken, Budget(), schema=schema_of(n="int64"), undeclared="drop", **options).batches
        )
    assert caught.value.code in ("invalid_bool", "invalid_npz")
    cut = body[: len(body) - 100]
    with pytest.raises(InputError):
        list(decode(form, cut, Budget(), **options).batches)
    with pytest.raises(InputError) as caught:
        list(decode(form, body + b"\0", Budget(), **options).batches)
    assert caught.value.code == "trailing_bytes"


@pytest.mark.parametrize("form", FORMS)
def test_memory_is_that_of_a_batch(form: FormName) -> None:
    count = 3 * MIB
    body, options = body_of(form, {name: np.zeros((count, 4), "<f4") for name in ("a", "b")})
    budget = Budget(Limits(max_decoded_bytes=64 * MIB))
    assert sum(batch.num_rows for batch in decode(form, body, budget, **options).batches) == count
    assert budget.peak <= 64 * MIB
    body, options = body_of(form, {"x": np.zeros((1, 4 * MIB), np.float32)})
    budget = Budget(Limits(max_decoded_bytes=28 * MIB))
    assert [batch.num_rows for batch in decode(form, body, budget, **options).batches] == [1]


@pytest.mark.parametrize("form", FORMS)
def test_a_body_cut_or_changed_anywhere(form: FormName) -> None:
    body, options = body_of(form, {"x": np.arange(6, dtype="<f4").reshape(2, 3), "n": np.arange(2)})
    for end in range(0, len(body), 3):
        assert isinstance(read(form, body[:end], **options), Refusal), end
    for at in range(0, len(body), 5):
        read(form, body[:at] + bytes([body[at] ^ 0x10]) + body[at + 1 :], **options)
    refused(read(form, body + b"\0", **options), "trailing_bytes")


# What is particular to Open Inference.

AB = struct.pack("<I1sI1s", 1, b"a", 1, b"\xff")


def test_oip_strings_in_json_are_text_and_binary_ones_are_bytes() -> None:
    text = {"name": "t", "datatype": "BYTES", "shape": [2], "data": ["é", "b"]}
    mixed = {"name": "m", "datatype": "BYTES", "shape": [2], "data": ["a", {"b64": "/w=="}]}
    body, options = oip(text, sized("b", "BYTES", [2], 10), mixed, data=AB)
    found = read("oip", body, **options)
    assert isinstance(found, Rows)
    assert found.features == {"t": "text", "b": "bytes", "m": "bytes"}
    assert found.rows == [{"t": "é".encode(), "b": b"a", "m": b"a"}, {"t": b"b", "b": b"\xff", "m": b"\xff"}]
    assert rows_of("oip", body, **options, schema=schema_of(t="text", b="bytes", m="bytes")) == found.rows
    refused(
        read("oip", body, **options, schema=schema_of(t="text", b="text", m="bytes")), "invalid_utf8", "b", 1
    )


def test_schema_next_to_the_inputs_is_used() -> None:
    declared = schema_of(x="int64")
    body, options = oip(sized("x", "INT8", [2], 2), data=b"\1\2", schema=declared.to_json())
    found = read("oip", body, **options)
    assert isinstance(found, Rows)
    assert (found.schema, found.is_declared, found.rows) == (declared, True, [{"x": 1}, {"x": 2}])
    refused(read("oip", body, **options, schema=declared), "schema_twice")
    same = read("oip", body, **options, schema=declared, schema_of_dataset=True)
    assert isinstance(same, Rows)
    refused(
        read("oip", body, **options, schema=schema_of(x="int8"), schema_of_dataset=True), "schema_conflict"
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (oip(sized("x", "INT8", [], 1), data=b"\1"), "no_rows"),
        (oip(sized(None, "INT8", [1], 1), data=b"\1"), "invalid_tensor"),
        (oip(sized("", "INT8", [1], 1), data=b"\1"), "invalid_feature_name"),
        (oip(sized("x", "INT8", [1], 1), sized("y", "INT8", [2], 2), data=b"\1\2\3"), "row_count_mismatch"),
        (oip({"name": "x", "datatype": "INT8", "shape": [2], "data": [1, None]}), "null_value"),
        ((b"\1\2", {"json_bytes": 0}), "no_rows"),
        ((b"{}", {}), "missing_json_length"),
    ],
)
def test_oip_that_is_not_rows_is_refused(body: tuple[bytes, dict[str, Any]], code: str) -> None:
    refused(read("oip", body[0], **body[1]), code)


# Writing.

MIXED = schema_of(
    x={"dtype": "float16", "shape": [2]}, t="text", b={"dtype": "bytes", "shape": [1]}, ok="bool"
)
ROWS = [
    {"x": [1, 2], "t": "é", "b": [{"b64": "/w=="}], "ok": True},
    {"x": [3, 4], "t": "", "b": [{"b64": "YQ=="}], "ok": False},
]


def test_rows_go_out_as_arrays() -> None:
    found = write("oip", records(ROWS, schema=MIXED))
    assert isinstance(found, bytes)
    length = found.index(b"]}") + 2
    outputs = json.loads(found[:length])["outputs"]
    assert [(item["name"], item["datatype"], item["shape"]) for item in outputs] == [
        ("x", "FP16", [2, 2]),
        ("t", "BYTES", [2]),
        ("b", "BYTES", [2, 1]),
        ("ok", "BOOL", [2]),
    ]
    same = read("oip", found, json_bytes=length, schema=MIXED)
    assert isinstance(same, Rows)
    assert same.rows[0] == {"x": [1.0, 2.0], "t": "é".encode(), "b": [b"\xff"], "ok": True}
    found = write("npz", records(ROWS, schema=MIXED))
    assert isinstance(found, bytes)
    with np.load(io.BytesIO(found)) as loaded:
        assert loaded["t"].tolist() == ["é", ""]
        assert loaded["b"].tolist() == [[b"\xff"], [b"a"]]
        assert loaded["ok"].tolist() == [True, False]
    numbers = schema_of(x={"dtype": "float32", "shape": [2]}, h="bfloat16", ok="bool")
    rows = [{"x": [1, 2], "h": 1, "ok": True}, {"x": [3, 4], "h": 2, "ok": False}]
    found = write("safetensors", records(rows, schema=numbers))
    assert isinstance(found, bytes)
    assert sorted(rows_of("safetensors", found)[1].items()) == [("h", 2.0), ("ok", False), ("x", [3.0, 4.0])]


def test_no_rows_keep_their_dtypes_and_shapes() -> None:
    found = write("npz", records([], schema=schema_of(x={"dtype": "float32", "shape": [2]})))
    assert isinstance(found, bytes)
    with np.load(io.BytesIO(found)) as loaded:
        assert (loaded["x"].dtype, loaded["x"].shape) == (np.dtype("<f4"), (0, 2))


FORM_NAMES = {"npz": "NPZ", "oip": "OIP", "safetensors": "safetensors"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("feature", "rows", "row"),
    [
        ({"dtype": "int64", "shape": [None]}, [[1, 2], [3, 4]], None),
        ({"dtype": "int64", "nullable": True}, [1, None], 1),
        ({"dtype": "int64", "shape": [4], "kind": "sparse"}, [], None),
        ({"dtype": "int64", "shape": [2, None], "kind": "ragged"}, [], None),
        ({"dtype": "int64", "shape": [None, None], "kind": "sequence"}, [], None),
        ({"dtype": "int64", "shape": [None], "kind": "sequence"}, [[1, 2], [3, 4], [5]], 2),
    ],
)
def test_rows_that_do_not_fit_an_array_are_refused(
    form: FormName, feature: Any, rows: list[Any], row: int | None
) -> None:
    is_sequence = feature.get("kind") == "sequence"
    made = records(
        [{"context": {}, "feature_lists": {"f": value}} if is_sequence else {"f": value} for value in rows],
        schema=schema_of(f=feature),
    )
    error = refused(write(form, made), "not_expressible", "f", row)
    assert FORM_NAMES[form] in error.detail
    assert "Choose another output format" in error.detail


@pytest.mark.parametrize(
    ("form", "dtype", "value"),
    [
        ("npz", "bytes", {"b64": "YQA="}),
        ("npz", "int4", 1),
        ("oip", "complex64", [0, 1]),
        ("safetensors", "text", "a"),
        ("safetensors", "bytes", {"b64": ""}),
    ],
)
def test_dtype_without_an_array_form_is_refused(form: FormName, dtype: str, value: Any) -> None:
    made = records([{"f": value}], schema=schema_of(f=dtype))
    refused(write(form, made), "not_expressible", "f")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 3])
def test_rows_without_any_feature_would_lose_their_number(form: FormName, count: int) -> None:
    refused(write(form, records([{}] * count, schema=Schema(()))), "not_expressible")
    assert isinstance(write(form, records([], schema=Schema(()))), bytes)


def test_gathered_rows_are_charged() -> None:
    body = npz(x=np.ones(1000, "<i8"))
    assert isinstance(
        write("npz", decode("npz", body, Budget()), limits=Limits(max_decoded_bytes=9000)), bytes
    )
    limits = Limits(max_decoded_bytes=7999)
    refused(write("npz", decode("npz", body, Budget()), limits=limits), "payload_too_large")


def test_text_is_counted_some_strings_at_a_time() -> None:
    text = records([{"x": "é" * 64}] * 20_000)
    num_bytes = 20_000 * 64 * 2
    # Gathered, and an archive four bytes a character; a count for each byte would be eight times the text.
    assert peak_bytes(lambda: write("npz", text)) < 10 * num_bytes


@pytest.mark.parametrize("form", ["npz", "oip"])
def test_strings_of_no_elements_are_gathered_over_batches(form: FormName) -> None:
    num_rows = MAX_BATCH_ROWS + 1
    archive = io.BytesIO()
    np.savez(archive, x=np.zeros((num_rows, 0), "S1"), y=np.arange(num_rows))
    written = write(form, decode("npz", archive.getvalue(), Budget()))
    assert isinstance(written, bytes)
    options: dict[str, Any] = {"json_bytes": written.index(b"]}") + 2} if form == "oip" else {}
    found = read(form, written, **options)
    assert isinstance(found, Rows)
    assert found.features["x"].endswith("[0]")
    assert found.rows[-1] == {"x": [], "y": num_rows - 1}
