"""Pictures, and their pixels as TensorFlow decodes them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import PIL.Image
import tensorflow as tf
from numpy.typing import NDArray

from tests.golden.entries import Golden, Written, json_bytes

IMAGES: Final = "tensors/images.json"


def images() -> Iterator[Golden]:
    """Pictures as uint8 `[height, width, channels]`, and their pixels as TensorFlow decodes them."""
    ramp = np.arange(6 * 8 * 3).reshape(6, 8, 3).astype(np.uint8)
    grey = np.full((6, 8, 3), 128, np.uint8)  # which a JPEG gives back as it was
    few = np.repeat((np.arange(6 * 8).reshape(6, 8, 1) * 5).astype(np.uint8), 3, 2)  # colours of a GIF
    progressive = _saved(ramp, "jpeg", quality=90, progressive=True, subsampling=2)
    made: dict[str, tuple[bytes, str, Written | None]] = {
        "ramp.png": (tf.io.encode_png(ramp).numpy(), "tf.io.encode_png", "values"),
        "grey.jpeg": (tf.io.encode_jpeg(grey, quality=95).numpy(), "tf.io.encode_jpeg", "bytes"),
        "progressive.jpeg": (progressive, "Pillow", None),
        "few.gif": (_saved(few, "gif"), "Pillow", None),
        "ramp.bmp": (_saved(ramp, "bmp"), "Pillow", None),
        "ramp.webp": (_saved(ramp, "webp", lossless=True), "Pillow", None),
    }
    decoded = {
        "ramp": ramp,
        "grey": grey,
        "few": few,
        "progressive": tf.io.decode_jpeg(progressive).numpy(),
    }
    items = [
        {"name": name, "dtype": "uint8", "shape": array.shape, "data": array.ravel().tolist()}
        for name, array in decoded.items()
    ]
    content = json_bytes({"tensors": items})
    yield Golden(IMAGES, content, "json", "tensors", "tf.io.decode_jpeg, and what was encoded")
    for path, (content, library, written) in made.items():
        name, form = path.split(".")
        pixels = tf.io.decode_image(content, expand_animations=False).numpy()
        assert np.array_equal(pixels, decoded[name]), path
        yield Golden(f"tensors/{path}", content, form, "tensors", library, IMAGES, written, names=(name,))


def _saved(pixels: NDArray[Any], form: str, **options: Any) -> bytes:
    sink = io.BytesIO()
    PIL.Image.fromarray(pixels).save(sink, form.upper(), **options)
    return sink.getvalue()
