"""What a form makes of sparse and ragged tensors, for all forms but JSON, which has members of its own.

| form                    | a sparse tensor                                 | a ragged one             |
|-------------------------|-------------------------------------------------|--------------------------|
| `tensorproto`           | the string tensor of `tf.io.serialize_sparse`   | refused                  |
| `tfrecord`, `b64`       | the same, as one of the messages                | values, then row splits  |
| other forms of several  | its components, by name (`components.py`)       | its components, by name  |
| `npy`, `raw`            | refused                                         | refused                  |

Going in, `kind=sparse` and `kind=ragged` say that the tensors of a body are such components; a string
tensor is then what TensorFlow serialized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Literal, TypeVar

from ...domain.tensor import AnyTensor, NamedAny, NamedTensor, RaggedTensor, SparseTensor, Tensor
from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, WholeBody
from ..messages.sparse_proto import (
    is_serialized_sparse,
    parse_sparse,
    serialize_many_sparse,
    serialize_sparse,
)
from ..messages.tensor_proto_write import Message, make_message
from ..options import TensorDecodeOptions, TensorEncodeOptions
from .components import assemble, components_of
from .declared import check_declared

DenseEncoder = Callable[[Sequence[NamedTensor], TensorEncodeOptions], Iterator[Buffer]]
TensorEncoder = Callable[[Sequence[NamedAny], TensorEncodeOptions], Iterator[Buffer]]

SourceT = TypeVar("SourceT", ByteStream, WholeBody)


def assembled(
    decode: Callable[[SourceT, TensorDecodeOptions, Budget], list[NamedTensor]],
) -> Callable[[SourceT, TensorDecodeOptions, Budget], Sequence[NamedAny]]:
    """A decoder of dense tensors that puts components together where `options.kind` says so."""

    @wraps(decode)
    def decode_any(source: SourceT, options: TensorDecodeOptions, budget: Budget) -> Sequence[NamedAny]:
        tensors = decode(source, options, budget)
        if options.kind not in ("sparse", "ragged"):
            return tensors
        return assemble_declared(tensors, options.kind, options, budget)

    return decode_any


def assemble_declared(
    tensors: Sequence[NamedTensor],
    kind: Literal["sparse", "ragged"],
    options: TensorDecodeOptions,
    budget: Budget,
) -> list[NamedAny]:
    """The tensors of `kind` whose components these are, or which `tf.io.serialize_sparse` wrote.

    Raises:
        InputError: as `assemble`, `parse_sparse` and `check_declared`.
    """
    if kind == "sparse" and any(is_serialized_sparse(named.tensor) for named in tensors[:1]):
        found = [NamedAny(_parsed(named.tensor, budget), named.name) for named in tensors]
    else:
        found = assemble(tensors, kind)
    for named in found:
        check_declared(named, options)
    return found


def _parsed(tensor: Tensor, budget: Budget) -> SparseTensor:
    if not is_serialized_sparse(tensor):
        raise UnprocessableInput(
            f"A tensor of {tensor.dtype} and shape {list(tensor.shape)[:16]} stands beside what "
            "tf.io.serialize_sparse gives, a string tensor of shape [3].",
            code="missing_component",
        )
    return parse_sparse(tensor, budget)


def in_components(encode: DenseEncoder) -> TensorEncoder:
    """An encoder of dense tensors that takes sparse and ragged ones as their components."""

    @wraps(encode)
    def encode_any(tensors: Sequence[NamedAny], options: TensorEncodeOptions) -> Iterator[Buffer]:
        if sum(named.name is None and not isinstance(named.tensor, Tensor) for named in tensors) > 1:
            raise UnprocessableInput(
                "More than one sparse or ragged tensor has no name, so that their components would be called "
                "alike. Give each tensor a name, or ask for 'json' or 'tfrecord'.",
                code="duplicate_name",
            )
        return encode([part for named in tensors for part in components_of(named)], options)

    return encode_any


def in_messages(
    encode: Callable[[Sequence[Message], TensorEncodeOptions], Iterator[Buffer]],
) -> TensorEncoder:
    """An encoder of TensorProtos: a sparse tensor as TensorFlow serializes it, a ragged one in parts.

    Names are not kept.
    """

    @wraps(encode)
    def encode_any(tensors: Sequence[NamedAny], options: TensorEncodeOptions) -> Iterator[Buffer]:
        return encode([message for named in tensors for message in _messages(named, options)], options)

    return encode_any


def _messages(named: NamedAny, options: TensorEncodeOptions) -> Iterator[Message]:
    if not isinstance(named.tensor, SparseTensor):
        yield from (make_message(part.tensor) for part in components_of(named))
    elif options.sparse == "many":
        yield serialize_many_sparse(named.tensor)
    else:
        yield serialize_sparse(named.tensor)


def kind_of(tensor: AnyTensor) -> str:
    """What errors call it."""
    if isinstance(tensor, SparseTensor):
        return "sparse"
    return "ragged" if isinstance(tensor, RaggedTensor) else "dense"
