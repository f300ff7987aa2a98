"""The loops over bytes: plain Python over numpy arrays, compiled by numba when they are first needed.

Importing this package imports no numba; `load()` does. Each kernel is compiled, or taken from the cache,
when it is first used; `compile_all()` does so for all of them. With `NUMBA_DISABLE_JIT=1` they are the plain
functions, which do the same, slowly.
"""

from __future__ import annotations

import os
import threading

from .table import FunctionT
from .table import Kernels as Kernels


def _plain(function: FunctionT, /) -> FunctionT:
    return function


_lock = threading.Lock()
_loaded: Kernels | None = None


def load() -> Kernels:
    """The kernels; the first call of a process imports the compiler."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _make()
    return _loaded


def _make() -> Kernels:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return Kernels(_plain)
    from .compile import compiled

    return Kernels(compiled)


def compile_all(*, last_first: bool = False) -> None:
    """Compile all kernels, in the order in which they are needed or the reverse.

    Two processes that begin at either end share the work: each takes from the cache what the other has done.
    """
    load().compile_all(last_first=last_first)


def are_compiled() -> bool:
    """Whether every kernel answers at once."""
    return _loaded is not None and _loaded.are_compiled


def progress() -> str:
    """What is being waited for until `are_compiled()`, as a sentence."""
    return "the compiler is being imported" if _loaded is None else _loaded.progress()
