"""What a container may use is what its control groups say; without one, what the machine has."""

import os
from pathlib import Path

import pytest

from app.domain.limits import MIB
from app.resources import (
    LEAST_MEMORY,
    NotEnoughMemory,
    allow_open_files,
    available_memory,
    available_processors,
    memory_for_requests,
)


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_memory_is_what_the_control_group_allows(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("104857600\n")
    assert available_memory(tmp_path) == 100 * MIB


@pytest.mark.parametrize("text", ["max\n", "9223372036854771712\n", ""])
def test_without_a_limit_it_is_what_is_installed(tmp_path: Path, text: str) -> None:
    (tmp_path / "memory.max").write_text(text)
    assert available_memory(tmp_path) == available_memory(tmp_path / "nothing")


@pytest.mark.parametrize(("quota", "count"), [("50000 100000\n", 1), ("100000 100000\n", 1)])
def test_a_quota_bounds_the_processors(tmp_path: Path, quota: str, count: int) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert available_processors(tmp_path) == count


def test_the_older_control_groups_have_a_quota_too(tmp_path: Path) -> None:
    folder = tmp_path / "cpu"
    folder.mkdir()
    (folder / "cpu.cfs_quota_us").write_text("100000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert available_processors(tmp_path) == 1


@pytest.mark.parametrize("quota", ["max 100000\n", ""])
def test_without_a_quota_there_are_all_processors(tmp_path: Path, quota: str) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert available_processors(tmp_path) == affine


@pytest.mark.parametrize(
    ("allowed", "for_requests"), [(384, 64), (512, 192), (640, 320), (768, 384), (1024, 512), (4096, 2048)]
)
def test_requests_get_what_the_process_leaves_and_half_at_most(
    tmp_path: Path, allowed: int, for_requests: int
) -> None:
    (tmp_path / "memory.max").write_text(f"{allowed * MIB}\n")
    assert memory_for_requests(tmp_path) == for_requests * MIB


def test_too_little_memory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(f"{LEAST_MEMORY - 1}\n")
    with pytest.raises(NotEnoughMemory, match=r"may use 383 MiB of memory and needs 384 MiB"):
        memory_for_requests(tmp_path)


def test_as_many_files_may_be_open_as_connections_need_and_are_allowed() -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        low = 1024 if hard == resource.RLIM_INFINITY else min(1024, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
        allow_open_files(100)
        expected = 1124 if hard == resource.RLIM_INFINITY else min(1124, hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (expected, hard)
        allow_open_files(10)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (expected, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("limit_mib", "for_requests_mib"), [(1024, 336), (2048, 1024), (752, 64)])
def test_two_workers_leave_less_of_the_same_limit(
    tmp_path: Path, limit_mib: int, for_requests_mib: int
) -> None:
    (tmp_path / "memory.max").write_text(str(limit_mib * MIB), encoding="utf-8")
    assert memory_for_requests(tmp_path, workers=2) == for_requests_mib * MIB


def test_two_workers_need_the_memory_of_two(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(str(751 * MIB), encoding="utf-8")
    with pytest.raises(NotEnoughMemory, match=r"may use 751 MiB of memory and needs 752 MiB"):
        memory_for_requests(tmp_path, workers=2)
