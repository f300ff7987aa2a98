from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import Service, ready


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service that is ready; killed by its id where the test has not ended it."""
    with ready(tmp_path) as started:
        yield started
