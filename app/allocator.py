"""How this process takes memory from the system, and gives it back. Imported before pyarrow."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Final

# Arrow asks once which allocator to take. Its own (mimalloc) keeps what other threads have freed: after 24
# conversions to Parquet at a time the process stayed 200 MiB larger than with malloc, which gives it back.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

#: Of glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
#: Parts and pieces of shards are larger; blocks of records, which are used again and again, are smaller.
_LARGE_BYTES: Final = 4 * 1024 * 1024
#: So much of them a thread keeps: what a block of records takes on its way from TFRecord to TFRecord. With
#: 2 MiB an append touched 90,000 new pages a GiB more.
_KEPT_BYTES: Final = 4 * 1024 * 1024


def return_large_blocks() -> bool:
    """Have blocks from 4 MiB on go back to the system as soon as they are freed; whether that is possible.

    Left alone, glibc raises that bound to 32 MiB once such a block is freed, and then keeps up to 64 MiB
    of them for each thread: publishing 512 MiB grew the process by 297 MiB, with this by 101.
    """
    mallopt = _of_libc("mallopt")
    if mallopt is None or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGE_BYTES) and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))


def return_unused() -> None:
    """Give back to the system what malloc keeps of what was freed, as far as whole pages are unused.

    Each thread keeps freed memory of its own: 32 of them kept 260 MiB after mixed bodies of 9 MiB, with this
    100. It takes some milliseconds, in which other threads may wait for memory.
    """
    trim = _of_libc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_libc(name: str) -> Callable[..., int] | None:
    """A function of glibc; None where there is none."""
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None
