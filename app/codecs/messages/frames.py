"""Framed records that lie in memory: found, verified, brought into another order, and listed in an index."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...errors import MalformedInput
from .. import kernels
from ..kernels.messages.framing import FOOTER_BYTES
from ..kernels.messages.record_index import MAX_LINE_BYTES

_UNLIMITED = 2**62


def find_frames(data: NDArray[np.uint8], num_records: int) -> NDArray[np.int64]:
    """Where each of the frames ends that `data` consists of, with their checksums verified.

    Raises:
        MalformedInput: these are not `num_records` whole records and nothing else (`corrupt_record`).
    """
    starts, sizes = np.empty(num_records, np.int64), np.empty(num_records, np.int64)
    stop = np.zeros(3, np.int64)
    count = kernels.load().scan_frames(data, 0, len(data), _UNLIMITED, starts, sizes, stop)
    ends = starts + sizes + FOOTER_BYTES
    if count != num_records or (ends[-1] if count else 0) != len(data):
        raise MalformedInput(
            f"Of {num_records} records, record {count} cannot be read.", code="corrupt_record", row=count
        )
    return ends


def gather_frames(
    data: NDArray[np.uint8],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> int:
    """Copy the frames from `begins` to `ends` of `data` to `out`, in that order; the bytes written."""
    return int(kernels.load().gather_frames(data, begins, ends, out))


def index_lines(begin: int, ends: NDArray[np.int64]) -> memoryview:
    """The index of records that follow one another, the first from `begin`: lines of `<offset> <size>`.

    The form is that of DALI's `tfrecord2idx` (`tools/tfrecord2idx`, also in the package `tfrecord`):
    decimals, the offset of the record's frame in the file, and the size of the frame with its 16 bytes of
    overhead.

    Args:
        ends: where each record ends, counted from `begin`.
    """
    out = np.empty(len(ends) * MAX_LINE_BYTES, np.uint8)
    size = kernels.load().write_index_lines(begin, ends, out)
    return out.data[:size].toreadonly()
