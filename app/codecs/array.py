"""Dense arrays, in memory or still arriving, and the sparse and ragged tensors that consist of them.

A form of arrays has one reader and one writer. Two adapters make tensors and records of them:
`tensors/forms.py` and `arrays/read_rows.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..domain.dtypes import DType
from ..domain.immutable import immutable
from ..domain.tensor import MAX_RANK, Shape, num_elements
from ..errors import InputError, UnprocessableInput
from ..runtime.budget import Budget
from ..runtime.streams import Buffer
from .columns import Strings
from .content import content_view


@immutable(eq=False)
class Array:
    """One dense array.

    Attributes:
        dtype: of strings `text` or `bytes` where the form tells them apart, otherwise `string`.
        content: what is in memory is flat and row-major: numbers of `dtype.numpy` (little-endian), in one
            piece or in a tuple of them; strings packed. Its reader has charged it to the budget. Of an array
            that is arriving, an iterator over the same bytes in pieces cut anywhere: drawn once, and to its
            end, because what follows the array is checked behind the last piece. Nobody writes to a piece.
        name: None where the form has no names, or gave none.
    """

    dtype: DType
    shape: Shape
    content: NDArray[Any] | tuple[NDArray[Any], ...] | Strings | Iterator[Buffer]
    name: str | None = None

    @classmethod
    def of(cls, values: NDArray[Any], dtype: DType, name: str | None = None) -> Array:
        """An array in memory, from numpy's of any layout; strings are objects.

        Numbers are copied only to change layout or byte order.
        """
        shape = tuple(map(int, values.shape))
        if dtype.is_string:
            return cls(dtype, shape, Strings.pack(values.reshape(-1).tolist()), name)
        return cls(dtype, shape, np.ascontiguousarray(values, dtype.numpy).reshape(-1), name)

    @property
    def is_arriving(self) -> bool:
        return not isinstance(self.content, np.ndarray | tuple | Strings)

    @property
    def num_bytes(self) -> int:
        """Bytes of the elements."""
        if isinstance(self.content, Strings):
            return len(self.content.data)
        return num_elements(self.shape) * self.dtype.itemsize

    @property
    def values(self) -> NDArray[Any]:
        """The numbers, which are in memory, in one piece."""
        if isinstance(self.content, tuple):
            return np.concatenate([np.empty(0, self.dtype.numpy), *self.content])
        if not isinstance(self.content, np.ndarray):
            raise TypeError("the array holds strings, or is still arriving")
        return self.content

    @property
    def strings(self) -> Strings:
        """The strings, packed."""
        if not isinstance(self.content, Strings):
            raise TypeError("the array holds no strings")
        return self.content

    @property
    def elements(self) -> NDArray[Any] | Strings:
        """The content, which is in memory, in one piece."""
        return self.content if isinstance(self.content, Strings) else self.values

    def read(self, budget: Budget) -> Array:
        """The array in memory; itself if it is there.

        Raises:
            LimitExceeded: larger than the budget.
            InputError: whatever drawing its content raises.
        """
        if isinstance(self.content, np.ndarray | tuple | Strings):
            return self
        try:
            what = "The tensor" if self.name is None else f"Array {self.name[:64]!r}"
            budget.charge(self.num_bytes, what)
        except InputError as error:
            raise error.shift(feature=self.name) from None
        gathered: Buffer = next(self.content, b"")
        if not isinstance(gathered, bytes) or len(gathered) < self.num_bytes:
            gathered = bytearray(gathered)  # otherwise one piece is all of it
        for piece in self.content:
            gathered += piece
        return replace(self, content=np.frombuffer(gathered, self.dtype.numpy))

    def pieces(self) -> Iterator[Buffer]:
        """The bytes of an array of numbers; of one in memory without a copy."""
        if isinstance(self.content, np.ndarray):
            return iter([content_view(self.content)])
        if isinstance(self.content, tuple):
            return map(content_view, self.content)
        if isinstance(self.content, Strings):
            raise TypeError("strings are no array of numbers")
        return self.content


@immutable(eq=False)
class SparseTensor:
    """The elements of an array that are given; the others are zero, or the empty string.

    Attributes:
        dense_shape: of the whole array.
        indices: int64 `[n, rank]`, C-contiguous: the coordinates of each value, in the order in which they
            came. Nothing is sorted, and what stands twice is not summed up.
        values: `[n]`, in memory.

    Raises:
        UnprocessableInput: a coordinate beyond `dense_shape` (`index_out_of_bounds`); components that
            do not fit one another (`shape_mismatch`).
    """

    dense_shape: Shape
    indices: NDArray[np.int64]
    values: Array
    name: str | None = None

    def __post_init__(self) -> None:
        if len(self.values.shape) != 1 or self.indices.dtype != np.int64:
            raise ValueError("values must have one axis, and indices must be int64")
        expected = (*self.values.shape, len(self.dense_shape))
        if self.indices.shape != expected:
            raise UnprocessableInput(
                f"{expected[0]} values of {expected[1]} dimensions take indices of shape {list(expected)}, "
                f"not {list(self.indices.shape)}.",
                code="shape_mismatch",
            )
        # A negative index is a large one without its sign.
        outside = self.indices.view(np.uint64) >= np.array(self.dense_shape, np.uint64)
        if outside.any():
            where = int(np.argmax(outside.any(axis=1)))
            raise UnprocessableInput(
                f"Index {where} of the sparse tensor is {self.indices[where].tolist()[:16]}, which lies "
                f"outside the dense_shape {list(self.dense_shape)[:16]}.",
                code="index_out_of_bounds",
            )

    @property
    def dtype(self) -> DType:
        return self.values.dtype

    @property
    def num_bytes(self) -> int:
        """Bytes of values and indices."""
        return self.indices.nbytes + self.values.num_bytes


@immutable(eq=False)
class RaggedTensor:
    """Rows of different lengths, cut out of the first axis of one array.

    Attributes:
        values: all elements, in memory; the axes behind the first one are uniform.
        row_splits: int64 each, outermost first. Row `i` of a level is what lies from `splits[i]` to
            `splits[i + 1]` of the next level; those of the innermost cut the first axis of `values`.

    Raises:
        UnprocessableInput: splits that do not begin with 0, decrease, or do not end where the next
            level does (`invalid_row_splits`).
    """

    values: Array
    row_splits: tuple[NDArray[np.int64], ...]
    name: str | None = None

    def __post_init__(self) -> None:
        if not self.row_splits or any(splits.dtype != np.int64 for splits in self.row_splits):
            raise ValueError("row_splits must be one or more int64 arrays")
        if not self.values.shape:
            raise _invalid_splits("the values are a scalar, which has no axis to cut")
        if len(self.row_splits) + len(self.values.shape) > MAX_RANK:
            raise _invalid_splits(f"it has more than {MAX_RANK} dimensions")
        lengths = [*(len(splits) - 1 for splits in self.row_splits[1:]), self.values.shape[0]]
        for level, (splits, length) in enumerate(zip(self.row_splits, lengths, strict=True)):
            if splits.ndim != 1 or not len(splits) or splits[0] != 0:
                raise _invalid_splits(f"row_splits {level} must be one axis that begins with 0")
            if (splits[1:] < splits[:-1]).any():
                raise _invalid_splits(f"row_splits {level} decreases")
            if splits[-1] != length:
                raise _invalid_splits(f"row_splits {level} ends with {splits[-1]}, but cuts {length} rows")

    @property
    def dtype(self) -> DType:
        return self.values.dtype

    @property
    def num_bytes(self) -> int:
        """Bytes of values and row splits."""
        return self.values.num_bytes + sum(splits.nbytes for splits in self.row_splits)


def _invalid_splits(why: str) -> UnprocessableInput:
    return UnprocessableInput(f"This is no ragged tensor: {why}.", code="invalid_row_splits")


AnyTensor = Array | SparseTensor | RaggedTensor


def in_memory(tensor: AnyTensor, budget: Budget) -> AnyTensor:
    """The tensor, once all of it has arrived.

    Raises:
        LimitExceeded: more memory than the budget has.
        InputError: a content that is damaged, as it is drawn.
    """
    return tensor.read(budget) if isinstance(tensor, Array) else tensor


def only_array(arrays: Sequence[Array], form: str) -> Array:
    """The one array that is to be written.

    Raises:
        UnprocessableInput: there is none (`no_tensors`), or more than one (`several_tensors`).
    """
    check_single(len(arrays), form)
    return arrays[0]


def check_single(count: int, form: str) -> None:
    """Refuse another number of tensors than one.

    Raises:
        UnprocessableInput: there is none (`no_tensors`), or more than one (`several_tensors`).
    """
    if count != 1:
        raise UnprocessableInput(
            f"The format {form!r} holds exactly one tensor, and there are {count}. "
            f"Ask for 'tfrecord' or 'npz', which hold any number.",
            code="several_tensors" if count else "no_tensors",
        )


def position_name(array: Array, prefix: str, index: int) -> str:
    """The name that an array has, or else `prefix` and its position."""
    return f"{prefix}{index}" if array.name is None else array.name


class ElementReader:
    """The elements of an array of numbers, as many at a time as are asked for."""

    def __init__(self, array: Array) -> None:
        self._dtype = array.dtype
        self._left = array.num_bytes
        self._content = array.pieces()
        self._pending = memoryview(b"")

    def take(self, count: int) -> NDArray[Any]:
        """The next `count` elements, flat. With the last of them the content is drawn to its end."""
        needed = count * self._dtype.itemsize
        found = bytearray(self._pending[:needed])
        self._pending = self._pending[needed:]
        while len(found) < needed:
            piece = memoryview(next(self._content)).cast("B")
            missing = needed - len(found)
            found += piece[:missing]
            self._pending = piece[missing:]
        self._left -= needed
        if not self._left:
            self.close()
        return np.frombuffer(found, self._dtype.numpy)

    def close(self) -> None:
        """Draw the content to its end, where its last checks are."""
        for _ in self._content:
            pass
