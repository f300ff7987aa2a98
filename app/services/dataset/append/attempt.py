"""The record bytes of one attempt to append: in memory while they are few, otherwise in parts.

A part is put while the next one is gathered, so that a body is taken in as fast as the slower of the two
goes. No more than one is under way: what the store does not take in time, the client has to wait for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from ....codecs.records.frames import find_frames
from ....codecs.records.framing import OVERHEAD_BYTES
from ....codecs.records.messages import RecordBlock
from ....domain.limits import MIB, Budget
from ....errors import LimitExceeded, StorageError
from ....storage.create_once import new_nonce
from ....storage.object_store import ObjectStore
from ..layout import Layout
from ..pieces import Piece
from ..record_cutter import RecordCutter
from ..slot import INLINE_BYTES, Commit
from .grouping import SMALL_BYTES

__all__ = ["Attempt"]

#: A part is one put; twice this much is held in memory while the body arrives.
_PART_BYTES: Final = 16 * MIB


class Attempt:
    """One attempt at the append `append_id`. Of one thread.

    Attributes:
        inline: all records, where they are few.
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
        self.layout = layout
        self.append_id = append_id
        self.inline = b""
        self.num_records = 0
        self._store = store
        self._max_record_bytes = max_record_bytes
        self._pool = pool
        self._name = new_nonce()
        self._pieces: list[Piece] = []
        self._begun: list[str] = []
        self._under_way: _UnderWay | None = None

    @property
    def is_small(self) -> bool:
        """Whether it is worth less than a put of its own."""
        return not self._begun and len(self.inline) <= SMALL_BYTES

    def write(self, blocks: Iterator[RecordBlock], budget: Budget) -> None:
        """Take all blocks of framed records, uploading each part as soon as it is full.

        Raises:
            LimitExceeded: a record is larger than allowed (`record_too_large`).
            StorageError: a part could not be stored.
        """
        cutter = RecordCutter(_PART_BYTES, budget)
        for block in blocks:
            self._check_sizes(block)
            self.num_records += block.num_records
            for data, num_records in cutter.add_run(block.data, block.num_records):
                self._upload(data, num_records, budget)
        for data, num_records in cutter.flush():
            if self._begun or len(data) > INLINE_BYTES:
                self._upload(data, num_records, budget)
            else:
                self.inline = data
                self._pieces.append(Piece.of(data, num_records))
        self._await_part()

    def slot(self, split: str, digest: str, sequence: int | None, now: int, writer: str) -> Commit:
        """The slot that acknowledges it."""
        return Commit(
            append_id=self.append_id,
            nonce=new_nonce(),
            attempt=self._name,
            split=split,
            digest=digest,
            num_records=self.num_records,
            num_bytes=sum(piece.size for piece in self._pieces),
            time=now,
            pieces=tuple(self._pieces),
            sequence=sequence,
            writer=writer,
        )

    def discard(self) -> None:
        """Remove the parts as far as the store lets us; what stays is nobody's."""
        if self._under_way is not None:
            self._under_way.stored.exception()  # a put that lands later would stay
        # Not tried further once it fails: a store that hangs would take its time for each part, and the
        # client waits.
        with contextlib.suppress(StorageError):
            for key in self._begun:
                self._store.delete(key)

    @contextlib.contextmanager
    def discarded_on_error(self) -> Iterator[None]:
        """Discard it where the block fails."""
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

    def _upload(self, data: bytes, num_records: int, budget: Budget) -> None:
        """Begin to store a part, once the one before it is stored."""
        self._await_part()
        key = self.layout.part(self.append_id, self._name, len(self._begun))
        self._begun.append(key)
        self._pieces.append(Piece.of(data, num_records))
        budget.charge(len(data), "A part of the records")
        self._under_way = _UnderWay(self._pool.submit(self._store.put, key, data), budget, len(data))

    def _await_part(self) -> None:
        """Wait for the part under way, if any.

        Raises:
            StorageError: it could not be stored.
        """
        if self._under_way is not None:
            self._under_way.stored.result()
            self._under_way.budget.release(self._under_way.size)
            self._under_way = None


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A part that is being stored, and what was charged for it."""

    stored: Future[None]
    budget: Budget
    size: int
