"""Tensors as base64 in JSON: the TensorProto of each, in the form that TensorFlow Serving takes bytes in.

One is `{"b64": ...}`, several are `{"instances": [{"b64": ...}, ...]}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...errors import InputError, LimitExceeded
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, WholeBody
from ..array import Array
from ..json.b64 import decode_b64
from ..json.text import parse_json
from ..json.texts import gather
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensors.declared import check_declared
from .b64 import message_texts, read_messages
from .tensor_proto.read import parse_tensor_proto
from .tensor_proto.write import Message


def read(body: WholeBody, options: TensorDecodeOptions, budget: Budget) -> list[Array]:
    """The tensors of the messages, checked against what was declared here, where `pointer` is known.

    Raises:
        AmbiguousInput: neither of the two forms.
        MalformedInput: `invalid_base64`; `pointer` says where.
        InputError: not JSON, no base64, no TensorProto, or another dtype or shape than declared.
    """
    document = parse_json(body.view(), budget)
    messages = read_messages(document.value)
    if len(messages) > budget.limits.max_members:
        raise LimitExceeded(
            f"{len(messages)} tensors; at most {budget.limits.max_members} are allowed.",
            code="too_many_tensors",
        )
    arrays = [_read(pointer, message, options, budget) for pointer, message in messages]
    budget.release(document.num_bytes)
    return arrays


def _read(pointer: str, message: object, options: TensorDecodeOptions, budget: Budget) -> Array:
    try:
        data = decode_b64(message)
        budget.charge(len(data), "A message")  # which the array may keep alive
        array = parse_tensor_proto(data, budget)
        check_declared(array, options)
    except InputError as error:
        error.location = replace(error.location, pointer=pointer, offset=None)
        raise
    return array


def write(messages: Iterable[Message], options: TensorEncodeOptions) -> Iterator[Buffer]:
    """The messages, in pieces; elements that are arriving are passed on as they come."""
    return gather(message_texts(messages, options.b64))
