"""Tensors from JSON: objects, bare arrays, and the bodies of TensorFlow Serving and Open Inference.

Sparse and ragged tensors have the members that `tensor_kinds.py` reads.
A complex number is `[real, imaginary]`, below the axes of its tensor:
`{"dtype": "complex64", "shape": [2], "data": [[1.0, 0.0], [0.0, -1.0]]}`.
"""

from __future__ import annotations

from ...runtime.budget import Budget
from ...runtime.streams import WholeBody
from ..array import AnyTensor, RaggedTensor
from ..content import STRING_OVERHEAD
from ..options import TensorDecodeOptions
from .tensor_body import read_tensors
from .tensor_plain import read_plain
from .text import parse_json


def read(body: WholeBody, options: TensorDecodeOptions, budget: Budget) -> list[AnyTensor]:
    """The tensors of the body.

    Raises:
        InputError: as `parse_json` and `read_tensors`.
    """
    text = body.view()
    tensors = read_plain(text, options, budget)
    if tensors is None:
        document = parse_json(text, budget, bare_nonfinite=options.nonfinite == "bare")
        tensors = read_tensors(document.value, options, budget.limits)
        # The estimate covered the arrays; from here on they alone are held.
        budget.release(document.num_bytes)
    budget.charge(sum(map(_held_bytes, tensors)), "The tensors")
    return tensors


def _held_bytes(tensor: AnyTensor) -> int:
    values = tensor.values.values if isinstance(tensor, RaggedTensor) else tensor.values
    overhead = STRING_OVERHEAD * len(values) if tensor.dtype.is_string else 0
    return tensor.num_bytes + overhead
