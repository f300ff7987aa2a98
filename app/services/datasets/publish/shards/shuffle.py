"""A split's records in the order of a permutation, however large it is: memory and disk are bounded.

In a pass over the inputs, records are gathered in batches, and each batch goes to the spool ordered by
where its records are bound. The places are cut into buckets; what of a batch is bound for one bucket is
then a slice. So a bucket is read from one slice a batch, ordered in memory, and handed on. A pass takes
as many buckets as the spool has room for, and further passes take the others; neither this nor the
sizes below decide the order, which follows from the permutation alone.

Where a record lies in its bucket need not be stored: it follows from the permutation too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from .....domain.limits import MIB
from .....domain.sharding.permutation import Permutation
from .....runtime.budget import Budget
from .....runtime.buffer_pool import BufferPool
from .....runtime.spool import Spool
from .....storage.object_store import ObjectStore
from .shuffle_pass import BATCH_RECORDS, Bucket, Pass
from .source import RecordRun
from .writer import RecordSource

#: What is ordered in memory at a time, coming from the spool.
_BUCKET_BYTES: Final = 32 * MIB
#: Each batch keeps an offset for each bucket of its pass.
_PASS_BUCKETS: Final = 2048
#: A smaller bucket would have the inputs read too often. Where there is no room for it, there is none.
_MIN_BUCKET_BYTES: Final = 4 * MIB


class ShuffledSplit:
    """The records of one split, to be read shard after shard. Holds room of the spool until it is closed.

    Args:
        records: all of the split, in order.
        num_records: how many they are.
        num_bytes: of all of them, framed; only ever a guide.
        seed: of the permutation.
        shards: the ranges of places that will be read.
    """

    def __init__(
        self,
        records: RecordSource,
        num_records: int,
        num_bytes: int,
        seed: str,
        spool: Spool,
        shards: Sequence[tuple[int, int]],
    ) -> None:
        self._records = records
        self._permutation = Permutation(num_records, seed)
        self._record_bytes = max(1, num_bytes // max(1, num_records))
        self._spool = spool
        self._buckets = [bucket for start, stop in sorted(shards) for bucket in self._cut(start, stop)]
        self._pass: Pass | None = None

    def _cut(self, start: int, stop: int) -> list[Bucket]:
        room = max(_MIN_BUCKET_BYTES, min(_BUCKET_BYTES, self._spool.available // 2))
        most = max(1, min(BATCH_RECORDS, room // self._record_bytes))
        count = -(-(stop - start) // most)
        bounds = [start + (stop - start) * index // count for index in range(count + 1)] if count else []
        return [Bucket(*pair) for pair in pairwise(bounds)]

    def runs(
        self,
        start: int,
        stop: int,
        store: ObjectStore,
        budget: Budget,
        pool: ThreadPoolExecutor | None,
        buffers: BufferPool | None = None,
    ) -> Iterator[RecordRun]:
        """The records for the places `start` to `stop`, one of the ranges given at first."""
        for number, bucket in enumerate(self._buckets):
            if start <= bucket.start < stop:
                current = self._pass
                if current is None or bucket not in current.buckets:
                    current = self._begin_pass(number, store, budget, pool, buffers)
                yield from current.read(bucket, budget)

    def _begin_pass(
        self,
        number: int,
        store: ObjectStore,
        budget: Budget,
        pool: ThreadPoolExecutor | None,
        buffers: BufferPool | None,
    ) -> Pass:
        """Scatter what is bound for the bucket `number` and those behind it, as far as there is room."""
        self.close()
        room = self._spool.available // 2 // self._record_bytes
        taken: list[Bucket] = []
        for bucket in self._buckets[number : number + _PASS_BUCKETS]:
            room -= bucket.stop - bucket.start
            if taken and room < 0:
                break
            taken.append(bucket)
        self._pass = Pass(self._permutation, taken, self._spool.open())
        self._pass.scatter(self._records.runs(store, budget, pool, buffers), budget)
        return self._pass

    def close(self) -> None:
        """Free the spool's room. May be called twice."""
        if self._pass is not None:
            self._pass.close()
            self._pass = None


@dataclass(frozen=True, slots=True)
class ShuffledShard:
    """Where a shard's records come from: the places `start` to `stop` of its split."""

    split: ShuffledSplit
    start: int
    stop: int

    def runs(
        self,
        store: ObjectStore,
        budget: Budget,
        pool: ThreadPoolExecutor | None = None,
        buffers: BufferPool | None = None,
    ) -> Iterator[RecordRun]:
        """The shard's records in their new order.

        Raises:
            LostData: an input is missing or does not match its checksum.
            CorruptData: an input holds other records than were counted, or none.
            StorageFull: the spool has no room.
        """
        return self.split.runs(self.start, self.stop, store, budget, pool, buffers)
