"""Encoded images, as Pillow writes them."""

import io
import struct
from typing import Any
from zlib import crc32

import numpy as np
import PIL.Image
from numpy.typing import NDArray

Image = NDArray[Any]


def pixels(height: int, width: int, channels: int, seed: int = 0) -> Image:
    """Noise, uint8 `[height, width, channels]`."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


def encode(image: Image, form: str, **options: Any) -> bytes:
    """The image in that format; one of one channel as grey, RGBA or grey with alpha as they are."""
    sink = io.BytesIO()
    flat = image[:, :, 0] if image.ndim == 3 and image.shape[2] == 1 else image
    PIL.Image.fromarray(flat).save(sink, form.upper(), **options)
    return sink.getvalue()


def decode(data: bytes) -> Image:
    """What Pillow makes of it, `[height, width, channels]`."""
    found = np.asarray(PIL.Image.open(io.BytesIO(data)))
    return found if found.ndim == 3 else found[:, :, None]


def cmyk_jpeg() -> bytes:
    sink = io.BytesIO()
    PIL.Image.new("CMYK", (4, 4), (10, 20, 30, 40)).save(sink, "JPEG")
    return sink.getvalue()


def animated(form: str) -> bytes:
    frames = [PIL.Image.fromarray(pixels(4, 4, 3, seed)) for seed in range(3)]
    sink = io.BytesIO()
    frames[0].save(sink, form.upper(), save_all=True, append_images=frames[1:])
    return sink.getvalue()


def png_of(height: int, width: int, bits: int = 8, colour: int = 2, content: bytes = b"") -> bytes:
    """A PNG with that header, whatever stands in it."""
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", content), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc32(data, crc32(kind)))
        for kind, data in chunks
    )
