"""One dense array, in memory or still arriving, and the forms that hold such arrays.

A form of arrays has one reader and one writer. Two adapters make tensors and records of them:
`tensors/forms.py` and `arrays/rows.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..domain.dtypes import DType
from ..domain.tensor import Shape, num_elements
from ..errors import InputError
from ..runtime.budget import Budget
from ..runtime.streams import Buffer
from .columns import Strings
from .content import content_view
from .options import TensorDecodeOptions, TensorEncodeOptions


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """One dense array.

    Attributes:
        dtype: of strings `text` or `bytes` where the form tells them apart, otherwise `string`.
        content: what is in memory is flat and row-major: numbers of `dtype.numpy` (little-endian), in one
            piece or in a tuple of them; strings packed, or an object array of `bytes`. Its reader has charged
            it to the budget. Of an array that is arriving, an iterator over the same bytes in pieces cut
            anywhere: drawn once, and to its end, because what follows the array is checked behind the last
            piece. Nobody writes to a piece.
        name: None where the form has no names, or gave none.
    """

    dtype: DType
    shape: Shape
    content: NDArray[Any] | tuple[NDArray[Any], ...] | Strings | Iterator[Buffer]
    name: str | None = None

    @property
    def is_arriving(self) -> bool:
        return not isinstance(self.content, np.ndarray | tuple | Strings)

    @property
    def num_bytes(self) -> int:
        """Bytes of the elements."""
        if isinstance(self.content, Strings):
            return len(self.content.data)
        if self.dtype.is_string:
            return sum(map(len, self.values))
        return num_elements(self.shape) * self.dtype.itemsize

    @property
    def values(self) -> NDArray[Any]:
        """The content, which is in memory; strings as an object array of `bytes`."""
        if isinstance(self.content, Strings):
            strings = np.empty(len(self.content), object)
            strings[:] = self.content.unpack()
            return strings
        if isinstance(self.content, tuple):
            return np.concatenate([np.empty(0, self.dtype.numpy), *self.content])
        if not isinstance(self.content, np.ndarray):
            raise TypeError("the array is still arriving")
        return self.content

    @property
    def strings(self) -> Strings:
        """The strings, packed."""
        return self.content if isinstance(self.content, Strings) else Strings.pack(self.values)

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
            raise error.shifted(feature=self.name) from None
        gathered = bytearray()
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


def position_name(array: Array, prefix: str, index: int) -> str:
    """The name that an array has, or else `prefix` and its position."""
    return f"{prefix}{index}" if array.name is None else array.name


class ArrayForm(Protocol):
    """Reads and writes arrays in one form."""

    def read(self, body: Any, options: TensorDecodeOptions, budget: Budget, /) -> Iterable[Array]:
        """The arrays of a body.

        A list where all are known at once: their contents are drawn in its order, and of a body that is there
        as a whole in any order. Otherwise an iterator: each array is drawn to its end before the next one is
        asked for.

        Args:
            body: a `ByteStream`, or a `WholeBody` where the form needs one.

        Raises:
            InputError: what is wrong, as far as it is known before contents are drawn; the rest is raised as
                they are.
        """
        ...

    def write(
        self, arrays: Sequence[Array], options: TensorEncodeOptions, budget: Budget, /
    ) -> Iterator[Buffer]:
        """The bytes of the arrays; those that are arriving are written as they come, if the form can.

        Raises:
            UnprocessableInput: the form cannot hold them; known before the first byte.
            LimitExceeded: an array has to be in memory to be written, and is larger than the budget.
        """
        ...


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
