"""The loops over bytes: plain Python over numpy arrays, compiled by numba when they are first needed.

Importing this package imports no numba. `load()` compiles, or takes from the cache; with
`NUMBA_DISABLE_JIT=1` it gives the plain functions, which do the same, slowly.
"""

from __future__ import annotations

import os
import threading

from .table import FunctionT, Kernels

__all__ = ["Kernels", "is_loaded", "load"]


def _plain(function: FunctionT, /) -> FunctionT:
    return function


_lock = threading.Lock()
_loaded: Kernels | None = None


def load() -> Kernels:
    """The kernels; the first call of a process compiles them or reads the cache."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _make()
    return _loaded


def _make() -> Kernels:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return Kernels(_plain)
    from .compile import compile_kernels

    return compile_kernels()


def is_loaded() -> bool:
    """Whether `load()` answers at once."""
    return _loaded is not None
