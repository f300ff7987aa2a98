from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.service import Service, start


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service that is ready; killed by its id where the test has not ended it."""
    started = start(tmp_path)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.kill()
