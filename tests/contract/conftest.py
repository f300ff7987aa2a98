"""One service for the whole suite: a real process behind a real client.

With SHARDSMITH_TEST_CONTRACT=image it runs in the image that SHARDSMITH_TEST_IMAGE names.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.declared import check_answer
from tests.deploy.image import IMAGE, built, memory_limit, running
from tests.support.service import SSL_CONTEXT, Service, ready


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A ready service that keeps its datasets on the local disk."""
    folder = tmp_path_factory.mktemp("service")
    if os.environ.get("SHARDSMITH_TEST_CONTRACT") == "image":
        with running(built(Path(os.environ[IMAGE])), folder, memory_limit()) as container:
            container.service.wait_until_ready()
            yield container.service
            assert container.group.num_killed == 0
        return
    with ready(folder) as started:
        yield started
        started.stop()


class TransportOfEachThread(httpx.BaseTransport):
    """A pool of connections for each thread.

    httpcore's pool sometimes closes an idle connection that another thread was given and is about to use.
    """

    def __init__(self) -> None:
        self._local = threading.local()
        self._opened: list[httpx.HTTPTransport] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not hasattr(self._local, "transport"):
            self._local.transport = httpx.HTTPTransport(verify=SSL_CONTEXT)
            self._opened.append(self._local.transport)
        transport: httpx.HTTPTransport = self._local.transport
        return transport.handle_request(request)

    def close(self) -> None:
        for transport in self._opened:
            transport.close()


@pytest.fixture(scope="session")
def client(service: Service) -> Iterator[httpx.Client]:
    """A client of that service; each JSON answer that it gets has to be as openapi.yaml declares it."""
    hooks = {"response": [check_answer]}
    transport = TransportOfEachThread()
    with httpx.Client(base_url=service.url, timeout=60, event_hooks=hooks, transport=transport) as opened:
        yield opened
