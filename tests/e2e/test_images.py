"""The recipe of examples/images, run as its README prints it: JPEGs up, shards down, a model trained.

The oracle is TensorFlow doing all of it.
"""

import importlib
import json
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.documentation import Page, matches, run_commands, run_program
from tests.support.archives import files_of
from tests.support.service import ROOT, Service, needs_curl, ready

# What TensorFlow and TFDS warn of while they are imported is theirs.
pytestmark = [needs_curl, pytest.mark.tensorflow, pytest.mark.filterwarnings("default")]

PAGE = Page(ROOT / "examples" / "images" / "README.md")
CLASSES = ["building", "flower"]
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
STEP = 4.9 / 255


@pytest.fixture(scope="module")
def tf() -> Any:
    return importlib.import_module("tensorflow")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands find in the root of a checkout."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with ready(tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture(scope="module")
def outputs(service: Service, folder: Path) -> list[tuple[str, str, str]]:
    return run_commands(PAGE, service, folder, timeout=600)


@pytest.fixture(scope="module")
def sent(outputs: list[tuple[str, str, str]], folder: Path) -> dict[str, bytes]:
    """Each photograph that was sent, by its split and path."""
    splits = {
        split: files_of((folder / "photos" / f"{split}.tar").read_bytes()) for split in ("train", "test")
    }
    return {f"{split}/{name}": content for split, files in splits.items() for name, content in files}


@pytest.fixture(scope="module")
def published(outputs: list[tuple[str, str, str]], folder: Path, tf: Any) -> dict[str, tuple[bytes, int]]:
    """Image and label of each row of the version, by its split and path."""
    found = {}
    for split in ("train", "test"):
        file = folder / "photos" / "1.0.0" / f"photos-{split}.tfrecord-00000-of-00001"
        for record in tf.data.TFRecordDataset(str(file)):
            features = tf.train.Example.FromString(record.numpy()).features.feature
            path = features["path"].bytes_list.value[0].decode()
            [image], [label] = features["image"].bytes_list.value, features["label"].int64_list.value
            found[f"{split}/{path}"] = image, label
    return found


def test_every_command_gives_the_output_printed_below_it(outputs: list[tuple[str, str, str]]) -> None:
    for command, printed, given in outputs:
        if not matches(printed, given):
            assert given == printed, command


def test_the_loss_falls_and_the_model_tells_both_classes(outputs: list[tuple[str, str, str]]) -> None:
    [trained] = [given for command, _, given in outputs if "train.py" in command]
    found = re.fullmatch(r"loss: ([\d.]+) -> ([\d.]+)\ntest accuracy: ([\d.]+)", trained)
    assert found is not None, trained
    first, last, accuracy = map(float, found.groups())
    assert last < first
    assert accuracy >= 0.9


def test_tensorflow_doing_all_of_it_stores_the_same_bytes(
    sent: dict[str, bytes], published: dict[str, tuple[bytes, int]], tf: Any
) -> None:
    assert published.keys() == sent.keys()
    assert len(sent) == 240
    for path, photograph in sent.items():
        pixels = tf.image.resize(tf.io.decode_jpeg(photograph, channels=3), [32, 32])
        stored = tf.io.encode_jpeg(tf.cast(pixels, tf.uint8)).numpy()
        assert published[path] == (stored, CLASSES.index(path.split("/")[1])), path


def test_tf_data_reads_what_tensorflow_doing_all_of_it_trains_on(
    sent: dict[str, bytes], published: dict[str, tuple[bytes, int]], folder: Path, tf: Any
) -> None:
    train = runpy.run_path(str(ROOT / "examples" / "images" / "train.py"))
    names = [path for path in published if path.startswith("test/")]
    rows = list(train["read"](str(folder / "photos" / "1.0.0"), "test"))
    for path, (image, label) in zip(names, rows, strict=True):
        small = tf.cast(tf.image.resize(tf.io.decode_jpeg(sent[path], channels=3), [32, 32]), tf.uint8)
        pixels = tf.io.decode_jpeg(tf.io.encode_jpeg(small), channels=3)
        expected = tf.image.resize(pixels, [128, 128]) / 255.0
        assert image.shape == (128, 128, 3)
        assert image.numpy().tobytes() == expected.numpy().tobytes(), path
        assert label.numpy() == CLASSES.index(path.split("/")[1])


def test_quantized_pixels_are_the_normalized_ones_to_within_half_a_step(
    published: dict[str, tuple[bytes, int]], folder: Path, tf: Any
) -> None:
    lines = (folder / "photos" / "quantized.ndjson").read_text().splitlines()
    assert len(lines) == 48
    for row in map(json.loads, lines):
        numbers = np.array(row["image"])
        assert (numbers.min() >= 0, numbers.max() <= 255, numbers.shape) == (True, True, (32, 32, 3))
        image, label = published[f"test/{row['path']}"]
        assert row["label"] == label
        pixels = tf.image.convert_image_dtype(tf.io.decode_jpeg(image, channels=3), tf.float32).numpy()
        back = (numbers - 114) * STEP
        assert np.abs(back - (pixels - MEAN) / STD).max() <= STEP / 2 + 1e-6


@pytest.mark.usefixtures("outputs")
def test_tensorflow_datasets_has_the_class_names_and_decoded_images(service: Service, folder: Path) -> None:
    [(language, source)] = PAGE.programs()
    names, *rows = run_program(language, source, service, folder).splitlines()
    assert names == str(CLASSES)
    assert len(rows) == 2
    for row in rows:
        path, *shape, label = row.split()
        assert shape == ["(32,", "32,", "3)"]
        assert CLASSES[int(label)] == path.split("/")[0]
