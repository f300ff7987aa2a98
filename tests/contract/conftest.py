"""One service for the whole suite: a real process behind a real client."""

from collections.abc import Iterator

import httpx
import pytest

from tests.contract.declared import check_answer
from tests.e2e.service import Service, start


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A ready service that keeps its datasets on the local disk."""
    started = start(tmp_path_factory.mktemp("service"))
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def client(service: Service) -> Iterator[httpx.Client]:
    """A client of that service; each JSON answer that it gets has to be as openapi.yaml declares it."""
    hooks = {"response": [check_answer]}
    with httpx.Client(base_url=service.url, timeout=60, event_hooks=hooks) as opened:
        yield opened
