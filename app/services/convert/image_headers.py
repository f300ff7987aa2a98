"""What the headers of encoded images say: formats and sizes, of a random sample of strings.

A header takes microseconds, and the checksums of a PNG as long as reading it: too long for all of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np
from typing_extensions import TypedDict

from ...codecs.columns import Strings
from ...codecs.images.header import FIRST_BYTES, read_header
from ...errors import InputError

#: Sizes that are listed.
_LISTED: Final = 20
#: Different sizes that are counted.
_REMEMBERED: Final = 4096
_FIRST_BYTES: Final = np.frombuffer(FIRST_BYTES, np.uint8)


class ImageSizeJson(TypedDict):
    """A size in pixels, and how many images have it."""

    width: int
    height: int
    count: int


class ImagesJson(TypedDict):
    """Of the strings that were looked at, what their headers say. `formats` counts each format.

    The sizes are those that are most frequent.
    """

    num_looked_at: int
    num_other: int
    formats: dict[str, int]
    min_width: int
    max_width: int
    min_height: int
    max_height: int
    sizes: list[ImageSizeJson]


class ImageHeaders:
    """Looks at one of `stride` strings."""

    def __init__(self, stride: int, seed: int) -> None:
        self._stride = stride
        self._random = np.random.default_rng(seed)
        self._num_looked_at = 0
        self._formats: Counter[str] = Counter()
        self._sizes: Counter[tuple[int, int]] = Counter()
        self._least, self._greatest = (1 << 32, 1 << 32), (0, 0)

    def add(self, strings: Strings) -> None:
        """Look at some of the strings."""
        chosen = np.arange(len(strings))
        if self._stride > 1:
            chosen = np.flatnonzero(self._random.random(len(strings)) * self._stride < 1)
        self._num_looked_at += len(chosen)
        # Most strings are text: what begins like no image is not looked at one by one.
        chosen = chosen[strings.offsets[chosen] < strings.offsets[chosen + 1]]
        may_be = np.isin(strings.data[strings.offsets[chosen]], _FIRST_BYTES)
        for place in chosen[may_be].tolist():
            data = strings.data[int(strings.offsets[place]) : int(strings.offsets[place + 1])]
            try:
                header = read_header(data.tobytes())
            except InputError:
                continue
            self._formats[header.format] += 1
            self._note((header.width, header.height), 1)

    def _note(self, size: tuple[int, int], count: int) -> None:
        if size in self._sizes or len(self._sizes) < _REMEMBERED:
            self._sizes[size] += count
        self._widen(size, size)

    def _widen(self, least: tuple[int, int], greatest: tuple[int, int]) -> None:
        self._least = min(self._least[0], least[0]), min(self._least[1], least[1])
        self._greatest = max(self._greatest[0], greatest[0]), max(self._greatest[1], greatest[1])

    def merge(self, other: ImageHeaders) -> None:
        """Take in what was found of other strings."""
        self._num_looked_at += other._num_looked_at
        self._formats += other._formats
        for size, count in other._sizes.items():
            self._note(size, count)
        self._widen(other._least, other._greatest)

    def to_json(self) -> ImagesJson | None:
        """What was found; None where less than half of what was looked at are images."""
        num_images = self._formats.total()
        if 2 * num_images < max(1, self._num_looked_at):
            return None
        return {
            "num_looked_at": self._num_looked_at,
            "num_other": self._num_looked_at - num_images,
            "formats": dict(self._formats.most_common()),
            "min_width": self._least[0],
            "max_width": self._greatest[0],
            "min_height": self._least[1],
            "max_height": self._greatest[1],
            "sizes": [
                {"width": width, "height": height, "count": count}
                for (width, height), count in self._sizes.most_common(_LISTED)
            ],
        }
