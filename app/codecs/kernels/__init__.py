"""The loops over bytes: plain Python over numpy arrays, compiled by numba when they are first needed.

Importing this package imports no numba. `load()` compiles, or takes from the cache; with
`NUMBA_DISABLE_JIT=1` it gives the plain functions, which do the same, slowly.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from . import (
    crc32c,
    example_encode,
    framing,
    json_objects,
    json_tape,
    json_write,
    message_read,
    message_values,
    number_fields,
    parquet,
    record_index,
)

__all__ = ["Compiler", "Kernels", "is_loaded", "load"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Compiler(Protocol):
    """Makes a kernel of a plain function."""

    def __call__(self, function: FunctionT, /) -> FunctionT: ...


class Kernels:
    """What the codecs call. All release the interpreter's lock; each checks its bounds."""

    def __init__(self, compiled: Compiler) -> None:
        self.extend_crc = compiled(crc32c.extend_crc)
        self.scan_frames = compiled(framing.scan_frames)
        self.gather_frames = compiled(framing.gather_frames)
        self.write_frames = compiled(framing.write_frames)
        self.find_header = compiled(framing.find_header)
        self.encode_messages = compiled(example_encode.encode_messages)
        self.step_bodies = compiled(example_encode.step_bodies)
        self.read_messages = compiled(message_read.read_messages)
        self.index_steps = compiled(message_read.index_steps)
        self.read_number_lists = compiled(message_values.read_number_lists)
        self.read_bytes_lists = compiled(message_values.read_bytes_lists)
        self.gather_spans = compiled(message_values.gather_spans)
        self.copy_spans = compiled(message_values.copy_spans)
        self.read_values = compiled(json_tape.read_values)
        self.add_keys = compiled(json_tape.add_keys)
        self.gather_blocks = compiled(json_tape.gather_blocks)
        self.gather_strings = compiled(json_tape.gather_strings)
        self.find_objects = compiled(json_objects.find_objects)
        self.read_number_fields = compiled(number_fields.read_number_fields)
        self.find_scalars = compiled(json_write.find_scalars)
        self.find_arrays = compiled(json_write.find_arrays)
        self.write_lists = compiled(json_write.write_lists)
        self.append_spans = compiled(json_write.append_spans)
        self.quoted_size = compiled(json_write.quoted_size)
        self.write_quoted = compiled(json_write.write_quoted)
        self.write_b64 = compiled(json_write.write_b64)
        self.longest_string = compiled(parquet.longest_string)
        self.sum_deltas = compiled(parquet.sum_deltas)
        self.write_index_lines = compiled(record_index.write_index_lines)


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
