"""All kernels by name: the plain functions, or what a compiler makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from . import (
    crc32c,
    example_encode,
    framing,
    json_floats,
    json_rows,
    json_tape,
    json_write,
    message_read,
    message_values,
    number_fields,
    parquet,
    record_index,
)

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
        self.count_strings = compiled(message_values.count_strings)
        self.read_strings = compiled(message_values.read_strings)
        self.measure_strings = compiled(message_values.measure_strings)
        self.write_strings = compiled(message_values.write_strings)
        self.read_values = compiled(json_tape.read_values)
        self.add_keys = compiled(json_tape.add_keys)
        self.gather_members = compiled(json_tape.gather_members)
        self.count_children = compiled(json_tape.count_children)
        self.gather_blocks = compiled(json_tape.gather_blocks)
        self.gather_strings = compiled(json_tape.gather_strings)
        self.read_floats = compiled(json_floats.read_floats)
        self.find_objects = compiled(json_rows.find_objects)
        self.find_lines = compiled(json_rows.find_lines)
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
