"""Elements <-> bytes: the row-major content that NPY, raw bodies and `tensor_content` have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..domain.dtypes import BOOL, DType
from ..domain.limits import MIB
from ..domain.streams import Buffer, ByteStream
from ..errors import MalformedInput, UnprocessableInput

__all__ = [
    "CHUNK_BYTES",
    "STRING_OVERHEAD",
    "check_bools",
    "content_view",
    "read_content",
    "swapped_chunks",
    "to_little_endian",
]

#: How much is read, converted or written at a time.
CHUNK_BYTES: Final = 1 * MIB
#: What one element of an object array of `bytes` takes beside its bytes: the reference and the header.
STRING_OVERHEAD: Final = 8 + 33


def read_content(stream: ByteStream, num_bytes: int, what: str, *, offset: int = 0) -> bytearray:
    """Exactly `num_bytes` of `stream` in one writable buffer, which grows as they arrive.

    The caller has charged them. Unlike `read_exactly` it does not copy at the end.

    Raises:
        MalformedInput: the stream ends early (`truncated`).
    """
    content = bytearray()
    while len(content) < num_bytes:
        piece = stream.read(min(num_bytes - len(content), CHUNK_BYTES))
        if not piece:
            raise MalformedInput(
                f"The body ends inside {what}: {num_bytes} bytes expected, {len(content)} found.",
                code="truncated",
                offset=offset + len(content),
            )
        content += piece
    return content


def to_little_endian(content: bytearray, dtype: DType) -> None:
    """Turn big-endian elements around, in place; a complex number is two of them."""
    unit = _swap_unit(dtype)
    if unit > 1:
        np.frombuffer(content, f"u{unit}").byteswap(inplace=True)


def swapped_chunks(values: NDArray[Any], dtype: DType) -> Iterator[Buffer]:
    """The elements as big-endian bytes, about a MiB at a time."""
    raw = values.view(f"u{_swap_unit(dtype)}")
    step = CHUNK_BYTES // raw.itemsize
    for start in range(0, len(raw), step):
        yield raw[start : start + step].byteswap().tobytes()


def _swap_unit(dtype: DType) -> int:
    return dtype.itemsize // 2 if dtype.kind == "complex" else dtype.itemsize


def content_view(values: NDArray[Any]) -> memoryview:
    """The memory of flat numeric `values` as bytes, also where numpy exports no buffer (bfloat16)."""
    return values.view(np.uint8).data


def check_bools(content: Buffer, dtype: DType, *, offset: int = 0) -> None:
    """Refuse bytes other than 0 and 1 where `dtype` is bool: what they mean differs between readers.

    Raises:
        UnprocessableInput: there is one (`invalid_bool`).
    """
    if dtype is not BOOL or len(content) == 0:
        return
    raw = np.frombuffer(content, np.uint8)
    if raw.max() > 1:
        where = int(np.argmax(raw > 1))
        raise UnprocessableInput(
            f"Element {where} of a bool tensor is the byte {raw[where]}; only 0 and 1 are bools.",
            code="invalid_bool",
            offset=offset + where,
        )
