"""Conversions of tensors as models of the Open Inference Protocol, for clients of Triton and KServe.

A model makes one output of each input, under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ...codecs.array import Array, position_name
from ...codecs.arrays import oip
from ...codecs.columns import Strings
from ...codecs.forms import TENSOR_CODECS
from ...codecs.options import TensorDecodeOptions, TensorEncodeOptions
from ...domain.dtypes import BYTES
from ...domain.immutable import immutable
from ...domain.tensor import check_distinct
from ...errors import MalformedInput, NotFound, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, MemoryStream
from ...runtime.workspace import Workspace
from ...tracing import stage
from .whole_bodies import whole_body

#: Members of a request beside its inputs.
_ID: Final = "id"
_OUTPUTS: Final = "outputs"
_PARAMETERS: Final = "parameters"


@immutable()
class Model:
    """A conversion under the name that clients give.

    Attributes:
        datatype_in, datatype_out: None is any that the protocol has.
        convert: makes the output of an input.
    """

    name: str
    datatype_in: str | None
    datatype_out: str | None
    convert: Callable[[Array, Budget], Array]


@immutable(eq=False)
class Inferred:
    """A response: JSON, and behind it the tensors that were asked for as bytes.

    Attributes:
        json_bytes: the length of the JSON; None where there is nothing else.
    """

    chunks: Iterator[Buffer]
    json_bytes: int | None


def find_model(name: str) -> Model:
    """The model of that name.

    Raises:
        NotFound: there is none (`model_not_found`).
    """
    if name not in MODELS:
        raise NotFound(
            f"There is no model {name[:64]!r}. The models are {', '.join(MODELS)}.", code="model_not_found"
        )
    return MODELS[name]


def infer(model: Model, source: ByteStream, json_bytes: int | None, workspace: Workspace) -> Inferred:
    """The response to a request.

    Args:
        source: JSON, and behind it the tensors that are sent as bytes.
        json_bytes: the length of the JSON; None where there is nothing else.
        workspace: closed by the caller once the response is drawn or given up.

    Raises:
        InputError: the request cannot be read, asks for what there is not, or an input cannot be converted.
        StorageFull: there is no room to spool it.
    """
    budget = workspace.budget
    body = whole_body(source, workspace)
    options = TensorDecodeOptions(json_bytes=body.size if json_bytes is None else json_bytes)
    with stage("decode", "oip", budget.received) as decoding:
        members = frozenset({_ID, _OUTPUTS, _PARAMETERS})
        request = oip.read_body(body, options, budget, members=members)
        inputs = [
            replace(array.read(budget), name=position_name(array, "input_", index))
            for index, array in enumerate(request.arrays)
        ]
        decoding.count()
    names = [str(array.name) for array in inputs]
    check_distinct(names)
    as_bytes = _read_outputs(request.members, names)
    outputs = {array.name: model.convert(array, budget) for array in inputs if array.name in as_bytes}
    head = {"model_name": model.name, "model_version": VERSION, **_read_id(request.members)}
    with stage("encode", "oip") as encoding:
        chunks = oip.write_response(
            head, [(outputs[name], is_binary) for name, is_binary in as_bytes.items()], budget
        )
    return Inferred(
        encoding.drawn(chunks, lambda chunk: (0, memoryview(chunk).nbytes)),
        chunks.json_bytes if any(as_bytes.values()) else None,
    )


def _read_id(members: Mapping[str, Any]) -> Mapping[str, str]:
    if _ID in members and not isinstance(members[_ID], str):
        raise _malformed('"id" is no string', _ID)
    return {_ID: members[_ID]} if _ID in members else {}


def _read_outputs(members: Mapping[str, Any], names: list[str]) -> dict[str, bool]:
    """The outputs that are asked for, in their order, and whether they go as bytes.

    Raises:
        MalformedInput: what is asked for cannot be read, or is not there (`invalid_outputs`).
    """
    default = _flag(members, "binary_data_output", _PARAMETERS)
    wanted = members.get(_OUTPUTS) or []
    if not isinstance(wanted, list):
        raise _malformed('"outputs" is no list', _OUTPUTS)
    found: dict[str, bool] = {}
    for index, output in enumerate(wanted):
        pointer = f"{_OUTPUTS}/{index}"
        name = output.get("name") if isinstance(output, dict) else None
        if name not in names or name in found:
            raise _malformed(
                f"each output has the name of an input ({', '.join(names)[:200]}), once", pointer
            )
        found[name] = _flag(output, "binary_data", pointer, default=default)
        if unknown := (output.get(_PARAMETERS) or {}).keys() - {"binary_data"}:
            raise _malformed(f"the parameter {min(unknown)[:64]!r} is not known here", pointer)
    return found or dict.fromkeys(names, default)


def _flag(members: Mapping[str, Any], name: str, pointer: str, *, default: bool = False) -> bool:
    parameters = members.get(_PARAMETERS) or {}
    value = parameters.get(name, default) if isinstance(parameters, dict) else None
    if not isinstance(value, bool):
        raise _malformed(f'"parameters" is no object, or its {name!r} is neither true nor false', pointer)
    return value


def _malformed(what: str, pointer: str) -> MalformedInput:
    return MalformedInput(
        f"The response that is asked for cannot be had: {what}.",
        code="invalid_outputs",
        pointer=f"/{pointer}",
    )


def _serialize(array: Array, budget: Budget) -> Array:
    """`[1]` of BYTES: what `tf.io.serialize_tensor` gives."""
    message = bytearray()
    for piece in TENSOR_CODECS["tensorproto"].encode([array], TensorEncodeOptions(), budget):
        budget.charge(memoryview(piece).nbytes, "The serialized tensor")
        message += piece
    offsets = np.array([0, len(message)], np.int64)
    return Array(BYTES, (1,), Strings(np.frombuffer(message, np.uint8), offsets), array.name)


def _parse(array: Array, budget: Budget) -> Array:
    """What `tf.io.parse_tensor` gives.

    Raises:
        UnprocessableInput: not one element of BYTES (`not_one_message`).
        InputError: it is no TensorProto.
    """
    if not array.dtype.is_string or len(array.strings) != 1:
        raise UnprocessableInput(
            f"Input {str(array.name)[:64]!r} is not one element of BYTES, which holds a TensorProto. Send "
            "each message as an input of its own.",
            code="not_one_message",
            feature=array.name,
        )
    [message] = array.strings.unpack()
    [parsed] = TENSOR_CODECS["tensorproto"].decode(MemoryStream(message), TensorDecodeOptions(), budget)
    assert isinstance(parsed, Array)  # noqa: S101  # no kind is declared
    return replace(parsed.read(budget), name=array.name)


#: Of every model: what a conversion gives does not change.
VERSION: Final = "1"
#: By their names, which are those of TensorFlow's functions.
MODELS: Final[Mapping[str, Model]] = {
    model.name: model
    for model in (
        Model("serialize_tensor", None, "BYTES", _serialize),
        Model("parse_tensor", "BYTES", None, _parse),
    )
}
