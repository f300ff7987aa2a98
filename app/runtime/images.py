"""Decoding and encoding images, as the process lends it to requests.

`transforms/images/processes.py` does it. Codecs and steps know no more than what is here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from ..domain.meaning import ImageFormat as ImageFormat

#: `[height, width, channels]`, uint8 or uint16.
Image = NDArray[Any]
Converted = TypeVar("Converted")
Found = TypeVar("Found", covariant=True)


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """What is known of an image that is not decoded.

    Attributes:
        channels: of the image as it decodes without a conversion: 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA.
        depth: bits of a channel, 8 or 16; 8 where there are fewer.
        inverted: a JPEG of four inks in Adobe's way, where 255 means no ink; None where it has no four inks.
        orientation: by EXIF, 1 to 8; 1 where nothing is said.
    """

    format: ImageFormat
    height: int
    width: int
    channels: int
    depth: int = 8
    inverted: bool | None = None
    orientation: int = 1

    @property
    def num_bytes(self) -> int:
        """Bytes of the decoded image, whatever is asked for: four channels at most."""
        return self.height * self.width * 4 * (self.depth // 8)


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """An image to be decoded: its bytes, what its header says, and the channels wanted (0: its own)."""

    data: bytes | memoryview
    header: ImageHeader
    channels: int


@dataclass(frozen=True, slots=True)
class Pixels:
    """An image to be encoded, with the options of Pillow's encoder of that format."""

    image: Image
    format: str
    options: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an image was not decoded or encoded.

    Attributes:
        was_encoded: it was to be encoded.
        is_limit: it is larger than is done here, or takes longer; nothing is said of damage.
    """

    reason: str
    was_encoded: bool = False
    is_limit: bool = False


class Pending(Protocol[Found]):
    """What another thread will have found, as a `concurrent.futures.Future`."""

    def result(self) -> Found:
        """What it has found; waits for it."""

    def cancel(self) -> bool:
        """Stop it, and say whether that was possible: it had not begun."""


class ImageCodecs(Protocol):
    """Decodes and encodes images, each by itself: one that is refused costs the others nothing.

    May wait for a process, so not on the event loop. The caller charges its budget before: for decoding
    `codecs.images.decode.decoding_bytes`, for encoding `codecs.images.encode.encoding_bytes`.
    """

    def decode(self, images: Sequence[EncodedImage]) -> list[Image | Refusal]:
        """The images, decoded.

        Raises:
            Overloaded: no process came free in time, or there is no memory for one.
        """

    def encode(self, images: Sequence[Pixels]) -> list[bytes | Refusal]:
        """The images, encoded.

        Raises:
            Overloaded: no process came free in time, or there is no memory for one.
        """

    def start_decoding(
        self, images: Sequence[EncodedImage], convert: Callable[[EncodedImage, Image], Converted | Pixels]
    ) -> Pending[list[Converted | bytes | Refusal]]:
        """Begin to decode the images, in another thread.

        Args:
            convert: makes of each decoded image what is kept of it, in that thread; what it returns as
                `Pixels` is encoded. The image it is given ends with the call.
        """

    def start_encoding(self, images: Sequence[Pixels]) -> Pending[list[bytes | Refusal]]:
        """Begin to encode the images, in another thread."""
