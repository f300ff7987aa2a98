"""The program that decodes and encodes images in a limited process (`runtime/processes/limited_process.py`).

A request is `[kind, items]`. To `decode`, an item is `[begin, size, at, room, format, channels, inverted]`:
bytes `begin` to `begin + size` of the shared memory, to be decoded to at most `room` bytes from `at` on;
`format` and `inverted` are those of `runtime/images.py`, and `channels` is 0 for those of the image. To
`encode`, it is `[begin, dtype, shape, at, room, format, options]`. The answer has for each item
`[shape, dtype]` or the number of bytes; where an image cannot be decoded, it has the reason, a string.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from io import BytesIO
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Image = NDArray[Any]

#: Raw modes of Pillow for PNG of 16 bits: what it takes each for, to find the high bytes, and the low ones.
_WIDE: Final = {
    "LA;16B": ("RGBA",),
    "RGB;16B": ("RGB;16B", "RGB;16L"),
    "RGBA;16B": ("RGBA;16B", "RGBA;16L"),
}

#: Thousandths of red, green and blue in grey as libpng has them, in 32,768ths: 0.299 and 0.587, and the rest.
_GREY: Final = (9797, 19234, 3737)
#: Gamma as libpng counts it, in 100,000ths: 1, how far from it another has to be, that of sRGB, and which are
#: possible.
_ONE: Final = 100_000
_SAME_GAMMA: Final = 5_000
_GAMMA_OF_SRGB: Final = 45_455
_LEAST_GAMMA: Final = 16
_MOST_GAMMA: Final = 625_000_000
#: How many are given other channels at a time.
_CONVERTED_PIXELS: Final = 1 << 16
#: Samples of a pixel, by the colour type of a PNG.
_SAMPLES: Final = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
#: Passes of an interlaced PNG: first row, first column, and how far apart they lie (RFC 2083, section 2.6).
_PASSES: Final = (
    (0, 0, 8, 8),
    (0, 4, 8, 8),
    (4, 0, 8, 4),
    (0, 2, 4, 4),
    (2, 0, 4, 2),
    (0, 1, 2, 2),
    (1, 0, 2, 1),
)
_INFLATED_AT_A_TIME: Final = 1 << 16


def answer(request: tuple[str, list[Any]], memory: memoryview) -> list[Any]:
    """Decode or encode all images of a request."""
    kind, items = request
    work = _decode if kind == "decode" else _encode
    return [work(memory, *item) for item in items]


def _decode(
    memory: memoryview,
    begin: int,
    size: int,
    at: int,
    room: int,
    form: str,
    channels: int,
    inverted: bool | None,
) -> list[Any] | str:
    data, target = bytes(memory[begin : begin + size]), memory[at : at + room]
    try:
        if form == "jpeg" and inverted is None:
            image = _decode_jpeg(data, channels, target)
        else:
            image = _DECODERS[form](data, channels, inverted)
            if image.nbytes > len(target):
                return "it is larger than its header says"
            np.frombuffer(target, image.dtype, image.size).reshape(image.shape)[...] = image
    except (
        ValueError,
        OSError,
        SyntaxError,
        EOFError,
        KeyError,
        struct.error,
        zlib.error,
        MemoryError,
    ) as error:
        return str(error)[:300] or type(error).__name__
    return [list(image.shape), image.dtype.name]


def _encode(
    memory: memoryview,
    begin: int,
    dtype: str,
    shape: list[int],
    at: int,
    room: int,
    form: str,
    options: dict[str, Any],
) -> int | str:
    import PIL.Image

    pixels = np.frombuffer(memory, dtype, math.prod(shape), begin).reshape(shape)
    encoded = BytesIO()
    PIL.Image.fromarray(pixels[:, :, 0] if shape[2] == 1 else pixels).save(encoded, form, **options)
    data = encoded.getbuffer()
    if len(data) > room:
        return "it takes more room than is left"
    memory[at : at + len(data)] = data
    return len(data)


def _decode_jpeg(data: bytes, channels: int, target: memoryview) -> Image:
    """Decodes to `target`: memory that is new each time takes half as long again."""
    import simplejpeg

    # `fastdct` is what TensorFlow decodes with; no other decoder of Python gives the same bytes.
    space = "GRAY" if channels == 1 else "RGB"
    image: Image = simplejpeg.decode_jpeg(data, space, fastdct=True, buffer=target)
    return image


def _decode_inks(data: bytes, _: int, inverted: bool | None) -> Image:
    import simplejpeg

    def colours(inks: Image) -> Image:
        light = inks.astype(np.uint16) if inverted else 255 - inks.astype(np.uint16)
        return light[:, :, 3:] * light[:, :, :3] // 255

    return _convert(simplejpeg.decode_jpeg(data, "CMYK", fastdct=True), 3, colours)


def _open(data: bytes, form: str) -> Any:
    import PIL.Image

    PIL.Image.MAX_IMAGE_PIXELS = None  # the header was read, and the memory charged, before
    return PIL.Image.open(BytesIO(data), formats=[form])


def _decode_png(data: bytes, channels: int, _: bool | None) -> Image:
    opened = _open(data, "PNG")
    key = None if opened.mode == "P" else opened.info.get("transparency")
    if opened.tile[0].args in _WIDE:
        image = _decode_wide(data, opened.tile[0].args)
        _require_last_row(data, image)
    elif opened.mode.startswith("I"):  # grey of 16 bits
        image = np.asarray(opened).astype(np.uint16)
        _require_last_row(data, image)
    else:
        has_alpha = "transparency" in opened.info
        plain = {"1": "L", "P": "RGBA" if has_alpha else "RGB"}.get(opened.mode, opened.mode)
        image = np.asarray(opened)
        _require_last_row(data, image)
        image = image if plain == opened.mode else np.asarray(opened.convert(plain))
    image = image if image.ndim == 3 else image[:, :, None]
    if channels == 4 and key is not None:
        image = _with_transparent(image, key, data[24])
    return _with_channels(image, channels, _gamma_of(opened.info) if image.itemsize == 1 else None)


def _require_last_row(data: bytes, image: Image) -> None:
    """Refuse a PNG whose data ends between two rows, for which Pillow leaves the others at 0."""
    is_interlaced = data[28]
    if is_interlaced or not image[-1].any():
        size = _inflated_size(data)
        rest = size - sum(map(len, _inflated(data, size)))
        if rest > 0:
            raise ValueError(f"{rest} bytes of its rows are missing")


def _inflated_size(data: bytes) -> int:
    """Bytes that the header of a PNG declares: its rows, with the filter that each begins with."""
    width, height, bits, colour, _, _, is_interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    size = 0
    for top, left, down, right in _PASSES if is_interlaced else ((0, 0, 1, 1),):
        rows, columns = -(-(height - top) // down), -(-(width - left) // right)
        if rows > 0 and columns > 0:
            size += rows * (1 + (columns * bits * _SAMPLES[colour] + 7) // 8)
    return size


def _inflated(data: bytes, size: int) -> Iterator[bytes]:
    """What the data of a PNG inflates to, up to `size` bytes and a little more, in pieces."""
    inflate, at = zlib.decompressobj(), 8
    while size > 0 and at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        rest = data[at + 8 : at + 8 + length] if data[at + 4 : at + 8] == b"IDAT" else b""
        while rest and size > 0 and not inflate.eof:
            piece = inflate.decompress(rest, _INFLATED_AT_A_TIME)
            rest, size = inflate.unconsumed_tail, size - len(piece)
            yield piece
        at += 12 + length


def _gamma_of(info: Mapping[str, Any]) -> int | None:
    """What the file says of its gamma, in 100,000ths; None where that makes no difference to libpng."""
    gamma = _GAMMA_OF_SRGB if "srgb" in info else round(info.get("gamma", 1) * _ONE)
    if not _LEAST_GAMMA <= gamma <= _MOST_GAMMA:
        return None
    return gamma if _is_significant(gamma) or _is_significant(_inverse(gamma)) else None


def _with_transparent(image: Image, key: int | tuple[int, ...], bits: int) -> Image:
    """Alpha for a PNG in which one colour is transparent; `key` is that colour as Pillow has it.

    It has the bits of the file, but for one bit, which is 0 or 255 already.
    """
    colour = np.array(key) * {2: 85, 4: 17}.get(bits, 1)
    alpha = (image != colour).any(2, keepdims=True) * np.array(np.iinfo(image.dtype).max, image.dtype)
    return np.concatenate((image, alpha), 2)


def _decode_wide(data: bytes, mode: str) -> Image:
    """A PNG of 16 bits in two to four channels, of which Pillow by itself leaves the lower eight out."""
    halves = [_decode_as(data, raw) for raw in _WIDE[mode]]
    if len(halves) == 1:  # high and low bytes side by side, as if they were channels
        return halves[0].view(">u2").astype(np.uint16)
    return halves[0].astype(np.uint16) << 8 | halves[1]


def _decode_as(data: bytes, mode: str) -> Image:
    """The bytes that Pillow finds in a PNG if it takes its rows for those of a raw mode as wide."""
    opened = _open(data, "PNG")
    opened.tile = [tile._replace(args=mode) for tile in opened.tile]
    return np.asarray(opened)


def _decode_webp(data: bytes, channels: int, _: bool | None) -> Image:
    return _with_channels(np.asarray(_open(data, "WEBP")), channels)


def _decode_gif(data: bytes, channels: int, _: bool | None) -> Image:
    """What is transparent becomes black, as in TensorFlow."""
    opened = _open(data, "GIF")
    _, _, width, height = opened.tile[0].extents  # TensorFlow has the frame alone, whatever the screen
    image = np.asarray(opened.convert("RGBA"))[:height, :width]
    return _with_channels(np.where(image[:, :, 3:] == 0, 0, image[:, :, :3]).astype(np.uint8), channels)


def _decode_bmp(data: bytes, channels: int, _: bool | None) -> Image:
    (begin,) = struct.unpack_from("<I", data, 10)
    width, height, _planes, bits = struct.unpack_from("<iiHH", data, 18)
    row = (width * bits + 31) // 32 * 4
    rows = np.frombuffer(data, np.uint8, row * abs(height), begin).reshape(abs(height), row)
    pixels = rows[:: -1 if height > 0 else 1, : width * bits // 8].reshape(abs(height), width, bits // 8)
    return _with_channels(pixels[:, :, [2, 1, 0, 3][: bits // 8] if bits > 8 else [0]], channels)


def _with_channels(image: Image, channels: int, gamma: int | None = None) -> Image:
    """Grey, RGB or RGBA of any of grey, grey and alpha, RGB and RGBA, as libpng converts them."""
    found = image.shape[2]
    if channels in (0, found):
        return image
    colours, alpha = (image[:, :, :-1], image[:, :, -1:]) if found in (2, 4) else (image, None)
    if channels == 1 and colours.shape[2] == 3:
        colours = _convert(colours, 1, _grey if gamma is None else partial(_linear_grey, gamma=gamma))
    elif channels > 1 and colours.shape[2] == 1:
        colours = np.repeat(colours, 3, 2)
    if channels < 4:
        return colours.astype(image.dtype)
    opaque = np.full((*image.shape[:2], 1), np.iinfo(image.dtype).max, image.dtype)
    return np.concatenate((colours, opaque if alpha is None else alpha), 2)


def _grey(colours: Image) -> Image:
    half = 0 if colours.itemsize == 1 else 1 << 14  # libpng rounds 16 bits, and cuts 8 off
    grey: Image = ((colours.astype(np.int64) @ np.array(_GREY) + half) >> 15)[:, :, None]
    return grey


def _linear_grey(colours: Image, gamma: int) -> Image:
    """Grey of 8 bits whose gamma is known: libpng adds up light, and leaves what is grey as it is."""
    inverse = _inverse(gamma)
    light = _gamma_table(inverse)[colours]
    grey = _gamma_table(_inverse(inverse))[(light @ np.array(_GREY) + (1 << 14)) >> 15]
    found: Image = np.where((colours == colours[:, :, :1]).all(2), colours[:, :, 0], grey)[:, :, None]
    return found


def _inverse(gamma: int) -> int:
    return int(_ONE * _ONE / gamma + 0.5)


def _is_significant(gamma: int) -> bool:
    return abs(gamma - _ONE) > _SAME_GAMMA


def _gamma_table(gamma: int) -> NDArray[np.int64]:
    values = np.arange(256)
    if not _is_significant(gamma):
        return values
    corrected: NDArray[np.int64] = np.floor(255 * (values / 255) ** (gamma / _ONE) + 0.5).astype(np.int64)
    return corrected


def _convert(image: Image, channels: int, convert: Callable[[Image], Image]) -> Image:
    """Other channels of each pixel, some rows at a time: in between, a pixel takes many bytes."""
    converted = np.empty((*image.shape[:2], channels), image.dtype)
    step = max(1, _CONVERTED_PIXELS // image.shape[1])
    for begin in range(0, len(image), step):
        converted[begin : begin + step] = convert(image[begin : begin + step])
    return converted


_DECODERS: Final = {
    "jpeg": _decode_inks,
    "png": _decode_png,
    "webp": _decode_webp,
    "gif": _decode_gif,
    "bmp": _decode_bmp,
}
