"""Tensors of every kind in a form: what the form table has of each.

| form                    | a sparse tensor                                 | a ragged one             |
|-------------------------|-------------------------------------------------|--------------------------|
| `tensorproto`           | the string tensor of `tf.io.serialize_sparse`   | refused                  |
| `tfrecord`, `b64`       | the same, as one of the messages                | values, then row splits  |
| `json`                  | an object with members of its own               | the same                 |
| other forms of several  | its components, by name (`components.py`)       | its components, by name  |
| `npy`, `raw`            | refused                                         | refused                  |

Going in, `kind=sparse` and `kind=ragged` say that the arrays of a body are such components; a string tensor
is then what TensorFlow serialized. Dense tensors may still be arriving; the others are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from ...domain.dtypes import STRING
from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer
from ..array import AnyTensor, Array, RaggedTensor, SparseTensor
from ..messages.tensor_proto.sparse import (
    is_serialized_sparse,
    parse_sparse,
    serialize_many_sparse,
    serialize_sparse,
)
from ..messages.tensor_proto.write import Message, make_message
from ..options import TensorDecodeOptions, TensorEncodeOptions
from .components import assemble, components_of
from .declared import check_declared, round_array

#: A sequence where all tensors are known at once; otherwise each is drawn to its end before the next one.
Tensors = Sequence[AnyTensor] | Iterator[AnyTensor]
TensorReader = Callable[[Any, TensorDecodeOptions, Budget], Tensors]
TensorWriter = Callable[[Iterable[AnyTensor], TensorEncodeOptions, Budget], Iterator[Buffer]]

#: The arrays of a body, which is a `ByteStream`, or a `WholeBody` where the form needs one. A sequence where
#: all are known at once: their contents are drawn in its order, and of a whole body in any order. Otherwise
#: an iterator: each array is drawn to its end before the next one is asked for. What is wrong with a content
#: is raised as it is drawn, anything else as its array is given.
ArrayReader = Callable[[Any, TensorDecodeOptions, Budget], Iterable[Array]]
#: The bytes of arrays. What the form cannot hold is refused before the first byte. Arrays that are arriving
#: are written as they come, if the form can; otherwise they are read into memory.
ArrayWriter = Callable[[Sequence[Array], TensorEncodeOptions, Budget], Iterator[Buffer]]
#: The bytes of messages, which may be made as they are drawn.
MessageWriter = Callable[[Iterable[Message], TensorEncodeOptions], Iterator[Buffer]]


def read_arrays(read: ArrayReader, *, dense_only: str | None = None) -> TensorReader:
    """A reader of tensors in a form that has the arrays' reader `read`.

    Where `options.kind` says so, the arrays are the components of sparse or ragged tensors.

    Args:
        dense_only: the name of a form of one dense tensor, which refuses other kinds.
    """

    def read_tensors(body: Any, options: TensorDecodeOptions, budget: Budget) -> Tensors:
        if options.kind in ("sparse", "ragged"):
            if dense_only is not None:
                raise _refuse_kind(dense_only, options.kind)
            arrays = read(body, replace(options, held=True), budget)
            parts = [_as_string(array).read(budget) for array in arrays]
            return _assemble(parts, options.kind, options, budget)
        arrays = read(body, options, budget)
        declared = (_as_declared(array, options) for array in arrays)
        return list(declared) if isinstance(arrays, Sequence) else declared

    return read_tensors


def write_arrays(write: ArrayWriter, *, dense_only: str | None = None) -> TensorWriter:
    """A writer of tensors in a form that has the arrays' writer `write`; other kinds as their components."""

    def write_tensors(
        tensors: Iterable[AnyTensor], options: TensorEncodeOptions, budget: Budget
    ) -> Iterator[Buffer]:
        arrays: list[Array] = []
        nameless = 0
        for tensor in tensors:
            if not isinstance(tensor, Array):
                if dense_only is not None:
                    raise _refuse_kind(dense_only, "sparse" if isinstance(tensor, SparseTensor) else "ragged")
                nameless += tensor.name is None
            arrays += components_of(tensor)
        if nameless > 1:
            raise UnprocessableInput(
                "More than one sparse or ragged tensor has no name, so that their components would be called "
                "alike. Give each tensor a name, or ask for 'json' or 'tfrecord'.",
                code="duplicate_name",
            )
        return write(arrays, options, budget)

    return write_tensors


def write_messages(write: MessageWriter) -> TensorWriter:
    """A writer of tensors in a form of TensorProtos; names are not kept.

    A sparse tensor is one message, as TensorFlow serializes it, a ragged one a message for each component.
    """

    def write_tensors(
        tensors: Iterable[AnyTensor], options: TensorEncodeOptions, _budget: Budget
    ) -> Iterator[Buffer]:
        messages = (message for tensor in tensors for message in _messages(tensor, options))
        # All that are known are made now: what cannot be written is refused before the first byte.
        return write(list(messages) if isinstance(tensors, Sequence) else messages, options)

    return write_tensors


def _messages(tensor: AnyTensor, options: TensorEncodeOptions) -> Iterator[Message]:
    if not isinstance(tensor, SparseTensor):
        yield from map(make_message, components_of(tensor))
    elif options.sparse == "many":
        yield serialize_many_sparse(tensor)
    else:
        yield serialize_sparse(tensor)


def _as_declared(array: Array, options: TensorDecodeOptions) -> Array:
    array = _as_string(array)
    check_declared(array, options)
    return round_array(array, options)


def _as_string(array: Array) -> Array:
    """The array; text and bytes are `string`, as TensorFlow knows no other."""
    return replace(array, dtype=STRING) if array.dtype.name in ("text", "bytes") else array


def _assemble(
    arrays: Sequence[Array],
    kind: Literal["sparse", "ragged"],
    options: TensorDecodeOptions,
    budget: Budget,
) -> list[AnyTensor]:
    """The tensors of `kind` whose components these are, or which `tf.io.serialize_sparse` wrote.

    Raises:
        InputError: components that make no such tensor, or one of another dtype or shape than declared.
    """
    tensors: list[AnyTensor]
    if kind == "sparse" and any(map(is_serialized_sparse, arrays[:1])):
        tensors = [_parse_serialized(array, budget) for array in arrays]
    else:
        tensors = assemble(arrays, kind)
    for tensor in tensors:
        check_declared(tensor, options)
    return tensors


def _parse_serialized(array: Array, budget: Budget) -> SparseTensor:
    if not is_serialized_sparse(array):
        raise UnprocessableInput(
            f"A tensor of {array.dtype} and shape {list(array.shape)[:16]} stands beside what "
            "tf.io.serialize_sparse gives, a string tensor of shape [3].",
            code="missing_component",
        )
    return parse_sparse(array, budget)


def _refuse_kind(form: str, kind: str) -> UnprocessableInput:
    return UnprocessableInput(
        f"The format {form!r} holds one dense tensor, not a {kind} one. Use 'json', 'tfrecord' or a format "
        "of several named tensors such as 'npz'.",
        code="unsupported_kind",
    )


def num_messages(tensors: Sequence[AnyTensor]) -> int:
    """How many TensorProtos these tensors become."""
    return sum(1 + len(tensor.row_splits) if isinstance(tensor, RaggedTensor) else 1 for tensor in tensors)
