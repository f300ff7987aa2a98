"""Images as tensors through the form table."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from app.codecs.array import Array
from app.codecs.forms import TENSOR_CODECS, FormName
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.domain.dtypes import DTYPES
from app.domain.limits import MIB, Limits
from app.errors import InputError, LimitExceeded
from app.runtime.amplification import Amplification
from app.runtime.budget import Budget
from app.runtime.images import ImageCodecs
from app.runtime.streams import MemoryFile
from app.transforms.images.processes import ImageProcesses
from tests.support.format_cases import Refusal, Values, read_tensors, write_tensors
from tests.support.images import animated, cmyk_jpeg, decode, encode, pixels, png_of, wide_png
from tests.support.peak_memory import peak_bytes

IMAGES: list[FormName] = ["jpeg", "png", "webp", "gif", "bmp"]
UINT8, UINT16 = DTYPES["uint8"], DTYPES["uint16"]
GREY = pixels(5, 3, 1)
RGB = pixels(5, 3, 3)
RGBA = pixels(5, 3, 4)
LEVEL = np.full((5, 3, 3), 128, np.uint8)


def read(images: ImageCodecs, form: FormName, body: bytes, **options: Any) -> list[Values] | Refusal:
    return read_tensors(form, body, images=images, **options)


def array_of(image: Any) -> Array:
    return Array.of(np.asarray(image), DTYPES[np.asarray(image).dtype.name])


def values_of(image: Any) -> list[Values]:
    return [Values(image.dtype.name, image.shape, image.ravel().tolist())]


@pytest.mark.parametrize(
    ("form", "image", "options"),
    [
        ("png", GREY, {}),
        ("png", pixels(4, 6, 2), {}),
        ("png", RGB, {}),
        ("png", RGBA, {}),
        ("webp", RGB, {"lossless": True}),
        ("webp", RGBA, {"lossless": True, "exact": True}),
        ("bmp", GREY, {}),
        ("bmp", RGB, {}),
        ("gif", np.repeat(GREY, 3, 2), {}),
        ("jpeg", LEVEL, {}),
        ("jpeg", LEVEL[:, :, :1], {"quality": 5}),
    ],
)
def test_an_image_is_an_array_of_its_pixels(images: ImageCodecs, form: Any, image: Any, options: Any) -> None:
    source = image[:, :, :1] if form == "gif" else image
    assert read(images, form, encode(source, form, **options)) == values_of(image)


@pytest.mark.parametrize(
    ("form", "channels", "expected"),
    [
        ("png", 1, (LEVEL[:, :, :1])),
        ("png", 3, LEVEL),
        ("png", 4, np.concatenate((LEVEL, np.full((5, 3, 1), 255, np.uint8)), 2)),
        ("jpeg", 1, (LEVEL[:, :, :1])),
        ("jpeg", 3, LEVEL),
        ("bmp", 4, np.concatenate((LEVEL, np.full((5, 3, 1), 255, np.uint8)), 2)),
        ("webp", 1, (LEVEL[:, :, :1])),
        ("gif", 1, (LEVEL[:, :, :1])),
    ],
)
def test_channels_may_be_chosen(images: ImageCodecs, form: Any, channels: int, expected: Any) -> None:
    body = encode(LEVEL, form, **({"lossless": True} if form == "webp" else {}))
    assert read(images, form, body, channels=channels) == values_of(expected)


def test_a_png_may_have_sixteen_bits(images: ImageCodecs) -> None:
    wide = np.array([[0, 1, 65535], [256, 300, 7]], np.uint16)
    assert read(images, "png", encode(wide, "png"), dtype=UINT16) == values_of(wide[:, :, None])
    for channels in (2, 3, 4):
        wide = np.arange(6 * channels, dtype=np.uint16).reshape(2, 3, channels) * 2_711
        assert read(images, "png", wide_png(wide), dtype=UINT16) == values_of(wide)
    spread = GREY.astype(np.uint16) * 257
    assert read(images, "png", encode(GREY, "png"), dtype=UINT16) == values_of(spread)
    assert read(images, "png", encode(GREY, "png"), dtype=UINT8, shape=(5, 3, 1)) == values_of(GREY)


TRUNCATED = encode(pixels(40, 40, 3), "jpeg")[:-200]
PNG = encode(RGB, "png")


@pytest.mark.parametrize(
    ("form", "body", "options", "refusal"),
    [
        ("jpeg", b"", {}, Refusal("not_an_image")),
        ("png", b"\x89PNG\r\n\x1a\n", {}, Refusal("not_an_image")),
        ("gif", b"no image", {}, Refusal("not_an_image")),
        ("png", encode(RGB, "jpeg"), {}, Refusal("mislabelled_image", offset=0)),
        ("jpeg", PNG, {}, Refusal("mislabelled_image", offset=0)),
        ("bmp", encode(GREY, "gif"), {}, Refusal("mislabelled_image", offset=0)),
        ("jpeg", TRUNCATED, {}, Refusal("damaged_image")),
        ("png", PNG[:-12], {}, Refusal("not_an_image")),
        ("png", PNG[:60] + b"\0" + PNG[61:], {}, Refusal("not_an_image")),
        ("png", png_of(5, 3), {}, Refusal("damaged_image")),
        ("jpeg", cmyk_jpeg(), {"channels": 1}, Refusal("unsupported_image")),
        ("jpeg", encode(RGB, "jpeg"), {"channels": 4}, Refusal("unsupported_image")),
        ("jpeg", encode(RGB, "jpeg"), {"dtype": UINT16}, Refusal("unsupported_image")),
        ("png", encode(np.zeros((2, 2), np.uint16), "png"), {}, Refusal("unsupported_image")),
        ("png", png_of(5, 3, bits=16), {"dtype": UINT16}, Refusal("damaged_image")),
        ("gif", animated("gif"), {}, Refusal("unsupported_image")),
        ("webp", animated("webp"), {}, Refusal("unsupported_image")),
        ("png", animated("png"), {}, Refusal("unsupported_image")),
        ("png", png_of(2**31 - 1, 2**31 - 1), {}, Refusal("unsupported_image")),
        ("png", png_of(16_000, 16_000), {}, Refusal("payload_too_large")),
        ("png", PNG, {"dtype": DTYPES["float32"]}, Refusal("dtype_mismatch")),
        ("png", PNG, {"shape": (5, 3)}, Refusal("shape_mismatch")),
        ("png", PNG, {"kind": "sparse"}, Refusal("unsupported_kind")),
    ],
)
def test_image_of_another_format_is_refused(
    images: ImageCodecs, form: Any, body: bytes, options: Any, refusal: Refusal
) -> None:
    assert read(images, form, body, **options) == refusal


PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def rows_of_png(height: int, width: int, bits: int, value: int, *, interlaced: bool) -> list[bytes]:
    """The rows of a PNG, each with its filter, of bytes of that value; `bits` are those of a pixel."""
    rows = []
    for top, left, down, right in PASSES if interlaced else ((0, 0, 1, 1),):
        columns = len(range(left, width, right))
        row = b"\0" + bytes([value]) * ((columns * bits + 7) // 8)
        rows += [row] * (len(range(top, height, down)) if columns else 0)
    return rows


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(
    ("bits", "colour", "samples"),
    [(1, 0, 1), (8, 0, 1), (16, 0, 1), (8, 2, 3), (16, 2, 3), (8, 4, 2), (16, 6, 4)],
)
def test_a_png_with_fewer_rows_than_it_declares_is_refused(
    images: ImageCodecs, bits: int, colour: int, samples: int, interlaced: bool
) -> None:
    dtype = UINT16 if bits == 16 else UINT8
    for value in (0, 255):
        rows = rows_of_png(7, 9, bits * samples, value, interlaced=interlaced)
        for number in range(len(rows) + 2):
            content = zlib.compress(b"".join((rows + rows[:1])[:number]))
            body = png_of(7, 9, bits, colour, content, interlaced=interlaced)
            found = read(images, "png", body, dtype=dtype)
            if number < len(rows):
                assert found == Refusal("damaged_image"), number
            else:
                assert found == values_of(
                    np.full((7, 9, samples), value * (257 if bits == 16 else 1), dtype.numpy)
                )


def test_four_inks_are_rgb(images: ImageCodecs) -> None:
    found = read(images, "jpeg", cmyk_jpeg())
    assert isinstance(found, list)
    assert found[0].shape == (4, 4, 3)


def test_an_error_says_what_the_body_is(images: ImageCodecs) -> None:
    found = read(images, "png", encode(RGB, "jpeg"))
    assert isinstance(found, Refusal)
    assert found.detail == (
        "The body is said to be a png, and is a jpeg. Send it as image/jpeg, or set from=jpeg."
    )


@pytest.mark.parametrize(
    ("form", "shape"),
    [
        *(("png", shape) for shape in [(5, 3), (5, 3, 1), (5, 3, 2), (5, 3, 3), (5, 3, 4), (1, 1)]),
        *(("jpeg", shape) for shape in [(8, 8), (8, 8, 1), (8, 8, 3)]),
    ],
)
def test_arrays_are_written_as_images(images: ImageCodecs, form: Any, shape: tuple[int, ...]) -> None:
    image = (
        np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        if form == "png"
        else np.full(shape, 77, "u1")
    )
    body = write_tensors(form, [array_of(image)], images=images)
    assert isinstance(body, bytes)
    assert decode(body).tolist() == image.reshape(*shape[:2], -1).tolist()
    assert read(images, form, body) == values_of(image.reshape(*shape[:2], -1))


def test_quality_is_that_of_the_jpeg(images: ImageCodecs) -> None:
    def written(**options: Any) -> bytes:
        body = write_tensors("jpeg", [array_of(pixels(64, 64, 3))], images=images, **options)
        assert isinstance(body, bytes)
        return body

    sizes = [len(written(quality=quality)) for quality in (1, 50, 95, 100)]
    assert sizes == sorted(set(sizes))
    assert written() == written(quality=95)


@pytest.mark.parametrize(
    ("form", "array"),
    [
        *(
            (form, array_of(np.zeros(shape, np.uint8)))
            for form in ("jpeg", "png")
            for shape in [(), (3,), (1, 2, 3, 4), (0, 3), (3, 0, 3), (2, 2, 5), (2, 2, 0)]
        ),
        ("jpeg", array_of(np.zeros((2, 2, 2), np.uint8))),
        ("jpeg", array_of(np.zeros((2, 2, 4), np.uint8))),
        ("jpeg", array_of(np.zeros((1, 65501), np.uint8))),
        ("png", array_of(np.zeros((2, 2), np.uint16))),
        ("png", array_of(np.zeros((2, 2), np.float32))),
        ("png", array_of(np.zeros((2, 2), np.bool_))),
        ("png", Array.of(np.array([[b"a"]], object), DTYPES["string"])),
    ],
)
def test_tensor_that_is_not_an_image_is_refused(images: ImageCodecs, form: Any, array: Array) -> None:
    assert write_tensors(form, [array], images=images) == Refusal("not_expressible")


def test_one_image_is_written(images: ImageCodecs) -> None:
    array = array_of(RGB)
    assert write_tensors("png", [array, array], images=images) == Refusal("several_tensors")
    assert write_tensors("png", [], images=images) == Refusal("no_tensors")
    for form in ("webp", "gif", "bmp"):
        assert write_tensors(form, [array], images=images) == Refusal("not_expressible")


def decoded(images: ImageCodecs, form: FormName, body: bytes, budget: Budget) -> list[Any]:
    options = TensorDecodeOptions(images=images, held=True)
    source: Any = MemoryFile(body)
    return list(TENSOR_CODECS[form].decode(source, options, budget))


def test_only_the_pixels_stay_charged(images: ImageCodecs) -> None:
    budget = Budget()
    free = budget.remaining
    decoded(images, "png", encode(pixels(100, 100, 3), "png"), budget)
    assert free - budget.remaining == 30_000
    assert budget.peak > 80_000
    body = write_tensors("png", [array_of(RGB)], images=images)
    assert isinstance(body, bytes)


def test_decoded_image_is_charged(images: ImageCodecs) -> None:
    body = encode(pixels(1500, 2000, 3), "png")
    decoded(images, "png", body, Budget())  # the process is there now
    budget = Budget()
    assert peak_bytes(lambda: decoded(images, "png", body, budget)) < budget.peak + 6 * MIB
    array, budget = array_of(pixels(1500, 2000, 3)), Budget()
    encoder = TENSOR_CODECS["png"].encode

    def written() -> None:
        for _ in encoder([array], TensorEncodeOptions(images=images), budget):
            pass

    assert peak_bytes(written) < budget.peak + 6 * MIB


def test_an_image_is_charged_before_it_is_decoded(images: ImageCodecs) -> None:
    bomb = png_of(4000, 4000, content=zlib.compress(bytes(4000 * 12001), 9))
    assert len(bomb) < 100_000
    with pytest.raises(InputError) as caught:
        decoded(images, "png", bomb, Budget(Limits(max_decoded_bytes=64 * MIB)))
    assert caught.value.code == "payload_too_large"
    larger = png_of(8000, 8000)
    amplification = Amplification(1100, lambda: len(larger))
    with pytest.raises(InputError) as caught:
        decoded(images, "png", larger, Budget(amplification=amplification))
    assert caught.value.code == "amplification_exceeded"


def test_an_image_beyond_the_budget_is_to_be_made_smaller(images: ImageCodecs) -> None:
    body = encode(pixels(600, 700, 1), "png")
    with pytest.raises(LimitExceeded, match="Make the image smaller, or raise SHARDSMITH_MAX_DECODED_BYTES"):
        decoded(images, "png", body, Budget(Limits(max_decoded_bytes=MIB)))


def test_image_over_the_process_limit_is_not_called_damaged() -> None:
    processes = ImageProcesses(1, shared_bytes=MIB)
    try:
        with pytest.raises(LimitExceeded, match="of 600 x 700 pixels is not decoded: at most 1048576 bytes"):
            decoded(processes, "png", encode(pixels(600, 700, 1), "png"), Budget())
    finally:
        processes.close()
