"""Images that are drawn at random, and photographs, through chains of steps drawn at random: as TensorFlow.

A test draws some hundred. All that there is time for, and photographs of other cameras in a folder:
`python -m tests.differential.test_drawn_images 10000 FOLDER` prints how many were equal.
"""

import io
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest
import sklearn
import tensorflow as tf
from PIL import Image

from app.errors import InputError
from app.transforms.images.processes import ImageProcesses
from tests.support.transforms import transform

Array = npt.NDArray[Any]
Step = dict[str, Any]
ORIENTATION: Final = 0x0112
METHODS: Final = (
    "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic",
)  # fmt: skip
MODES: Final = {
    "JPEG": ("L", "RGB", "RGB", "RGB", "CMYK"),
    "PNG": ("L", "LA", "RGB", "RGBA"),
    "WEBP": ("RGB", "RGBA"),
    "GIF": ("P",),
    "BMP": ("L", "RGB"),
}
#: What turns an image as its orientation says (EXIF 2.32, tag 274).
TURNS: Final[dict[int, Callable[[Any], Any]]] = {
    1: lambda image: image,
    2: tf.image.flip_left_right,
    3: lambda image: tf.image.rot90(image, 2),
    4: tf.image.flip_up_down,
    5: tf.image.transpose,
    6: lambda image: tf.image.rot90(image, 3),
    7: lambda image: tf.image.transpose(tf.image.rot90(image, 2)),
    8: tf.image.rot90,
}
PHOTOGRAPHS: Final = sorted((Path(sklearn.__file__).parent / "datasets" / "images").glob("*.jpg"))


@dataclass
class Drawn:
    """An encoded image and what it is."""

    body: bytes
    form: str
    mode: str
    orientation: int = 1

    @classmethod
    def at_random(cls, random: np.random.Generator) -> "Drawn":
        form = str(random.choice(["JPEG", "JPEG", "JPEG", "PNG", "WEBP", "GIF", "BMP"]))
        mode = str(random.choice(MODES[form]))
        return cls.encode(_pixels(random), form, mode, random)

    @classmethod
    def encode(cls, image: Image.Image, form: str, mode: str, random: np.random.Generator) -> "Drawn":
        """The image in one of the ways in which its format is written."""
        found, options = cls(b"", form, mode), dict[str, Any]()
        if form == "JPEG":
            found.orientation = int(random.integers(1, 9))
            exif = Image.Exif()
            exif[ORIENTATION] = found.orientation
            options = {
                "quality": int(random.integers(1, 101)),
                "progressive": bool(random.integers(2)),
                "optimize": bool(random.integers(2)),
                "exif": exif,
            }
            if mode == "RGB":
                options["subsampling"] = str(random.choice(["4:4:4", "4:2:2", "4:2:0"]))
            if random.integers(4) == 0:
                options["restart_marker_blocks"] = int(random.integers(1, 9))
        elif form == "WEBP":
            options = {"lossless": bool(random.integers(2)), "quality": int(random.integers(1, 101))}
        file = io.BytesIO()
        image.convert(mode).save(file, form, **options)
        found.body = file.getvalue()
        return found

    def decoded(self, channels: int, *, turned: bool) -> Array:
        """What TensorFlow makes of it, turned as it says if that is asked for."""
        if self.form == "GIF":
            image = tf.io.decode_gif(self.body)[0]
        elif self.form == "WEBP":
            image = tf.io.decode_webp(self.body, channels=channels)[0]
        elif self.form == "BMP":
            image = tf.io.decode_bmp(self.body, channels=channels)
        elif self.form == "PNG":
            image = tf.io.decode_png(self.body, channels=channels)
        else:
            image = tf.io.decode_jpeg(self.body, channels=channels)
        found: Array = (TURNS[self.orientation](image) if turned else image).numpy()
        return found


def _pixels(random: np.random.Generator) -> Image.Image:
    """Noise on waves, of any size up to 120 pixels."""
    height, width = random.integers(1, 121, 2)
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 90 * np.sin(x / random.uniform(2, 40) + y / random.uniform(2, 40)) for _ in range(4)]
    noise = random.normal(0, random.choice([0, 5, 60]), (height, width, 4))
    return Image.fromarray(np.clip(np.stack(waves, -1) + noise, 0, 255).astype(np.uint8), "RGBA")


def _channels(drawn: Drawn, random: np.random.Generator) -> int:
    """A number that both decoders take for this image."""
    allowed = {
        "JPEG": (0, 3) if drawn.mode == "CMYK" else (0, 1, 3),
        "PNG": (0, 1, 3, 4),
        "WEBP": (0,),
        "GIF": (0, 3),
        "BMP": (0,),
    }[drawn.form]
    return int(random.choice(allowed))


def draw_step(image: Array, random: np.random.Generator) -> tuple[Step, Callable[[Any], Any]]:
    """A step for this image with arguments drawn at random, and what TensorFlow does."""
    height, width, channels = image.shape
    names = [
        *("resize", "resize", "resize_with_pad", "resize_with_crop_or_pad", "central_crop"),
        *("crop_to_bounding_box", "pad_to_bounding_box", "flip_left_right", "flip_up_down", "rot90"),
        *["rgb_to_grayscale"] * (channels == 3),
        *["grayscale_to_rgb"] * (channels == 1),
        *["convert_image_dtype"] * (image.dtype == np.uint8),
    ]
    name = str(random.choice(names))
    to_height, to_width = (int(side) for side in random.integers(1, 130, 2))
    target = {"target_height": to_height, "target_width": to_width}
    method, antialias = str(random.choice(METHODS)), bool(random.integers(2))
    arguments: dict[str, Any] = {}
    if name == "resize":
        keep = bool(random.integers(4) == 0)
        arguments = {
            "size": [to_height, to_width],
            "method": method,
            "antialias": antialias,
            "preserve_aspect_ratio": keep,
        }
    elif name == "resize_with_pad":
        arguments = {**target, "method": method, "antialias": antialias}
    elif name == "resize_with_crop_or_pad":
        arguments = target
    elif name == "central_crop":
        arguments = {"central_fraction": float(random.uniform(0.05, 1))}
    elif name == "crop_to_bounding_box":
        top, left = int(random.integers(height)), int(random.integers(width))
        arguments = {
            "offset_height": top,
            "offset_width": left,
            "target_height": int(random.integers(1, height - top + 1)),
            "target_width": int(random.integers(1, width - left + 1)),
        }
    elif name == "pad_to_bounding_box":
        top, left = (int(side) for side in random.integers(0, 20, 2))
        arguments = {
            "offset_height": top,
            "offset_width": left,
            "target_height": top + height + int(random.integers(0, 20)),
            "target_width": left + width + int(random.integers(0, 20)),
        }
    elif name == "rot90":
        arguments = {"k": int(random.integers(-3, 8))}
    elif name == "convert_image_dtype":
        arguments = {"dtype": str(random.choice(["float32", "float64", "float16", "uint16", "int16"]))}
        dtype = tf.as_dtype(arguments["dtype"])
        return {"step": name, **arguments}, lambda value: tf.image.convert_image_dtype(value, dtype)
    function = getattr(tf.image, name)
    return {"step": name, **arguments}, lambda value: function(value, **arguments)


def draw_end(image: Array, random: np.random.Generator) -> tuple[Step, Callable[[Any], Any]]:
    """A step that encodes an image of uint8, and what TensorFlow does; PNGs are compared by their pixels."""
    if image.shape[2] in (1, 3) and random.integers(2):
        options = {
            "quality": int(random.integers(1, 101)),
            "progressive": bool(random.integers(2)),
            "optimize_size": bool(random.integers(2)),
            "chroma_downsampling": bool(random.integers(2)),
        }
        return {"step": "encode_jpeg", **options}, lambda value: tf.io.encode_jpeg(value, **options)
    return {"step": "encode_png", "compression": int(random.integers(-1, 10))}, lambda value: value


def check(drawn: Drawn, random: np.random.Generator, images: ImageProcesses) -> list[str]:
    """Draw steps for an image and compare; the names of the steps that were done."""
    channels, turned = _channels(drawn, random), bool(random.integers(3) == 0)
    decode = {"step": "decode_image", "channels": channels, "apply_exif_orientation": turned}
    steps: list[Step] = [decode]
    expected = drawn.decoded(channels, turned=turned)
    for _ in range(int(random.integers(0, 4))):
        if expected.dtype not in (np.uint8, np.float32):
            break
        step, theirs = draw_step(expected, random)
        steps.append(step)
        try:
            expected = theirs(tf.constant(expected)).numpy()
        except tf.errors.InvalidArgumentError:  # no row or no column would be left
            with pytest.raises(InputError):
                transform(steps, [drawn.body], (), "bytes", images)
            return [step["step"] for step in steps[:-1]]
    if expected.dtype == np.uint8 and random.integers(2):
        step, theirs = draw_end(expected, random)
        steps.append(step)
        expected = theirs(tf.constant(expected))
        expected = expected.numpy()
    [found] = transform(steps, [drawn.body], (), "bytes", images)
    if steps[-1]["step"] == "encode_png":
        found = tf.io.decode_png(found).numpy()
    told = f"{drawn.form} {drawn.mode} {steps}"
    if isinstance(found, bytes):
        assert found == expected, told
    else:
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), told
        assert found.tobytes() == expected.tobytes(), f"{told}: {np.abs(found - expected).max()}"
    return [step["step"] for step in steps]


def every_way(path: Path, random: np.random.Generator) -> Iterator[Drawn]:
    """A photograph as it is and, smaller, in every subsampling, orientation and order of its scans."""
    yield Drawn(path.read_bytes(), "JPEG", "RGB")
    with Image.open(path) as opened:
        small = opened.convert("RGB").resize((160, 107))
    for _ in range(24):
        yield Drawn.encode(small, "JPEG", "RGB", random)


@pytest.mark.parametrize("seed", range(8))
def test_drawn_images_come_out_of_drawn_steps_as_from_tensorflow(seed: int, images: ImageProcesses) -> None:
    random = np.random.default_rng(seed)
    for _ in range(60):
        check(Drawn.at_random(random), random, images)


@pytest.mark.parametrize("path", PHOTOGRAPHS, ids=lambda path: path.name)
def test_photographs_come_out_of_drawn_steps_as_from_tensorflow(path: Path, images: ImageProcesses) -> None:
    random = np.random.default_rng(len(path.name))
    for drawn in every_way(path, random):
        check(drawn, random, images)


def check_photograph(path: Path, images: ImageProcesses) -> str:
    """Compare a photograph as it is: "equal", or why it is in none of both."""
    body = path.read_bytes()
    with Image.open(io.BytesIO(body)) as opened:
        orientation = int(opened.getexif().get(ORIENTATION, 1))
        drawn = Drawn(body, opened.format or "", opened.mode, orientation if orientation in TURNS else 1)
    for turned in (False, True):
        step = {"step": "decode_image", "channels": 3, "apply_exif_orientation": turned}
        try:
            expected = drawn.decoded(3, turned=turned)
        except tf.errors.InvalidArgumentError:
            with pytest.raises(InputError):
                transform([step], [body], (), "bytes", images)
            return "refused by both"
        try:
            [found] = transform([step], [body], (), "bytes", images)
        except InputError as error:
            return f"refused here alone: {error.detail}"
        assert found.shape == expected.shape, f"{path}: {found.shape} and {expected.shape}"
        assert found.tobytes() == expected.tobytes(), path
    return "equal"


def main(count: int, folder: Path | None) -> None:
    def write(line: str) -> None:
        sys.stdout.write(f"{line}\n")

    codecs = ImageProcesses()
    try:
        done: Counter[str] = Counter()
        for seed in range(count):
            random = np.random.default_rng((1, seed))
            done.update(check(Drawn.at_random(random), random, codecs))
        write(f"{count} drawn images: all equal; steps done:")
        write(", ".join(f"{name} {number}" for name, number in done.most_common()))
        for path in sorted(folder.rglob("*.jp*g")) if folder else []:
            try:
                outcome = check_photograph(path, codecs)
            except OSError as error:
                outcome = f"no image to Pillow: {error}"
            write(f"{path.name}: {outcome}")
    finally:
        codecs.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
