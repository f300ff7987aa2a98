"""Headers of images: what they say, and what is refused before anything is decoded."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.codecs.images.header import MAX_SCANS, read_header
from app.errors import InputError
from app.runtime.images import ImageHeader
from tests.support.images import wide_png

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)


def encoded(form: str, mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(file, form, **options)
    return file.getvalue()


def oriented(orientation: int, order: str = "<") -> bytes:
    exif = Image.Exif()
    exif.endian = order
    exif[0x0112] = orientation
    return encoded("JPEG", exif=exif)


def frames(form: str) -> bytes:
    file = io.BytesIO()
    images = [Image.fromarray(PIXELS), Image.fromarray(PIXELS[::-1])]
    images[0].save(file, form, save_all=True, append_images=images[1:], lossless=True)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (encoded("JPEG"), ImageHeader("jpeg", 5, 7, 3)),
        (encoded("JPEG", progressive=True), ImageHeader("jpeg", 5, 7, 3)),
        (encoded("JPEG", "L"), ImageHeader("jpeg", 5, 7, 1)),
        (encoded("JPEG", "CMYK"), ImageHeader("jpeg", 5, 7, 3, inverted=True)),
        (oriented(6), ImageHeader("jpeg", 5, 7, 3, orientation=6)),
        (oriented(8, ">"), ImageHeader("jpeg", 5, 7, 3, orientation=8)),
        (oriented(9), ImageHeader("jpeg", 5, 7, 3, orientation=1)),
        (encoded("PNG"), ImageHeader("png", 5, 7, 3)),
        (encoded("PNG", "1"), ImageHeader("png", 5, 7, 1)),
        (encoded("PNG", "LA"), ImageHeader("png", 5, 7, 2)),
        (encoded("PNG", "RGBA"), ImageHeader("png", 5, 7, 4)),
        (encoded("PNG", "P"), ImageHeader("png", 5, 7, 3)),
        (encoded("PNG", "P", transparency=0), ImageHeader("png", 5, 7, 4)),
        (encoded("PNG", "RGB", transparency=(0, 0, 0)), ImageHeader("png", 5, 7, 3)),
        (encoded("PNG", "I;16"), ImageHeader("png", 5, 7, 1, depth=16)),
        (encoded("GIF"), ImageHeader("gif", 5, 7, 3)),
        (encoded("GIF")[:6] + bytes(4) + encoded("GIF")[10:], ImageHeader("gif", 5, 7, 3)),
        (encoded("WEBP"), ImageHeader("webp", 5, 7, 3)),
        (encoded("WEBP", lossless=True), ImageHeader("webp", 5, 7, 3)),
        (encoded("WEBP", "RGBA", lossless=True, exact=True), ImageHeader("webp", 5, 7, 3)),
        (encoded("WEBP", icc_profile=b"x" * 8), ImageHeader("webp", 5, 7, 3)),
        (wide_png(np.zeros((5, 7, 3), np.uint16)), ImageHeader("png", 5, 7, 3, depth=16)),
        (encoded("BMP"), ImageHeader("bmp", 5, 7, 3)),
        (encoded("BMP", "L"), ImageHeader("bmp", 5, 7, 1)),
        (encoded("BMP", "RGBA"), ImageHeader("bmp", 5, 7, 4)),
    ],
)
def test_image_header_is_read(data: bytes, header: ImageHeader) -> None:
    assert read_header(data) == header


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, bits: int = 8, colour: int = 2) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IEND", b"")


def jpeg_frame(marker: int, precision: int = 8, components: int = 3, height: int = 5) -> bytes:
    content = struct.pack(">BHHB", precision, height, 7, components) + bytes(3 * components)
    return b"\xff\xd8\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content


@pytest.mark.parametrize(
    ("data", "code", "detail"),
    [
        (b"", "not_an_image", "first bytes are those of none"),
        (b"hello", "not_an_image", "first bytes are those of none"),
        (b"RIFF\0\0\0\0WAVE", "not_an_image", "first bytes are those of none"),
        (jpeg_frame(0xC3), "unsupported_image", "lossless or hierarchical JPEG"),
        (jpeg_frame(0xC1, precision=12), "unsupported_image", "12 bits in each channel"),
        (jpeg_frame(0xC0, components=2), "unsupported_image", "2 components"),
        (jpeg_frame(0xC0, height=0), "not_an_image", "declares no pixels"),
        (jpeg_frame(0xC2) + b"\xff\xda" * (MAX_SCANS + 1), "unsupported_image", "scans; at most"),
        (b"\xff\xd8\xff\xd9", "not_an_image", "without a frame"),
        (b"\xff\xd8\xff\xe0\0\1", "not_an_image", "has no length"),
        (b"\xff\xd8\xff\xe0\0\3xx", "not_an_image", "no JPEG marker at byte 7"),
        (png(0, 4), "not_an_image", "declares no pixels"),
        (png(3, 4, colour=5), "not_an_image", "no colour type 5"),
        (png(3, 4)[:-12], "not_an_image", "ends within its header"),
        (png(3, 4)[:20] + b"\1" + png(3, 4)[21:], "not_an_image", "checksum of the PNG's chunk at byte 8"),
        (b"\x89PNG\r\n\x1a\n" + chunk(b"IEND", b""), "not_an_image", "does not begin with its header"),
        (frames("PNG"), "unsupported_image", "several frames"),
        (frames("GIF"), "unsupported_image", "several frames"),
        (frames("WEBP"), "unsupported_image", "several frames"),
        (b"GIF89a\7\0\5\0\0\0\0,\1\0\0\0\4\0\4\0\0\2\0;", "unsupported_image", "begin in the corner"),
        (b"GIF89a\7\0\5\0\0\0\0;", "not_an_image", "has no frame"),
        (b"GIF89a\7\0\5\0\0\0\0x", "not_an_image", "no block of kind 120 at byte 13"),
        (encoded("WEBP")[:-3], "not_an_image", "cut off"),
        (encoded("BMP")[:-3], "not_an_image", "cut off"),
        (encoded("BMP", "P"), "unsupported_image", "palette of colours"),
        (encoded("BMP", "1"), "unsupported_image", "1 bits a pixel"),
    ],
)
def test_bad_image_header_is_refused(data: bytes, code: str, detail: str) -> None:
    with pytest.raises(InputError) as caught:
        read_header(data)
    assert (caught.value.code, detail in caught.value.detail) == (code, True), caught.value.detail


FORMS = [("JPEG", "RGB"), ("PNG", "RGB"), ("GIF", "P"), ("WEBP", "RGB"), ("BMP", "RGB")]


@pytest.mark.parametrize(("form", "mode"), FORMS)
def test_a_header_that_is_cut_off_is_refused(form: str, mode: str) -> None:
    data = encoded(form, mode)
    for end in range(20):
        with pytest.raises(InputError):
            read_header(data[:end])


@pytest.mark.parametrize(("form", "mode"), FORMS)
def test_changed_bytes_give_a_header_or_an_input_error(form: str, mode: str) -> None:
    random = np.random.default_rng(1)
    data = encoded(form, mode)
    for _ in range(3000):
        changed = bytearray(data[: random.integers(len(data)) + 1] if random.integers(2) else data)
        for at in random.integers(0, min(len(changed), 200), int(random.integers(1, 5))):
            changed[at] = random.integers(256)
        try:
            header = read_header(bytes(changed))
        except InputError:
            continue
        assert header.height > 0
        assert header.width > 0
        assert header.channels in (1, 2, 3, 4)
