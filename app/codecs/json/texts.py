"""JSON texts of many values in one piece of memory, without an object for each, and how they leave.

`Texts` are put together as strings would be: into arrays, into objects, with null where nothing is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...domain.limits import KIB
from ...errors import UnprocessableInput
from ...runtime.streams import Buffer
from .. import kernels
from ..columns import Ints, Mask

Bytes = NDArray[np.uint8]

#: What is sent at a time: uvicorn's own high-water mark is 64 KiB, a syscall is cheap from there on.
PIECE_BYTES: Final = 256 * KIB
#: `[]` repeated more often than this is not an answer but an amplifier (shape [2^40, 0]).
_MAX_EMPTY_LISTS: Final = 65_536
_NULL: Final = np.frombuffer(b"null", np.uint8)

#: Strings with their quotes and escapes; non-ASCII characters as they are.
quote: Final = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Items of JSON.

    Attributes:
        data: the memory in which they lie, in UTF-8.
        begins, ends: by item. Items may share bytes.
    """

    data: Bytes
    begins: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def num_bytes(self) -> int:
        """Bytes of all items."""
        return int((self.ends - self.begins).sum())

    def __getitem__(self, index: int) -> bytes:
        return self.data[self.begins[index] : self.ends[index]].tobytes()

    @classmethod
    def allocate(cls, num_bytes: int, num_items: int) -> Texts:
        """Memory to be filled."""
        begins, ends = np.empty(num_items, np.int64), np.empty(num_items, np.int64)
        return cls(np.empty(num_bytes, np.uint8), begins, ends)


def byte_array(text: Buffer) -> Bytes:
    """The bytes of `text`, where they are."""
    return np.frombuffer(text, np.uint8)


def repeat(text: str, count: int) -> Texts:
    """The same text `count` times."""
    data = byte_array(text.encode())
    return Texts(data, np.zeros(count, np.int64), np.full(count, len(data), np.int64))


def spread(texts: Texts, present: Mask) -> Texts:
    """The texts in the places that are `present`, null in the others."""
    size = len(texts.data)
    begins = np.full(len(present), size, np.int64)
    ends = np.full(len(present), size + len(_NULL), np.int64)
    begins[present] = texts.begins
    ends[present] = texts.ends
    return Texts(np.concatenate([texts.data, _NULL]), begins, ends)


def in_lists(texts: Texts, splits: Ints) -> Texts:
    """The texts in arrays: those from one split to the next in each."""
    num_lists = len(splits) - 1
    out = Texts.allocate(texts.num_bytes + len(texts) + 3 * num_lists, num_lists)
    size = kernels.load().write_lists(
        texts.data, texts.begins, texts.ends, splits, out.data, out.begins, out.ends
    )
    return Texts(out.data[:size], out.begins, out.ends)


def join(texts: Texts) -> Buffer:
    """The texts with commas between them."""
    return in_lists(texts, np.array([0, len(texts)], np.int64)).data[1:-1].data


def concatenate(parts: Sequence[str | Texts], num_items: int, separator: str = ",") -> Texts:
    """One text for each item: the parts one behind the other.

    Args:
        parts: each a text that all items share, or their `num_items` own ones.
        separator: what stands in the memory between one item and the next.
    """
    pairs = list(_pairs([*parts, separator], num_items))
    sizes = np.full(num_items, sum(len(shared) for shared, _ in pairs), np.int64)
    for _, own in pairs:
        sizes += own.ends
        sizes -= own.begins
    stops = np.cumsum(sizes)
    begins = stops - sizes
    cursors = begins.copy()
    out = np.empty(int(stops[-1]) if num_items else 0, np.uint8)
    append_spans = kernels.load().append_spans
    for shared, own in pairs:
        append_spans(byte_array(shared), own.data, own.begins, own.ends, cursors, out)
    end = len(out) - len(separator) if num_items else 0
    return Texts(out[:end], begins, stops - len(separator))


def _pairs(parts: Sequence[str | Texts], num_items: int) -> Iterator[tuple[bytes, Texts]]:
    """Pairs of a shared text and the items' own ones behind it, which are empty at the end."""
    shared = ""
    for part in parts:
        if isinstance(part, str):
            shared += part
        else:
            yield shared.encode(), part
            shared = ""
    yield shared.encode(), repeat("", num_items)


def empty_lists(shape: Sequence[int]) -> str:
    """The nested arrays of a shape with a dimension of 0.

    Raises:
        UnprocessableInput: that would be a great many empty arrays (`shape_too_large`).
    """
    text, count = "[]", 1
    for dim in reversed(shape[: list(shape).index(0)]):
        count *= dim
        if count > _MAX_EMPTY_LISTS:
            raise UnprocessableInput(
                f"Shape {list(shape)} is more than {_MAX_EMPTY_LISTS} empty arrays; use the flat layout.",
                code="shape_too_large",
            )
        text = "[" + ",".join([text] * dim) + "]"
    return text


def gather(parts: Iterable[str | Buffer]) -> Iterator[Buffer]:
    """The text in pieces of at most `PIECE_BYTES`, in UTF-8; parts that are bytes are so already."""
    pending: list[Buffer] = []
    size = 0
    for part in parts:
        text = part.encode() if isinstance(part, str) else part
        if size + len(text) > PIECE_BYTES and size:
            yield from _slices(b"".join(pending))
            pending, size = [], 0
        if len(text) >= PIECE_BYTES:
            yield from _slices(text)
        else:
            pending.append(text)
            size += len(text)
    if pending:
        yield from _slices(b"".join(pending))


def _slices(text: Buffer) -> Iterator[Buffer]:
    view = memoryview(text)
    for start in range(0, len(view), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]
