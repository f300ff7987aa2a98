"""Steps on images give what TensorFlow gives: to the last bit, but where a bound is stated."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import sklearn
import tensorflow as tf
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from app.errors import UnprocessableInput
from app.transforms.images.processes import ImageProcesses
from app.transforms.images.resize import fitted_size, resize
from tests.support.images import png_of
from tests.support.transforms import transform

Array = npt.NDArray[Any]
METHODS = ("bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic")
PHOTOGRAPHS = sorted((Path(sklearn.__file__).parent / "datasets" / "images").glob("*.jpg"))
PRIMARIES = (31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)
ANY: tuple[int | None, ...] = (None, None, None)


def random_image(random: np.random.Generator, dtype: str = "uint8", channels: int | None = None) -> Array:
    height, width = random.integers(1, 80, 2)
    shape = (height, width, channels or int(random.integers(1, 5)))
    if dtype.startswith("float"):
        return random.normal(0, 100, shape).astype(dtype)
    return random.integers(0, 256, shape).astype(dtype)


def smooth_image(random: np.random.Generator, channels: int) -> Array:
    """What a photograph is like: some noise on waves."""
    height, width = random.integers(1, 70, 2)
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 90 * np.sin(x / (3 + 5 * c) + y / (7 - c)) for c in range(channels)]
    noise = random.normal(0, random.choice([0, 10, 60]), (height, width, channels))
    return np.clip(np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)


def encode(image: Array, form: str, mode: str | None = None, **options: Any) -> bytes:
    pixels = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    if mode is not None:
        pixels = pixels.convert(mode)
    file = io.BytesIO()
    pixels.save(file, form, **options)
    return file.getvalue()


def same(ours: Array, theirs: Array) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours, theirs)
    assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_resize_is_equal_to_the_last_bit(method: Any, antialias: bool) -> None:
    random = np.random.default_rng(METHODS.index(method))
    for _ in range(700):
        image = random_image(random, str(random.choice(["uint8", "float32", "int16", "float64", "uint16"])))
        height, width = map(int, random.integers(1, 90, 2))
        theirs = tf.image.resize(image, [height, width], method=method, antialias=antialias).numpy()
        same(resize(image, height, width, method, antialias=antialias), theirs)


def test_the_size_with_the_same_aspect_ratio() -> None:
    random = np.random.default_rng(1)
    for _ in range(500):
        height, width, *size = map(int, random.integers(1, 300, 4))
        image = np.zeros((height, width, 1), np.uint8)
        try:
            theirs = tf.image.resize(image, size, preserve_aspect_ratio=True).shape[:2]
        except tf.errors.InvalidArgumentError:
            assert 0 in fitted_size(height, width, (size[0], size[1]))
            continue
        assert fitted_size(height, width, (size[0], size[1])) == tuple(theirs)


JPEGS = [
    ("RGB", {"subsampling": "4:4:4"}),
    ("RGB", {"subsampling": "4:2:2"}),
    ("RGB", {"subsampling": "4:2:0"}),
    ("RGB", {"subsampling": "4:2:0", "progressive": True}),
    ("RGB", {"subsampling": "4:4:4", "progressive": True, "optimize": True}),
    ("RGB", {"subsampling": "4:2:2", "restart_marker_blocks": 3}),
    ("L", {}),
    ("L", {"progressive": True}),
    ("CMYK", {}),
]


@pytest.mark.parametrize(("mode", "options"), JPEGS)
def test_jpegs_decode_to_equal_bytes(mode: str, options: dict[str, Any], images: ImageProcesses) -> None:
    random = np.random.default_rng(len(options))
    bodies = [
        encode(
            smooth_image(random, 1 if mode == "L" else 3),
            "JPEG",
            mode,
            quality=int(random.integers(1, 101)),
            **options,
        )
        for _ in range(150)
    ]
    for channels in (0, 1, 3) if mode != "CMYK" else (0, 3):
        steps = [{"step": "decode_image", "channels": channels}]
        for body, ours in zip(bodies, transform(steps, bodies, (), "bytes", images), strict=True):
            same(ours, tf.io.decode_jpeg(body, channels=channels).numpy())


@pytest.mark.parametrize("path", PHOTOGRAPHS, ids=lambda path: path.name)
def test_photographs_decode_to_equal_bytes(path: Path, images: ImageProcesses) -> None:
    body = path.read_bytes()
    (ours,) = transform([{"step": "decode_image"}], [body], (), "bytes", images)
    same(ours, tf.io.decode_jpeg(body).numpy())


@pytest.mark.parametrize("channels", [0, 1, 3, 4])
@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGB", "RGBA"])
def test_pngs_decode_to_equal_bytes(mode: str, channels: int, images: ImageProcesses) -> None:
    random = np.random.default_rng(channels)
    plain = "RGB" if mode == "P" else mode
    bodies = []
    for _ in range(60):
        image = random_image(random, channels=len(plain))
        pixels = Image.fromarray(image[:, :, 0] if mode == "L" else image, plain)
        file = io.BytesIO()
        # A palette of 256 colours: with fewer bits a pixel, TensorFlow makes an alpha channel of 1, 3 or 15.
        (pixels.quantize(256) if mode == "P" else pixels).save(file, "PNG", bits=8)
        bodies.append(file.getvalue())
    steps = [{"step": "decode_image", "channels": channels}]
    for body, ours in zip(bodies, transform(steps, bodies, (), "bytes", images), strict=True):
        same(ours, tf.io.decode_png(body, channels=channels).numpy())


def raw_png(bits: int, colour: int, transparent: bytes, random: np.random.Generator) -> bytes:
    """A PNG of 16 x 9 pixels of few different values; `transparent` is the content of its chunk tRNS."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    channels = 3 if colour == 2 else 1
    values = random.integers(0, 2, (9, 16, channels))
    if bits < 8:
        rows = np.packbits(
            values.reshape(9, -1) if bits == 1 else values.repeat(bits, 1).reshape(9, -1), axis=1
        )
    else:
        rows = values.astype(">u2" if bits == 16 else np.uint8).reshape(9, -1).view(np.uint8)
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", 16, 9, bits, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"tRNS", transparent), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks)


@pytest.mark.parametrize(
    ("bits", "colour", "transparent"),
    [
        (1, 0, b"\0\1"),
        (2, 0, b"\0\3"),
        (4, 0, b"\0\x0f"),
        (8, 0, b"\0\1"),
        (8, 2, b"\0\1\0\1\0\1"),
        (16, 0, b"\0\1"),
        (16, 2, b"\0\1\0\0\0\1"),
    ],
)
def test_pngs_with_a_transparent_colour_decode_to_equal_bytes(
    bits: int, colour: int, transparent: bytes, images: ImageProcesses
) -> None:
    body = raw_png(bits, colour, transparent, np.random.default_rng(bits))
    dtype = "uint16" if bits == 16 else "uint8"
    for channels in (0, 1, 3, 4):
        step = {"step": "decode_image", "channels": channels, "dtype": dtype}
        (ours,) = transform([step], [body], (), "bytes", images)
        theirs = tf.io.decode_png(body, channels=channels, dtype=dtype).numpy()
        same(ours, theirs)
    assert 0 < np.count_nonzero(theirs[:, :, 3] == 0) < theirs[:, :, 3].size


def test_pngs_of_16_bits_decode_to_equal_words(images: ImageProcesses) -> None:
    random = np.random.default_rng(16)
    for channels, top in ((1, 1 << 16), (1, 256), (3, 256)):
        kind = np.uint16 if top > 256 else np.uint8
        body = tf.io.encode_png(random.integers(0, top, (9, 7, channels)).astype(kind)).numpy()
        (ours,) = transform([{"step": "decode_image", "dtype": "uint16"}], [body], (), "bytes", images)
        same(ours, tf.io.decode_png(body, dtype=tf.uint16).numpy())


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_webps_decode_to_equal_bytes(mode: str, lossless: bool, images: ImageProcesses) -> None:
    random = np.random.default_rng(len(mode))
    bodies = [encode(random_image(random, channels=len(mode)), "WEBP", lossless=lossless) for _ in range(60)]
    for body, ours in zip(
        bodies, transform([{"step": "decode_image"}], bodies, (), "bytes", images), strict=True
    ):
        same(ours, tf.image.decode_webp(body).numpy()[0])


@pytest.mark.parametrize("transparency", [{}, {"transparency": 0}])
def test_gifs_decode_to_equal_bytes(transparency: dict[str, int], images: ImageProcesses) -> None:
    random = np.random.default_rng(3)
    bodies = [encode(random_image(random, channels=3), "GIF", "P", **transparency) for _ in range(60)]
    for body, ours in zip(
        bodies, transform([{"step": "decode_image"}], bodies, (), "bytes", images), strict=True
    ):
        same(ours, tf.io.decode_gif(body).numpy()[0])


@pytest.mark.parametrize("screen", [(3, 2), (90, 80)])
def test_gifs_have_the_size_of_their_frame(screen: tuple[int, int], images: ImageProcesses) -> None:
    body = bytearray(encode(np.arange(35, dtype=np.uint8).reshape(5, 7, 1), "GIF", "P"))
    body[6:10] = struct.pack("<HH", *screen)
    (ours,) = transform([{"step": "decode_image"}], [bytes(body)], (), "bytes", images)
    same(ours, tf.io.decode_gif(bytes(body)).numpy()[0])


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L"])
@pytest.mark.parametrize(
    "stated",
    [
        {b"sRGB": b"\0"},
        *({b"gAMA": struct.pack(">I", gamma)} for gamma in (0, 15, 20, 45455, 55000, 94999, 95000, 95238)),
        *({b"gAMA": struct.pack(">I", gamma)} for gamma in (100000, 105000, 105001, 105264, 220000, 10**9)),
        {b"gAMA": struct.pack(">I", 60000), b"sRGB": b"\0"},
        {b"gAMA": struct.pack(">I", 45455), b"cHRM": struct.pack(">8I", *PRIMARIES)},
    ],
    ids=str,
)  # fmt: skip
def test_pngs_that_state_their_gamma_decode_to_equal_grey(
    mode: str, stated: dict[bytes, bytes], images: ImageProcesses
) -> None:
    image = random_image(np.random.default_rng(3), channels=3)
    image = np.concatenate((image, np.repeat(image[:, :, :1], 3, 2)))
    chunks = PngInfo()
    for name, content in stated.items():
        chunks.add(name, content)
    body = encode(image, "PNG", mode, pnginfo=chunks)
    for channels in (1, 3):
        (ours,) = transform([{"step": "decode_image", "channels": channels}], [body], (), "bytes", images)
        same(ours, tf.io.decode_png(body, channels=channels).numpy())


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_bmps_decode_to_equal_bytes(channels: int, images: ImageProcesses) -> None:
    random = np.random.default_rng(channels)
    bodies = [encode(random_image(random, channels=channels), "BMP") for _ in range(60)]
    for body, ours in zip(
        bodies, transform([{"step": "decode_image"}], bodies, (), "bytes", images), strict=True
    ):
        same(ours, tf.io.decode_bmp(body).numpy())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
def test_jpegs_are_encoded_to_equal_bytes(
    channels: int, progressive: bool, optimize: bool, images: ImageProcesses
) -> None:
    random = np.random.default_rng(channels)
    for quality in (1, 30, 75, 95, 100):
        for downsampling in (False, True):
            options = {
                "quality": quality,
                "progressive": progressive,
                "optimize_size": optimize,
                "chroma_downsampling": downsampling,
            }
            rows = [smooth_image(random, channels) for _ in range(12)]
            step = {"step": "encode_jpeg", **options}
            for row, ours in zip(rows, transform([step], rows, ANY, "uint8", images), strict=True):
                assert ours == tf.io.encode_jpeg(row, **options).numpy()


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_tensorflow_decodes_encoded_pngs_to_the_same_pixels(channels: int, images: ImageProcesses) -> None:
    random = np.random.default_rng(channels)
    rows = [random_image(random, channels=channels) for _ in range(40)]
    for row, body in zip(rows, transform([{"step": "encode_png"}], rows, ANY, "uint8", images), strict=True):
        same(row, tf.io.decode_png(body).numpy())


STEPS: list[tuple[str, dict[str, Any], Any]] = [
    ("resize_with_pad", {"target_height": 31, "target_width": 47}, tf.image.resize_with_pad),
    (
        "resize_with_pad",
        {"target_height": 60, "target_width": 17, "method": "lanczos3", "antialias": True},
        tf.image.resize_with_pad,
    ),
    ("resize_with_pad", {"target_height": 8, "target_width": 90, "method": "area"}, tf.image.resize_with_pad),
    ("resize_with_crop_or_pad", {"target_height": 40, "target_width": 33}, tf.image.resize_with_crop_or_pad),
    ("resize_with_crop_or_pad", {"target_height": 7, "target_width": 90}, tf.image.resize_with_crop_or_pad),
    ("central_crop", {"central_fraction": 0.875}, tf.image.central_crop),
    ("central_crop", {"central_fraction": 0.31}, tf.image.central_crop),
    ("flip_left_right", {}, tf.image.flip_left_right),
    ("flip_up_down", {}, tf.image.flip_up_down),
    ("rot90", {}, tf.image.rot90),
    ("rot90", {"k": 2}, tf.image.rot90),
    ("rot90", {"k": -1}, tf.image.rot90),
    (
        "pad_to_bounding_box",
        {"offset_height": 2, "offset_width": 3, "target_height": 99, "target_width": 101},
        tf.image.pad_to_bounding_box,
    ),
]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize(("name", "options", "theirs"), STEPS)
def test_places_of_pixels_are_equal(
    name: str, options: dict[str, Any], theirs: Any, dtype: str, images: ImageProcesses
) -> None:
    random = np.random.default_rng(len(name))
    rows = [random_image(random, dtype) for _ in range(120)]
    if name == "resize_with_pad":  # what leaves no row or column is an error in both
        rows = [row for row in rows if 1 / 7 < row.shape[0] / row.shape[1] < 7]
    for row, ours in zip(rows, transform([{"step": name, **options}], rows, ANY, dtype, images), strict=True):
        same(ours, theirs(row, **options).numpy())


def test_boxes_are_cut_out_equally(images: ImageProcesses) -> None:
    random = np.random.default_rng(0)
    for _ in range(100):
        row = random_image(random)
        top, left = int(random.integers(row.shape[0])), int(random.integers(row.shape[1]))
        options = {
            "offset_height": top,
            "offset_width": left,
            "target_height": int(random.integers(1, row.shape[0] - top + 1)),
            "target_width": int(random.integers(1, row.shape[1] - left + 1)),
        }
        (ours,) = transform([{"step": "crop_to_bounding_box", **options}], [row], ANY, "uint8", images)
        same(ours, tf.image.crop_to_bounding_box(row, **options).numpy())


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_grey_is_equal(dtype: str, images: ImageProcesses) -> None:
    random = np.random.default_rng(2)
    rows = [random_image(random, dtype, 3) for _ in range(200)]
    if dtype == "float32":
        rows = [row / np.float32(300) for row in rows]
    steps = [{"step": "rgb_to_grayscale"}]
    for row, ours in zip(rows, transform(steps, rows, ANY, dtype, images), strict=True):
        same(ours, tf.image.rgb_to_grayscale(row).numpy())


@pytest.mark.parametrize("dtype", ["uint8", "float32"])  # TensorFlow repeats no uint16
def test_grey_is_repeated_equally(dtype: str, images: ImageProcesses) -> None:
    random = np.random.default_rng(2)
    rows = [random_image(random, dtype, 1) for _ in range(200)]
    steps = [{"step": "grayscale_to_rgb"}]
    for row, ours in zip(rows, transform(steps, rows, ANY, dtype, images), strict=True):
        same(ours, tf.image.grayscale_to_rgb(tf.constant(row)).numpy())


INTEGERS = ("uint8", "int8", "int16", "uint16", "int32")
FLOATS = ("float16", "float32", "float64")
CONVERSIONS = [
    (source, target, saturate)
    for source in ("uint8", "int8", "int16", "uint16", "float32", "float64")
    for target in (*INTEGERS, *FLOATS)
    for saturate in (False, True)
    # Beyond these ranges TensorFlow overflows, and here it is an error or the nearest value.
    if (source, target) != ("uint16", "float16") and not (source in FLOATS and target == "int32" and saturate)
]


@pytest.mark.parametrize(("source", "target", "saturate"), CONVERSIONS)
def test_dtypes_of_images_are_converted_equally(
    source: str, target: str, saturate: bool, images: ImageProcesses
) -> None:
    random = np.random.default_rng(4)
    if source in FLOATS:
        low, high = (-0.5, 1.5) if saturate and target in INTEGERS else (0.0, 1.0)
        # A float32 times 2^31 - 0.5 is 2^31, which no int32 is.
        high = min(high, 0.999) if target == "int32" else high
        rows = [random.uniform(low, high, (5, 4, 3)).astype(source) for _ in range(40)]
    else:
        limits = np.iinfo(source)
        first = limits.min if saturate or target in FLOATS else 0
        rows = [random.integers(first, limits.max + 1, (5, 4, 3)).astype(source) for _ in range(40)]
    step = {"step": "convert_image_dtype", "dtype": target, "saturate": saturate}
    for row, ours in zip(rows, transform([step], rows, (5, 4, 3), source, images), strict=True):
        same(ours, tf.image.convert_image_dtype(row, target, saturate=saturate).numpy())


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_standardized_images_are_near(dtype: str, images: ImageProcesses) -> None:
    """Sums in another order: to within 2e-5 of a deviation."""
    random = np.random.default_rng(5)
    rows = [random_image(random, dtype) for _ in range(200)] + [np.full((4, 4, 3), 7).astype(dtype)]
    for row, ours in zip(
        rows, transform([{"step": "per_image_standardization"}], rows, ANY, dtype, images), strict=True
    ):
        np.testing.assert_allclose(ours, tf.image.per_image_standardization(row).numpy(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("size", [(256, 256), (60, 84), (12, 12)])
@pytest.mark.parametrize("parts", [(2, 2), (3, 1), (1, 4), (12, 12)])
def test_areas_of_whole_pixels_are_equal(size: tuple[int, int], parts: tuple[int, int]) -> None:
    random = np.random.default_rng(6)
    resized = [dim // part for dim, part in zip(size, parts, strict=True)]
    height, width = (dim * part for dim, part in zip(resized, parts, strict=True))
    image = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
    ours = resize(image, resized[0], resized[1], "area", antialias=False)
    same(ours, tf.image.resize(image, resized, "area").numpy())


@pytest.mark.parametrize("rows", range(8))
def test_a_png_with_fewer_rows_than_it_declares_is_refused_by_both(rows: int, images: ImageProcesses) -> None:
    data = png_of(7, 9, content=zlib.compress((b"\0" + bytes(27)) * rows))
    steps = [{"step": "decode_image"}]
    if rows == 7:
        (ours,) = transform(steps, [data], (), "bytes", images)
        same(ours, tf.io.decode_png(data).numpy())
        return
    with pytest.raises(UnprocessableInput):
        transform(steps, [data], (), "bytes", images)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.decode_png(data)
