"""What a call takes at most, as Python's allocators see it."""

import tracemalloc
from collections.abc import Callable

from app.codecs import kernels


def peak_bytes(call: Callable[[], object]) -> int:
    """The most that was held during `call` beyond what was held before it."""
    kernels.compile_all()  # each is compiled when it is first used, which takes more than most calls
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
