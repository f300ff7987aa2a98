"""Bodies that must be whole: in memory while small, else on the spool, which they leave with the request."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from app.codecs.forms import RECORDS_CODECS, TENSOR_CODECS
from app.domain.limits import MIB, Limits
from app.errors import LimitExceeded, StorageFull, StreamInterrupted
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.runtime.streams import MemoryFile, MemoryStream
from app.runtime.workspace import Workspace
from app.services.convert.whole_bodies import as_needed, whole_body
from tests.support.bodies import stream_of

SMALL = np.random.default_rng(0).bytes(MIB)
LARGE = SMALL + b"x"


@pytest.mark.parametrize("chunk", [None, 1000, 65_536])
def test_a_small_body_is_held_in_memory_and_charged(tmp_path: Path, chunk: int | None) -> None:
    spool, budget = Spool(tmp_path, 0), Budget()
    with Workspace(budget, spool) as workspace:
        body = whole_body(stream_of(SMALL, chunk), workspace)
        assert isinstance(body, MemoryFile)
        assert (body.size, bytes(body.view()), body.read_at(10, 5)) == (MIB, SMALL, SMALL[10:15])
        assert body.view().readonly
        assert budget.limits.max_decoded_bytes - budget.remaining == MIB


@pytest.mark.parametrize("chunk", [None, 1000, 65_536])
def test_a_larger_one_is_spooled_and_charged_to_nobody(tmp_path: Path, chunk: int | None) -> None:
    spool, budget = Spool(tmp_path, 8 * MIB), Budget()
    with Workspace(budget, spool) as workspace:
        body = whole_body(stream_of(LARGE, chunk), workspace)
        assert spool.used == body.size == len(LARGE)
        assert (bytes(body.view()), body.read_at(10, 5)) == (LARGE, LARGE[10:15])
        assert body.view().readonly
        assert budget.remaining == budget.limits.max_decoded_bytes
        assert 0 < budget.peak <= 2 * MIB
    assert spool.used == 0


def test_views_outlive_the_request_and_keep_their_room(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 8 * MIB)
    with Workspace(Budget(), spool) as workspace:
        view = whole_body(MemoryStream(LARGE), workspace).view()
        array = np.frombuffer(view[5:], np.uint8)
    del view
    assert array.tobytes() == LARGE[5:]
    assert spool.used == len(LARGE)
    del array
    assert spool.used == 0


def test_room_comes_back_from_views_in_a_cycle(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 8 * MIB)
    with Workspace(Budget(), spool) as workspace:
        cycle: list[object] = [whole_body(MemoryStream(LARGE), workspace).view()]
        cycle.append(cycle)
    del cycle
    gc.collect()
    assert spool.used == 0


@pytest.mark.parametrize("room", [len(LARGE) - 1, 4 * len(LARGE) - 1], ids=["no room", "no quarter"])
def test_a_spool_without_room_refuses(tmp_path: Path, room: int) -> None:
    spool = Spool(tmp_path, room)
    with Workspace(Budget(), spool) as workspace, pytest.raises(StorageFull) as caught:
        whole_body(stream_of(LARGE, 65_536), workspace)
    assert caught.value.code == "spool_full"
    assert spool.used == 0


def test_a_budget_without_room_refuses_what_would_be_held(tmp_path: Path) -> None:
    budget = Budget(Limits(max_decoded_bytes=1000))
    with Workspace(budget, Spool(tmp_path, 8 * MIB)) as workspace, pytest.raises(LimitExceeded) as caught:
        whole_body(stream_of(SMALL, 100), workspace)
    assert caught.value.code == "payload_too_large"


@pytest.mark.parametrize("arrived", [0, 1000, MIB, 2 * MIB])
def test_who_leaves_in_the_middle_leaves_nothing(tmp_path: Path, arrived: int) -> None:
    class Broken:
        sent = stream_of(bytes(arrived), 65_536)

        def read(self, n: int, /) -> bytes:
            piece = self.sent.read(n)
            if not piece:
                raise StreamInterrupted("The connection closed before the body ended.")
            return piece

    spool = Spool(tmp_path, 16 * MIB)
    with Workspace(Budget(), spool) as workspace, pytest.raises(StreamInterrupted):
        whole_body(Broken(), workspace)
    assert spool.used == 0
    assert list(tmp_path.iterdir()) == []


def test_only_who_needs_a_file_gets_one() -> None:
    source, spool = MemoryStream(b"{}"), Spool(None, 0)
    with Workspace(Budget(), spool) as workspace:
        assert as_needed(source, RECORDS_CODECS["ndjson"], workspace) is source
        assert as_needed(source, TENSOR_CODECS["npy"], workspace) is source
        for codec in (RECORDS_CODECS["json"], TENSOR_CODECS["npz"]):
            assert isinstance(as_needed(source, codec, workspace), MemoryFile)


def test_forms_that_must_be_whole() -> None:
    """Of tensors, `oip` and what has no stream are read straight into the arrays that they are."""
    images = {"jpeg", "png", "webp", "gif", "bmp"}
    assert {form for form, codec in TENSOR_CODECS.items() if codec.needs == "file"} == {
        *("json", "npz", "b64"),
        *images,
    }
    assert {form for form, codec in RECORDS_CODECS.items() if codec.needs == "file"} == {
        "json",
        "npz",
        "oip",
        "safetensors",
        "parquet",
        "b64",
        "zip",
    }
