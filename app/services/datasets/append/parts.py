"""The record bytes of one attempt to append: in memory while they are few, otherwise in parts.

A part is put while the next one is gathered, so that a body is taken in as fast as the slower of the two
goes. Only a few are under way: if the store is slower than the client, the client waits.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import numpy as np

from ....codecs.messages.examples.write import RecordBlock
from ....codecs.messages.frames import find_frames
from ....codecs.messages.framing import OVERHEAD_BYTES
from ....domain.limits import MIB
from ....errors import LimitExceeded, StorageError
from ....runtime.budget import Budget
from ....runtime.buffer_pool import BufferPool
from ....runtime.streams import Buffer
from ....runtime.turns import waiting
from ....storage.create_once import new_nonce
from ....storage.object_store import ObjectStore
from ..objects.layout import Layout
from ..objects.slot import INLINE_BYTES
from ..pieces.cutter import RecordCutter
from ..pieces.pieces import Piece
from .groups import SMALL_BYTES

#: A part is one put. One is gathered in memory while so many others are hashed and stored.
_PART_BYTES: Final = 16 * MIB
_PARTS_AT_ONCE: Final = 2


class Parts:
    """The record bytes of one attempt at the append `append_id`. For one thread.

    Attributes:
        attempt: names this attempt, and the folder of its parts.
        inline: all records, if they are few.
        num_records: how many were taken so far.
    """

    def __init__(
        self,
        store: ObjectStore,
        layout: Layout,
        append_id: str,
        max_record_bytes: int,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._layout = layout
        self._append_id = append_id
        self.inline = b""
        self.num_records = 0
        self._store = store
        self._max_record_bytes = max_record_bytes
        self._pool = pool
        self.attempt = new_nonce()
        self._pieces: list[Piece] = []
        self._begun: list[str] = []
        self._under_way: deque[Future[Piece]] = deque()

    @property
    def pieces(self) -> Sequence[Piece]:
        """The pieces that are stored, or the one in memory as `inline`."""
        return self._pieces

    @property
    def is_small(self) -> bool:
        """Whether the records are worth less than a put of their own."""
        return not self._begun and len(self.inline) <= SMALL_BYTES

    def write(self, blocks: Iterator[RecordBlock], budget: Budget) -> None:
        """Take all blocks of framed records, uploading each part as soon as it is full.

        Raises:
            LimitExceeded: a record is larger than allowed (`record_too_large`), or all are too much for the
                size of the body (`amplification_exceeded`).
            StorageError: a part could not be stored.
        """
        with BufferPool(budget, "A part of the records", most_lent=_PARTS_AT_ONCE) as buffers:
            cutter = RecordCutter(_PART_BYTES, buffers)
            for block in blocks:
                budget.amplify("stored", len(block.data))
                self._check_sizes(block)
                self.num_records += block.num_records
                for data, num_records in cutter.add_run(block.data, block.num_records):
                    self._upload(data, num_records)
            for data, num_records in cutter.flush():
                if self._begun or len(data) > INLINE_BYTES:
                    self._upload(data, num_records)
                else:
                    self.inline = bytes(data)
                    self._pieces.append(Piece.of(data, num_records))
            self._await_parts(0)

    def discard(self) -> None:
        """Delete the parts as far as the store allows; collection takes the rest."""
        with waiting():
            for part in self._under_way:
                part.exception()  # a put that lands later would stay
        # Not tried further once it fails: a store that hangs would take its time for each part, and the
        # client waits.
        with contextlib.suppress(StorageError):
            for key in self._begun:
                self._store.delete(key)

    @contextlib.contextmanager
    def discarded_on_error(self) -> Iterator[None]:
        """Discard the parts if the block fails."""
        try:
            yield
        except BaseException:
            self.discard()
            raise

    def _check_sizes(self, block: RecordBlock) -> None:
        if len(block.data) <= self._max_record_bytes:
            return
        data = np.frombuffer(block.data, np.uint8)
        sizes = np.diff(find_frames(data, block.num_records), prepend=0) - OVERHEAD_BYTES
        large = np.flatnonzero(sizes > self._max_record_bytes)
        if large.size:
            row = self.num_records + int(large[0])
            raise LimitExceeded(
                f"Row {row} takes {sizes[large[0]]} bytes as a record; at most "
                f"{self._max_record_bytes} are allowed. Split it up.",
                code="record_too_large",
                row=row,
            )

    def _upload(self, data: Buffer, num_records: int) -> None:
        """Begin to store a part, once there are few enough under way."""
        self._await_parts(_PARTS_AT_ONCE - 1)
        key = self._layout.part(self._append_id, self.attempt, len(self._begun))
        self._begun.append(key)
        self._under_way.append(self._pool.submit(self._store_part, key, data, num_records))

    def _store_part(self, key: str, data: Buffer, num_records: int) -> Piece:
        piece = Piece.of(data, num_records)
        self._store.put(key, data)
        return piece

    def _await_parts(self, most: int) -> None:
        """Wait until `most` parts are under way, the first of them first.

        Raises:
            StorageError: one could not be stored.
        """
        while len(self._under_way) > most:
            with waiting():
                self._pieces.append(self._under_way[0].result())
            self._under_way.popleft()
