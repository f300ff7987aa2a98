"""What the header of an encoded image says, read before anything is decoded.

Read here, in the service itself: each step goes forward in the bytes, and nothing is allocated. Sources:
ITU T.81 (JPEG), RFC 2083 (PNG), the GIF89a specification, RFC 9649 (WebP), Microsoft's BITMAPINFOHEADER
(BMP).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from zlib import crc32

import numpy as np

from ...errors import MalformedInput, UnprocessableInput
from ...runtime.images import ImageHeader

#: Scans of one JPEG: encoders write some ten, and each costs a pass over all pixels.
MAX_SCANS: Final = 64

_JPEG: Final = b"\xff\xd8\xff"
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_GIF: Final = (b"GIF87a", b"GIF89a")
#: The first byte of each format.
FIRST_BYTES: Final = b"\xff\x89GRB"
#: Markers of JPEG that have no length: TEM, and RST0 to RST7.
_BARE: Final = frozenset({0x01, *range(0xD0, 0xD8)})
#: Start of frame: baseline, extended, progressive, and the last two with arithmetic coding.
_FRAMES: Final = frozenset({0xC0, 0xC1, 0xC2, 0xC9, 0xCA})
_OTHER_FRAMES: Final = frozenset({0xC3, 0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF})
_ORIENTATION: Final = 0x0112
_PNG_CHANNELS: Final = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}


def read_header(data: bytes) -> ImageHeader:
    """The header of an image in any of the five formats.

    Raises:
        MalformedInput: none of them, or one that ends too early (`not_an_image`).
        UnprocessableInput: an image that is not read here, with the reason (`unsupported_image`).
    """
    try:
        if data.startswith(_JPEG):
            header = _read_jpeg(data)
        elif data.startswith(_PNG):
            header = _read_png(data)
        elif data.startswith(_GIF):
            header = _read_gif(data)
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            header = _read_webp(data)
        elif data.startswith(b"BM"):
            header = _read_bmp(data)
        else:
            raise _not_an_image("Its first bytes are those of none of JPEG, PNG, GIF, WebP and BMP.")
    except (struct.error, IndexError):
        raise _not_an_image("It ends within its header.") from None
    if not header.height or not header.width:
        raise _not_an_image("Its header declares no pixels.")
    return header


def _not_an_image(why: str) -> MalformedInput:
    return MalformedInput(f"This is not an image that can be decoded. {why}", code="not_an_image")


def _unsupported(what: str) -> UnprocessableInput:
    return UnprocessableInput(f"{what} Convert it before it is sent.", code="unsupported_image")


def _segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Marker and content of each segment of a JPEG, up to the first scan."""
    at = 2
    while True:
        if data[at] != 0xFF:
            raise _not_an_image(f"There is no JPEG marker at byte {at}.")
        while data[at] == 0xFF:
            at += 1
        marker = data[at]
        at += 1
        if marker in (0xD9, 0xDA):
            raise _not_an_image("It is a JPEG without a frame.")
        if marker in _BARE:
            continue
        (size,) = struct.unpack_from(">H", data, at)
        if size < 2:
            raise _not_an_image(f"A segment of the JPEG at byte {at} has no length.")
        yield marker, data[at + 2 : at + size]
        at += size


def _read_jpeg(data: bytes) -> ImageHeader:
    is_adobe, orientation = False, 1
    for marker, content in _segments(data):
        if marker == 0xEE and content.startswith(b"Adobe"):
            is_adobe = True
        elif marker == 0xE1 and content.startswith(b"Exif\0\0"):
            orientation = _read_orientation(content[6:])
        elif marker in _OTHER_FRAMES:
            raise _unsupported("A lossless or hierarchical JPEG is not decoded here.")
        elif marker in _FRAMES:
            precision, height, width, components = struct.unpack_from(">BHHB", content)
            break
    if precision != 8:
        raise _unsupported(f"A JPEG of {precision} bits in each channel is not decoded here, only 8.")
    if components not in (1, 3, 4):
        raise _unsupported(f"A JPEG of {components} components is not decoded here.")
    if (scans := _count_scans(data)) > MAX_SCANS:
        raise _unsupported(f"The JPEG has {scans} scans; at most {MAX_SCANS} are decoded.")
    inverted = is_adobe if components == 4 else None
    return ImageHeader("jpeg", height, width, min(components, 3), inverted=inverted, orientation=orientation)


def _count_scans(data: bytes) -> int:
    """How often the marker of a scan stands in a JPEG: as words, because a search stops at each 0xFF."""
    return sum(
        int(np.count_nonzero(np.frombuffer(data, "<u2", (len(data) - first) // 2, first) == 0xDAFF))
        for first in (0, 1)
    )


def _read_orientation(exif: bytes) -> int:
    """The orientation in a block of EXIF; 1 where it cannot be read."""
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None:
        return 1
    try:
        (directory,) = struct.unpack_from(f"{order}I", exif, 4)
        (entries,) = struct.unpack_from(f"{order}H", exif, directory)
        for entry in range(entries):
            tag, kind, count, value = struct.unpack_from(f"{order}HHIH", exif, directory + 2 + 12 * entry)
            if tag == _ORIENTATION and kind == 3 and count == 1 and 1 <= value <= 8:
                return int(value)
    except struct.error:
        pass
    return 1


def _read_png(data: bytes) -> ImageHeader:
    """Walks all chunks, because decoders accept a PNG that is cut off or damaged behind its last row."""
    found: ImageHeader | None = None
    at = len(_PNG)
    while True:
        (size,) = struct.unpack_from(">I", data, at)
        kind, content = data[at + 4 : at + 8], memoryview(data)[at + 8 : at + 8 + size]
        (checksum,) = struct.unpack_from(">I", data, at + 8 + size)
        if crc32(content, crc32(kind)) != checksum:
            raise _not_an_image(f"The checksum of the PNG's chunk at byte {at} is wrong.")
        if kind == b"IHDR":
            width, height, bits, colour = struct.unpack_from(">IIBB", content)
            if colour not in _PNG_CHANNELS:
                raise _not_an_image(f"PNG has no colour type {colour}.")
            found = ImageHeader("png", height, width, _PNG_CHANNELS[colour], max(bits, 8))
            is_palette = colour == 3
        elif found is None:
            raise _not_an_image("The PNG does not begin with its header.")
        elif kind == b"tRNS":
            # Beside a palette it is a channel. Elsewhere it names one colour, and TensorFlow leaves it out
            # unless it is asked for four channels.
            found = replace(found, channels=4) if is_palette else found
        elif kind == b"acTL":
            raise _animated()
        elif kind == b"IEND":
            return found
        at += 12 + size


def _animated() -> UnprocessableInput:
    return _unsupported("An image of several frames is not decoded here.")


def _read_gif(data: bytes) -> ImageHeader:
    """The size is that of the frame, as in TensorFlow; most frames fill their screen."""
    (flags,) = struct.unpack_from("<B", data, 10)
    at = 13 + _palette_bytes(flags)
    frames = 0
    while data[at] != 0x3B:
        if data[at] == 0x2C:
            frames += 1
            if frames > 1:
                raise _animated()
            left, top, width, height = struct.unpack_from("<HHHH", data, at + 1)
            if left or top:
                raise _unsupported("A GIF whose frame does not begin in the corner is not decoded here.")
            at += 11 + _palette_bytes(data[at + 9])
        elif data[at] == 0x21:
            at += 2
        else:
            raise _not_an_image(f"The GIF has no block of kind {data[at]} at byte {at}.")
        while data[at]:
            at += 1 + data[at]
        at += 1
    if not frames:
        raise _not_an_image("The GIF has no frame.")
    return ImageHeader("gif", height, width, 3)


def _palette_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _read_webp(data: bytes) -> ImageHeader:
    kind = data[12:16]
    (size,) = struct.unpack_from("<I", data, 4)
    if len(data) < size + 8:
        raise _not_an_image("The WebP is cut off.")
    if kind == b"VP8 ":
        if data[23:26] != b"\x9d\x01\x2a":
            raise _not_an_image("The WebP has no key frame.")
        width, height = struct.unpack_from("<HH", data, 26)
        return ImageHeader("webp", height & 0x3FFF, width & 0x3FFF, 3)
    if kind == b"VP8L":
        signature, bits = struct.unpack_from("<BI", data, 20)
        if signature != 0x2F:
            raise _not_an_image("The WebP has no lossless header.")
        return ImageHeader("webp", (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1, 4 if bits >> 28 & 1 else 3)
    if kind == b"VP8X":
        flags = data[20]
        if flags & 2:
            raise _animated()
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
        return ImageHeader("webp", height, width, 4 if flags & 0x10 else 3)
    raise _not_an_image("The WebP has no image.")


def _read_bmp(data: bytes) -> ImageHeader:
    size, width, height, _, bits, compression = struct.unpack_from("<IiiHHI", data, 14)
    if size < 40 or compression not in (0, 3):
        raise _unsupported("A BMP that is compressed, or older than Windows 3, is not decoded here.")
    if bits not in (8, 24, 32):
        raise _unsupported(f"A BMP of {bits} bits a pixel is not decoded here, only 8, 24 and 32.")
    if width < 1:
        raise _not_an_image("Its header declares no pixels.")
    (begin,) = struct.unpack_from("<I", data, 10)
    if begin + (width * bits + 31) // 32 * 4 * abs(height) > len(data):
        raise _not_an_image("The BMP is cut off.")
    if bits == 8:
        palette = data[14 + size : begin]
        if any(
            palette[4 * level : 4 * level + 3] != bytes([level] * 3) for level in range(len(palette) // 4)
        ):
            raise _unsupported("A BMP with a palette of colours is not decoded here, only one of greys.")
    return ImageHeader("bmp", abs(height), width, bits // 8)
