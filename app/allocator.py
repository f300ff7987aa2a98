"""How this process takes memory from the system."""

from __future__ import annotations

import ctypes
import os
from typing import Final

__all__ = ["return_large_blocks"]

#: `M_MMAP_THRESHOLD` of glibc's malloc.h.
_MMAP_THRESHOLD: Final = -3
#: Parts and pieces of shards are larger; blocks of records, which are used again and again, are smaller.
_LARGE_BYTES: Final = 4 * 1024 * 1024


def return_large_blocks() -> bool:
    """Have blocks from 4 MiB on go back to the system as soon as they are freed; whether that is possible.

    Left alone, glibc raises that bound to 32 MiB once such a block is freed, and then keeps up to 64 MiB
    of them for each thread: publishing 512 MiB grew the process by 297 MiB, with this by 101.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is None or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGE_BYTES))
