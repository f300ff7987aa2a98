"""Decoding images: bytes -> pixels, and what is done with the pixels of each image before the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
from typing_extensions import override

from ...codecs.columns import Column, Strings
from ...codecs.images.decode import UINT8, decoding_bytes, finish_image, prepare_image, reason_of
from ...codecs.images.encode import encoding_room
from ...domain.dtypes import BYTES, DType
from ...domain.feature import Feature
from ...domain.tensor import num_elements
from ...errors import InputError, UnprocessableInput
from ...runtime.images import EncodedImage, Image, ImageHeader, Pixels, Refusal
from ...runtime.turns import offer_turn
from ..step import (
    ArrayRefused,
    Memory,
    RemoteStep,
    RowsRefused,
    RowStep,
    Started,
    Step,
    Tools,
    changed,
    column_of,
    column_shape,
    invalid,
    strings_of,
)
from .encode import EncodeStep, encoded_column

#: Orientations of EXIF with rows for columns.
_ON_THEIR_SIDE: Final = (5, 6, 7, 8)
_MOST_CHANNELS: Final = 4
#: Images that are converted at a time, each in the thread of its process.
_AT_A_TIME: Final = 2
#: Shapes of which it is known what memory they take: images of a data set mostly have few.
_MOST_KNOWN: Final = 256


@dataclass(frozen=True, slots=True)
class DecodeImage(RemoteStep):
    """`tf.io.decode_image` of one frame: JPEG, PNG, GIF, WebP, BMP -> pixels.

    Args:
        channels: 0 for those of each image, 1 grey, 3 RGB, 4 RGBA.
        dtype: uint8, or uint16 for PNG alone.
        apply_exif_orientation: turn a JPEG as its camera says; TensorFlow never does.
    """

    name = "decode_image"
    channels: Literal[0, 1, 3, 4] = 0
    dtype: DType = UINT8
    apply_exif_orientation: bool = False

    def __post_init__(self) -> None:
        if self.dtype.name not in ("uint8", "uint16"):
            raise invalid(self.name, "dtype must be uint8 or uint16")

    @override
    def result(self, feature: Feature) -> Feature:
        if feature.dtype is not BYTES or feature.kind != "dense" or feature.shape:
            raise self.takes(feature, "one encoded image, bytes of shape []")
        return changed(feature, self.dtype, (None, None, self.channels or None))

    @override
    def start(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Started[Any]:
        return ImageRun(self).start(column, feature, num_rows, tools)

    def prepare(self, strings: Strings) -> list[EncodedImage | str]:
        """The images, of which nothing but the headers has been read, or why they are not decoded."""
        images: list[EncodedImage | str] = []
        for begin, end in pairwise(strings.offsets.tolist()):
            offer_turn()
            try:
                images.append(prepare_image(strings.data[begin:end].data, self.channels, self.dtype))
            except InputError as error:
                images.append(reason_of(error))
        return images

    def shape_of(self, image: EncodedImage) -> tuple[int, int, int]:
        """The shape that an image is decoded to."""
        header = image.header
        is_turned = self.apply_exif_orientation and header.orientation in _ON_THEIR_SIDE
        height, width = (header.width, header.height) if is_turned else (header.height, header.width)
        return height, width, image.channels or header.channels

    def finish(self, image: Image, header: ImageHeader) -> Image:
        """What was decoded, as the step gives it."""
        image = finish_image(image, header, self.dtype)
        return _turned(image, header.orientation) if self.apply_exif_orientation else image


def _turned(image: Image, orientation: int) -> Image:
    """The image as it was seen, by EXIF's eight orientations."""
    if orientation in _ON_THEIR_SIDE:
        image = image.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return image[:, ::-1] if orientation in (2, 3, 6, 7) else image


@dataclass(frozen=True, slots=True)
class _RefusedAt:
    """Why a step of a run does not take an image."""

    step: int
    reason: str


class ImageRun(RemoteStep):
    """`decode_image`, and the steps behind it that work on one array: done image by image.

    An image goes through all steps in the memory that it was decoded to, and its pixels are never copied to
    a column.

    Args:
        decode: the first step.
        between: each step behind it, with the feature that it is given.
        encode: the step that the images are encoded by at the end, if any.
    """

    def __init__(
        self,
        decode: DecodeImage,
        between: Sequence[tuple[RowStep, Feature]] = (),
        encode: EncodeStep | None = None,
    ) -> None:
        self.decode = decode
        self._between = tuple(between)
        self._encode = encode
        #: By shape of the decoded image, what `_memory_of` has found.
        self._known: dict[tuple[int, ...], Memory] = {}

    @classmethod
    def of(cls, steps: Sequence[Step], feature: Feature) -> ImageRun | None:
        """The run that `steps` begin with, if they do; `feature` is what they are given."""
        if not steps or not isinstance(steps[0], DecodeImage):
            return None
        decode = steps[0]
        between: list[tuple[RowStep, Feature]] = []
        feature = decode.result(feature)
        for step in steps[1:]:
            if isinstance(step, EncodeStep):
                return cls(decode, between, step)
            if not isinstance(step, RowStep):
                break
            between.append((step, feature))
            feature = step.result(feature)
        return cls(decode, between)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All of them."""
        last = () if self._encode is None else (self._encode,)
        return (self.decode, *(step for step, _ in self._between), *last)

    @override
    def result(self, feature: Feature) -> Feature:
        for step in self.steps:
            feature = step.result(feature)
        return feature

    @override
    def start(
        self,
        column: Column,
        feature: Feature,
        num_rows: int,
        tools: Tools,
        prepared: Sequence[EncodedImage | str] | None = None,
    ) -> Started[list[Any]]:
        """As `RemoteStep.start`.

        Args:
            prepared: what `DecodeImage.prepare` gives for the column; None where that was not called.
        """
        found = self.decode.prepare(strings_of(column)) if prepared is None else prepared
        refused = {index: image for index, image in enumerate(found) if isinstance(image, str)}
        if refused:
            raise RowsRefused(refused)
        images = [image for image in found if not isinstance(image, str)]
        decoded, budget = sum(image.header.num_bytes for image in images), tools.lease.budget
        budget.check_amplification("decoded", decoded)
        tools.lease.charge(decoding_bytes(images) + self._memory(images), "The images of a batch")
        pending = tools.images.start_decoding(images, self._convert)

        def collect(result: list[Any]) -> Column:
            # Not before: a piece that is begun again counts once, so that no limit depends on how busy it is.
            budget.amplify("decoded", decoded)
            return self._collect(column, self.result(feature), tools, result)

        return Started(pending, collect)

    def kept_bytes(self, image: EncodedImage) -> int:
        """What is kept of an image in the end, before it is encoded."""
        return self._memory_of(image).kept

    def _memory(self, images: Sequence[EncodedImage]) -> int:
        """Bytes that the steps behind `decode_image` make of the images."""
        found = [self._memory_of(image) for image in images]
        working = sorted(memory.working for memory in found)
        kept = sum(memory.kept for memory in found)
        if self._encode is not None:
            kept = encoding_room(kept, len(images))
        return kept + sum(working[-_AT_A_TIME:])

    def _memory_of(self, image: EncodedImage) -> Memory:
        """What is kept of an image in the end, and what the steps hold of it in between."""
        shape: tuple[int, ...] = self.decode.shape_of(image)
        memory = self._known.get(shape)
        if memory is None:
            if len(self._known) == _MOST_KNOWN:
                self._known.clear()
            memory = self._known[shape] = self._memory_from(shape)
        if image.channels:
            return memory
        # A decoder gives at most four channels, whatever the header says.
        times = -(-_MOST_CHANNELS // shape[2])
        return Memory(memory.kept * times, memory.working * times)

    def _memory_from(self, shape: tuple[int, ...]) -> Memory:
        dtype, held, peak = self.decode.dtype, 0, 0
        for step, feature in self._between:
            kept, working = step.memory(shape, feature.dtype)
            peak = max(peak, held + kept + working)
            held = kept or held  # a view holds what it was made of
            try:
                result = step.result(replace(feature, shape=shape))
            except UnprocessableInput:  # the step will refuse the image
                break
            if result.num_values is None:
                break
            shape, dtype = column_shape(result), result.dtype
        kept = num_elements(shape) * dtype.itemsize
        return Memory(kept, max(held, peak - kept))

    def _convert(self, image: EncodedImage, pixels: Image) -> Image | Pixels | _RefusedAt:
        """One image through the steps behind `decode_image`."""
        array = self.decode.finish(pixels, image.header)
        for number, (step, feature) in enumerate(self._between, 1):
            try:
                array = step.convert_array(array, feature)
            except ArrayRefused as error:
                return _RefusedAt(number, str(error))
        if self._encode is not None and (reason := self._encode.unfit(array)):
            return _RefusedAt(len(self._between) + 1, reason)
        kept = array.copy() if np.may_share_memory(array, pixels) else array
        return kept if self._encode is None else self._encode.pixels(kept)

    def _collect(self, column: Column, result: Feature, tools: Tools, found: list[Any]) -> Column:
        """The column of what was found.

        Raises:
            RowsRefused: by the first step that does not take some of them.
        """
        refused: dict[int, dict[int, str]] = {}
        for index, one in enumerate(found):
            if isinstance(one, _RefusedAt):
                refused.setdefault(one.step, {})[index] = one.reason
            elif isinstance(one, Refusal):
                step, done = (len(self.steps) - 1, "encoded") if one.was_encoded else (0, "decoded")
                refused.setdefault(step, {})[index] = f"the image cannot be {done}: {one.reason}"
        if refused:
            first = min(refused)
            raise RowsRefused(refused[first], first)
        if self._encode is not None:
            return encoded_column(found, column)
        return column_of(found, result, column, tools)
