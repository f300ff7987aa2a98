"""A body that is an image becomes the TensorProto of what TensorFlow decodes it to, byte for byte."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
import tensorflow as tf

from app.codecs.forms import FormName
from app.domain.dtypes import DTYPES
from app.transforms.images.processes import ImageProcesses
from tests.support.format_cases import serialize, tensors_of
from tests.support.images import encode, pixels, wide_png

PHOTOGRAPHS = sorted((Path(sklearn.__file__).parent / "datasets" / "images").glob("*.jpg"))


def proto(images: ImageProcesses, form: FormName, data: bytes, **options: Any) -> bytes:
    return serialize("tensorproto", *tensors_of(form, data, images=images, **options))


def theirs(decode: Callable[..., Any], data: bytes, **options: Any) -> bytes:
    serialized: bytes = tf.io.serialize_tensor(decode(data, **options)).numpy()
    return serialized


@pytest.mark.parametrize("channels", [0, 1, 3])
def test_jpeg(images: ImageProcesses, channels: int) -> None:
    files = [path.read_bytes() for path in PHOTOGRAPHS]
    assert files
    for seed in range(40):
        image = pixels(seed + 1, 2 * seed + 3, (1, 3)[seed % 2], seed)
        options: dict[str, Any] = {"quality": 2 * seed + 10, "progressive": seed % 3 == 0}
        if image.shape[2] == 3:
            options["subsampling"] = seed % 3
        files.append(encode(image, "jpeg", **options))
    for data in files:
        assert proto(images, "jpeg", data, channels=channels) == theirs(
            tf.io.decode_jpeg, data, channels=channels
        )


@pytest.mark.parametrize("channels", [0, 1, 3, 4])
def test_png(images: ImageProcesses, channels: int) -> None:
    for seed in range(40):
        data = encode(pixels(seed + 1, 2 * seed + 3, seed % 4 + 1, seed), "png")
        assert proto(images, "png", data, channels=channels) == theirs(
            tf.io.decode_png, data, channels=channels
        )


@pytest.mark.parametrize("channels", [0, 1, 3, 4])
def test_png_of_sixteen_bits(images: ImageProcesses, channels: int) -> None:
    for seed in range(40):
        random = np.random.default_rng(seed)
        wide = random.integers(0, 65536, (seed // 2 + 1, seed // 2 + 2, seed % 4 + 1), np.uint16)
        for data in (
            wide_png(wide),
            wide_png(wide, [seed % 5]),
            wide_png(wide, (4, 3), interlaced=True),
            tf.io.encode_png(wide).numpy(),
        ):
            found = proto(images, "png", data, dtype=DTYPES["uint16"], channels=channels)
            assert found == theirs(tf.io.decode_png, data, dtype=tf.uint16, channels=channels)


@pytest.mark.parametrize("channels", [1, 3])
def test_bmp(images: ImageProcesses, channels: int) -> None:
    for seed in range(20):
        data = encode(pixels(seed + 1, seed + 2, channels, seed), "bmp")
        assert proto(images, "bmp", data) == theirs(tf.io.decode_bmp, data)


def test_gif_and_webp_without_their_axis_of_frames(images: ImageProcesses) -> None:
    """TensorFlow gives a GIF and a WebP a first axis that counts the frames."""
    for seed in range(20):
        data = encode(pixels(seed + 1, seed + 2, 1, seed), "gif")
        assert proto(images, "gif", data) == theirs(lambda body: tf.io.decode_gif(body)[0], data)
        data = encode(pixels(seed + 1, seed + 2, 3 + seed % 2, seed), "webp", quality=80)
        assert proto(images, "webp", data) == theirs(lambda body: tf.io.decode_webp(body)[0], data)


@pytest.mark.parametrize("quality", [1, 50, 95, 100])
def test_jpeg_is_encoded_as_tensorflow_encodes_it(images: ImageProcesses, quality: int) -> None:
    for seed in range(20):
        image = pixels(seed + 1, 2 * seed + 1, (1, 3)[seed % 2], seed)
        [array] = tensors_of("png", encode(image, "png"), images=images)
        found = serialize("jpeg", array, images=images, quality=quality)
        assert found == tf.io.encode_jpeg(image, quality=quality).numpy()


def test_png_is_decoded_by_tensorflow(images: ImageProcesses) -> None:
    for seed in range(20):
        image = pixels(seed + 1, 2 * seed + 1, seed % 4 + 1, seed)
        [array] = tensors_of("png", encode(image, "png"), images=images)
        assert (tf.io.decode_png(serialize("png", array, images=images)).numpy() == image).all()
