"""Images and numbers that are appended, transformed, published and loaded by the lines of the version.

The oracle is TensorFlow doing all of it.
"""

import base64
import importlib
import io
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest

from tests.support.service import Service, ready

# What TensorFlow and TFDS warn of while they are imported is theirs.
pytestmark = pytest.mark.filterwarnings("default")

tf = importlib.import_module("tensorflow")

Row = dict[str, Any]
Arrays = np.ndarray[Any, Any]

CLASSES = ["cat", "dog", "horse"]
FEATURES: dict[str, Any] = {
    "image": {
        "dtype": "bytes",
        "transforms": [
            {"step": "decode_image", "channels": 3},
            {"step": "resize", "size": [32, 32]},
            {"step": "cast", "dtype": "uint8", "unfit": "saturate"},
            {"step": "encode_jpeg", "quality": 90},
        ],
    },
    "lossless": {
        "dtype": "bytes",
        "transforms": [
            {"step": "decode_image", "channels": 1},
            {"step": "central_crop", "central_fraction": 0.5},
            {"step": "encode_png"},
        ],
    },
    "pixels": {
        "dtype": "bytes",
        "transforms": [
            {"step": "decode_image", "channels": 3},
            {"step": "resize_with_crop_or_pad", "target_height": 16, "target_width": 16},
            {"step": "store_as", "encoding": "raw"},
        ],
    },
    "label": {
        "dtype": "text",
        "transforms": [{"step": "strip"}, {"step": "lower"}, {"step": "lookup", "vocabulary": CLASSES}],
    },
    "x": {
        "dtype": "float32",
        "shape": [4],
        "transforms": [{"step": "quantize", "dtype": "uint8", "min": -2, "max": 6}],
    },
    "y": {
        "dtype": "float32",
        "shape": [2],
        "transforms": [{"step": "quantize", "dtype": "int8", "scale": [0.5, 0.25], "zero_point": [3, -4]}],
    },
}
#: Half a step of each quantized number: a range of 8 in 255 steps, and the scales.
HALF_STEPS: dict[str, Any] = {"x": 4 / 255, "y": [0.25, 0.125]}


def jpeg(random: np.random.Generator) -> bytes:
    height, width = random.integers(20, 200, 2)
    noise = random.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    file = io.BytesIO()
    image = PIL.Image.fromarray(noise).resize((int(width), int(height)), PIL.Image.Resampling.BICUBIC)
    image.save(file, "JPEG", quality=int(random.integers(60, 100)), subsampling=int(random.integers(0, 3)))
    return file.getvalue()


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    random = np.random.default_rng(13)
    return [
        {
            "image": jpeg(random),
            "lossless": jpeg(random),
            "pixels": jpeg(random),
            "label": f" {CLASSES[index % 3].title()}",
            "x": random.uniform(-2, 6, 4).astype(np.float32).tolist(),
            "y": random.uniform(-30, 30, 2).astype(np.float32).tolist(),
        }
        for index in range(24)
    ]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with ready(tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture(scope="module")
def lines(service: Service, rows: list[Row]) -> dict[str, str]:
    url = f"{service.url}/v1/datasets/d-{uuid.uuid4().hex[:8]}"
    body = [
        {
            name: {"b64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
            for name, value in row.items()
        }
        for row in rows
    ]
    with httpx.Client(timeout=60) as client:
        content = {"schema": {"features": FEATURES}, "instances": body}
        answer = client.post(f"{url}/records", params={"publish": "true"}, json=content)
        assert answer.status_code == 201, answer.text
        load: dict[str, str] = answer.json()["load"]
    return load


@pytest.fixture
def module(lines: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The lines for tf.data, run where the download was run."""
    monkeypatch.chdir(tmp_path)
    ended = subprocess.run(["sh", "-c", lines["download"]], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    found: dict[str, Any] = {}
    exec(compile(lines["tf.data"], "<printed>", "exec"), found)  # noqa: S102  # which is the test
    return found


def shown(image: Arrays) -> Arrays:
    """Pixels from 0 to 255 -> from 0 to 1."""
    found: Arrays = (tf.cast(image, tf.float32) / 255.0).numpy()
    return found


def resized(data: bytes) -> Arrays:
    """The image as TensorFlow would have stored and decoded it."""
    pixels = tf.image.resize(tf.io.decode_jpeg(data, channels=3), [32, 32])
    stored = tf.io.encode_jpeg(tf.saturate_cast(pixels, tf.uint8), quality=90)
    found: Arrays = tf.io.decode_jpeg(stored, channels=3).numpy()
    return found


def test_rows_are_what_tensorflow_would_have_made(module: dict[str, Any], rows: list[Row]) -> None:
    found = list(module["rows"])
    assert len(found) == len(rows)
    for row, sent in zip(found, rows, strict=True):
        assert np.array_equal(row["image"], shown(resized(sent["image"])))
        grey = tf.image.central_crop(tf.io.decode_jpeg(sent["lossless"], channels=1), 0.5)
        assert np.array_equal(row["lossless"], shown(grey))
        padded = tf.image.resize_with_crop_or_pad(tf.io.decode_jpeg(sent["pixels"], channels=3), 16, 16)
        assert row["pixels"].dtype == tf.uint8
        assert np.array_equal(row["pixels"], padded)
        assert module["class_names"]["label"][int(row["label"])] == sent["label"].strip().lower()
        for name, half in HALF_STEPS.items():
            assert np.all(np.abs(row[name].numpy() - np.float32(sent[name])) <= np.float32(half) * 1.001)


def test_images_are_resized_to_what_is_asked_for(module: dict[str, Any], rows: list[Row]) -> None:
    pattern = next(iter(Path().glob("*/1.0.0"))).as_posix() + "/*.tfrecord-*"
    found = list(module["load"](pattern, batch_size=8, image_size=[128, 128]))
    assert [batch["image"].shape for batch in found] == [(8, 128, 128, 3)] * 3
    images = np.concatenate([batch["image"] for batch in found])
    for image, sent in zip(images, rows, strict=True):
        wanted = tf.image.resize(resized(sent["image"]), [128, 128]) / 255.0
        assert np.array_equal(image, wanted)


def test_tensorflow_parses_every_record_of_it(service: Service, lines: dict[str, str]) -> None:
    url = lines["download"].split("'")[1].removesuffix("/tar")
    answer = httpx.post(f"{url}/validate?reader=tensorflow", timeout=120)
    assert answer.json()["valid"], answer.text
