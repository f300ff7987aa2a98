"""Forms that hold exactly one tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.tensor import NamedTensor, Tensor
from ...errors import UnprocessableInput
from ..tensor_stream import NamedStream, TensorStream

__all__ = ["check_single", "only_stream", "only_tensor"]


def only_tensor(tensors: Sequence[NamedTensor], form: str) -> Tensor:
    """The one tensor that is to be encoded.

    Raises:
        UnprocessableInput: there is none (`no_tensors`), or more than one (`several_tensors`).
    """
    check_single(len(tensors), form)
    return tensors[0].tensor


def only_stream(tensors: Sequence[NamedStream], form: str) -> TensorStream:
    """As `only_tensor`, of tensors that are arriving."""
    check_single(len(tensors), form)
    return tensors[0].tensor


def check_single(count: int, form: str) -> None:
    """Refuse another number of tensors than one.

    Raises:
        UnprocessableInput: as `only_tensor`.
    """
    if count != 1:
        raise UnprocessableInput(
            f"The form {form!r} holds exactly one tensor, and there are {count}. "
            f"Ask for 'tfrecord' or 'npz', which hold any number.",
            code="several_tensors" if count else "no_tensors",
        )
