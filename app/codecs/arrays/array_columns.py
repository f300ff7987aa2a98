"""Named arrays as columns, some rows at a time: of values in memory, or of an array that is read then."""

from __future__ import annotations

from typing import Any, Final, Protocol

import pyarrow as pa

from ...domain.limits import MIB
from ...domain.schema import Feature
from ...domain.tensor import num_elements
from ...errors import InputError
from ..content_stream import ElementReader
from ..convert import convert_values
from ..records.arrays import column_from_values, null_column
from ..tensor_stream import TensorStream
from .array import Array

__all__ = ["STREAMED_BYTES", "STREAMED_FROM", "ArrayColumn", "column_of"]

#: An array of so many bytes is read as its rows are drawn: it takes more than what reading it does.
STREAMED_FROM: Final = 8 * MIB
#: What reading an array takes at most: a piece of it, one that is left over, and as much compressed.
STREAMED_BYTES: Final = 3 * MIB


class ArrayColumn(Protocol):
    """The column of one feature."""

    def take(self, start: int, count: int) -> pa.Array[Any]:
        """The next `count` rows, which begin with row `start`.

        Raises:
            InputError: as the array is read, and as `convert_values`.
        """
        ...


def column_of(array: Array | TensorStream | None, feature: Feature) -> ArrayColumn:
    """The column of an array; without one, of a feature that every row lacks.

    Args:
        array: in memory with the dtype of the feature, else with its own.
    """
    if array is None:
        return _Absent(feature)
    return _Held(array, feature) if isinstance(array, Array) else _Streamed(array, feature)


class _Absent:
    def __init__(self, feature: Feature) -> None:
        self._feature = feature

    def take(self, start: int, count: int) -> pa.Array[Any]:  # noqa: ARG002 (an `ArrayColumn`)
        return null_column(self._feature, count)


class _Held:
    def __init__(self, array: Array, feature: Feature) -> None:
        self._array = array
        self._feature = feature

    def take(self, start: int, count: int) -> pa.Array[Any]:
        row_shape = self._array.shape[1:]
        size = num_elements(row_shape)
        values = self._array.values[start * size : (start + count) * size]
        return column_from_values(values, self._feature, row_shape, count)


class _Streamed:
    def __init__(self, stream: TensorStream, feature: Feature) -> None:
        self._reader = ElementReader(stream)
        self._dtype = stream.dtype
        self._row_shape = stream.shape[1:]
        self._feature = feature

    def take(self, start: int, count: int) -> pa.Array[Any]:
        feature = self._feature
        rows = self._reader.take(count * num_elements(self._row_shape)).reshape(count, -1)
        try:
            values = convert_values(rows, self._dtype, feature.dtype, feature=feature.name)
        except InputError as error:
            raise error.shifted(rows=start) from None
        return column_from_values(values.reshape(-1), feature, self._row_shape, count)
