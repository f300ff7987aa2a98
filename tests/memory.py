"""What a call takes at most, as Python's allocators see it."""

import tracemalloc
from collections.abc import Callable

__all__ = ["peak_bytes"]


def peak_bytes(call: Callable[[], object]) -> int:
    """The most that was held during `call` beyond what was held before it."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
