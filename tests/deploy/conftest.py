"""The image, and the tools that render and check manifests; .ci/run provides both."""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.declared import check_answer
from tests.deploy.image import IMAGE, Image, built, memory_limit, running
from tests.deploy.manifests import CHECKERS, HELM, KUBECTL
from tests.support.service import Service


@pytest.fixture(scope="session")
def image() -> Image:
    if IMAGE not in os.environ:
        missing = f"{IMAGE} names no image; docker/build-without-engine.sh makes one"
        assert "CI" not in os.environ, missing
        pytest.skip(missing)
    return built(Path(os.environ[IMAGE]))


@pytest.fixture(scope="session")
def container(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service in the image, as its user, on a read-only root file system, with the manifests' memory."""
    with running(image, tmp_path_factory.mktemp("container"), memory_limit()) as started:
        started.service.wait_until_ready()
        yield started.service
        assert started.group.num_killed == 0


@pytest.fixture(scope="session")
def client(container: Service) -> Iterator[httpx.Client]:
    """A client of that service."""
    hooks = {"response": [check_answer]}
    with httpx.Client(base_url=container.url, timeout=60, event_hooks=hooks) as opened:
        yield opened


@pytest.fixture(scope="session")
def kubernetes_tools() -> None:
    """What renders and checks manifests."""
    if unset := [name for name in (HELM, KUBECTL, CHECKERS) if name not in os.environ]:
        missing = f"{', '.join(unset)} name no programs; .ci/run installs them"
        assert "CI" not in os.environ, missing
        pytest.skip(missing)
