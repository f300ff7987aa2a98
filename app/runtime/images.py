"""Decoding and encoding images, as the process lends it to requests.

`transforms/images/processes.py` does it. Codecs and steps know no more than what is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from ..domain.meaning import ImageFormat as ImageFormat

#: `[height, width, channels]`, uint8 or uint16.
Image = NDArray[Any]


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

    data: bytes
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
    """Why an image was not decoded or encoded."""

    reason: str


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
