"""One service for the whole suite: a real process behind a real client."""

from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.service import start


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a ready service that keeps its datasets on the local disk."""
    service = start(tmp_path_factory.mktemp("service"))
    try:
        service.wait_until_ready()
        with httpx.Client(base_url=service.url, timeout=60) as opened:
            yield opened
    finally:
        service.stop()
