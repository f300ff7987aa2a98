"""Pictures in cells: thumbnails of images, heat maps of tensors. All of a page are made together.

They stand in the page as `data:` URLs, so that they need no request, and no cookie for it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...codecs.images.decode import UINT8, UINT16, decoding_bytes, prepare_image
from ...codecs.images.encode import encoding_bytes, jpeg_pixels, png_pixels
from ...codecs.images.header import read_header
from ...codecs.images.shrink import shrink, thin
from ...codecs.records.lease import Lease
from ...domain.limits import MIB
from ...errors import InputError, Overloaded
from ...runtime.budget import Budget
from ...runtime.images import EncodedImage, Image, ImageCodecs, ImageHeader, Pixels, Refusal
from ...runtime.turns import waiting
from .features import shape_text

#: Pixels that are decoded for a page, and bytes of its pictures.
_MOST_PIXELS: Final = 96_000_000
_MADE_BYTES: Final = 10 * MIB
#: What wait to be made hold before some are made, and what making some of them together holds.
_WAITING_BYTES: Final = 16 * MIB
_MAKING_BYTES: Final = 32 * MIB
_TOGETHER: Final = 128
#: A picture that is made is in memory as so many copies until its page is sent.
_COPIES: Final = 4
_QUALITY: Final = 82
#: Numbers that are looked at together.
_PIECE: Final = 1 << 16
#: So many times a small picture is enlarged at most.
_ENLARGED: Final = 12
_TOO_LARGE: Final = "It is not drawn here: the images of this page are too large together."
_BUSY: Final = "It is not drawn now: the service is busy."
#: How images begin; what begins so and cannot be read is a damaged one. BMP begins as words do.
_SIGNATURES: Final = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8")
_BMP: Final = b"BM"
#: Viridis, the colour map of matplotlib that is the same for eyes that do not tell red from green.
_VIRIDIS: Final = ("440154", "472d7b", "3b528b", "2c728e", "21918c", "28ae80", "5ec962", "addc30", "fde725")


T = TypeVar("T")


def real(numbers: NDArray[Any]) -> NDArray[np.float64]:
    """As float64, so only for few of them; of complex numbers, how large they are."""
    with np.errstate(all="ignore"):
        return (np.abs(numbers) if numbers.dtype.kind == "c" else numbers).astype(np.float64)


def real_pieces(numbers: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    """As `real`, of however many: as float64 all of them could take 8 times their memory."""
    flat = numbers.reshape(-1)
    for begin in range(0, flat.size, _PIECE):
        yield real(flat[begin : begin + _PIECE])


def finite_range(numbers: NDArray[Any]) -> tuple[float, float, int]:
    """The lowest and the highest of the finite numbers, 0 if there are none; and how many are finite."""
    low, high, count = math.inf, -math.inf, 0
    for piece in real_pieces(numbers):
        finite = piece[np.isfinite(piece)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
            count += finite.size
    return (low, high, count) if count else (0.0, 0.0, 0)


@dataclass(frozen=True, slots=True)
class Box:
    """A box on a picture, in shares of its size; `title` says what it is."""

    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(slots=True)
class Picture:
    """A picture to be shown.

    Attributes:
        alt: what stands in its place.
        words: what it is: format and size.
        size: width and height of what it shows.
        width, height: in pixels of CSS.
        url: empty where it was not made; then `why` says why not.
        is_enlarged: its pixels are shown as squares.
        is_map: its colours stand for numbers.
    """

    words: str
    size: tuple[int, int] = (0, 0)
    width: int = 0
    height: int = 0
    url: str = ""
    why: str = ""
    alt: str = ""
    is_enlarged: bool = False
    is_map: bool = False
    boxes: tuple[Box, ...] = ()


@dataclass(slots=True)
class Painter:
    """Makes the pictures of a page. They are asked for first; `paint` makes those that are not made yet.

    What they hold is charged until the page is sent. Those that there is no room for say so in their place.

    Args:
        images: decodes and encodes.
        width, height: most of a picture, in pixels of CSS; it has two of its own for each, for fine screens.
    """

    images: ImageCodecs
    budget: Budget
    width: int
    height: int
    _encoded: list[tuple[EncodedImage, Picture]] = field(default_factory=list)
    _drawn: list[tuple[Image, Picture]] = field(default_factory=list)
    _num_pixels: int = 0
    _waiting_bytes: int = 0
    _made_bytes: int = 0

    def image(self, data: memoryview) -> Picture | None:
        """A thumbnail of an encoded image; None where that is none."""
        head = bytes(data[:12])
        if not (head.startswith((*_SIGNATURES, _BMP)) or (head[:4], head[8:]) == (b"RIFF", b"WEBP")):
            return None
        try:
            header = read_header(bytes(data))
        except InputError as error:
            return (
                None
                if head.startswith(_BMP)
                else Picture("damaged image", why=f"It cannot be decoded: {error.detail}")
            )
        picture = self._picture(_words(header), header.height, header.width)
        try:
            dtype = UINT16 if header.depth == 16 else UINT8
            image = prepare_image(bytes(data), 3 if dtype is UINT8 else 0, dtype)
        except InputError as error:
            picture.why = error.detail
            return picture
        self._num_pixels += header.height * header.width
        if self._num_pixels > _MOST_PIXELS:
            picture.why = _TOO_LARGE
        elif self._has_room(len(data), picture):
            self._encoded.append((image, picture))
        return picture

    def heat_map(self, values: NDArray[Any]) -> Picture:
        """A matrix, `[height, width]`, dark where it is low; what is not finite stays clear."""
        height, width = values.shape
        picture = self._begin("heat map", height, width)
        picture.is_map = True
        thinned = thin(values, 2 * self.height, 2 * self.width)
        if self._has_room(4 * thinned.size, picture):
            low, high, _ = finite_range(values)
            shares = (real(thinned) - low) / ((high - low) or 1.0)
            indexes = np.nan_to_num(shares * 255, nan=0, posinf=255, neginf=0).clip(0, 255).astype(np.uint8)
            colours = np.dstack([_palette()[indexes], np.isfinite(shares).astype(np.uint8) * 255])
            self._drawn.append((np.ascontiguousarray(colours), picture))
        return picture

    def pixels(self, values: NDArray[Any]) -> Picture:
        """An image of uint8, or of numbers from 0 to 1: `[height, width, channels]`."""
        height, width, channels = values.shape
        picture = self._begin("pixels", height, width)
        rows, columns = min(height, 2 * self.height), min(width, 2 * self.width)
        if self._has_room(channels * rows * columns, picture):
            if values.dtype != np.uint8:
                shares = np.clip(np.nan_to_num(real(thin(values, 2 * rows, 2 * columns))), 0, 1)
                values = (shares * 255).round().astype(np.uint8)
            self._drawn.append((np.ascontiguousarray(shrink(values, rows, columns)), picture))
        return picture

    def _begin(self, words: str, height: int, width: int) -> Picture:
        picture = self._picture(words, height, width)
        picture.is_enlarged = picture.width > width
        return picture

    def _has_room(self, num_bytes: int, picture: Picture) -> bool:
        """Whether there is room for what the picture holds until it is made; if not, it says so."""
        if self._waiting_bytes + num_bytes > min(_WAITING_BYTES, self.budget.remaining // 2):
            self.paint()
        if self._made_bytes > _MADE_BYTES or num_bytes > self.budget.remaining:
            picture.why = _TOO_LARGE
            return False
        try:
            self.budget.charge(num_bytes, "The pictures of a page")
        except Overloaded:
            picture.why = _BUSY
            return False
        self._waiting_bytes += num_bytes
        return True

    def _picture(self, words: str, height: int, width: int) -> Picture:
        """As large as there is room; small pictures are enlarged by a whole number."""
        share = min(self.width / max(width, 1), self.height / max(height, 1))
        share = min(int(share), _ENLARGED) if share >= 1 else share
        return Picture(words, (width, height), max(1, round(width * share)), max(1, round(height * share)))

    def paint(self) -> None:
        """Make the pictures that were asked for."""
        try:
            for images in self._parts(self._encoded, decoding_bytes):
                self._decode(images)
            for drawn in self._parts(self._drawn, encoding_bytes):
                self._encode(drawn)
        except Overloaded:
            for _, picture in (*self._encoded, *self._drawn):
                if not picture.url:
                    picture.why = picture.why or _BUSY
        self._encoded.clear()
        self._drawn.clear()
        self.budget.release(self._waiting_bytes)
        self._waiting_bytes = 0

    def _parts(
        self, waiting: Sequence[tuple[T, Picture]], bytes_of: Callable[[Sequence[T]], int]
    ) -> Iterator[list[tuple[T, Picture]]]:
        """Some at a time, so that making them holds no more than there is."""
        part: list[tuple[T, Picture]] = []
        for each in waiting:
            most = min(_MAKING_BYTES, self.budget.remaining // 2)
            if part and (len(part) == _TOGETHER or bytes_of([one for one, _ in (*part, each)]) > most):
                yield part
                part = []
            if bytes_of([each[0]]) > self.budget.remaining:
                each[1].why = _TOO_LARGE
            else:
                part.append(each)
        if part:
            yield part

    def _decode(self, part: Sequence[tuple[EncodedImage, Picture]]) -> None:
        images = [image for image, _ in part]
        sizes = [(picture.height, picture.width) for _, picture in part]
        wanted = {id(image): size for image, size in zip(images, sizes, strict=True)}
        with Lease(self.budget) as lease:
            lease.charge(decoding_bytes(images), "The images of a page")
            pending = self.images.start_decoding(images, partial(_thumbnail, wanted))
            with waiting():
                found = pending.result()
            for (image, picture), made in zip(part, found, strict=True):
                is_png = image.header.channels in (2, 4) and image.channels == 0
                self._show(picture, made, "png" if is_png else "jpeg")

    def _encode(self, drawn: Sequence[tuple[Image, Picture]]) -> None:
        with Lease(self.budget) as lease:
            lease.charge(encoding_bytes([pixels for pixels, _ in drawn]), "The pictures of a page")
            with waiting():
                found = self.images.encode([png_pixels(pixels) for pixels, _ in drawn])
            for (_, picture), made in zip(drawn, found, strict=True):
                self._show(picture, made, "png")

    def _show(self, picture: Picture, made: Any, form: str) -> None:
        if isinstance(made, Refusal):
            picture.why = f"It cannot be decoded: {made.reason}."
            return
        self._made_bytes += len(made)
        if self._made_bytes > _MADE_BYTES or _COPIES * len(made) > self.budget.remaining:
            picture.why = _TOO_LARGE
            return
        self.budget.charge(_COPIES * len(made), "The pictures of a page")
        picture.url = f"data:image/{form};base64,{base64.b64encode(made).decode()}"


def _thumbnail(wanted: dict[int, tuple[int, int]], encoded: EncodedImage, decoded: Image) -> Pixels:
    """The small image that is kept of a decoded one; twice as wide as it is shown, for fine screens."""
    pixels = decoded if decoded.ndim == 3 else decoded[0]
    if pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)
    height, width = wanted[id(encoded)]
    small = shrink(pixels, min(2 * height, pixels.shape[0]), min(2 * width, pixels.shape[1]))
    return jpeg_pixels(small, _QUALITY) if small.shape[2] in (1, 3) else png_pixels(small)


def _words(header: ImageHeader) -> str:
    turned = f", EXIF orientation {header.orientation}" if header.orientation != 1 else ""
    return f"{header.format.upper()} {shape_text((header.width, header.height))}{turned}"


def _palette() -> NDArray[np.uint8]:
    """256 colours, `[256, 3]`."""
    anchors = np.array([list(bytes.fromhex(colour)) for colour in _VIRIDIS], np.float64)
    places = np.linspace(0, len(anchors) - 1, 256)
    channels = [np.interp(places, np.arange(len(anchors)), anchors[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)
