"""Encoded images, as Pillow writes them."""

import io
import struct
from collections.abc import Sequence
from typing import Any
from zlib import compress, crc32

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


def wide_png(image: Image, filters: Sequence[int] = (0, 1, 2, 3, 4), *, interlaced: bool = False) -> bytes:
    """A PNG of 16 bits of uint16 in one to four channels, which Pillow cannot write.

    Args:
        filters: of the rows, in turn: none, left, above, average, Paeth.
    """
    height, width, channels = image.shape
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)]
        passes.append((0, 1, 1, 2))
    parts = [image[top::down, left::right] for left, top, right, down in passes]
    rows = b"".join(_filtered(part, filters) for part in parts if part.size)
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    return png_of(height, width, 16, colour, compress(rows), interlaced=interlaced)


def _filtered(image: Image, filters: Sequence[int]) -> bytes:
    step = 2 * image.shape[2]
    rows = image.astype(">u2").reshape(len(image), -1).view(np.uint8).astype(np.int64)
    above, found = np.zeros_like(rows[0]), b""
    for index, row in enumerate(rows):
        left = np.append(np.zeros(step, np.int64), row[:-step])
        corner = np.append(np.zeros(step, np.int64), above[:-step])
        distances = np.abs(np.stack((above - corner, left - corner, left + above - 2 * corner)))
        paeth = np.choose(distances.argmin(0), (left, above, corner))
        kind = filters[index % len(filters)]
        guess = (np.zeros_like(row), left, above, (left + above) // 2, paeth)[kind]
        found += bytes([kind]) + (row - guess).astype(np.uint8).tobytes()
        above = row
    return found


def cmyk_jpeg() -> bytes:
    sink = io.BytesIO()
    PIL.Image.new("CMYK", (4, 4), (10, 20, 30, 40)).save(sink, "JPEG")
    return sink.getvalue()


def animated(form: str) -> bytes:
    frames = [PIL.Image.fromarray(pixels(4, 4, 3, seed)) for seed in range(3)]
    sink = io.BytesIO()
    frames[0].save(sink, form.upper(), save_all=True, append_images=frames[1:])
    return sink.getvalue()


def png_of(
    height: int, width: int, bits: int = 8, colour: int = 2, content: bytes = b"", *, interlaced: bool = False
) -> bytes:
    """A PNG with that header, whatever stands in it."""
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, interlaced)
    chunks = [(b"IHDR", header), (b"IDAT", content), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc32(data, crc32(kind)))
        for kind, data in chunks
    )
