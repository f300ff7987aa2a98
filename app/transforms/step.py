"""What a step is: it says what it makes of a feature before any data flows, and then does so to columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from ..codecs.columns import Column, Strings
from ..codecs.records.lease import Lease
from ..domain.dtypes import DType
from ..domain.feature import Feature, FeatureShape
from ..domain.meaning import PLAIN, Meaning
from ..domain.tensor import num_elements
from ..errors import UnprocessableInput
from ..runtime.images import ImageCodecs, Pending
from ..runtime.turns import offer_turn, waiting

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Tools:
    """What steps work with.

    Attributes:
        lease: charged with what a step makes, before it is made.
        images: decodes and encodes images; started by its first use.
    """

    lease: Lease
    images: ImageCodecs


class RowsRefused(Exception):
    """Values that a step cannot take.

    Attributes:
        reasons: by index among the values of the column, in order; at least one.
        step: which one, of several steps that are done as one.
    """

    def __init__(self, reasons: Mapping[int, str], step: int = 0) -> None:
        super().__init__(next(iter(reasons.values())))
        self.reasons = reasons
        self.step = step


class Memory(NamedTuple):
    """Bytes that a step takes for an array, beside that array.

    Attributes:
        kept: those of its result; 0 where that is a view.
        working: those that it holds only meanwhile.
    """

    kept: int = 0
    working: int = 0


class Step(ABC):
    """One step of a feature's transforms: a frozen dataclass whose fields are its arguments."""

    #: As in the JSON form.
    name: ClassVar[str]

    @abstractmethod
    def result(self, feature: Feature) -> Feature:
        """What the step makes of a feature: another dtype or shape.

        Raises:
            UnprocessableInput: it does not take such a feature (`invalid_transform`).
        """

    @abstractmethod
    def apply(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Column:
        """A column of `feature` -> one of `result(feature)`, of the same rows.

        Raises:
            RowsRefused: values that it does not take; all of them at once.
            LimitExceeded: more than the budget.
        """

    def takes(self, feature: Feature, what: str) -> UnprocessableInput:
        """The error that it takes `what`, and not this feature."""
        return UnprocessableInput(
            f"The step {self.name!r} takes {what}; here it would get {feature.dtype} of shape "
            f"{list(feature.shape)}, {feature.kind}.",
            code="invalid_transform",
            feature=feature.name,
        )


def invalid(name: str, why: str) -> UnprocessableInput:
    """The error that the arguments of a step contradict one another, or lie out of range."""
    return UnprocessableInput(f"The step {name!r} cannot be done: {why}.", code="invalid_transform")


def changed(
    feature: Feature,
    dtype: DType | None = None,
    shape: FeatureShape | None = None,
    meaning: Meaning = PLAIN,
) -> Feature:
    """The feature with another dtype or shape; it stays inferred only if its dtype does not change."""
    dtype = dtype or feature.dtype
    return replace(
        feature,
        dtype=dtype,
        shape=feature.shape if shape is None else shape,
        meaning=meaning,
        inferred=feature.inferred and dtype is feature.dtype,
    )


class Started(Generic[Found]):
    """Work on a column that goes on in another thread.

    Args:
        pending: what is found there.
        collect: makes the column of it, in the thread that asks for it.
    """

    def __init__(self, pending: Pending[Found], collect: Callable[[Found], Column]) -> None:
        self._pending = pending
        self._collect = collect

    def column(self) -> Column:
        """The column, once it is there.

        Raises:
            RowsRefused: values that the step does not take.
            LimitExceeded: more than the budget.
            Overloaded: no process came free in time.
        """
        with waiting():
            found = self._pending.result()
        return self._collect(found)

    def abandon(self) -> None:
        """Have the work stopped, or wait for it; nothing of its memory is used afterwards."""
        if not self._pending.cancel():
            with waiting(), suppress(Exception):  # nobody is told any more
                self._pending.result()


class RemoteStep(Step):
    """A step that other processes do."""

    @abstractmethod
    def start(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Started[Any]:
        """Begin as `apply`; the lease is charged before this returns.

        Raises:
            RowsRefused: values that it does not take, as far as they are known by now.
            LimitExceeded: more than the budget.
        """

    @override
    def apply(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Column:
        return self.start(column, feature, num_rows, tools).column()


class RowStep(Step):
    """A step that can be done row by row: what it makes of a value depends on nothing else."""

    @abstractmethod
    def memory(self, shape: Sequence[int], dtype: DType) -> Memory:
        """What it takes for an array of this shape and dtype."""

    @abstractmethod
    def convert_array(self, array: NDArray[Any], feature: Feature) -> NDArray[Any]:
        """The array of one row -> that of the result, which may be a view.

        Raises:
            ArrayRefused: one that it does not take.
        """


class ValueStep(RowStep):
    """A step that makes of each number another one, wherever it stands."""

    @override
    def result(self, feature: Feature) -> Feature:
        if feature.dtype.is_string or feature.dtype.kind == "complex" or feature.dtype.is_narrow:
            raise self.takes(feature, "numbers")
        return changed(feature, self.result_dtype(feature.dtype))

    @abstractmethod
    def result_dtype(self, dtype: DType) -> DType:
        """The dtype that numbers of `dtype` become."""

    @abstractmethod
    def convert(self, values: NDArray[Any], feature: Feature) -> NDArray[Any]:
        """Flat numbers -> as many of the resulting dtype.

        Raises:
            ValuesRefused: some that it does not take.
        """

    @override
    def apply(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Column:
        values = _numbers(column)
        tools.lease.charge(values.size * self.result_dtype(feature.dtype).itemsize, f"The step {self.name}")
        try:
            converted = self.convert(values, feature)
        except ValuesRefused as refused:
            raise RowsRefused(refused.by_row(column, num_rows)) from None
        return replace(column, values=np.ascontiguousarray(converted).reshape(-1))

    @override
    def memory(self, shape: Sequence[int], dtype: DType) -> Memory:
        return Memory(num_elements(shape) * self.result_dtype(dtype).itemsize)

    @override
    def convert_array(self, array: NDArray[Any], feature: Feature) -> NDArray[Any]:
        try:
            return self.convert(array.reshape(-1), feature).reshape(array.shape)
        except ValuesRefused as refused:
            raise ArrayRefused(str(refused)) from None


class ValuesRefused(Exception):
    """Numbers that a step does not take: `where` is true for them."""

    def __init__(self, where: NDArray[np.bool_], reason: str) -> None:
        super().__init__(reason)
        self._where = where

    def by_row(self, column: Column, num_rows: int) -> dict[int, str]:
        """The reason, by index among the rows that have the feature."""
        bounds = column.value_bounds(num_rows)
        indices = np.flatnonzero(self._where.reshape(-1))
        return dict.fromkeys((np.unique(np.searchsorted(bounds, indices, "right")) - 1).tolist(), str(self))


class ArrayStep(RowStep):
    """A step that makes of each row's array another one; by default a view of it."""

    @override
    def apply(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Column:
        result = self.result(feature)
        arrays, refused = [], {}
        budget = tools.lease.budget
        for index, array in enumerate(row_arrays(column, feature, num_rows)):
            offer_turn()
            kept, working = self.memory(array.shape, feature.dtype)
            tools.lease.charge(kept, f"The step {self.name}")
            budget.charge(working, f"The step {self.name}")
            try:
                arrays.append(self.convert(array))
            except ArrayRefused as error:
                refused[index] = str(error)
            finally:
                budget.release(working)
        if refused:
            raise RowsRefused(refused)
        return column_of(arrays, result, column, tools)

    @override
    def memory(self, shape: Sequence[int], dtype: DType) -> Memory:
        return Memory()

    @abstractmethod
    def convert(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array of one row -> that of the result, which may be a view.

        Raises:
            ArrayRefused: one that it does not take.
        """

    @override
    def convert_array(self, array: NDArray[Any], feature: Feature) -> NDArray[Any]:
        return self.convert(array)


class ArrayRefused(Exception):
    """Why a step does not take an array."""


def _numbers(column: Column) -> NDArray[Any]:
    if isinstance(column.values, Strings):
        raise TypeError("the column holds strings")
    return column.values


def strings_of(column: Column) -> Strings:
    """The strings of a column of them."""
    if not isinstance(column.values, Strings):
        raise TypeError("the column holds no strings")
    return column.values


def row_arrays(column: Column, feature: Feature, num_rows: int) -> list[NDArray[Any]]:
    """The array of each row that has the dense feature, as views."""
    values = _numbers(column)
    count = column.count(num_rows)
    if not feature.num_unknown:
        return list(values.reshape(count, *map(int, column_shape(feature))))
    bounds = column.value_bounds(num_rows).tolist()
    pieces = [values[begin:end] for begin, end in pairwise(bounds)]
    if column.shapes is not None:
        shapes = column.shapes.tolist()
        return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]
    shape = [-1 if dim is None else dim for dim in feature.shape]
    if 0 in shape:
        return [piece.reshape([0 if dim == -1 else dim for dim in shape]) for piece in pieces]
    return [piece.reshape(shape) for piece in pieces]


def column_shape(feature: Feature) -> tuple[int, ...]:
    """The shape of a feature of which all dimensions are known."""
    return tuple(dim for dim in feature.shape if dim is not None)


def column_of(arrays: list[NDArray[Any]], feature: Feature, old: Column, tools: Tools) -> Column:
    """A column of a dense feature from the array of each row that has it."""
    dtype = feature.dtype.numpy
    num_values = sum(array.size for array in arrays)
    tools.lease.charge(num_values * dtype.itemsize, "The arrays of a batch")
    values = np.empty(num_values, dtype)
    at = 0
    for array in arrays:
        values[at : at + array.size] = array.reshape(-1)
        at += array.size
    if not feature.num_unknown:
        return Column(values, (), old.present, feature.known_values)
    splits = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([array.size for array in arrays], out=splits[1:])
    shapes = None
    if feature.num_unknown > 1:
        shapes = np.array([array.shape for array in arrays], np.int64).reshape(-1, len(feature.shape))
    return Column(values, (splits,), old.present, 1, shapes)
