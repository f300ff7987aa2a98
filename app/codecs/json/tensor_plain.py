"""The fast path for bodies that are one array of numbers, bare or as the member of an object.

It cuts the array out of the text and leaves it to a kernel; what remains, a few members, goes through
the general parser with `[]` in its place, and the body is read as ever. Where anything at all is
unusual or wrong, there is no answer, and the general path reads the whole text.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

import numpy as np

from ...domain.limits import KIB
from ...errors import InputError
from ...runtime.budget import Budget
from ..array import AnyTensor
from ..options import TensorDecodeOptions
from .numbers import NotPlain, read_number_array
from .tensor_body import read_tensors
from .text import parse_json

__all__ = ["read_plain"]

#: The array begins within so many bytes.
_HEAD_BYTES: Final = 4 * KIB
_BLANK: Final = b" \t\r\n"
_BLANKS: Final = rb"[ \t\r\n]*+"
_STRING: Final = rb'"[^"\\]*+"'
#: Numbers, words, strings, and flat arrays of numbers, such as a shape.
_VALUE: Final = rb'(?:"[^"\\]*+"|[-+.\w]++|\[[-+.\w, \t\r\n]*+\])'
_MEMBER: Final = _STRING + _BLANKS + rb":" + _BLANKS + _VALUE + _BLANKS + rb"," + _BLANKS
#: All that stands before the array, and the key that it has.
_HEAD: Final = re.compile(
    _BLANKS
    + rb"(?:\{" + _BLANKS
    + rb'(?:(?!"(?:data|instances|inputs)")' + _MEMBER + rb")*+"
    + rb'"(data|instances|inputs)"' + _BLANKS + rb":" + _BLANKS
    + rb")?(?=\[)"
)  # fmt: skip


def read_plain(body: memoryview, options: TensorDecodeOptions, budget: Budget) -> list[AnyTensor] | None:
    """The tensors of the body, exactly as the general path reads them, or None where that has to look.

    Nothing stays charged to `budget`.
    """
    if options.kind not in (None, "dense"):
        return None
    before = budget.remaining
    # An error may be an error of the text, or of the budget: the general path finds it, and says where.
    with suppress(NotPlain, InputError):
        try:
            return _read(body, options, budget)
        finally:
            budget.release(before - budget.remaining)
    return None


def _read(body: memoryview, options: TensorDecodeOptions, budget: Budget) -> list[AnyTensor]:
    head = _HEAD.match(bytes(body[:_HEAD_BYTES]))
    if head is None:
        raise NotPlain
    numbers = read_number_array(np.frombuffer(body, np.uint8), head.end(), budget)
    budget.charge(len(body) - numbers.end, "The JSON body")
    tail = bytes(body[numbers.end :])
    if head[1] is None and not tail.strip(_BLANK):
        return read_tensors(numbers, options, budget.limits)
    document = parse_json(head[0] + b"[]" + tail, budget, bare_nonfinite=options.nonfinite == "bare")
    if head[1] is None:
        return read_tensors(numbers, options, budget.limits)
    return read_tensors(document.value | {head[1].decode(): numbers}, options, budget.limits)
