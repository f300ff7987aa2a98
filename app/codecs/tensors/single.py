"""Forms that hold exactly one tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UnprocessableInput
from ..array import Array


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
        UnprocessableInput: as `only_array`.
    """
    if count != 1:
        raise UnprocessableInput(
            f"The form {form!r} holds exactly one tensor, and there are {count}. "
            f"Ask for 'tfrecord' or 'npz', which hold any number.",
            code="several_tensors" if count else "no_tensors",
        )
