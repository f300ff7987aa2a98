"""TFRecord files of `tf.train.Example`: the form in which TensorFlow reads rows."""

from __future__ import annotations

from collections.abc import Iterator

from ...domain.limits import Budget
from ...domain.streams import Buffer, ByteStream
from ..options import RecordsDecodeOptions, RecordsEncodeOptions
from .columns import Records
from .compression import compress
from .example_decode import parse_frames
from .example_encode import RecordBlock, encode_blocks
from .framing import iter_frames

__all__ = ["RecordBlock", "decode", "encode", "encode_blocks"]


def decode(source: ByteStream, options: RecordsDecodeOptions, budget: Budget) -> Records:
    """The rows of a TFRecord stream of Examples, by the declared schema or an inferred one.

    Raises:
        InputError: as `iter_frames` and `parse_frames`; without a declared schema the first 1,000 records
            (all, with `options.infer`) are read here, the rest as batches are drawn.
    """
    return parse_frames(iter_frames(source, budget, compression=options.compression), options, budget)


def encode(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """A TFRecord stream, an Example a row. No rows: no bytes, or an empty compressed body.

    Raises:
        InputError: as `encode_blocks`.
    """
    blocks = (block.data for block in encode_blocks(records, options, budget))
    return compress(blocks, options.compression)
