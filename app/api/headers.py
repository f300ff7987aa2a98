"""Headers that answers carry beside their bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..domain.tensor import NamedTensor

__all__ = ["VARY", "tensor_headers"]

VARY: Mapping[str, str] = {"Vary": "Accept"}


def tensor_headers(tensors: Sequence[NamedTensor], byte_order: str) -> dict[str, str]:
    """dtype, shape (comma-separated, empty for a scalar) and byte order of a raw tensor."""
    (tensor,) = (item.tensor for item in tensors)
    return {
        "Tensor-Dtype": tensor.dtype.name,
        "Tensor-Shape": ",".join(map(str, tensor.shape)),
        "Tensor-Byte-Order": byte_order,
    }
