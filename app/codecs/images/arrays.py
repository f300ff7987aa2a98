"""An encoded image as one array of pixels, uint8 `[height, width, channels]`; PNG also uint16."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from ...errors import LimitExceeded, MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.images import Image, ImageCodecs, ImageFormat, Pixels, Refusal
from ...runtime.streams import Buffer, WholeBody
from ..array import Array, only_array
from ..options import TensorDecodeOptions, TensorEncodeOptions
from .decode import MAX_PIXELS, UINT8, UINT16, decoding_bytes, finish_image, prepare_image
from .encode import CHANNELS, encoding_bytes, jpeg_pixels, png_pixels

Written = Literal["jpeg", "png"]
#: Rows and columns of a JPEG; libjpeg takes no more.
_MAX_JPEG_DIM = 65_500
#: What to do about an image that does not fit into the budget.
_SMALLER = "Make the image smaller, or raise SHARDSMITH_MAX_DECODED_BYTES."


def reader_of(form: ImageFormat) -> Callable[[WholeBody, TensorDecodeOptions, Budget], list[Array]]:
    """A reader of images in this format."""

    def read(body: WholeBody, options: TensorDecodeOptions, budget: Budget) -> list[Array]:
        """The image, decoded as TensorFlow decodes it.

        Raises:
            MalformedInput: no image (`not_an_image`), one in another format (`mislabelled_image`), or a
                damaged one (`damaged_image`).
            UnprocessableInput: an image that is not decoded to these channels (`unsupported_image`).
            LimitExceeded: larger than the budget or than is decoded, or too large for the size of the body.
            Overloaded: no process came free to decode it.
        """
        budget.charge(body.size, "The image")
        dtype = UINT16 if options.dtype is UINT16 else UINT8
        encoded = prepare_image(bytes(body.view()), options.channels, dtype)
        header = encoded.header
        if header.format != form:
            raise MalformedInput(
                f"The body is said to be a {form}, and is a {header.format}. Send it as "
                f"image/{header.format}, or set from={header.format}.",
                code="mislabelled_image",
                offset=0,
            )
        budget.amplify("decoded", header.num_bytes)
        needed = decoding_bytes([encoded])
        pixels = f"{header.height} x {header.width} pixels"
        budget.charge(needed, f"Decoding an image of {pixels}", instead=_SMALLER)
        (found,) = _lent(options.images).decode([encoded])
        if isinstance(found, Refusal) and found.is_limit:
            raise LimitExceeded(
                f"The {form} of {pixels} is not decoded: {found.reason}. Make the image smaller.",
                code="payload_too_large",
            )
        if isinstance(found, Refusal):
            raise MalformedInput(f"The {form} cannot be decoded: {found.reason}.", code="damaged_image")
        image = finish_image(found, header, dtype)
        budget.release(needed + body.size - image.nbytes)
        return [Array.of(image, dtype)]

    return read


def writer_of(form: Written) -> Callable[[Sequence[Array], TensorEncodeOptions, Budget], Iterator[Buffer]]:
    """A writer of images in this format."""

    def write(arrays: Sequence[Array], options: TensorEncodeOptions, budget: Budget) -> Iterator[Buffer]:
        """The image, encoded as TensorFlow encodes it; a PNG has the same pixels in other bytes.

        Raises:
            UnprocessableInput: not exactly one array (`no_tensors`, `several_tensors`), or one that is no
                image of this format (`not_expressible`).
            LimitExceeded: larger than the budget.
            Overloaded: no process came free to encode it.
        """
        array = only_array(arrays, form)
        shape = _image_shape(array, form)
        image = array.read(budget).values.reshape(shape)
        needed = encoding_bytes([image])
        budget.charge(needed, "The encoded image", instead=_SMALLER)
        (found,) = _lent(options.images).encode([_pixels(image, form, options)])
        if isinstance(found, Refusal):
            raise UnprocessableInput(
                f"The tensor cannot be encoded as {form}: {found.reason}.", code="not_expressible"
            )
        budget.release(needed - len(found))
        return iter([found])

    return write


def _pixels(image: Image, form: Written, options: TensorEncodeOptions) -> Pixels:
    return jpeg_pixels(image, options.quality) if form == "jpeg" else png_pixels(image)


def _image_shape(array: Array, form: Written) -> tuple[int, int, int]:
    """Height, width and channels.

    Raises:
        UnprocessableInput: it is no image (`not_expressible`).
    """
    shape, channels = array.shape, CHANNELS[form]
    height, width, depth = (*shape, 1) if len(shape) == 2 else shape if len(shape) == 3 else (0, 0, 0)
    too_large = height * width > MAX_PIXELS or (form == "jpeg" and max(height, width) > _MAX_JPEG_DIM)
    if array.dtype is not UINT8 or depth not in channels or not height * width or too_large:
        counts = ", ".join(map(str, channels[:-1]))
        raise UnprocessableInput(
            f"A tensor of {array.dtype} and shape {list(shape)[:16]} is no {form}, which is uint8 of shape "
            f"[height, width] or [height, width, channels], of {counts} or {channels[-1]} channels and at "
            f"most {MAX_PIXELS} pixels. Convert it, or choose another format.",
            code="not_expressible",
            feature=array.name,
        )
    return height, width, depth


def _lent(images: ImageCodecs | None) -> ImageCodecs:
    if images is None:
        raise AssertionError("whoever converts images lends the codecs in the options")
    return images
