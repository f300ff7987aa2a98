"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable

#: Only a test that fails waits so long.
PATIENCE_S = 120.0


def wait_for(condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Return once it holds."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.01)
