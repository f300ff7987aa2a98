"""The Python source that a schema is given out as, executed: TensorFlow reads by it the rows that went in."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.codecs.schemas.python_source import serialize_python
from app.domain.dtypes import DTYPES
from app.domain.feature import Feature
from app.domain.schema import Schema
from tests.support.format_cases import decode, encode

tf = importlib.import_module("tensorflow")

Lists = dict[str, list[Any]]


def loaded(schema: Schema, path: Path, **options: Any) -> list[dict[str, Any]]:
    """The rows of a TFRecord file, as the generated loader gives them."""
    module: dict[str, Any] = {}
    exec(compile(serialize_python(schema), "<generated>", "exec"), module)  # noqa: S102  # which is the test
    return [
        {name: plain(value) for name, value in row.items()} for row in module["load"](str(path), **options)
    ]


def plain(value: Any) -> Any:
    """Lists; of a sparse tensor its dense form. A bfloat16 as a float."""
    if isinstance(value, tf.SparseTensor):
        value = tf.sparse.to_dense(value)
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    return np.asarray(value).tolist()


def feature_of(values: list[Any]) -> Any:
    if not values:
        return tf.train.Feature()
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(lists: Lists) -> bytes:
    features = {name: feature_of(values) for name, values in lists.items()}
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def sequence_example(context: Lists, lists: dict[str, list[list[Any]]]) -> bytes:
    features = tf.train.Features(feature={name: feature_of(values) for name, values in context.items()})
    feature_lists = {
        name: tf.train.FeatureList(feature=[feature_of(values) for values in steps])
        for name, steps in lists.items()
    }
    return bytes(
        tf.train.SequenceExample(
            context=features, feature_lists=tf.train.FeatureLists(feature_list=feature_lists)
        ).SerializeToString()
    )


def read(tmp_path: Path, feature: dict[str, Any], rows: list[bytes], **options: Any) -> list[Any]:
    path = tmp_path / "rows.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            writer.write(row)
    schema = Schema.from_json({"features": {"x": feature}})
    return [row["x"] for row in loaded(schema, path, **options)]


INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]


def arrays() -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    for dtype in ("bool", *INTS, *FLOATS, "complex64", "complex128"):
        values = [0, 1] if dtype == "bool" else [3, 120]
        yield dtype, np.array([values, values[::-1], values], tf.as_dtype(dtype).as_numpy_dtype)


@pytest.mark.parametrize("dtype", ["bool", *INTS, *FLOATS])
def test_lists_of_every_dtype(tmp_path: Path, dtype: str) -> None:
    value: list[Any] = [1, 0] if dtype not in FLOATS else [1.0, 0.5]
    feature = {"dtype": dtype, "shape": [2], "encoding": "list"}
    assert read(tmp_path, feature, [example({"x": value})]) == [value]


@pytest.mark.parametrize(("dtype", "array"), list(arrays()))
@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("shape", [[3, 2], [None, 2]])
def test_raw_and_tensor_of_every_dtype(
    tmp_path: Path, dtype: str, array: np.ndarray[Any, Any], nullable: bool, shape: list[int | None]
) -> None:
    proto = tf.io.serialize_tensor(tf.constant(array)).numpy()
    for encoding, data in (("raw", array.tobytes()), ("tensor", proto)):
        feature = {"dtype": dtype, "shape": shape, "encoding": encoding, "nullable": nullable}
        rows = [example({"x": [data]})] + [example({})] * nullable
        expected = array.tolist()
        assert read(tmp_path, feature, rows) == ([[expected], []] if nullable else [expected])


NARROW = [dtype.name for dtype in DTYPES.values() if not dtype.has_kernel]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("encoding", ["raw", "tensor"])
def test_dtype_without_a_kernel_stays_serialized(tmp_path: Path, dtype: str, encoding: str) -> None:
    feature, data = {"dtype": dtype, "shape": [2], "encoding": encoding}, b"\x01\x00"
    row = example({"x": [data]})
    assert read(tmp_path, feature, [row]) == [data]
    assert read(tmp_path, {**feature, "nullable": True}, [row, example({})]) == [[data], []]
    steps = {**feature, "kind": "sequence", "shape": [None, 2]}
    assert read(tmp_path, steps, [sequence_example({}, {"x": [[data], [b""]]})]) == [[data, b""]]
    assert read(tmp_path, {**steps, "nullable": True}, [sequence_example({}, {})]) == [[]]


def test_tensors_of_strings_and_of_any_shape(tmp_path: Path) -> None:
    array = tf.constant([[b"a", b"\xff"]])
    row = example({"x": [tf.io.serialize_tensor(array).numpy()]})
    feature = {"dtype": "bytes", "shape": [None, None], "encoding": "tensor"}
    assert read(tmp_path, feature, [row]) == [[[b"a", b"\xff"]]]
    assert read(tmp_path, {**feature, "nullable": True}, [row, example({})]) == [[[[b"a", b"\xff"]]], []]


@pytest.mark.parametrize(
    ("feature", "values", "expected"),
    [
        ({"dtype": "text"}, [b"a"], b"a"),
        ({"dtype": "bytes", "shape": [2]}, [b"a", b"\xff"], [b"a", b"\xff"]),
        ({"dtype": "int8", "shape": [2, 2]}, [1, 2, 3, 4], [[1, 2], [3, 4]]),
        ({"dtype": "int8", "shape": [None]}, [1, 2, 3], [1, 2, 3]),
        ({"dtype": "int8", "shape": [None, 2]}, [1, 2, 3, 4], [[1, 2], [3, 4]]),
        ({"dtype": "int8", "shape": [2, None]}, [1, 2, 3, 4], [[1, 2], [3, 4]]),
        ({"dtype": "text", "shape": [None, 1]}, [b"a", b"b"], [[b"a"], [b"b"]]),
    ],
)
def test_shapes_of_lists_and_what_may_be_absent(
    tmp_path: Path, feature: dict[str, Any], values: list[Any], expected: Any
) -> None:
    row = example({"x": values})
    assert read(tmp_path, feature, [row]) == [expected]
    unknown = None in feature.get("shape", [])
    nullable = read(tmp_path, {**feature, "nullable": True}, [row, example({})])
    assert nullable[0] == (expected if unknown else [expected])
    assert np.size(nullable[1]) == 0


def test_a_shape_without_elements(tmp_path: Path) -> None:
    empty = tf.train.Feature(float_list=tf.train.FloatList())
    row = tf.train.Example(features=tf.train.Features(feature={"x": empty})).SerializeToString()
    feature = {"dtype": "float32", "shape": [2, 0]}
    assert read(tmp_path, feature, [row]) == [[[], []]]
    assert read(tmp_path, {**feature, "nullable": True}, [row, example({})]) == [[[], []]] * 2


@pytest.mark.parametrize(
    ("feature", "lists", "expected"),
    [
        (
            {"dtype": "uint8", "shape": [None, None], "kind": "ragged"},
            {"x/ragged_flat_values": [1, 2, 3], "x/ragged_row_lengths_0": [2, 0, 1]},
            [[1, 2], [], [3]],
        ),
        (
            {"dtype": "float32", "shape": [None, 2, None, 2], "kind": "ragged"},
            {
                "x/ragged_flat_values": [1.0, 2.0, 3.0, 4.0],
                "x/ragged_row_lengths_0": [2],
                "x/ragged_row_lengths_1": [0, 2],
            },
            [[[], [[1.0, 2.0], [3.0, 4.0]]]],
        ),
        (
            {"dtype": "text", "shape": [None, None], "kind": "ragged"},
            {"x/ragged_flat_values": [b"a"], "x/ragged_row_lengths_0": [1]},
            [[b"a"]],
        ),
        (
            {"dtype": "bool", "shape": [2, 2], "kind": "sparse"},
            {"x/indices_0": [0, 1], "x/indices_1": [1, 0], "x/values": [1, 1]},
            [[False, True], [True, False]],
        ),
        (
            {"dtype": "float32", "shape": [3], "kind": "sparse"},
            {"x/indices_0": [2], "x/values": [0.5]},
            [0.0, 0.0, 0.5],
        ),
    ],
)
@pytest.mark.parametrize("message", ["example", "sequence_example"])
def test_ragged_and_sparse(
    tmp_path: Path, feature: dict[str, Any], lists: Lists, expected: Any, message: str
) -> None:
    assert read(tmp_path, feature, [example(lists)]) == [expected]
    absent = read(tmp_path, {**feature, "nullable": True}, [example({})])[0]
    assert not np.any(absent)
    if message == "sequence_example":
        path = tmp_path / "sequence.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as writer:
            writer.write(sequence_example(lists, {}))
        schema = Schema.from_json({"features": {"x": feature}, "message": message})
        assert loaded(schema, path) == [{"x": expected}]


RAW = np.array([[1, 2], [3, 4]], "<u4")


@pytest.mark.parametrize(
    ("feature", "steps", "expected"),
    [
        ({"dtype": "int32", "shape": [None]}, [[1], [2]], [1, 2]),
        ({"dtype": "text", "shape": [None]}, [[b"a"]], [b"a"]),
        ({"dtype": "int32", "shape": [None, 2]}, [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        ({"dtype": "int32", "shape": [None, None]}, [[1, 2, 3], [], [4]], [[1, 2, 3], [], [4]]),
        ({"dtype": "float32", "shape": [None, None, 2]}, [[1.0, 2.0], []], [[[1.0, 2.0]], []]),
        ({"dtype": "float16", "shape": [None, 2, None]}, [[1.0, 2.0]], [[[1.0], [2.0]]]),
        ({"dtype": "uint32", "shape": [None, 2, 2], "encoding": "raw"}, [[RAW.tobytes()]], [RAW.tolist()]),
        (
            {"dtype": "uint32", "shape": [None, None, 2], "encoding": "raw"},
            [[RAW.tobytes()], [RAW[:1].tobytes()]],
            [RAW.tolist(), RAW[:1].tolist()],
        ),
        ({"dtype": "uint32", "shape": [None, None], "encoding": "raw"}, [[RAW[0].tobytes()]], [[1, 2]]),
        (
            {"dtype": "float32", "shape": [None, None, None], "encoding": "tensor"},
            [[tf.io.serialize_tensor([[1.0]]).numpy()], [tf.io.serialize_tensor([[1.0, 2.0]]).numpy()]],
            [[[1.0]], [[1.0, 2.0]]],
        ),
        (
            {"dtype": "complex64", "shape": [None], "encoding": "tensor"},
            [[tf.io.serialize_tensor(tf.constant(1j, tf.complex64)).numpy()]],
            [1j],
        ),
    ],
)
def test_feature_lists(
    tmp_path: Path, feature: dict[str, Any], steps: list[list[Any]], expected: Any
) -> None:
    feature = {**feature, "kind": "sequence"}
    assert read(tmp_path, feature, [sequence_example({}, {"x": steps})]) == [expected]
    absent = read(tmp_path, {**feature, "nullable": True}, [sequence_example({}, {})])[0]
    assert np.size(absent) == 0
    empty = read(tmp_path, feature, [sequence_example({}, {"x": []})])[0]
    assert np.size(empty) == 0


def test_one_name_in_both_parts(tmp_path: Path) -> None:
    path = tmp_path / "rows.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(sequence_example({"x": [7]}, {"x": [[1], [2]]}))
    features = {
        "x": {"dtype": "int64"},
        "feature_lists/x": {"dtype": "int32", "shape": [None], "kind": "sequence"},
    }
    expected = [{"x": 7, "feature_lists/x": [1, 2]}]
    assert loaded(Schema.from_json({"features": features}), path) == expected


def test_batches_of_rows_of_several_lengths(tmp_path: Path) -> None:
    rows = [example({"x": [1, 2]}), example({"x": [3]}), example({"x": []})]
    feature = {"dtype": "int64", "shape": [None]}
    assert read(tmp_path, feature, rows, batch_size=2) == [[[1, 2], [3]], [[]]]


NAMES = [
    "a b",
    "'",
    '"',
    "'''\"\"\"",
    "\\",
    "\n",
    "}",
    "{0}",
    "%s",
    "ü",
    "😀",
    "\u2028",
    "import os",
    "__name__",
]


def test_no_name_is_code(tmp_path: Path) -> None:
    schema = Schema.from_json({"features": {name: {"dtype": "uint8"} for name in NAMES}})
    path = tmp_path / "rows.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(example({name: [i] for i, name in enumerate(NAMES)}))
    assert loaded(schema, path) == [{name: i for i, name in enumerate(NAMES)}]


def test_equal_schemas_give_equal_source() -> None:
    def schema() -> Schema:
        return Schema((Feature.from_json("x", {"dtype": "int8", "shape": [None]}),))

    assert serialize_python(schema()) == serialize_python(schema())


ROWS: list[tuple[dict[str, Any], Any]] = [
    ({"dtype": "bool", "shape": [2]}, [True, False]),
    ({"dtype": "int8"}, -3),
    ({"dtype": "uint32", "shape": [None]}, [1, 2**32 - 1]),
    ({"dtype": "bfloat16", "shape": [2, 1]}, [[0.5], [2.0]]),
    ({"dtype": "float64", "shape": [2], "encoding": "raw"}, [0.1, 1e300]),
    ({"dtype": "uint64", "shape": [None], "encoding": "tensor"}, [2**64 - 1]),
    ({"dtype": "float32", "shape": [None, None]}, [[1.0, 2.0], [3.0, 4.0]]),
    ({"dtype": "complex64", "shape": [1], "encoding": "raw"}, [[1.0, -2.0]]),
]


def test_our_own_bytes(tmp_path: Path) -> None:
    features = {f"f{index}": feature for index, (feature, _) in enumerate(ROWS)}
    row = {f"f{index}": value for index, (_, value) in enumerate(ROWS)}
    schema = Schema.from_json({"features": {**features, "name": {"dtype": "text", "nullable": True}}})
    body = "\n".join(json.dumps(item) for item in (row, {**row, "name": "ü"})).encode()
    records = decode("ndjson", body, schema=schema)
    path = tmp_path / "rows.tfrecord"
    path.write_bytes(encode("tfrecord", records))
    expected = {**row, "f7": [1 - 2j]}
    assert loaded(schema, path) == [{**expected, "name": []}, {**expected, "name": ["ü".encode()]}]
