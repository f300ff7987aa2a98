"""The index of a TFRecord file: a line `<offset> <size>` a record.

The form is that of DALI's `tfrecord2idx` (`tools/tfrecord2idx`, also in the package `tfrecord`): decimals,
the offset of the record's frame in the file, and the size of the frame, its 16 bytes of overhead included.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from ..kernels.record_index import MAX_LINE_BYTES

__all__ = ["index_lines"]


def index_lines(begin: int, ends: NDArray[np.int64]) -> memoryview:
    """The lines of records that follow one another, the first from `begin`.

    Args:
        ends: where each record ends, counted from `begin`.
    """
    out = np.empty(len(ends) * MAX_LINE_BYTES, np.uint8)
    size = kernels.load().write_index_lines(begin, ends, out)
    return out.data[:size].toreadonly()
