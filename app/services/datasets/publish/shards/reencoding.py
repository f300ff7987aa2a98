"""Records that were stored before their schema was widened, as they would be stored now.

An int64 that became float32 is the one change after which lists of another kind are there (see
`domain/evolution.py`), and TensorFlow reads no Int64List as float32. All other records come out as they went
in, since there is one way to encode a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from .....codecs.messages.frames import find_frames
from .....codecs.messages.framing import HEADER_BYTES, OVERHEAD_BYTES, FrameBlock
from .....codecs.messages.messages import encode_messages, parse_messages
from .....codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from .....domain.schema import Schema
from .....errors import CorruptData, InputError
from .....runtime.budget import Budget
from .....runtime.buffer_pool import BufferPool
from .....storage.object_store import ObjectStore
from .source import RecordRun
from .writer import RecordSource


@dataclass(frozen=True, slots=True)
class Reencoded:
    """The records of `source`, each as `schema` has it."""

    source: RecordSource
    schema: Schema

    def runs(
        self,
        store: ObjectStore,
        budget: Budget,
        pool: ThreadPoolExecutor | None = None,
        buffers: BufferPool | None = None,
    ) -> Iterator[RecordRun]:
        """See `RecordSource`."""
        frames = _frames(self.source.runs(store, budget, pool, buffers))
        try:
            rows = parse_messages(frames, RecordsDecodeOptions(schema=self.schema), budget)
            for block in encode_messages(rows, RecordsEncodeOptions(lossy=True), budget):
                ends = find_frames(np.frombuffer(block.data, np.uint8), block.num_records)
                yield RecordRun(block.data, ends)
        except InputError as error:
            raise CorruptData(f"The records for a shard cannot be read: {error.detail}") from error


def _frames(runs: Iterator[RecordRun]) -> Iterator[FrameBlock]:
    first = offset = 0
    for run in runs:
        lengths = np.diff(run.ends, prepend=0)
        starts = run.ends - lengths + HEADER_BYTES
        yield FrameBlock(run.data, starts, lengths - OVERHEAD_BYTES, first, offset)
        first += len(run.ends)
        offset += len(run.data)
