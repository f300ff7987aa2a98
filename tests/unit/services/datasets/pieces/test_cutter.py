"""Records gathered and cut into runs of a bounded size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.runtime.budget import Budget
from app.runtime.buffer_pool import BufferPool
from app.runtime.streams import Buffer
from app.services.datasets.pieces.cutter import RecordCutter
from app.services.datasets.pieces.stream import piece_buffers
from tests.support.tfrecord_frames import frame


def framed(*sizes: int) -> bytes:
    payloads = [bytes([size % 256]) * size for size in sizes]
    return b"".join(map(frame, payloads))


def ends_of(*sizes: int) -> NDArray[np.int64]:
    return np.cumsum([size + 16 for size in sizes], dtype=np.int64)


def cut(cutter: RecordCutter, *runs: tuple[int, ...], exact: bool) -> list[tuple[bytes, int]]:
    cut_runs: list[tuple[Buffer, int]] = []
    for sizes in runs:
        data = memoryview(framed(*sizes))
        cut_runs += cutter.add(data, ends_of(*sizes)) if exact else cutter.add_run(data, len(sizes))
    return [(bytes(data), count) for data, count in [*cut_runs, *cutter.flush()]]


def shape(found: list[tuple[bytes, int]]) -> list[tuple[int, int]]:
    return [(len(data), count) for data, count in found]


@pytest.mark.parametrize("exact", [True, False])
def test_small_records_are_gathered(exact: bool) -> None:
    found = cut(RecordCutter(100, piece_buffers()), (4, 4), (4,), exact=exact)
    assert shape(found) == [(60, 3)]
    assert found[0][0] == framed(4, 4) + framed(4)


@pytest.mark.parametrize("exact", [True, False])
def test_a_record_larger_than_a_run_is_carried_on(exact: bool) -> None:
    found = cut(RecordCutter(100, piece_buffers()), (4, 250, 4), exact=exact)
    assert shape(found) == [(20, 1), (100, 1), (100, 0), (66, 0), (20, 1)]
    assert b"".join(data for data, _ in found) == framed(4, 250, 4)


def test_a_run_is_kept_together_where_it_fits() -> None:
    assert shape(cut(RecordCutter(100, piece_buffers()), (34,), (14, 14), exact=False)) == [(50, 1), (60, 2)]


def test_an_exact_run_of_records_takes_as_many_records_as_fit() -> None:
    assert shape(cut(RecordCutter(100, piece_buffers()), (34,), (14, 14), exact=True)) == [(80, 2), (30, 1)]


def test_returned_blocks_do_not_change() -> None:
    cutter = RecordCutter(100, piece_buffers())
    runs = [data for size in (84, 83, 60) for data, _ in cutter.add_run(memoryview(framed(size)), 1)]
    runs += [data for data, _ in cutter.flush()]
    assert [bytes(data) for data in runs] == [framed(84), framed(83), framed(60)]
    assert all(memoryview(data).readonly for data in runs)


def test_memory_is_used_again_once_nobody_holds_it() -> None:
    budget = Budget()
    with BufferPool(budget, "Parts", most_lent=2) as buffers:
        cutter = RecordCutter(100, buffers)
        for size in range(84, 50, -1):
            for _ in cutter.add_run(memoryview(framed(size)), 1):
                pass
        assert budget.peak <= 300
        assert budget.remaining < budget.limits.max_decoded_bytes
    assert budget.remaining == budget.limits.max_decoded_bytes


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 120), min_size=1, max_size=20), st.data())
def test_exact_runs_do_not_depend_on_how_the_records_arrive(sizes: list[int], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sizes)), max_size=4)) | {len(sizes)})
    runs = [tuple(sizes[a:b]) for a, b in zip([0, *cuts], cuts, strict=False)]
    budget = Budget()
    with BufferPool(budget, "Parts", most_lent=2) as buffers:
        found = cut(RecordCutter(100, buffers), *runs, exact=True)
    assert found == cut(RecordCutter(100, piece_buffers()), tuple(sizes), exact=True)
    assert b"".join(data for data, _ in found) == b"".join(framed(*run) for run in runs)
    assert sum(count for _, count in found) == len(sizes)
    assert all(0 < len(data) <= 100 for data, _ in found)
    assert budget.remaining == budget.limits.max_decoded_bytes


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(0, 120), min_size=1, max_size=6), max_size=6))
def test_blocks_contain_every_record_once(runs: list[list[int]]) -> None:
    found = cut(RecordCutter(100, piece_buffers()), *map(tuple, runs), exact=False)
    assert b"".join(data for data, _ in found) == b"".join(framed(*run) for run in runs)
    assert sum(count for _, count in found) == sum(map(len, runs))
    assert all(0 < len(data) <= 100 for data, _ in found)
