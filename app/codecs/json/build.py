"""The values of one feature in some rows of JSON to a column.

A ragged value is nested arrays, or the members of a `tf.RaggedTensor`; a sparse one has those of a
`tf.SparseTensor`, whose coordinates keep their order and number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...domain.dtypes import parse_dtype
from ...domain.schema import Feature, FeatureShape
from ...domain.tensor import num_elements
from ...errors import InputError, MalformedInput, SchemaConflict
from ..columns import Column, item_width
from ..kernels.json_tape import ARRAY, INTEGER, LARGE, NULL, OBJECT, STRING, UNSIGNED
from .errors import cell_error
from .items import convert, flatten
from .tape import KEY_OF, Cells, Items, Members
from .values import ItemError, Reading, null_error

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_NOT_SPLITS: Final = '"row_splits" holds something else than arrays of one or more integers'


def build_column(feature: Feature, cells: Cells, reading: Reading, first_row: int) -> Column:
    """The column of `feature`.

    Args:
        first_row: the number of the first row, for errors.

    Raises:
        SchemaConflict: a cell of another kind, shape or type than the feature's, or absent where the
            feature is not nullable.
        InputError: a value that the dtype does not hold, or components that do not fit one another. Errors
            carry feature and row.
    """
    present = None
    if cells.rows is not None:
        present = np.zeros(cells.num_rows, np.bool_)
        present[cells.rows] = True
        if not feature.nullable:
            raise _missing(feature, first_row + int(np.argmin(present)), reading)
    rows = cells.row_numbers(first_row)
    builder = {"dense": _dense, "ragged": _ragged, "sparse": _sparse, "sequence": _sequence}[feature.kind]
    column = builder(feature, cells.items, reading, rows)
    return Column(
        column.values, column.splits, present, item_width(feature), column.shapes, column.coordinates
    )


def _missing(feature: Feature, row: int, reading: Reading) -> SchemaConflict:
    hint = "Send it, or declare the feature nullable."
    if not reading.declared:
        hint = (
            "The schema was inferred from rows that all have it: set ?infer=all, or declare a schema in "
            "which the feature is nullable."
        )
    return SchemaConflict(
        f"Row {row} lacks the feature {feature.name!r}. {hint}", row=row, feature=feature.name
    )


def _misfit(feature: Feature, items: Items, index: int, row: int) -> InputError:
    """The error of an item that stands where the shape of the feature has something else."""
    if items.kinds[index] == NULL:
        return cell_error(null_error(0), feature.name, row)
    return _misplaced(feature, items.describe(index), int(row))


def _misplaced(feature: Feature, found: str, row: int) -> SchemaConflict:
    return SchemaConflict(
        f"Feature {feature.name!r} is {feature.kind} of shape {list(feature.shape)} in the schema, but in "
        f"row {row} {found} stands where it does not fit.",
        row=row,
        feature=feature.name,
    )


def _bounds(counts: Ints) -> Ints:
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds


def _cell_at(bounds: Ints, index: int) -> int:
    """Which of the cells that are cut at `bounds` holds the item."""
    return int(np.searchsorted(bounds, index, side="right")) - 1


def _item_shape(feature: Feature) -> FeatureShape:
    """The shape of a cell's nested arrays: a complex number is one of two floats."""
    return (*feature.shape, 2) if feature.dtype.kind == "complex" else feature.shape


def _dense(feature: Feature, items: Items, reading: Reading, rows: Ints) -> Column:
    return (_varying if feature.num_unknown else _fixed)(feature, items, reading, rows)


def _fixed(feature: Feature, items: Items, reading: Reading, rows: Ints) -> Column:
    shape = tuple(dim or 0 for dim in _item_shape(feature))
    for axis, dim in enumerate(shape):
        wrong = None
        if items.only(ARRAY):
            found, counts = items.open()
            if (counts != dim).any():
                wrong = counts != dim
        else:
            is_array = items.kinds == ARRAY
            wrong = ~is_array
            wrong[is_array] = items.take(is_array).counts() != dim
        if wrong is not None:
            index = int(np.argmax(wrong))
            raise _misfit(feature, items, index, rows[index // num_elements(shape[:axis])])
        items = found
    try:
        return Column(convert(items, feature.dtype, reading))
    except ItemError as error:
        raise cell_error(error, feature.name, rows[error.index // num_elements(shape)]) from None


def _varying(feature: Feature, items: Items, reading: Reading, rows: Ints) -> Column:
    cells, shape = items, _item_shape(feature)
    is_flat = len(shape) == 1
    sizes: list[Ints] = []
    owners = np.arange(len(cells))
    wrong = np.zeros(len(cells), np.bool_)
    for dim in shape:
        is_array = items.kinds == ARRAY
        if not is_array.all():
            wrong[owners[~is_array]] = True
            items, owners = items.take(is_array), owners[is_array]
        children, counts = items.open()
        # The length of each cell's first array of this axis, which is that of all others.
        length = np.full(len(cells), dim or 0, np.int64)
        length[owners[::-1]] = counts[::-1]
        wrong[owners[counts != length[owners]]] = True
        if dim is not None:
            wrong |= length != dim
        sizes.append(length)
        items, owners = children, np.repeat(owners, counts)
    if not is_flat:
        wrong[owners[items.kinds == ARRAY]] = True
    shapes = np.stack(sizes[: len(feature.shape)], axis=1)
    if feature.num_unknown == 1 and not feature.known_values:
        wrong |= shapes[:, feature.shape.index(None)] != 0  # which the column would not tell
    if wrong.any():
        index = int(np.argmax(wrong))
        raise _unfit(feature, cells, index, reading, rows[index])
    counts = np.bincount(owners, minlength=len(cells))
    try:
        values = convert(items, feature.dtype, reading)
    except ItemError as error:
        raise cell_error(error, feature.name, rows[owners[error.index]]) from None
    splits = _bounds(counts // 2 if feature.dtype.kind == "complex" else counts)
    return Column(values, (splits,), shapes=shapes if feature.num_unknown > 1 else None)


def _unfit(feature: Feature, cells: Items, index: int, reading: Reading, row: int) -> InputError:
    """The error of a cell whose arrays are not of the shape."""
    # An inferred shape is nobody's word: a row that is ragged then conflicts like any other.
    if reading.declared:
        try:
            flatten(cells.take(slice(index, index + 1)))
        except ItemError as error:
            return cell_error(error, feature.name, row)
    return _misfit(feature, cells, index, row)


def _sequence(feature: Feature, cells: Items, reading: Reading, rows: Ints) -> Column:
    if not cells.only(ARRAY):
        index = int(np.argmax(cells.kinds != ARRAY))
        raise _misfit(feature, cells, index, rows[index])
    steps, counts = cells.open()
    step_rows = np.repeat(rows, counts)
    if not feature.step.is_scalar and steps.has(NULL):
        raise cell_error(null_error(0), feature.name, step_rows[int(np.argmax(steps.kinds == NULL))])
    column = _dense(feature.step, steps, reading, step_rows)
    return Column(column.values, (_bounds(counts), *column.splits), shapes=column.shapes)


def _ragged(feature: Feature, cells: Items, reading: Reading, rows: Ints) -> Column:
    opened = _open_ragged(feature, cells, rows)
    try:
        values = convert(opened.items, feature.dtype, reading)
    except ItemError as error:
        index = _cell_at(_bounds(opened.lengths()[-1]), error.index)
        raise cell_error(error, feature.name, rows[index]) from None
    return Column(values, tuple(map(_bounds, opened.counts)))


def _open_nested(
    feature: Feature, items: Items, shape: FeatureShape, rows: Ints, outer: tuple[Ints, ...] = ()
) -> tuple[Items, list[Ints]]:
    """The items in nested arrays of `shape`, and how many each array of each axis holds.

    Args:
        outer: the same of the axes that are open already.
    """
    counts = list(outer)
    for dim in shape:
        is_array = items.kinds == ARRAY
        wrong = ~is_array
        if dim is not None:
            wrong[is_array] = items.take(is_array).counts() != dim
        if wrong.any():
            index = cell = int(np.argmax(wrong))
            for of_axis in reversed(counts):
                cell = _cell_at(_bounds(of_axis), cell)
            raise _misfit(feature, items, index, rows[cell])
        items, of_axis = items.open()
        counts.append(of_axis)
    return items, counts


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
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
            edges = _bounds(of_axis)[edges]
        return [*found, np.diff(edges) * self.width]


def _open_ragged(feature: Feature, cells: Items, rows: Ints) -> _Opened:
    """The items of cells that are nested arrays, or `{"values", "row_splits"}`."""
    try:
        return _open_groups(feature, cells, rows)
    except InputError as error:
        # A cell before it may be wrong as well, by a rule that is looked at later.
        before = int(np.searchsorted(rows, error.location.row or 0))
        if before:
            _open_ragged(feature, cells.take(slice(before)), rows[:before])
        raise


def _open_groups(feature: Feature, cells: Items, rows: Ints) -> _Opened:
    """As `_open_ragged`; raises for any cell that is wrong."""
    is_object = cells.kinds == OBJECT
    if not is_object.any():
        return _open_arrays(feature, cells, rows)
    has_arrays = _has_arrays_in_values(cells, is_object) if feature.inner_shape else ~is_object
    found: list[_Opened] = []
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


def _merge(groups: list[_Opened], order: Ints) -> _Opened:
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
    return _Opened(Items(tape, kinds[of_items], words[of_items]), counts, width)


def _places_of(lengths: Ints, order: Ints) -> Ints:
    """Where the elements of stretches of these lengths lie, the stretches taken in another order."""
    begins, lengths = _bounds(lengths)[:-1][order], lengths[order]
    shifts = begins - _bounds(lengths)[:-1]
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


def _open_arrays(feature: Feature, cells: Items, rows: Ints) -> _Opened:
    items, counts = _open_nested(feature, cells, feature.shape, rows)
    return _Opened(items, counts[: feature.num_partitions + 1], num_elements(feature.inner_shape))


def _open_objects(feature: Feature, cells: Items, rows: Ints, *, is_nested: bool) -> _Opened:
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
                index = _cell_at(_bounds(outer), index)
            raise _misplaced(feature, f"an array of {int(of_axis[wrong])}", int(rows[index]))
    if is_nested:
        items, _ = _open_nested(feature, items, feature.inner_shape, rows, tuple(counts))
    return _Opened(items, counts, width)


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
    bounds = _bounds(sizes)
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


def _sparse(feature: Feature, cells: Items, reading: Reading, rows: Ints) -> Column:
    try:
        items, counts, coordinates = _read_sparse(feature, cells)
    except ItemError as error:
        raise cell_error(error, feature.name, rows[error.index]) from None
    bounds = _bounds(counts)
    try:
        values = convert(items, feature.dtype, reading)
    except ItemError as error:
        raise cell_error(error, feature.name, rows[_cell_at(bounds, error.index)]) from None
    return Column(values, (bounds,), coordinates=coordinates.reshape(-1, len(feature.shape)))


def _read_sparse(feature: Feature, cells: Items) -> tuple[Items, Ints, Ints]:
    """The values of all cells, how many each has, and their coordinates.

    Raises:
        ItemError: the first cell that is wrong.
    """
    try:
        return _read_components(feature, cells)
    except ItemError as error:
        # One before it may be wrong as well, by a rule that is looked at later.
        _read_sparse(feature, cells.take(slice(error.index)))
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
