"""TFDS loads a published version in one line, and finds in it the rows that went in.

The oracle is `tfds.builder_from_directory`, on the folder as it lies on a local store.
"""

import base64
import importlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from app.codecs.forms import FormName
from app.codecs.options import RecordsEncodeOptions
from app.codecs.schemas.features_json import parse_features, serialize_dataset_info, serialize_features
from app.domain.feature import stored_features
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
from app.domain.sharding.shard_plan import default_num_shards
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.services.datasets.datasets import Datasets
from app.services.datasets.objects.incarnation import DatasetOptions
from app.services.datasets.objects.publish_options import PublishOptions
from app.storage.obstore_store import open_store
from tests.support.archives import form_of, tar_of, zip_of
from tests.support.dataset_rows import store_rows
from tests.support.format_cases import decode
from tests.support.images import encode, pixels

# What TensorFlow and TFDS warn of while they are imported is theirs.
pytestmark = pytest.mark.filterwarnings("default")

tf = importlib.import_module("tensorflow")
tfds = importlib.import_module("tensorflow_datasets")

Row = dict[str, Any]


def b64(data: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(data).decode()}


class Published:
    """A dataset on a local store, filled with JSON rows under a declared schema."""

    def __init__(self, root: Path, features: dict[str, Any], name: str = "my_ds") -> None:
        self.folder = root
        self.name = name
        self.schema = Schema.from_json({"features": features})
        self.datasets = Datasets(open_store(f"file://{root}"), limits=Limits(), spool=Spool(None, 1 << 30))
        self.datasets.create(name, self.schema, DatasetOptions("Made in a test."))

    def append(self, rows: list[Row], split: str = "train") -> None:
        body = "".join(json.dumps(row) + "\n" for row in rows).encode()
        budget = Budget()
        store_rows(
            self.datasets,
            self.name,
            split,
            decode("ndjson", body, budget, schema=self.schema),
            options=RecordsEncodeOptions(lossy=True),
            budget=budget,
        )

    def load(self, **options: Any) -> Any:
        version = self.datasets.publish(self.name, PublishOptions(**options)).version
        return tfds.builder_from_directory(str(self.folder / self.name / version))


def rows_of(builder: Any, split: str = "train") -> Iterator[Row]:
    for row in tfds.as_numpy(builder.as_dataset(split=split)):
        yield {name: plain(value) for name, value in row.items()}


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return value.to_list() if hasattr(value, "to_list") else np.asarray(value).tolist()


def round_trip(root: Path, feature: Any, values: list[Any]) -> list[Any]:
    published = Published(root, {"i": {"dtype": "int64"}, "x": feature})
    rows: list[Row] = [{"i": i, "x": value} for i, value in enumerate(values)]
    published.append([{name: v for name, v in row.items() if v is not None} for row in rows])
    loaded = sorted(rows_of(published.load()), key=lambda row: row["i"])
    assert [row["i"] for row in loaded] == list(range(len(values)))
    return [row["x"] for row in loaded]


@pytest.mark.parametrize(
    ("feature", "values"),
    [
        ({"dtype": "bool"}, [True, False]),
        ({"dtype": "int8"}, [-128, 127]),
        ({"dtype": "uint8"}, [0, 255]),
        ({"dtype": "int32"}, [-(2**31), 2**31 - 1]),
        ({"dtype": "uint32"}, [0, 2**32 - 1]),
        ({"dtype": "int64"}, [-(2**63), 2**63 - 1]),
        ({"dtype": "float16"}, [0.5, -2.0]),
        ({"dtype": "bfloat16"}, [0.5, -2.0]),
        ({"dtype": "float32"}, [0.25, -1.5]),
        ({"dtype": "float32", "shape": [2, 3]}, [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]),
        ({"dtype": "int64", "shape": [0]}, [[], []]),
        ({"dtype": "int64", "shape": [None]}, [[1, 2], [], [3]]),
        ({"dtype": "float32", "shape": [None, 2]}, [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]]),
        ({"dtype": "int64", "shape": [2, None]}, [[[1, 2], [3, 4]], [[5], [6]]]),
        ({"dtype": "float64", "encoding": "raw"}, [0.1, 1e300]),
        ({"dtype": "uint64", "shape": [2], "encoding": "raw"}, [[0, 2**64 - 1]]),
        ({"dtype": "bool", "shape": [2], "encoding": "raw"}, [[True, False]]),
        (
            {"dtype": "float64", "shape": [None, 2], "encoding": "raw"},
            [[[0.1, 0.2]], [[1.0, 2.0], [3.0, 4.0]]],
        ),
    ],
)
def test_numbers_come_back(tmp_path: Path, feature: Any, values: list[Any]) -> None:
    assert round_trip(tmp_path, feature, values) == values


@pytest.mark.parametrize(
    ("feature", "values", "expected"),
    [
        ({"dtype": "text"}, ["zwölf", ""], ["zwölf".encode(), b""]),
        ({"dtype": "bytes"}, [b64(b"\x00\xff"), b64(b"")], [b"\x00\xff", b""]),
        ({"dtype": "text", "shape": [2]}, [["a", "b"]], [[b"a", b"b"]]),
        ({"dtype": "text", "shape": [None]}, [["a", "b"], [], ["c"]], [[b"a", b"b"], [], [b"c"]]),
    ],
)
def test_strings_come_back(tmp_path: Path, feature: Any, values: list[Any], expected: list[Any]) -> None:
    assert round_trip(tmp_path, feature, values) == expected


@pytest.mark.parametrize(
    ("feature", "values", "expected"),
    [
        ({"dtype": "int64"}, [1, None], [1, -(2**63)]),
        ({"dtype": "text"}, ["a", None], [b"a", b""]),
        ({"dtype": "bool"}, [True, None], [True, False]),
        ({"dtype": "int64", "shape": [2]}, [[1, 2], None], [[1, 2], [-(2**63)] * 2]),
        ({"dtype": "int64", "shape": [None]}, [[1, 2], None], [[1, 2], []]),
        ({"dtype": "bfloat16"}, [0.5, None], [0.5, float(np.finfo("f4").min)]),
        ({"dtype": "float64"}, [0.5, None], [0.5, float(np.finfo("f4").min)]),
    ],
)
def test_an_absent_feature_is_the_least_value_or_empty(
    tmp_path: Path, feature: Any, values: list[Any], expected: list[Any]
) -> None:
    assert round_trip(tmp_path, {**feature, "nullable": True}, values) == expected


@pytest.mark.parametrize("nullable", [False, True])
def test_encoded_tensors_are_opaque_bytes(tmp_path: Path, nullable: bool) -> None:
    tf = importlib.import_module("tensorflow")
    feature = {"dtype": "float32", "shape": [None, None], "encoding": "tensor", "nullable": nullable}
    values: list[Any] = [[[1.0, 2.0]], [[3.0], [4.0]]] + ([None] if nullable else [])
    loaded = round_trip(tmp_path, feature, values)
    parsed = [tf.io.parse_tensor(data, tf.float32).numpy().tolist() for data in loaded[:2]]
    assert parsed == values[:2]
    assert loaded[2:] == ([b""] if nullable else [])


def test_raw_bytes_that_may_be_absent_are_opaque(tmp_path: Path) -> None:
    feature = {"dtype": "float64", "shape": [2], "encoding": "raw", "nullable": True}
    loaded = round_trip(tmp_path, feature, [[0.1, 0.2], None])
    assert loaded == [np.array([0.1, 0.2]).tobytes(), b""]


def test_raw_uint32_is_opaque(tmp_path: Path) -> None:
    loaded = round_trip(tmp_path, {"dtype": "uint32", "shape": [2], "encoding": "raw"}, [[1, 2**32 - 1]])
    assert loaded == [np.array([1, 2**32 - 1], "<u4").tobytes()]


def load_examples(folder: Path, feature: dict[str, Any], examples: list[dict[str, list[Any]]]) -> list[Any]:
    """What TFDS makes of `x` in Examples with these lists, by the files that we write beside them."""
    tf = importlib.import_module("tensorflow")
    schema = Schema.from_json({"features": {"x": feature}})
    (folder / "features.json").write_bytes(serialize_features(schema))
    info = serialize_dataset_info("d", "1.0.0", {"train": [len(examples)]}, {"train": 1})
    (folder / "dataset_info.json").write_bytes(info)
    with tf.io.TFRecordWriter(str(folder / "d-train.tfrecord-00000-of-00001")) as writer:
        for lists in examples:
            example = tf.train.Example()
            for name, values in lists.items():
                kind = "float_list" if isinstance((values or [0])[0], float) else "int64_list"
                getattr(example.features.feature[name], kind).value.extend(values)
            writer.write(example.SerializeToString())
    return [row["x"] for row in rows_of(tfds.builder_from_directory(str(folder)))]


@pytest.mark.parametrize(
    ("feature", "lists", "expected"),
    [
        (
            {"dtype": "int64", "shape": [None, None]},
            {"ragged_flat_values": [1, 2, 3], "ragged_row_lengths_0": [2, 0, 1]},
            [[1, 2], [], [3]],
        ),
        (
            {"dtype": "float16", "shape": [None, None, 2]},
            {"ragged_flat_values": [1.0, 2.0, 3.0, 4.0], "ragged_row_lengths_0": [0, 2]},
            [[], [[1.0, 2.0], [3.0, 4.0]]],
        ),
        (
            {"dtype": "bool", "shape": [None, 1, None]},
            {
                "ragged_flat_values": [1, 0, 1],
                "ragged_row_lengths_0": [1, 1],
                "ragged_row_lengths_1": [3, 0],
            },
            [[[True, False, True]], [[]]],
        ),
        ({"dtype": "int64", "shape": [None, None]}, {}, []),
    ],
)
def test_ragged_components_are_read_as_ragged_tensors(
    tmp_path: Path, feature: dict[str, Any], lists: dict[str, list[Any]], expected: Any
) -> None:
    whole = {**feature, "kind": "ragged", "nullable": not lists}
    stored = {f"x/{name}": values for name, values in lists.items()}
    assert load_examples(tmp_path, whole, [stored]) == [expected]
    if lists:
        # The same names and lists as TFDS writes.
        content = json.loads(serialize_features(Schema.from_json({"features": {"x": whole}})))
        features = tfds.features.FeaturesDict.from_json(content)
        example = features.get_serialized_info()
        serializer = tfds.core.example_serializer.ExampleSerializer(example)
        written = serializer.get_tf_example(features.encode_example({"x": expected})).features.feature
        assert {
            name: list(value.int64_list.value or value.float_list.value) for name, value in written.items()
        } == stored


def test_other_ragged_and_sparse_features_are_read_as_their_lists(tmp_path: Path) -> None:
    ragged = {"dtype": "int8", "shape": [2, None], "kind": "ragged"}
    lists = {"ragged_flat_values": [1, 2, 3], "ragged_row_lengths_0": [2, 1]}
    assert load_examples(tmp_path, ragged, [{f"x/{k}": v for k, v in lists.items()}]) == [lists]
    sparse = {"dtype": "float32", "shape": [4, 5], "kind": "sparse"}
    coordinates: dict[str, list[Any]] = {"indices_0": [0, 3], "indices_1": [1, 4], "values": [0.5, -1.0]}
    assert load_examples(tmp_path, sparse, [{f"x/{k}": v for k, v in coordinates.items()}]) == [coordinates]


@pytest.mark.parametrize(
    "make",
    [
        lambda f: f.Tensor(shape=(None, 2), dtype=np.float32),
        lambda f: f.Tensor(shape=(2,), dtype=np.float32, encoding="bytes"),
        lambda f: f.Tensor(shape=(None, None), dtype=np.float32, encoding="zlib"),
        lambda f: f.Scalar(dtype=np.int8, optional=True),
        lambda f: f.ClassLabel(num_classes=3),
        lambda f: f.Text(),
        lambda f: f.Image(shape=(None, None, 3)),
        lambda f: f.BBoxFeature(),
        lambda f: f.Translation(["en", "de"]),
        lambda f: f.Sequence(f.Sequence(f.Tensor(shape=(3,), dtype=np.int64))),
        lambda f: f.Sequence(
            {"a": f.Text(), "b": f.Sequence(f.Sequence(f.Scalar(dtype=np.bool_)), length=2)}
        ),
        lambda f: {"a": {"b": f.Text()}},
    ],
)
def test_features_of_tfds_match_its_examples(make: Any) -> None:
    """The names and the kinds of list in TFDS's own Examples are those of `stored_features`."""
    features = tfds.features.FeaturesDict({"x": make(tfds.features)})
    schema = parse_features(features.to_json())
    specs = tfds.core.example_parser.ExampleParser(features.get_serialized_info()).flat_feature_specs
    stored = {part.name: part for feature in schema for part in stored_features(feature)}
    assert stored.keys() == specs.keys()
    for name, spec in specs.items():
        part = stored[name]
        is_string = part.dtype.is_string or part.encoding == "raw"
        assert spec.dtype.name == ("string" if is_string else "float32" if part.dtype.is_float else "int64")


def test_the_languages_of_a_translation_keep_their_names() -> None:
    features = tfds.features.Translation(["en", "de"])
    assert set(parse_features(features.to_json()).names) == {"en", "de"}
    specs = tfds.core.example_parser.ExampleParser(features.get_serialized_info()).flat_feature_specs
    assert set(specs) == {"en", "de"}


#: A format, and the shape that TFDS is told.
IMAGES: list[tuple[str | None, list[int | None]]] = [
    ("jpeg", [None, None, 3]),
    ("jpeg", [6, 8, 3]),
    ("jpeg", [None, None, None]),
    ("png", [6, 8, 1]),
    ("png", [None, None, 4]),
    ("png", [None, 8, None]),
    ("bmp", [6, 8, 3]),
    (None, [None, None, 3]),
]


@pytest.mark.parametrize(("form", "shape"), IMAGES)
def test_tfds_hands_out_decoded_images(tmp_path: Path, form: str | None, shape: list[int | None]) -> None:
    random = np.random.default_rng(3)
    mode = {1: "L", 4: "RGBA"}.get(shape[2] or 3, "RGB")
    files = []
    for _ in range(3):
        pixels = random.integers(0, 256, (6, 8, {"L": 1, "RGB": 3, "RGBA": 4}[mode]), np.uint8)
        file = io.BytesIO()
        PIL.Image.fromarray(pixels.squeeze()).save(file, form or "png")
        files.append(file.getvalue())
    feature = {"dtype": "bytes", "image": {"format": form, "shape": shape}}
    published = Published(tmp_path, {"i": {"dtype": "int64"}, "x": feature})
    published.append([{"i": i, "x": b64(data)} for i, data in enumerate(files)])
    builder = published.load()
    assert isinstance(builder.info.features["x"], tfds.features.Image)
    assert builder.info.features["x"].shape == tuple(shape)
    assert published.schema.to_json() == read_back(published, builder).to_json()
    rows = sorted(tfds.as_numpy(builder.as_dataset(split="train")), key=lambda row: int(row["i"]))
    for row, data in zip(rows, files, strict=True):
        assert np.array_equal(row["x"], tf.io.decode_image(data).numpy())


@pytest.mark.parametrize("forms", [["jpeg", "jpeg"], ["png", "jpeg", "bmp"]])
def test_tfds_decodes_images_that_came_in_an_archive_without_a_schema(
    tmp_path: Path, forms: list[str]
) -> None:
    datasets = Datasets(open_store(f"file://{tmp_path}"), limits=Limits(), spool=Spool(None, 1 << 30))
    files = [encode(pixels(6 + n, 8, 3, n), form) for n, form in enumerate(forms)]
    samples = tar_of(*((f"{n}.img", data) for n, data in enumerate(files)))
    folders = zip_of(*((f"cat/{n}.jpg", data) for n, data in enumerate(files)))
    for name, key, image, rows in (
        ("samples", "__key__", "img", decode("tar", samples)),
        ("folders", "path", "image", decode("zip", folders)),
    ):
        store_rows(datasets, name, "train", rows)
        version = datasets.publish(name, PublishOptions()).version
        builder = tfds.builder_from_directory(str(tmp_path / name / version))
        assert isinstance(builder.info.features[image], tfds.features.Image)
        loaded = {row[key]: row[image] for row in tfds.as_numpy(builder.as_dataset(split="train"))}
        assert len(loaded) == len(files)
        for number, data in enumerate(files):
            [found] = [value for path, value in loaded.items() if str(number) in path.decode()]
            assert np.array_equal(found, tf.io.decode_image(data).numpy())


#: Label, name and content of images.
PETS = [("dog", "1.jpg", b"one"), ("cat", "2.jpg", b"two"), ("dog", "3.png", b"three")]


def read_back(published: "Published", builder: Any) -> Schema:
    folder = published.folder / published.name / str(builder.version)
    return parse_features(json.loads((folder / "features.json").read_text()))


@pytest.mark.parametrize("dtype", ["int64", "uint8"])
@pytest.mark.parametrize("names", [["cat", "dog", "très bien"], ["a"], [" odd", "", "names\n"]])
def test_tfds_hands_out_names_of_classes(tmp_path: Path, dtype: str, names: list[str]) -> None:
    features = {"a/b": {"dtype": dtype, "class_names": names}, "x": {"dtype": dtype, "class_names": names}}
    published = Published(tmp_path, features)
    published.append([{"a/b": i, "x": i} for i in range(len(names))])
    builder = published.load()
    assert published.schema.to_json() == read_back(published, builder).to_json()
    for name in features:
        label = builder.info.features[name]
        assert isinstance(label, tfds.features.ClassLabel)
        assert label.num_classes == len(names)
        known = names if names[0] != " odd" else [str(i) for i in range(len(names))]
        assert [label.int2str(i) for i in range(len(names))] == known
    assert sorted(row["x"] for row in rows_of(builder)) == list(range(len(names)))


@pytest.mark.parametrize(
    ("form", "body", "options"),
    [
        ("zip", zip_of(*((f"pets/{label}/{name}", data) for label, name, data in PETS)), {}),
        (
            "tar",
            tar_of(*((f"{label}/{name}", data) for label, name, data in PETS)),
            {"archive": "folders"},
        ),
        (
            "multipart",
            form_of(*(part for label, name, data in PETS for part in (label, (name, data)))),
            {"boundary": b"b"},
        ),
    ],
)
def test_tfds_has_the_names_of_labels_that_were_sent_with_images(
    tmp_path: Path, form: FormName, body: bytes, options: dict[str, Any]
) -> None:
    datasets = Datasets(open_store(f"file://{tmp_path}"), limits=Limits(), spool=Spool(None, 1 << 30))
    rows = decode(form, body, labels=("cat", "dog", "horse"), **options)
    store_rows(datasets, "pets", "train", rows)
    version = datasets.publish("pets", PublishOptions()).version
    builder = tfds.builder_from_directory(str(tmp_path / "pets" / version))
    label = builder.info.features["label"]
    assert isinstance(label, tfds.features.ClassLabel)
    assert label.names == ["cat", "dog", "horse"]
    loaded = {row["path"]: row for row in rows_of(builder)}
    assert len(loaded) == len(PETS)
    for name, data in ((name, data) for _, name, data in PETS):
        (row,) = (row for path, row in loaded.items() if path.decode().endswith(name))
        assert row["image"] == data
    found = {(path.decode().split("/")[-1], label.int2str(row["label"])) for path, row in loaded.items()}
    assert found == {(name, label) for label, name, _ in PETS}


@pytest.mark.parametrize(
    "feature",
    [
        {"dtype": "bytes", "nullable": True, "image": {"format": "jpeg", "shape": [None, None, 3]}},
        {"dtype": "bytes", "image": {"format": "webp", "shape": [None, None, 3]}},
        {"dtype": "bytes", "image": {"format": "gif", "shape": [None, None, 3]}},
        {"dtype": "bytes", "image": {"format": "png", "shape": [None, None, 2]}},
        {"dtype": "int64", "nullable": True, "class_names": ["a", "b"]},
        {"dtype": "int64", "shape": [2], "class_names": ["a", "b"]},
        {"dtype": "int64", "encoding": "tensor", "class_names": ["a", "b"]},
        {"dtype": "uint8", "quantized": {"scale": [0.5], "zero_point": [1]}},
    ],
)
def test_feature_unknown_to_tfds_round_trips(tmp_path: Path, feature: Any) -> None:
    published = Published(tmp_path, {"x": feature})
    published.append(
        [{"x": b64(b"x") if feature["dtype"] == "bytes" else [0, 1] if "shape" in feature else 1}]
    )
    builder = published.load()
    assert len(list(builder.as_dataset(split="train"))) == 1
    assert published.schema.to_json() == read_back(published, builder).to_json()


@pytest.mark.parametrize("name", ["my_ds", "my-ds", "1ds", "A"])
def test_every_name_that_we_allow_loads(tmp_path: Path, name: str) -> None:
    published = Published(tmp_path, {"x": {"dtype": "int64"}}, name)
    published.append([{"x": 1}])
    published.append([{"x": 2}], "test-2")
    builder = published.load()
    assert builder.name == name
    assert [row["x"] for row in rows_of(builder, "train")] == [1]
    assert [row["x"] for row in rows_of(builder, "test-2")] == [2]


def test_shards_splits_and_versions(tmp_path: Path) -> None:
    published = Published(tmp_path, {"x": {"dtype": "int64"}})
    published.append([{"x": i} for i in range(10)])
    published.append([{"x": i} for i in range(100, 103)], "test")
    published.append([], "empty")
    first = published.load(num_shards=4)
    published.append([{"x": 10}])
    second = published.load(num_shards=3)
    assert (str(first.version), str(second.version)) == ("1.0.0", "1.1.0")
    assert set(first.info.splits) == {"train", "test"}
    assert first.info.splits["train"].num_examples == 10
    assert first.info.splits["train"].shard_lengths == [2, 3, 3, 2]
    assert first.info.splits["test"].shard_lengths == [1, 1, 0, 1]
    assert sorted(row["x"] for row in rows_of(first)) == list(range(10))
    assert sorted(row["x"] for row in rows_of(first, "test")) == [100, 101, 102]
    assert sorted(row["x"] for row in rows_of(second)) == list(range(11))
    assert sorted(row["x"] for row in rows_of(second, "train[3:5]")) == [3, 4]
    assert second.info.description == "Made in a test."


#: Records and MiB; TFDS loops forever where there are fewer records than shards.
SIZES = [
    (num_records, mib)
    for num_records in (1, 1000, 1023, 1024, 2048, 10**7)
    for mib in (0, 1, 63, 64, 127, 128, 1000, 4096, 65_536, 2**20 - 1, 2**20, 2**20 + 1024)
    if mib <= 2**20 or num_records >= 2048
]


@pytest.mark.parametrize(("num_records", "mib"), SIZES)
def test_as_many_shards_as_tfds_would_write(num_records: int, mib: int) -> None:
    shard_utils = importlib.import_module("tensorflow_datasets.core.utils.shard_utils")
    payload = max(0, mib * MIB - 16 * num_records)
    expected = shard_utils.ShardConfig.calculate_number_shards(payload, num_records)
    assert default_num_shards(payload + 16 * num_records, num_records) == expected
