"""All kernels by name: the plain functions, or what a compiler makes of them when they are first used."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from . import crc32c, fingerprint, number_fields, parquet, quantize
from .images import resample
from .json import floats, rows, tape, write
from .messages import encode, framing, read, record_index, values

_LETS_OTHERS_GO_S: Final = 0.01

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Compiler(Protocol):
    """Makes a kernel of a plain function."""

    def __call__(self, function: FunctionT, /) -> FunctionT: ...


class Kernel(Generic[FunctionT]):
    """A member of `Kernels`: looked up for the first time, it is compiled, and takes its own place."""

    def __init__(self, plain: FunctionT) -> None:
        self._plain = plain
        self._name = ""

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, kernels: Kernels, _: type) -> FunctionT:
        return kernels.compile(self._name, self._plain)


class Kernels:
    """What the codecs call. All release the interpreter's lock; each checks its bounds.

    Declared in the order in which a new service needs them: reading JSON, writing messages and JSON, reading
    messages. `compile_all` goes by it, and what a request asks for meanwhile comes first.
    """

    extend_crc = Kernel(crc32c.extend_crc)
    add_keys = Kernel(tape.add_keys)
    gather_members = Kernel(tape.gather_members)
    count_children = Kernel(tape.count_children)
    find_objects = Kernel(rows.find_objects)
    find_lines = Kernel(rows.find_lines)
    read_floats = Kernel(floats.read_floats)
    gather_strings = Kernel(tape.gather_strings)
    gather_blocks = Kernel(tape.gather_blocks)
    read_values = Kernel(tape.read_values)
    measure_strings = Kernel(values.measure_strings)
    write_strings = Kernel(values.write_strings)
    step_bodies = Kernel(encode.step_bodies)
    write_frames = Kernel(framing.write_frames)
    write_index_lines = Kernel(record_index.write_index_lines)
    encode_messages = Kernel(encode.encode_messages)
    find_scalars = Kernel(write.find_scalars)
    find_arrays = Kernel(write.find_arrays)
    write_lists = Kernel(write.write_lists)
    append_spans = Kernel(write.append_spans)
    quoted_size = Kernel(write.quoted_size)
    write_quoted = Kernel(write.write_quoted)
    write_b64 = Kernel(write.write_b64)
    scan_frames = Kernel(framing.scan_frames)
    gather_frames = Kernel(framing.gather_frames)
    find_header = Kernel(framing.find_header)
    count_strings = Kernel(values.count_strings)
    read_strings = Kernel(values.read_strings)
    gather_spans = Kernel(values.gather_spans)
    copy_spans = Kernel(values.copy_spans)
    read_number_lists = Kernel(values.read_number_lists)
    read_bytes_lists = Kernel(values.read_bytes_lists)
    index_steps = Kernel(read.index_steps)
    read_number_fields = Kernel(number_fields.read_number_fields)
    longest_string = Kernel(parquet.longest_string)
    sum_deltas = Kernel(parquet.sum_deltas)
    read_messages = Kernel(read.read_messages)
    interpolate = Kernel(resample.interpolate)
    sum_rows_first = Kernel(resample.sum_rows_first)
    sum_columns_first = Kernel(resample.sum_columns_first)
    fingerprint_strings = Kernel(fingerprint.fingerprint_strings)
    group_strings = Kernel(fingerprint.group_strings)
    quantize_singles = Kernel(quantize.quantize_singles)

    def __init__(self, compiler: Compiler) -> None:
        #: Whether no kernel has to be compiled any more.
        self.are_compiled = False
        self._compiler = compiler
        self._lock = threading.Lock()
        #: Threads that wait for a kernel.
        self._waiting: set[int] = set()
        self._compiling = ""

    def compile(self, name: str, plain: FunctionT) -> FunctionT:
        """The kernel called `name`; the first call compiles it."""
        self._waiting.add(threading.get_ident())
        try:
            with self._lock:
                if name not in vars(self):
                    self._compiling = name
                    setattr(self, name, self._compiler(plain))
                    self._compiling = ""
                    self.are_compiled = all(name in vars(self) for name in NAMES)
        finally:
            self._waiting.discard(threading.get_ident())
        kernel: FunctionT = vars(self)[name]
        return kernel

    def compile_all(self, *, last_first: bool = False) -> None:
        """Compile what is not compiled yet, one kernel after the other."""
        for name in reversed(NAMES) if last_first else NAMES:
            while self._waiting:  # a lock alone would not let them go first
                time.sleep(_LETS_OTHERS_GO_S)  # noqa: TID251  # no turn is held here
            getattr(self, name)

    def progress(self) -> str:
        """How far compiling is, as a sentence."""
        done = sum(name in vars(self) for name in NAMES)
        now = f", now {self._compiling}" if self._compiling else ""
        return f"{done} of {len(NAMES)} kernels are compiled{now}"


#: Of all kernels, in the order in which they are needed.
NAMES: Final = tuple(name for name, member in vars(Kernels).items() if isinstance(member, Kernel))
