"""TFRecord files of Examples or SequenceExamples: the form in which TensorFlow reads rows."""

from __future__ import annotations

from collections.abc import Iterator

from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ..columns import Records
from ..compression.tfrecord import compress
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from .framing import iter_frames
from .messages import encode_messages, parse_messages
from .salvage import good_frames


def decode(source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of a TFRecord stream, by the declared schema or an inferred one.

    Raises:
        InputError: frames that are damaged (see `iter_frames`), or records that are no such messages (see
            `parse_frames`). Without a declared schema the first 1,000 records (all, with `options.infer`) are
            read here, the rest as batches are drawn.
    """
    if options.losses is None:
        frames = iter_frames(source, budget, compression=options.compression)
    else:
        options.losses.clear()
        frames = good_frames(source, budget, options.losses, compression=options.compression)
    return parse_messages(frames, options, budget)


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """A TFRecord stream, a message a row. No rows: no bytes, or an empty compressed body.

    Raises:
        LossyConversion: a value that a FloatList would change too much.
        UnprocessableInput: a row of 2 GiB or more (`example_too_large`).
    """
    blocks = (block.data for block in encode_messages(records, options, budget))
    return compress(blocks, options.compression)
