"""Real stores, one of each for the whole run; skipped where one is not installed, unless CI is set."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.servers import running
from tests.servers.running import MissingTool, RunningStore

Start = Callable[[Path], AbstractContextManager[RunningStore]]


def _start(start: Start, folders: pytest.TempPathFactory) -> Iterator[RunningStore]:
    try:
        with start(folders.mktemp(start.__name__)) as store:
            yield store
    except MissingTool as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{error}; .ci/run installs it")


@pytest.fixture(scope="session")
def ceph_rgw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    """A real S3 that honours conditional puts."""
    yield from _start(running.ceph_rgw, tmp_path_factory)


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    """Microsoft's emulator of Azure Blob Storage."""
    yield from _start(running.azurite, tmp_path_factory)


@pytest.fixture(scope="session")
def rclone_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    """An S3 that ignores conditions."""
    yield from _start(running.rclone_s3, tmp_path_factory)
