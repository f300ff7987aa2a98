"""Tensors as base64 in JSON: the TensorProto of each, in the form that TensorFlow Serving takes bytes in.

One is `{"b64": ...}`, several are `{"instances": [{"b64": ...}, ...]}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...domain.limits import Budget
from ...domain.streams import Buffer, ByteStream
from ...domain.tensor import NamedTensor
from ...errors import AmbiguousInput, InputError, LimitExceeded
from ..json_convert import decode_b64
from ..json_forms import IGNORED_MEMBERS
from ..json_out import b64_text, gather
from ..json_text import read_json
from ..options import TensorDecodeOptions, TensorEncodeOptions
from .declared import check_declared
from .tensor_proto import parse_tensor_proto, serialize_tensor_proto

__all__ = ["decode", "encode"]


def decode(source: ByteStream, options: TensorDecodeOptions, budget: Budget) -> list[NamedTensor]:
    """The tensors of the messages.

    Raises:
        AmbiguousInput: neither of the two forms.
        MalformedInput: `invalid_base64`; `pointer` says where.
        InputError: as `parse_json` and `parse_tensor_proto`; another dtype or shape than declared.
    """
    document = read_json(source, budget)
    messages = _messages(document.value)
    if len(messages) > budget.limits.max_members:
        raise LimitExceeded(
            f"{len(messages)} tensors; at most {budget.limits.max_members} are allowed.",
            code="too_many_tensors",
        )
    tensors = [_read(pointer, message, options, budget) for pointer, message in messages]
    budget.release(document.num_bytes)
    return tensors


def _messages(body: Any) -> list[tuple[str, object]]:
    """The pointer to each message, and what stands there."""
    if isinstance(body, dict):
        if body.keys() == {"b64"}:
            return [("/b64", body["b64"])]
        instances = body.get("instances")
        if body.keys() - IGNORED_MEMBERS == {"instances"} and isinstance(instances, list):
            cells = [item for item in instances if isinstance(item, dict) and item.keys() == {"b64"}]
            if len(cells) == len(instances):
                return [(f"/instances/{index}/b64", cell["b64"]) for index, cell in enumerate(cells)]
    raise AmbiguousInput(
        'Serialized tensors are sent as {"b64": "..."} or {"instances": [{"b64": "..."}, ...]}.'
    )


def _read(pointer: str, message: object, options: TensorDecodeOptions, budget: Budget) -> NamedTensor:
    try:
        data = decode_b64(message)
        budget.charge(len(data), "A message")  # which the tensor may keep alive
        named = NamedTensor(parse_tensor_proto(data, budget))
        check_declared(named, options)
    except InputError as error:
        error.location = replace(error.location, pointer=pointer, offset=None)
        raise
    return named


def encode(tensors: Sequence[NamedTensor], options: TensorEncodeOptions) -> Iterator[Buffer]:  # noqa: ARG001 (one signature for all)
    """The messages, in pieces; names are not kept.

    Raises:
        UnprocessableInput: a tensor too large for a TensorProto.
    """
    return gather(_texts(tensors))


def _texts(tensors: Sequence[NamedTensor]) -> Iterator[str]:
    several = len(tensors) != 1
    yield '{"instances":[' if several else ""
    for index, named in enumerate(tensors):
        yield ',{"b64":"' if index else '{"b64":"'
        yield from b64_text(serialize_tensor_proto(named.tensor))
        yield '"}'
    yield "]}" if several else ""
