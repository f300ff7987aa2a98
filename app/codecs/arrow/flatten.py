"""Convert any Arrow array to flat values and a list of levels: the first half of reading foreign Arrow.

Arrow writes one thing in many ways: offsets of 32 or 64 bits, views, dictionaries, run ends, tensors as an
extension. Here they become one: how each level is cut, and an array of the values below, without slices
and without nulls. Memory for that is charged before it is allocated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...domain.tensor import num_elements
from ...errors import UnprocessableInput
from ..records.lease import Lease, TooLargeAtOnce

Ints = NDArray[np.int64]
#: How the values of one axis are cut: into lists of one length, or by offsets that begin with 0.
Level = int | Ints

#: For each row that it looks up, Arrow reserves the mean length of all strings of a dictionary, whichever are
#: named. What it does not use is never touched, but a system may refuse more than it could ever give.
_MOST_RESERVED: Final = 2**30
_STRINGS: Final = frozenset({pa.string(), pa.large_string(), pa.binary(), pa.large_binary()})


@dataclass(frozen=True, slots=True, eq=False)
class FlatValues:
    """The values of some rows.

    Attributes:
        rows: of each row, its number in the input, for errors.
        levels: outermost first.
        values: numbers, bools, strings or structs; without nulls, except where all of them are.
    """

    rows: Ints
    levels: list[Level]
    values: pa.Array[Any]

    def inner(self) -> FlatValues:
        """One level further in: the items of the rows, each as a row of its own."""
        first = self.levels[0]
        lengths = first if isinstance(first, int) else np.diff(first)
        return FlatValues(np.repeat(self.rows, lengths), self.levels[1:], self.values)


def row_of(flat: FlatValues, index: int) -> int:
    """The number in the input of the row that holds the value at `index`."""
    for level in reversed(flat.levels):
        if isinstance(level, int):
            index //= level
        else:
            index = int(np.searchsorted(level, index, side="right")) - 1
    return int(flat.rows[index])


def members(flat: FlatValues, *names: str) -> list[pa.Array[Any]] | None:
    """The members of a struct in this order, or None if it has others."""
    struct: Any = flat.values
    layout = struct.type
    if not pa.types.is_struct(layout):
        return None
    found = [layout.field(index).name for index in range(layout.num_fields)]
    if sorted(found) != sorted(names):
        return None
    parts = struct.flatten()
    return [parts[found.index(name)] for name in names]


def row_bounds(flat: FlatValues) -> Ints:
    """Where the values of each row begin, and the last ones end."""
    bounds = np.arange(len(flat.rows) + 1)
    for level in flat.levels:
        bounds = bounds * level if isinstance(level, int) else level[bounds]
    return bounds


def node_counts(flat: FlatValues) -> list[int]:
    """The number of lists at each level, followed by the number of values."""
    counts = [len(flat.rows)]
    for level in flat.levels:
        counts.append(counts[-1] * level if isinstance(level, int) else int(level[-1]))
    return counts


def is_list(layout: pa.DataType) -> bool:
    """Whether values of the type are lists whose length can vary."""
    return isinstance(layout, pa.ListType | pa.LargeListType | pa.ListViewType | pa.LargeListViewType)


def flatten_arrow(array: pa.Array[Any], rows: Ints, lease: Lease, feature: str) -> FlatValues:
    """The values of `array`, which has no null at the top.

    Args:
        rows: of each item of `array`, the row of the input that it belongs to.
        lease: charged for what is copied.
        feature: names the column in errors.

    Raises:
        UnprocessableInput: a null inside a value (`null_value`), an encoding that would be too
            costly to expand (`unsupported_type`).
        LimitExceeded: larger than the budget.
    """
    levels: list[Level] = []
    while True:
        tensor = array.type
        array = unwrap(array, lease, feature)
        if isinstance(tensor, pa.FixedShapeTensorType):
            array = _tensor_values(array, tensor, levels, lease)
        elif pa.types.is_fixed_size_list(array.type):
            levels.append(array.type.list_size)
            array = _flatten(array)
        elif is_list(array.type):
            levels.append(_offsets(array, lease, feature))
            array = _flatten(array)
        else:
            return FlatValues(rows, levels, array)
        if array.null_count and not pa.types.is_null(array.type):
            raise _null_inside(FlatValues(rows, levels, array), feature)


def _null_inside(flat: FlatValues, feature: str) -> UnprocessableInput:
    row = row_of(flat, int(np.argmax(np.asarray(flat.values.is_null().to_numpy(zero_copy_only=False)))))
    return UnprocessableInput(
        f"Feature {feature!r}, row {row}: null is not a value of a list. Leave it out, or make the whole "
        "list null.",
        code="null_value",
        row=row,
        feature=feature,
    )


def _flatten(array: Any) -> pa.Array[Any]:
    values: pa.Array[Any] = array.flatten()
    return values


def _offsets(array: Any, lease: Lease, feature: str) -> Ints:
    lease.charge(8 * (len(array) + 1), "The offsets of lists")
    if not isinstance(array.type, pa.ListViewType | pa.LargeListViewType):
        found: Ints = array.offsets.to_numpy().astype(np.int64)
        found -= found[:1]
        return found
    sizes = array.sizes.to_numpy().astype(np.int64)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    held = len(array.values)
    if int(offsets[-1]) > held:
        width = _width(array.values.type)
        if width is None:
            raise _too_costly(feature, "list views that overlap")
        lease.expand(width * int(offsets[-1]), "Lists that share their values")
    elif held:
        lease.charge(array.values.nbytes, "Lists that are put into order")
    return offsets


def _tensor_values(
    array: Any, tensor: pa.FixedShapeTensorType[Any], levels: list[Level], lease: Lease
) -> pa.Array[Any]:
    """The values in the order of the logical axes, whose lengths are appended to `levels`."""
    physical: list[int] = list(tensor.shape)
    order: list[int] = list(tensor.permutation or range(len(physical)))
    levels.extend(physical[axis] for axis in order)
    values = _flatten(array)
    if order == sorted(order):
        return values
    size = num_elements(physical)
    lease.charge(8 * len(values) + values.nbytes, "Tensors whose axes are put into order")
    within = np.arange(size).reshape(physical).transpose(order).reshape(-1)
    starts = np.arange(len(values) // max(size, 1))[:, np.newaxis] * size
    return values.take(pa.array((starts + within).reshape(-1)))


def unwrap(array: pa.Array[Any], lease: Lease, feature: str) -> pa.Array[Any]:
    """The same values without extension, dictionary, run ends or views at this level.

    Raises:
        UnprocessableInput: an encoding that would be too costly to expand (`unsupported_type`).
        LimitExceeded: larger than the budget.
    """
    while True:
        wrapped: Any = array
        layout = array.type
        if isinstance(layout, pa.BaseExtensionType):
            array = wrapped.storage
        elif isinstance(layout, pa.DictionaryType):
            array = _look_up(wrapped.dictionary, wrapped.indices, lease, feature)
        elif isinstance(layout, pa.RunEndEncodedType):
            lease.charge(16 * len(array), "Runs of values")
            ends = wrapped.run_ends.to_numpy()
            places = np.arange(array.offset, array.offset + len(array))
            runs = pa.array(np.searchsorted(ends, places, side="right"))
            array = _look_up(wrapped.values, runs, lease, feature)
        elif pa.types.is_string_view(layout) or pa.types.is_binary_view(layout):
            array = _copy_views(array, lease)
        else:
            return array


def _look_up(values: Any, indices: Any, lease: Lease, feature: str) -> pa.Array[Any]:
    """`values[indices]`, charged by what comes out: a long string may be named again and again."""
    values = unwrap(values, lease, feature)
    width = _width(values.type)
    if width is None:
        if values.type not in _STRINGS:
            raise _too_costly(feature, f"a dictionary or runs of {values.type}")
        import pyarrow.compute as pc  # here: a service that needs it for no request is 9 MB smaller

        lengths = pc.fill_null(pc.binary_length(values), 0)
        lease.charge(8 * len(values) + 8 * len(indices), "The lengths of the strings of a dictionary")
        total = pc.sum(lengths.take(indices).cast(pa.int64())).as_py() or 0
        lease.expand(total + 8 * len(indices), "The strings of a dictionary, looked up,")
        mean_length = (pc.sum(lengths).as_py() or 0) // max(1, len(values))
        if lease.expands_to is not None and mean_length * len(indices) > _MOST_RESERVED:
            raise TooLargeAtOnce
    else:
        lease.expand((width + 1) * len(indices), "The values of a dictionary, looked up,")
    found: pa.Array[Any] = values.take(indices)
    return found


def _copy_views(array: Any, lease: Lease) -> pa.Array[Any]:
    """The strings of a view as one contiguous array.

    Arrow's cast reads the views of nulls as well, which may be anything and are not validated: they are
    made empty before it.
    """
    lease.charge(16 * len(array), "The views of strings")
    validity, words, *data = array.buffers()
    views = np.zeros((len(array), 4), np.int32)
    if words is not None:
        views[:] = np.frombuffer(words, np.int32).reshape(-1, 4)[array.offset : array.offset + len(array)]
    if array.null_count:
        present = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
        views[~present] = 0
        validity = pa.py_buffer(np.packbits(present, bitorder="little").data)
    # The first of the four words of a view is the length of its string.
    lease.expand(int(views[:, 0].sum(dtype=np.int64)) + 8 * len(array), "Strings that are put into order")
    buffers = [validity if array.null_count else None, pa.py_buffer(views.data), *data]
    return pa.Array.from_buffers(array.type, len(array), buffers).cast(
        pa.string() if pa.types.is_string_view(array.type) else pa.binary()
    )


def _width(layout: pa.DataType) -> int | None:
    """Bytes of one value, or None where they differ."""
    try:
        return (layout.bit_width + 7) // 8
    except ValueError:
        return 0 if pa.types.is_null(layout) else None


def _too_costly(feature: str, what: str) -> UnprocessableInput:
    return UnprocessableInput(
        f"Feature {feature!r} holds {what}, which is not read. Write plain lists or values.",
        code="unsupported_type",
        feature=feature,
    )
