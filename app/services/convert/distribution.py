"""How values are spread, in memory that does not grow with their number. Parts can be merged.

All is exact while there are few different values: they are counted one by one. Beyond that

- quantiles and the histogram come from a KLL sketch (Karnin, Lang and Liberty, 2016) of a random sample;
- frequent values come from the sketch of Anderson and others (2017), over the same sample;
- different values are counted by the smallest of their hashes (Bar-Yossef and others, 2002), over all values.
  That is done here: the library takes values one by one, which would take longer than reading them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Generic, TypeVar

import datasketches
import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from ...codecs import kernels
from ...codecs.columns import Strings, join_strings
from ...codecs.kernels.messages.wire import KIND_BYTES
from ...domain.dtypes import DType
from ...domain.limits import KIB
from ...domain.sharding.splitmix64 import STEP, mix

ValueT = TypeVar("ValueT", float, bytes)
Hashes = NDArray[np.uint64]

#: Different values that are counted one by one, over all features of a split.
_COUNTED: Final = 1 << 16
_MOST_COUNTED: Final = 1024
_FEWEST_COUNTED: Final = 16
#: Of a feature, so many values or more are sampled where there are more: a rank in such a sample is off by
#: 0.4 % at most, in 99 of 100 (Dvoretzky, Kiefer and Wolfowitz).
_SAMPLED: Final = 1 << 18
_IMAGES: Final = 1 << 12
#: Up to this stride the sample is drawn value by value.
_DENSE: Final = 16
#: Features up to which quantiles and histograms are as fine as they get.
_FINE: Final = 1000
#: Of a KLL sketch: a rank is off by 1.3 % at most, in 99 of 100.
_KLL: Final = 200
#: Values that are listed where not all are counted.
_LISTED: Final = 20
#: Of those that are looked at together, a smaller share is not noted.
_RARE: Final = 1024
#: Longer strings are not looked for among the frequent ones, and are not counted one by one.
_LONGEST: Final = 256
#: What statistics take of memory: the sketches of a feature, and each string of 256 bytes that is counted.
_SKETCHES_BYTES: Final = 16 * KIB
_COUNTED_BYTES: Final = 1536
_ALL: Final = float(2**64)


@dataclass(frozen=True, slots=True)
class Detail:
    """How closely the values of a feature are looked at.

    Attributes:
        counted: different values up to which each is counted.
        steps: between the least and the greatest quantile.
        bins: of a histogram, at most.
        stride: one of so many values is in the sample.
        image_stride: likewise, of images whose headers are read.
        seed: of the sample.
    """

    counted: int
    steps: int
    bins: int
    stride: int = 1
    image_stride: int = 1
    seed: int = 0

    @property
    def num_bytes(self) -> int:
        """About how much memory the statistics of a feature take, while those of two parts are merged."""
        return _SKETCHES_BYTES + self.counted * _COUNTED_BYTES

    @classmethod
    def of(cls, num_features: int, num_values: int, seed: int = 0) -> Detail:
        """What memory for so many features allows, for one that has about `num_values` values."""
        counted = min(_MOST_COUNTED, max(_FEWEST_COUNTED, _COUNTED // max(1, num_features)))
        steps, bins = (100, 32) if num_features <= _FINE else (20, 8)
        stride, image_stride = (max(1, num_values // most) for most in (_SAMPLED, _IMAGES))
        return cls(counted, steps, bins, stride, image_stride, seed)


class DistributionJson(TypedDict):
    """How numbers are spread.

    Of n quantiles, number i is the least value that is not exceeded by i / (n - 1) of all values. A bin of
    the histogram begins at an edge, and ends before the next; the last one ends with it. `exact` says whether
    all values were counted one by one.
    """

    exact: bool
    quantiles: list[float]
    edges: list[float]
    counts: list[int]


class ValueCountJson(TypedDict):
    """A value, and how often it is there. Bytes that are no text are `{"b64": ...}`."""

    value: float | str | dict[str, str]
    count: int


class ValuesJson(TypedDict):
    """Which values there are, most frequent first: if `exact` all of them, otherwise those that are frequent.

    `num_different` is an estimate unless `exact`, and null where there is none: for elements of tensors.
    """

    exact: bool
    num_different: int | None
    top: list[ValueCountJson]


class Different:
    """How many different values there are: the smallest hashes of all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: Hashes = np.zeros(0, np.uint64)
        self._waiting: list[Hashes] = []
        self._num_waiting = 0

    def add(self, hashes: Hashes) -> None:
        """Take in the hashes of some values."""
        if len(self._kept) == self._most:
            hashes = hashes[hashes < self._kept[-1]]
        self._waiting.append(hashes)
        self._num_waiting += len(hashes)
        if self._num_waiting >= self._most:
            self._sift()

    def _sift(self) -> None:
        hashes = np.concatenate((self._kept, *self._waiting))
        self._waiting, self._num_waiting = [], 0
        self._kept = _sort_and_count(hashes)[0][: self._most].copy()

    def merge(self, other: Different) -> None:
        """Take in what another has found."""
        other._sift()
        self.add(other._kept)

    @property
    def estimate(self) -> int:
        """Exact below `most`, otherwise off by a share of about one by the root of `most`."""
        self._sift()
        if len(self._kept) < self._most:
            return len(self._kept)
        return round((self._most - 1) * _ALL / (float(self._kept[-1]) + 1))


class _Spread(Generic[ValueT]):
    """What numbers and strings have in common.

    Attributes:
        table: how often each value is there, as long as they are few; None beyond.
        different: beyond; None where it is not asked for.
    """

    def __init__(self, detail: Detail, *, find_frequent: bool = True, find_different: bool = True) -> None:
        self._detail = detail
        self.table: dict[ValueT, int] | None = {}
        self.different = Different(2 * detail.counted) if find_different else None
        map_size = max(5, detail.counted.bit_length() - 1)
        self._frequent = datasketches.frequent_strings_sketch(map_size) if find_frequent else None
        self._random = np.random.default_rng(detail.seed)

    def _count(self, values: Iterable[ValueT], counts: Iterable[int]) -> None:
        """Count values in the table, which is given up if there are too many."""
        table = self.table
        if table is None:
            return
        for value, count in zip(values, counts, strict=True):
            table[value] = table.get(value, 0) + count
        if len(table) > self._detail.counted:
            self.give_up_table()

    def give_up_table(self) -> None:
        """Go on with a sample: the values that were counted are taken into it."""
        table, self.table = self.table, None
        if table:
            counts = np.fromiter(table.values(), np.int64, len(table))
            if self._detail.stride > 1:
                counts = self._random.binomial(counts, 1 / self._detail.stride)
            self._take_over(list(table), counts)

    def _take_over(self, values: list[ValueT], counts: NDArray[np.int64]) -> None:
        raise NotImplementedError

    def _choose(self, count: int) -> NDArray[np.int64] | None:
        """Which of `count` values are in the sample; None: all of them."""
        if self._detail.stride == 1:
            return None
        stride = self._detail.stride
        if stride <= _DENSE:  # each at most once: two of the same would seem to be frequent
            return np.flatnonzero(self._random.random(count, np.float32) * stride < 1)
        return self._random.integers(0, count, self._random.binomial(count, 1 / stride))

    def _note_frequent(self, names: Iterable[str], counts: Iterable[int]) -> None:
        if self._frequent is not None:
            for name, count in zip(names, counts, strict=True):
                self._frequent.update(name, count * self._detail.stride)

    def _top(self, as_value: Callable[[str], ValueT]) -> Iterator[tuple[ValueT, int]]:
        """The values that are listed, most frequent first."""
        if self.table is not None:
            yield from sorted(sorted(self.table.items()), key=lambda item: -item[1])
        elif self._frequent is not None:
            kind = datasketches.frequent_items_error_type.NO_FALSE_POSITIVES
            found = [(estimate, name) for name, estimate, *_ in self._frequent.get_frequent_items(kind)]
            for estimate, name in sorted(found, key=lambda item: -item[0])[:_LISTED]:
                if estimate > self._detail.stride:
                    yield as_value(name), estimate

    def _merge_sketches(self, other: _Spread[ValueT]) -> None:
        if self._frequent is not None:
            self._frequent.merge(other._frequent)
        if self.different is not None and other.different is not None:
            self.different.merge(other.different)

    def _num_different(self) -> int | None:
        if self.table is not None:
            return len(self.table)
        return None if self.different is None else self.different.estimate


class Numbers(_Spread[float]):
    """Of numbers that are finite: how they are spread, and which are frequent.

    Args:
        dtype: whole numbers keep every digit, but for quantiles beyond the table, which are those of float64.
        find_different: whether to estimate how many different ones there are, once there are many.
    """

    def __init__(
        self, dtype: DType, detail: Detail, *, find_frequent: bool = True, find_different: bool = True
    ) -> None:
        super().__init__(detail, find_frequent=find_frequent, find_different=find_different)
        self._is_whole = not dtype.is_float
        self._kll = datasketches.kll_doubles_sketch(_KLL)
        self._waiting: list[NDArray[Any]] = []
        self._num_waiting = 0

    def add(self, numbers: NDArray[Any], low: float, high: float) -> None:
        """Take in finite numbers, one or more, from `low` to `high`."""
        counted = None if self.table is None else self._distinguish(numbers, low, high)
        if counted is not None:
            self._count(*counted)
        else:
            self.give_up_table()
            chosen = self._choose(len(numbers))
            self._sample(numbers.copy() if chosen is None else numbers[chosen])
        if self.different is not None:
            self.different.add(hash_numbers(numbers))

    def _distinguish(
        self, numbers: NDArray[Any], low: float, high: float
    ) -> tuple[list[float], list[int]] | None:
        """The different numbers, and how often each is there; None if they are more than are counted."""
        if self._is_whole and high - low < min(4 * _MOST_COUNTED, len(numbers)):
            # `low` keeps the kind of the array: int64 less uint64 would be float64.
            counts = np.bincount((numbers - numbers.dtype.type(low)).astype(np.intp))
            (places,) = counts.nonzero()
            return [low + place for place in places.tolist()], counts[places].tolist()
        most = self._detail.counted
        for looked_at in (numbers[: 4 * most], numbers):  # few of them mostly show that they are many
            values, counts = _sort_and_count(looked_at)
            if len(values) > most:
                return None
        return (values + 0).tolist(), counts.tolist()  # of the two zeros one

    def _take_over(self, values: list[float], counts: NDArray[np.int64]) -> None:
        self._feed(np.repeat(np.array(values, np.float64), counts))
        self._note_frequent(map(repr, values), counts.tolist())

    def _sample(self, numbers: NDArray[Any]) -> None:
        self._waiting.append(numbers)
        self._num_waiting += len(numbers)
        if self._num_waiting >= 4 * self._detail.counted:
            self.flush()

    def flush(self) -> None:
        """Give the sketches what has been gathered for them, since they take much at a time in less time.

        A value that is there once, or is less than a thousandth of these, is none of the frequent ones.
        """
        if not self._waiting:
            return
        numbers = np.concatenate(self._waiting) + 0  # of the two zeros one
        self._waiting, self._num_waiting = [], 0
        self._feed(numbers.astype(np.float64))
        if self._frequent is not None:
            values, counts = _sort_and_count(numbers)
            several = _are_several(counts)
            as_number: Callable[[float], float] = int if self._is_whole else float
            names = (repr(as_number(value)) for value in values[several].tolist())
            self._note_frequent(names, counts[several].tolist())

    def _feed(self, numbers: NDArray[np.float64]) -> None:
        if len(numbers):
            self._kll.update(np.ascontiguousarray(numbers))

    def merge(self, other: Numbers) -> None:
        """Take in what was found of other values."""
        if self.table is not None and other.table is not None:
            self._count(other.table.keys(), other.table.values())
        else:
            for side in (self, other):
                side.give_up_table()
                side.flush()
            self._kll.merge(other._kll)
        self._merge_sketches(other)

    def distribution(self, num_values: int, low: float | None, high: float | None) -> DistributionJson | None:
        """How they are spread, between `low` and `high`; None of no values, and of what is beyond float64."""
        if low is None or high is None:
            return None
        edges = self._edges(low, high)
        if self.table is not None:
            values = np.array(sorted(self.table), np.float64)
            every = sorted(self.table)
            ends = np.cumsum([self.table[value] for value in every])
            ranks = [
                max(1, -(-step * int(ends[-1]) // self._detail.steps))
                for step in range(self._detail.steps + 1)
            ]
            quantiles = [every[place] for place in np.searchsorted(ends, ranks).tolist()]
            counts = np.histogram(values, edges, weights=np.diff(ends, prepend=0))[0]
            return {
                "exact": True,
                "quantiles": quantiles,
                "edges": edges,
                "counts": counts.astype(np.int64).tolist(),
            }
        self.flush()
        if self._kll.is_empty():
            return None
        return {
            "exact": False,
            "quantiles": self._quantiles(low, high),
            "edges": edges,
            "counts": self._bins(edges, num_values),
        }

    def _quantiles(self, low: float, high: float) -> list[float]:
        steps = self._detail.steps
        inner = self._kll.get_quantiles([step / steps for step in range(1, steps)], True)
        as_number: Callable[[float], float] = int if self._is_whole else float
        return [low, *(min(high, max(low, as_number(value))) for value in inner), high]

    def _bins(self, edges: list[float], num_values: int) -> list[int]:
        within = sorted(set(edges[1:-1]))
        shares = dict(zip(within, self._kll.get_cdf(within), strict=False)) if within else {}
        ends = [0, *(round(shares[edge] * num_values) for edge in edges[1:-1]), num_values]
        return [end - begin for begin, end in pairwise(ends)]

    def _edges(self, low: float, high: float) -> list[float]:
        """The bins: one for each whole number where there are few of them."""
        bins = self._detail.bins
        if low == high:
            return [float(low), float(high)]
        if self._is_whole and high - low < bins:
            return [float(low + step) for step in range(int(high - low) + 2)]
        # Half of each, because float64 may not hold how far they are apart.
        edges = np.linspace(float(low) / 2, float(high) / 2, bins + 1) * 2
        edges[0], edges[-1] = low, high
        return list(map(float, edges))

    def values(self) -> ValuesJson:
        """Which there are."""
        as_number: Callable[[str], float] = int if self._is_whole else float
        self.flush()
        top: list[ValueCountJson] = [
            {"value": value, "count": count} for value, count in self._top(as_number)
        ]
        return {"exact": self.table is not None, "num_different": self._num_different(), "top": top}


class Texts(_Spread[bytes]):
    """Of strings: which are frequent, and how many different ones there are."""

    def __init__(self, detail: Detail) -> None:
        super().__init__(detail)
        self._waiting: list[Strings] = []
        self._num_waiting = 0

    def add(self, strings: Strings) -> None:
        """Take in some strings."""
        if not len(strings):
            return
        hashes = hash_strings(strings)
        if self.different is not None:
            self.different.add(hashes)
        lengths = strings.offsets[1:] - strings.offsets[:-1]
        if self.table is not None:
            groups = _group(strings, hashes, self._detail.counted)
            if groups is not None and int(lengths[groups[0]].max()) <= _LONGEST:
                self._count(_pick(strings, groups[0]), groups[1].tolist())
                return
            self.give_up_table()
        chosen = self._choose(len(strings))
        if chosen is None:
            chosen = np.arange(len(strings))
        chosen = chosen[lengths[chosen] <= _LONGEST]
        if len(chosen):
            self._waiting.append(_gather(strings, chosen))
            self._num_waiting += len(chosen)
            if self._num_waiting >= self._detail.counted:
                self.flush()

    def flush(self) -> None:
        """As that of numbers."""
        if not self._waiting:
            return
        strings = join_strings(self._waiting)
        self._waiting, self._num_waiting = [], 0
        groups = _group(strings, hash_strings(strings), len(strings))
        if groups is not None:
            first, counts = groups
            several = _are_several(counts)
            self._note_frequent(map(_as_name, _pick(strings, first[several])), counts[several].tolist())

    def _take_over(self, values: list[bytes], counts: NDArray[np.int64]) -> None:
        self._note_frequent(map(_as_name, values), counts.tolist())

    def merge(self, other: Texts) -> None:
        """Take in what was found of other strings."""
        if self.table is not None and other.table is not None:
            self._count(other.table.keys(), other.table.values())
        else:
            for side in (self, other):
                side.give_up_table()
                side.flush()
        self._merge_sketches(other)

    def values(self) -> ValuesJson:
        """Which there are."""
        self.flush()
        top: list[ValueCountJson] = [
            {"value": _text_or_b64(value), "count": count}
            for value, count in self._top(lambda name: name.encode("latin-1"))
        ]
        return {"exact": self.table is not None, "num_different": self._num_different(), "top": top}


def _sort_and_count(numbers: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The different numbers in order, and how often each is there; in less time than np.unique takes."""
    ordered = np.sort(numbers)
    changes = np.ones(len(ordered) + 1, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=changes[1:-1])
    bounds = np.flatnonzero(changes)
    return ordered[bounds[:-1]], bounds[1:] - bounds[:-1]


def hash_numbers(numbers: NDArray[Any]) -> Hashes:
    """A hash of each number: equal ones have equal hashes."""
    if numbers.dtype.kind == "f":
        numbers = numbers + 0.0  # of the two zeros one
    state = (
        numbers.astype(np.float64).view(np.uint64) if numbers.dtype.kind == "f" else numbers.astype(np.uint64)
    )
    state = state * STEP + STEP
    mix(state)
    state ^= state >> np.uint64(31)
    return state


def hash_strings(strings: Strings) -> Hashes:
    """A hash of each string."""
    hashes = np.empty(len(strings), np.uint64)
    with np.errstate(over="ignore"):  # uncompiled, the kernel's arithmetic modulo 2^64 would warn
        kernels.load().fingerprint_strings(strings.data, strings.offsets, hashes)
    return hashes


def _are_several(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    several: NDArray[np.bool_] = counts > max(1, int(counts.sum()) // _RARE)
    return several


def _group(strings: Strings, hashes: Hashes, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Where each different string comes first, and how often it is there; None if more than `most`."""
    slots = np.empty(1 << (2 * most).bit_length(), np.int64)
    first, counts = np.empty((2, most), np.int64)
    num_groups = kernels.load().group_strings(strings.data, strings.offsets, hashes, slots, first, counts)
    return None if num_groups < 0 else (first[:num_groups], counts[:num_groups])


def _gather(strings: Strings, places: NDArray[np.int64]) -> Strings:
    begins, ends = strings.offsets[places], strings.offsets[places + 1]
    data = np.empty(int((ends - begins).sum()), np.uint8)
    gathered = Strings(data, np.empty(len(places) + 1, np.int64))
    kinds = np.full(len(places), KIND_BYTES, np.uint8)
    kernels.load().gather_spans(strings.data, kinds, begins, ends, gathered.data, gathered.offsets)
    return gathered


def _pick(strings: Strings, places: NDArray[np.int64]) -> list[bytes]:
    begins, ends = strings.offsets[places].tolist(), strings.offsets[places + 1].tolist()
    return [strings.data[begin:end].tobytes() for begin, end in zip(begins, ends, strict=True)]


def _as_name(value: bytes) -> str:
    return value.decode("latin-1")


def _text_or_b64(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}
