"""Forms that hold exactly one tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.tensor import NamedTensor, Tensor
from ...errors import UnprocessableInput

__all__ = ["only_tensor"]


def only_tensor(tensors: Sequence[NamedTensor], form: str) -> Tensor:
    """The one tensor that is to be encoded.

    Raises:
        UnprocessableInput: there is none (`no_tensors`), or more than one (`several_tensors`).
    """
    if len(tensors) == 1:
        return tensors[0].tensor
    raise UnprocessableInput(
        f"The form {form!r} holds exactly one tensor, and there are {len(tensors)}. "
        f"Ask for 'tfrecord' or 'npz', which hold any number.",
        code="several_tensors" if tensors else "no_tensors",
    )
