"""JSON texts of many values in one piece of memory, without an object for each.

Put together as strings would be: into arrays, into objects, one for each row with null where nothing is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...runtime.streams import Buffer
from .. import kernels

__all__ = ["Texts", "concatenated", "in_lists", "joined", "nested", "repeated", "spread", "text_array"]

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

_NULL: Final = np.frombuffer(b"null", np.uint8)


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

    def __getitem__(self, index: int) -> str:
        return self.data[self.begins[index] : self.ends[index]].tobytes().decode()


def text_array(text: Buffer) -> Bytes:
    """The bytes of `text`, where they are."""
    return np.frombuffer(text, np.uint8)


def repeated(text: str, count: int) -> Texts:
    """The same text `count` times."""
    data = text_array(text.encode())
    return Texts(data, np.zeros(count, np.int64), np.full(count, len(data), np.int64))


def spread(texts: Texts, present: NDArray[np.bool_]) -> Texts:
    """The texts in the places that are `present`, null in the others."""
    size = len(texts.data)
    begins = np.full(len(present), size, np.int64)
    ends = np.full(len(present), size + len(_NULL), np.int64)
    begins[present] = texts.begins
    ends[present] = texts.ends
    return Texts(np.concatenate([texts.data, _NULL]), begins, ends)


def in_lists(texts: Texts, offsets: Ints) -> Texts:
    """The texts in arrays: those from one offset to the next in each."""
    num_lists = len(offsets) - 1
    out = np.empty(texts.num_bytes + len(texts) + 3 * num_lists, np.uint8)
    begins, ends = np.empty(num_lists, np.int64), np.empty(num_lists, np.int64)
    size = kernels.load().write_lists(texts.data, texts.begins, texts.ends, offsets, out, begins, ends)
    return Texts(out[:size], begins, ends)


def nested(texts: Texts, shape: Sequence[int]) -> Texts:
    """The texts in nested arrays of `shape`, which has no dimension of 0."""
    for dim in reversed(shape):
        texts = in_lists(texts, np.arange(0, len(texts) + 1, dim, dtype=np.int64))
    return texts


def joined(texts: Texts) -> Buffer:
    """The texts with commas between them."""
    return in_lists(texts, np.array([0, len(texts)], np.int64)).data[1:-1].data


def concatenated(parts: Sequence[str | Texts], num_items: int, separator: str = ",") -> Texts:
    """One text for each item: the parts one behind the other.

    Args:
        parts: each a text that all items share, or their `num_items` own ones.
        separator: what stands in the memory between one item and the next.
    """
    pairs = list(_keyed([*parts, separator]))
    sizes = np.full(num_items, sum(len(key) for key, _ in pairs), np.int64)
    for _, texts in pairs:
        if texts is not None:
            sizes += texts.ends
            sizes -= texts.begins
    stops = np.cumsum(sizes)
    begins = stops - sizes
    cursors = begins.copy()
    out = np.empty(int(stops[-1]) if num_items else 0, np.uint8)
    append_spans = kernels.load().append_spans
    for key, texts in pairs:
        own = repeated("", num_items) if texts is None else texts
        append_spans(text_array(key), own.data, own.begins, own.ends, cursors, out)
    end = len(out) - len(separator) if num_items else 0
    return Texts(out[:end], begins, stops - len(separator))


def _keyed(parts: Sequence[str | Texts]) -> Any:
    """Pairs of a shared text and the own ones behind it, if any."""
    key = ""
    for part in parts:
        if isinstance(part, str):
            key += part
        else:
            yield key.encode(), part
            key = ""
    if key:
        yield key.encode(), None
