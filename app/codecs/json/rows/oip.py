"""Records as the `inputs` of an Open Inference request: one column each, the first axis counts rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ....domain.dtypes import (
    BYTES,
    TEXT,
    WITHIN_FLOAT32,
)
from ....domain.feature import Feature, default_encoding
from ....domain.schema import Schema, check_feature_names
from ....domain.tensor import num_elements
from ....errors import (
    MalformedInput,
    SchemaConflict,
    UnprocessableInput,
)
from ....runtime.budget import Budget
from ...kernels.json.tape import OBJECT
from ..forms import (
    DataForm,
    fit_shape,
    member_pointer,
    read_data_form,
)
from ..items import flatten
from ..tape import (
    Items,
    members_of,
    nest,
)
from ..values import ItemError

#: A nested array that a declared shape makes, with what its column takes.
_ARRAY_BYTES: Final = 72
_ENTRY_BYTES: Final = 18


def read_oip_columns(
    inputs: Items, declared: Schema | None, budget: Budget
) -> tuple[dict[str, Items], Schema]:
    """The cells of each input, and the schema: the declared one, or that of the datatypes.

    BYTES are text where all elements came as strings.

    What nested arrays take that have to be made is charged to `budget`.

    Raises:
        MalformedInput: an input that is not of the form, or has no name.
        LimitExceeded: a shape of more arrays than the budget allows.
        UnprocessableInput: two inputs of one name, data that does not fit its shape, no first axis, or
            another datatype than the schema declares.
    """
    columns: dict[str, Items] = {}
    features: list[Feature] = []
    for index, item in enumerate(inputs.each()):
        pointer = f"/inputs/{index}"
        form = read_data_form(members_of(item, 0), pointer)
        if form.name is None or form.dtype is None:
            raise MalformedInput(
                'An input needs a "name" and a "datatype".', code="invalid_tensor", pointer=pointer
            )
        if form.name in columns:
            raise UnprocessableInput(
                f"Two inputs are called {form.name!r}.", code="duplicate_name", pointer=pointer
            )
        columns[form.name], feature = _read_input(form.name, form, pointer, budget)
        features.append(feature)
    check_feature_names(list(columns), budget.limits)
    if declared is None:
        return columns, Schema(tuple(features))
    for feature in features:
        _check_dtype(feature, declared)
    # The datatype of an input is a declaration: its values are read as that.
    narrow = {feature.name for feature in features if feature.dtype.name in WITHIN_FLOAT32}
    fitted = (replace(feature, inferred=False) if feature.name in narrow else feature for feature in declared)
    return columns, Schema(tuple(fitted), declared.message)


def _read_input(name: str, form: DataForm, pointer: str, budget: Budget) -> tuple[Items, Feature]:
    pointer = member_pointer(pointer, "data")
    try:
        items, found = flatten(form.data)
    except ItemError as error:
        raise UnprocessableInput(error.detail, code=error.code, pointer=pointer, feature=name) from None
    shape = fit_shape(found, form.shape, pointer)
    if not shape:
        raise UnprocessableInput(
            f"Input {name!r} is a scalar; the first axis of every input counts the rows.",
            code="no_rows",
            pointer=pointer,
            feature=name,
        )
    dtype = form.dtype
    if dtype is None or dtype.is_string:
        dtype = BYTES if items.has(OBJECT) else TEXT
    row_shape = shape[1:]
    feature = Feature(name, dtype, row_shape, encoding=default_encoding(dtype, row_shape))
    if found == shape:
        return form.data.children(0), feature
    # A shape with a 0 in it declares as many empty arrays as it likes.
    num_lists = sum(num_elements(shape[:axis]) for axis in range(1, len(shape)))
    num_entries = num_lists + len(items) * (len(shape) - 1)
    budget.charge(_ARRAY_BYTES * num_lists + _ENTRY_BYTES * num_entries, f"Input {name[:64]!r}, nested,")
    return nest(items, shape), feature


def _check_dtype(feature: Feature, declared: Schema) -> None:
    expected = declared.by_name.get(feature.name)
    if expected is None or feature.dtype in (expected.dtype, expected.as_read.dtype):
        return
    if not (expected.dtype.is_string and feature.dtype.is_string):
        raise SchemaConflict(
            f"Input {feature.name!r} is {feature.dtype}, but the schema declares {expected.dtype}.",
            feature=feature.name,
        )
