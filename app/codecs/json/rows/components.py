"""Cells that are sent as components: `{"values", "row_splits"}` of ragged values, and those of sparse ones.

All cells are read at once. Each rule is held against all of them before the next one is, and names the first
cell that breaks it; a cell before that one may break a later rule, so that those are read once more by
themselves before the error is raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....domain.dtypes import parse_dtype
from ....domain.feature import Feature
from ....domain.tensor import num_elements
from ....errors import InputError, MalformedInput
from ...kernels.json.tape import (
    ARRAY,
    INTEGER,
    LARGE,
    OBJECT,
    STRING,
    UNSIGNED,
)
from ..errors import cell_error
from ..tape import KEY_OF, Items
from ..values import ItemError
from .cells import Members
from .nested import (
    cell_at,
    count_bounds,
    misplaced,
    open_nested,
)

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_NOT_SPLITS: Final = '"row_splits" holds something else than arrays of one or more integers'


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """Some ragged cells.

    Attributes:
        items: without arrays around them.
        counts: by axis, outermost first, how many entries each array has; the first has one for each cell.
        width: how many items an entry of the last axis is.
    """

    items: Items
    counts: list[Ints]
    width: int

    def lengths(self) -> list[Ints]:
        """How many arrays of each axis a cell has; behind them, how many items."""
        edges = np.arange(len(self.counts[0]) + 1)
        found = []
        for of_axis in self.counts:
            found.append(np.diff(edges))
            edges = count_bounds(of_axis)[edges]
        return [*found, np.diff(edges) * self.width]


def open_ragged(feature: Feature, cells: Items, rows: Ints) -> Opened:
    """The items of cells that are nested arrays, or `{"values", "row_splits"}`."""
    try:
        return _open_groups(feature, cells, rows)
    except InputError as error:
        # A cell before it may be wrong as well, by a rule that is looked at later.
        before = int(np.searchsorted(rows, error.location.row or 0))
        if before:
            open_ragged(feature, cells.take(slice(before)), rows[:before])
        raise


def _open_groups(feature: Feature, cells: Items, rows: Ints) -> Opened:
    """As `_open_ragged`; raises for any cell that is wrong."""
    is_object = cells.kinds == OBJECT
    if not is_object.any():
        return _open_arrays(feature, cells, rows)
    has_arrays = _has_arrays_in_values(cells, is_object) if feature.inner_shape else ~is_object
    found: list[Opened] = []
    places: list[Ints] = []
    for group in (~is_object, is_object & ~has_arrays, is_object & has_arrays):
        where = np.flatnonzero(group)
        if not len(where):
            continue
        some, of_rows = cells.take(where), rows[where]
        if is_object[where[0]]:
            is_nested = bool(has_arrays[where[0]])
            found.append(_open_objects(feature, some, of_rows, is_nested=is_nested))
        else:
            found.append(_open_arrays(feature, some, of_rows))
        places.append(where)
    return found[0] if len(found) == 1 else _merge(found, np.argsort(np.concatenate(places)))


def _merge(groups: list[Opened], order: Ints) -> Opened:
    """The cells of all groups, in another order."""
    lengths = zip(*(group.lengths() for group in groups), strict=True)
    *places, of_items = (_places_of(np.concatenate(of_axis), order) for of_axis in lengths)
    counts = [
        np.concatenate(of_axis)[where]
        for of_axis, where in zip(zip(*(group.counts for group in groups), strict=True), places, strict=True)
    ]
    kinds = np.concatenate([group.items.kinds for group in groups])
    words = np.concatenate([group.items.words for group in groups])
    tape, width = groups[0].items.tape, groups[0].width
    return Opened(Items(tape, kinds[of_items], words[of_items]), counts, width)


def _places_of(lengths: Ints, order: Ints) -> Ints:
    """Where the elements of stretches of these lengths lie, the stretches taken in another order."""
    begins, lengths = count_bounds(lengths)[:-1][order], lengths[order]
    shifts = begins - count_bounds(lengths)[:-1]
    return np.repeat(shifts, lengths) + np.arange(int(lengths.sum()))


def _has_arrays_in_values(cells: Items, is_object: Mask) -> Mask:
    """Which cells are objects whose values are arrays themselves."""
    members = Members(cells.take(is_object)).of(KEY_OF["values"])
    is_array = members.items.kinds == ARRAY
    items, counts = members.items.take(is_array).open()
    owners = np.repeat(members.row_numbers(0)[is_array], counts)
    found = np.zeros(len(cells), np.bool_)
    found[np.flatnonzero(is_object)[owners[items.kinds == ARRAY]]] = True
    return found


def _open_arrays(feature: Feature, cells: Items, rows: Ints) -> Opened:
    items, counts = open_nested(feature, cells, feature.shape, rows)
    return Opened(items, counts[: feature.num_partitions + 1], num_elements(feature.inner_shape))


def _open_objects(feature: Feature, cells: Items, rows: Ints, *, is_nested: bool) -> Opened:
    """As `_open_groups`, of objects alone.

    Args:
        is_nested: the values are arrays of `inner_shape`; else they are flat.
    """
    width = num_elements(feature.inner_shape)
    try:
        items, counts = _read_splits(feature, cells, 1 if is_nested else width)
    except ItemError as error:
        raise cell_error(error, feature.name, rows[error.index]) from None
    for axis, (dim, of_axis) in enumerate(zip(feature.shape, counts, strict=False)):
        if dim is not None and (of_axis != dim).any():
            wrong = index = int(np.argmax(of_axis != dim))
            for outer in reversed(counts[:axis]):
                index = cell_at(count_bounds(outer), index)
            raise misplaced(feature, f"an array of {int(of_axis[wrong])}", int(rows[index]))
    if is_nested:
        items, _ = open_nested(feature, items, feature.inner_shape, rows, tuple(counts))
    return Opened(items, counts, width)


def _read_splits(feature: Feature, cells: Items, width: int) -> tuple[Items, list[Ints]]:
    """The values of all cells, and how the axes cut them: by axis, how many entries each array has.

    Args:
        width: how many values an entry of the last axis is.

    Raises:
        ItemError: the first cell that breaks the rule that is looked at.
    """
    members = Members(cells)
    required, known = {"values", "row_splits"}, {"values", "row_splits", "dtype"}
    if not _names_of(members) <= known or not _has_all(members, required):
        for index in range(len(cells)):
            _check_members(cells, index, required, set(), 'nested arrays or {"values", "row_splits"}')
    _check_dtype(members, 0, feature)
    values = _arrays(members, "values", 'The "values" of a ragged value are an array.')
    row_splits, num_cuts = members.of(KEY_OF["row_splits"]), feature.num_partitions
    is_array = row_splits.items.kinds == ARRAY
    wrong = np.ones(len(cells), np.bool_)
    wrong[row_splits.row_numbers(0)[is_array]] = row_splits.items.take(is_array).counts() != num_cuts
    if wrong.any():
        what = f'"row_splits" is not an array of {num_cuts} arrays, one a cut'
        raise _invalid_splits(int(np.argmax(wrong)), what)
    items, sizes = values.open()
    if (sizes % width).any():
        index = int(np.argmax(sizes % width != 0))
        raise ItemError(
            index,
            f"{sizes[index]} values do not divide into arrays of shape {list(feature.inner_shape)}.",
            "shape_mismatch",
        )
    num_entries, counts = sizes // width, list[Ints]()
    splits, _ = row_splits.items.open()
    for cut in reversed(range(num_cuts)):
        of_cut = splits.take(slice(cut, None, num_cuts))
        counts.insert(0, _read_cut(of_cut, num_entries))
        num_entries = of_cut.counts() - 1
    return items, [num_entries, *counts]


def _read_cut(splits: Items, num_entries: Ints) -> Ints:
    """How many entries each array has that one array of splits, for each cell, cuts the entries into."""
    if not splits.only(ARRAY):
        raise _invalid_splits(int(np.argmax(splits.kinds != ARRAY)), _NOT_SPLITS)
    items, sizes = splits.open()
    owners = np.repeat(np.arange(len(splits)), sizes)
    wrong = sizes == 0
    wrong[owners[~np.isin(items.kinds, (INTEGER, UNSIGNED, LARGE))]] = True
    if wrong.any():
        raise _invalid_splits(int(np.argmax(wrong)), _NOT_SPLITS)
    offsets = np.ascontiguousarray(items.words).view(np.int64)
    bounds = count_bounds(sizes)
    wrong = (offsets[bounds[:-1]] != 0) | (offsets[bounds[1:] - 1] != num_entries)
    wrong[owners[items.kinds != INTEGER]] = True
    is_first = np.zeros(len(offsets), np.bool_)
    is_first[bounds[:-1]] = True
    # Not by their difference, which may be more than an int64 holds.
    wrong[owners[1:][(offsets[1:] < offsets[:-1]) & ~is_first[1:]]] = True
    if wrong.any():
        index = int(np.argmax(wrong))
        raise _invalid_splits(
            index, f"row splits do not rise from 0 to {num_entries[index]}, the number of items that they cut"
        )
    return np.diff(offsets)[~is_first[1:]]


def _names_of(members: Members) -> set[str]:
    return {members.tape.name(key) for key in members.keys}


def _invalid_splits(index: int, what: str) -> ItemError:
    return ItemError(index, f"In a ragged value {what}.", "invalid_row_splits")


def _check_members(cells: Items, index: int, required: set[str], optional: set[str], what: str) -> None:
    """Refuse a cell that is not an object of these members, and perhaps a `dtype`.

    Raises:
        ItemError: `type_mismatch`.
    """
    if cells.kinds[index] == OBJECT:
        names = set(cells.member_names(index))
        if required <= names <= required | optional | {"dtype"}:
            return
        found = f"an object with {sorted(names)[:6]}"
    else:
        found = cells.describe(index)
    raise ItemError(index, f"Expected {what}, found {found}.", "type_mismatch")


def _check_dtype(members: Members, first: int, feature: Feature) -> None:
    """Refuse a cell that says another dtype than the schema does.

    Raises:
        ItemError: `dtype_mismatch`, `unknown_dtype`.
    """
    cells = members.of(KEY_OF["dtype"])
    checked: set[bytes] = set()
    for place, row in enumerate(cells.row_numbers(first).tolist()):
        if cells.items.kinds[place] != STRING:
            raise ItemError(row, '"dtype" is not a string.', "unknown_dtype", error=MalformedInput)
        name = cells.items.tape.string(int(cells.items.words[place]))
        if name in checked:
            continue
        try:
            dtype = parse_dtype(name.decode())
        except MalformedInput as error:
            raise ItemError(row, error.detail, error.code, error=MalformedInput) from None
        if dtype.numpy != feature.dtype.numpy:
            raise ItemError(
                row, f"The value says dtype {dtype}, but the schema {feature.dtype}.", "dtype_mismatch"
            )
        checked.add(name)


def read_sparse(feature: Feature, cells: Items) -> tuple[Items, Ints, Ints]:
    """The values of all cells, how many each has, and their coordinates.

    Raises:
        ItemError: the first cell that is wrong.
    """
    try:
        return _read_components(feature, cells)
    except ItemError as error:
        # One before it may be wrong as well, by a rule that is looked at later.
        read_sparse(feature, cells.take(slice(error.index)))
        raise


def _read_components(feature: Feature, cells: Items) -> tuple[Items, Ints, Ints]:
    """As `_read_sparse`; raises for any cell that is wrong."""
    rank = len(feature.shape)
    is_object = cells.kinds == OBJECT
    members = Members(cells.take(is_object))
    required, known = {"values", "indices"}, {"values", "indices", "dense_shape", "dtype"}
    if not is_object.all() or not _names_of(members) <= known or not _has_all(members, required):
        for index in range(len(cells)):
            _check_members(cells, index, required, {"dense_shape"}, '{"values", "indices"}')
    _check_dtype(members, 0, feature)
    _check_dense_shape(members, feature)
    values = _arrays(members, "values", 'The "values" of a sparse value are an array.')
    flat = " or of integers" if rank == 1 else ""
    no_indices = f'The "indices" of a sparse value are an array of arrays of {rank} integers{flat}.'
    indices = _arrays(members, "indices", no_indices)
    items, counts = values.open()
    places, num_places = indices.open()
    owners = np.repeat(np.arange(len(cells)), num_places)
    nested = places.kinds == ARRAY
    num_nested = np.bincount(owners[nested], minlength=len(cells))
    mixed = (num_nested != 0) & (num_nested != num_places)
    if rank > 1:
        mixed |= num_nested != num_places
    arrays = places.take(nested)
    of_rank, lengths = arrays.open()
    short = np.zeros(len(cells), np.bool_)
    short[owners[nested][lengths != rank]] = True
    if mixed.any() or short.any():
        index = int(np.argmax(mixed | short))
        if mixed[index]:
            raise ItemError(index, no_indices, "type_mismatch")
        raise ItemError(index, f"Indices of {rank} integers each are expected.", "shape_mismatch")
    if rank == 1 and not nested.all():
        kinds, words = places.kinds.copy(), places.words.copy()
        kinds[nested], words[nested] = of_rank.kinds, of_rank.words
        of_rank = Items(cells.tape, kinds, words)
    if not of_rank.found() <= {INTEGER, UNSIGNED, LARGE}:
        wrong = ~np.isin(of_rank.kinds, (INTEGER, UNSIGNED, LARGE))
        raise ItemError(int(owners[int(np.argmax(wrong)) // rank]), no_indices, "type_mismatch")
    if (counts != num_places).any():
        index = int(np.argmax(counts != num_places))
        raise ItemError(
            index,
            f"A sparse value has {num_places[index]} indices and {counts[index]} values.",
            "shape_mismatch",
        )
    return items, counts, _coordinates(feature, of_rank, owners)


def _has_all(members: Members, required: set[str]) -> bool:
    return all(len(members.of(KEY_OF[name]).items) == members.num_rows for name in required)


def _arrays(members: Members, name: str, otherwise: str) -> Items:
    """The arrays under a name, one for each object."""
    cells = members.of(KEY_OF[name])
    wrong = np.ones(members.num_rows, np.bool_)
    wrong[cells.row_numbers(0)] = cells.items.kinds != ARRAY
    if wrong.any():
        raise ItemError(int(np.argmax(wrong)), otherwise, "type_mismatch")
    return cells.items


def _check_dense_shape(members: Members, feature: Feature) -> None:
    cells = members.of(KEY_OF["dense_shape"])
    rows = cells.row_numbers(0)
    is_array = cells.items.kinds == ARRAY
    wrong = ~is_array
    wrong[is_array] = cells.items.take(is_array).counts() != len(feature.shape)
    if not wrong.any():
        items, _ = cells.items.open()
        expected = np.tile(np.array(feature.shape, np.int64), len(cells.items))
        differs = (items.kinds != INTEGER) | (np.ascontiguousarray(items.words).view(np.int64) != expected)
        wrong = differs.reshape(-1, len(feature.shape)).any(axis=1)
    if wrong.any():
        index = int(np.argmax(wrong))
        raise ItemError(
            int(rows[index]),
            f'"dense_shape" is {str(cells.items.python(index))[:80]}, but the schema says '
            f"{list(feature.shape)}.",
            "shape_mismatch",
        )


def _coordinates(feature: Feature, items: Items, owners: Ints) -> Ints:
    rank = len(feature.shape)
    coordinates = np.ascontiguousarray(items.words).view(np.int64)
    dims = np.array([dim or 0 for dim in feature.shape], np.int64)
    places = coordinates.reshape(-1, rank)
    outside = (places < 0) | (places >= dims) | (items.kinds != INTEGER).reshape(-1, rank)
    if outside.any():
        index = int(np.argmax(outside.reshape(-1)))
        raise ItemError(
            int(owners[index // rank]),
            f"Index {str(items.python(index))[:40]} lies outside the {dims[index % rank]} places of axis "
            f"{index % rank}.",
            "index_out_of_bounds",
        )
    return coordinates
