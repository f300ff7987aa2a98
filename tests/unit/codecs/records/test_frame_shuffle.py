"""The shuffle buffer: tf.data's, record by record, whatever is done in one go."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.messages import frame_shuffle
from app.codecs.messages.frame_shuffle import shuffle_frames
from app.codecs.messages.framing import FrameBlock, iter_frames
from app.domain.limits import MIB, Limits
from app.domain.row_order import RowOrder, Slots
from app.errors import LimitExceeded
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.frames import frame


def slots(seed: int = 1) -> Slots:
    return RowOrder(1, seed).slots()


def framed(payloads: list[bytes]) -> bytes:
    return b"".join(map(frame, payloads))


def blocks_of(payloads: list[bytes], cuts: list[int]) -> Iterator[FrameBlock]:
    """The payloads in blocks that end at `cuts`."""
    if not payloads:
        return
    (block,) = iter_frames(MemoryStream(framed(payloads)), Budget(), compression="none")
    bounds = sorted({0, len(payloads), *(cut for cut in cuts if cut < len(payloads))})
    for first, last in pairwise(bounds):
        yield block.part(first, last)


def payloads_of(blocks: Iterator[FrameBlock]) -> list[bytes]:
    found = []
    for block in blocks:
        # What a block holds is a TFRecord file of its own.
        (again,) = iter_frames(MemoryStream(block.data), Budget(), compression="none")
        assert again.starts.tolist() == block.starts.tolist()
        ends = block.starts + block.sizes
        found += [bytes(block.data[a:b]) for a, b in zip(block.starts, ends, strict=True)]
    return found


def one_at_a_time(payloads: list[bytes], size: int, slots: Slots) -> list[bytes]:
    """What `tf.data.Dataset.shuffle` does."""
    buffer, found = payloads[:size], []
    for payload in payloads[size:]:
        slot = int(slots.below(size, 1)[0])
        found.append(buffer[slot])
        buffer[slot] = payload
    return found + [buffer[i] for i in slots.permutation(len(buffer))]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_many_in_one_go_are_as_one_at_a_time(data: st.DataObject) -> None:
    payloads = data.draw(st.lists(st.binary(max_size=20), max_size=120))
    cuts = data.draw(st.lists(st.integers(1, 120), max_size=20))
    size = data.draw(st.integers(1, 60))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_shuffle, "_LEAST_ROWS", data.draw(st.sampled_from([1, 7, 1024])))
        patch.setattr(frame_shuffle, "_BLOCK_BYTES", data.draw(st.sampled_from([1, 100, MIB])))
        budget = Budget()
        found = payloads_of(shuffle_frames(blocks_of(payloads, cuts), size, slots(), budget))
    assert found == one_at_a_time(payloads, size, slots())
    assert budget.remaining == Budget().remaining


def test_every_record_leaves_once_and_is_well_mixed() -> None:
    payloads = [b"%d" % i for i in range(5000)]
    found = [
        int(payload)
        for payload in payloads_of(shuffle_frames(blocks_of(payloads, []), 1000, slots(), Budget()))
    ]
    assert sorted(found) == list(range(5000))
    assert np.abs(np.array(found) - np.arange(5000)).mean() > 500
    assert np.mean(np.diff(found) == 1) < 0.01


def test_a_buffer_of_one_keeps_the_order() -> None:
    payloads = [b"%d" % i for i in range(2000)]
    assert payloads_of(shuffle_frames(blocks_of(payloads, []), 1, slots(), Budget())) == payloads


def test_memory_is_bounded_by_the_buffer_and_not_by_the_stream() -> None:
    payload = bytes(100)
    stream = (block for _ in range(60) for block in blocks_of([payload] * 200, []))
    budget = Budget()
    assert sum(block.num_records for block in shuffle_frames(stream, 500, slots(), budget)) == 12_000
    assert budget.peak < 12_000 * 116 / 2


def test_a_buffer_beyond_the_budget_is_refused() -> None:
    budget = Budget(Limits(max_decoded_bytes=1 * MIB))
    stream = (block for _ in range(10) for block in blocks_of([bytes(1000)] * 500, []))
    with pytest.raises(LimitExceeded, match="shuffle buffer"):
        list(shuffle_frames(stream, 100_000, slots(), budget))
    assert budget.remaining == 1 * MIB


def test_nothing_is_shuffled_to_nothing() -> None:
    assert list(shuffle_frames(iter(()), 10, slots(), Budget())) == []
