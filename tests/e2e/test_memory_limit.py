"""A service in a container's memory limit refuses what it cannot hold, and is never killed for it."""

import os
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.support.browsing import EXPECTED as EXPECTED_OF_PAGES
from tests.support.browsing import PEOPLE, browse, following, look, reading_slowly, store_heavy_rows
from tests.support.control_groups import limited_to, needs_control_groups
from tests.support.service import RUN, Service, ready, served_alone
from tests.support.waiting import wait_for
from tests.tools.soak import APPEND, CLIENTS, EXPECTED, MIB, SHORT, ask_at_once


@needs_control_groups
@pytest.mark.parametrize("limit_mib", [512, 768, 1024])
@pytest.mark.soak
def test_large_bodies_are_answered_or_refused_and_nothing_is_killed(tmp_path: Path, limit_mib: int) -> None:
    with (
        limited_to(limit_mib * MIB) as group,
        ready(tmp_path, run=group.within(served_alone())) as service,
    ):
        for load in SHORT:
            statuses = ask_at_once(service, [load] * CLIENTS)
            assert {status for _, status in statuses} <= EXPECTED, statuses
        together = ask_at_once(service, [*SHORT] * (CLIENTS // len(SHORT)))
        assert {status for _, status in together} <= EXPECTED, together
        assert_it_serves(service)
        assert group.num_killed == 0


@needs_control_groups
@pytest.mark.soak
def test_ten_people_browse_and_the_memory_comes_back(tmp_path: Path) -> None:
    with (
        limited_to(512 * MIB) as group,
        ready(tmp_path, run=group.within(served_alone())) as service,
    ):
        store_heavy_rows(service)
        shown_to_one = look(service)
        assert set(shown_to_one.values()) <= EXPECTED_OF_PAGES
        resting = service.anonymous_mib()
        with following(service, PEOPLE), reading_slowly(service, 2):
            found = browse(service)
        assert {status for _, status in found} <= EXPECTED_OF_PAGES, found
        assert group.num_killed == 0
        wait_for(lambda: service.anonymous_mib() < resting + 64)
        # Nobody else holds anything any more: what was refused is shown now.
        wait_for(lambda: set(look(service).values()) == {200})


def assert_it_serves(service: Service) -> None:
    assert httpx.get(f"{service.url}/livez").status_code == 200
    assert httpx.post(f"{service.url}/v1/tensors/serialize", json=[1, 2], timeout=60).status_code == 200
    # Nobody else holds anything any more: what was refused is taken now.
    assert {status for _, status in ask_at_once(service, [APPEND])} == {201}


@pytest.mark.processes
@needs_control_groups
def test_a_limit_below_what_the_service_takes_itself_ends_the_start(tmp_path: Path) -> None:
    with limited_to(256 * MIB) as group:
        ended = subprocess.run(
            group.within(RUN),
            env={**os.environ, "SHARDSMITH_PORT": "0", "SHARDSMITH_STORAGE_URL": "memory://"},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
    [line] = ended.stderr.splitlines()
    assert "256 MiB" in line
    assert "384 MiB" in line
