"""Tensors of every kind in a form: what the form table has of each.

| form                    | a sparse tensor                                 | a ragged one             |
|-------------------------|-------------------------------------------------|--------------------------|
| `tensorproto`           | the string tensor of `tf.io.serialize_sparse`   | refused                  |
| `tfrecord`, `b64`       | the same, as one of the messages                | values, then row splits  |
| other forms of several  | its components, by name (`components.py`)       | its components, by name  |
| `npy`, `raw`            | refused                                         | refused                  |

A dense tensor is an `Array`, in memory or still arriving; sparse and ragged ones are in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...domain.dtypes import STRING
from ...domain.tensor import NamedAny, NamedTensor, RaggedTensor, Tensor
from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer
from ..array import Array
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensor_stream import NamedStream, TensorStream
from .arriving import Arrival, Arriving, ArrivingOneByOne
from .components import components_of
from .declared import check_declared, round_array
from .kinds import assemble_declared, kind_of

#: A dense tensor, or one of another kind.
AnyTensor = Array | NamedAny
#: A sequence where all tensors are known at once; otherwise each is drawn to its end before the next one.
Tensors = Sequence[AnyTensor] | Iterator[AnyTensor]
TensorReader = Callable[[Any, TensorDecodeOptions, Budget], Tensors]
TensorWriter = Callable[[Iterable[AnyTensor], TensorEncodeOptions, Budget], Iterator[Buffer]]

ArrayReader = Callable[[Any, TensorDecodeOptions, Budget], Iterable[Array]]
ArrayWriter = Callable[[Sequence[Array], TensorEncodeOptions, Budget], Iterator[Buffer]]


def read_arrays(read: ArrayReader, *, dense_only: str | None = None) -> TensorReader:
    """A reader of tensors in a form that has the arrays' reader `read`.

    Where `options.kind` says so, the arrays are the components of sparse or ragged tensors.

    Args:
        dense_only: the name of a form of one dense tensor, which refuses other kinds.
    """

    def read_tensors(body: Any, options: TensorDecodeOptions, budget: Budget) -> Tensors:
        if options.kind not in ("sparse", "ragged"):
            return [_as_declared(array, options) for array in read(body, options, budget)]
        if dense_only is not None:
            raise _refuse_kind(dense_only, options.kind)
        parts = [_held(array, budget) for array in read(body, options, budget)]
        return [_from_memory(named) for named in assemble_declared(parts, options.kind, options, budget)]

    return read_tensors


def write_arrays(write: ArrayWriter, *, dense_only: str | None = None) -> TensorWriter:
    """A writer of tensors in a form that has the arrays' writer `write`; other kinds as their components."""

    def write_tensors(
        tensors: Iterable[AnyTensor], options: TensorEncodeOptions, budget: Budget
    ) -> Iterator[Buffer]:
        arrays: list[Array] = []
        nameless = 0
        for tensor in tensors:
            if isinstance(tensor, Array):
                arrays.append(tensor)
                continue
            is_dense = isinstance(tensor.tensor, Tensor)
            if dense_only is not None and not is_dense:
                raise _refuse_kind(dense_only, kind_of(tensor.tensor))
            nameless += tensor.name is None and not is_dense
            arrays += map(_array, components_of(tensor))
        if nameless > 1:
            raise UnprocessableInput(
                "More than one sparse or ragged tensor has no name, so that their components would be called "
                "alike. Give each tensor a name, or ask for 'json' or 'tfrecord'.",
                code="duplicate_name",
            )
        return write(arrays, options, budget)

    return write_tensors


def _as_declared(array: Array, options: TensorDecodeOptions) -> Array:
    check_declared(array, options)
    return round_array(array, options)


def _refuse_kind(form: str, kind: str) -> UnprocessableInput:
    return UnprocessableInput(
        f"The form {form!r} holds one dense tensor, not a {kind} one. Use 'json', 'tfrecord' or a form of "
        "several named tensors such as 'npz'.",
        code="unsupported_kind",
    )


def num_messages(tensors: Sequence[AnyTensor]) -> int:
    """How many TensorProtos these tensors become."""
    return sum(
        1 + len(item.tensor.row_splits)
        if isinstance(item, NamedAny) and isinstance(item.tensor, RaggedTensor)
        else 1
        for item in tensors
    )


def in_memory(tensor: AnyTensor, budget: Budget) -> NamedAny:
    """The tensor, once all of it has arrived.

    Raises:
        InputError: as `Array.read`.
    """
    return _held(tensor, budget) if isinstance(tensor, Array) else tensor


def _held(array: Array, budget: Budget) -> NamedTensor:
    dtype = STRING if array.dtype.is_string else array.dtype
    return NamedTensor(Tensor(dtype, array.shape, array.read(budget).values), array.name)


def _from_memory(named: NamedAny) -> AnyTensor:
    tensor = named.tensor
    return (
        Array(tensor.dtype, tensor.shape, tensor.values, named.name) if isinstance(tensor, Tensor) else named
    )


def _array(named: NamedTensor) -> Array:
    return Array(named.tensor.dtype, named.tensor.shape, named.tensor.values, named.name)


# Forms whose codecs still have one function for tensors in memory, and one for tensors that are arriving.


def read_named(
    decode: Callable[[Any, TensorDecodeOptions, Budget], Sequence[NamedAny]],
    decode_stream: Callable[[Any, TensorDecodeOptions, Budget, int | None], Arriving] | None = None,
) -> TensorReader:
    """A reader out of a decoder to memory and one of what arrives."""

    def read_tensors(body: Any, options: TensorDecodeOptions, budget: Budget) -> Tensors:
        if decode_stream is None or options.held or options.kind in ("sparse", "ragged"):
            found = (_from_memory(named) for named in decode(body, options, budget))
            return [round_array(item, options) if isinstance(item, Array) else item for item in found]
        arriving = decode_stream(body, options, budget, options.body_bytes)
        if isinstance(arriving, ArrivingOneByOne):
            return _OneByOne(arriving, options)
        return [round_array(_arrived(arrival), options) for arrival in arriving]

    return read_tensors


class _OneByOne(ArrivingOneByOne):
    def __init__(self, arriving: ArrivingOneByOne, options: TensorDecodeOptions) -> None:
        self._arriving = arriving
        self._options = options

    def __next__(self) -> AnyTensor:
        self._arriving.kept = self.kept
        return round_array(_arrived(next(self._arriving)), self._options)


def _arrived(arrival: Arrival) -> Array:
    if isinstance(arrival, NamedTensor):
        return _array(arrival)
    stream = arrival.tensor
    return Array(stream.dtype, stream.shape, stream.content, arrival.name)


def write_named(
    encode: Callable[[Sequence[NamedAny], TensorEncodeOptions], Iterator[Buffer]],
    encode_stream: Callable[[Sequence[NamedStream], TensorEncodeOptions], Iterator[Buffer] | None]
    | None = None,
) -> TensorWriter:
    """A writer out of an encoder of tensors in memory and one of what arrives."""

    def write_tensors(
        tensors: Iterable[AnyTensor], options: TensorEncodeOptions, budget: Budget
    ) -> Iterator[Buffer]:
        given = list(tensors)
        arrays = [tensor for tensor in given if isinstance(tensor, Array) and not tensor.dtype.is_string]
        if encode_stream and len(arrays) == len(given) and any(array.is_arriving for array in arrays):
            chunks = encode_stream([_stream(array) for array in arrays], options)
            if chunks is not None:
                return chunks
        return encode([in_memory(tensor, budget) for tensor in given], options)

    return write_tensors


def write_one_by_one(
    encode: TensorWriter, encode_each: Callable[[Iterable[Arrival], TensorEncodeOptions], Iterator[Buffer]]
) -> TensorWriter:
    """A writer that also takes an iterator, of which one tensor is held at a time."""

    def write_tensors(
        tensors: Iterable[AnyTensor], options: TensorEncodeOptions, budget: Budget
    ) -> Iterator[Buffer]:
        if isinstance(tensors, Sequence):
            return encode(tensors, options, budget)
        return encode_each((_arrival(tensor, budget) for tensor in tensors), options)

    return write_tensors


def _arrival(tensor: AnyTensor, budget: Budget) -> Arrival:
    if isinstance(tensor, Array) and tensor.is_arriving:
        return _stream(tensor)
    (part,) = components_of(in_memory(tensor, budget))
    return part


def _stream(array: Array) -> NamedStream:
    return NamedStream(TensorStream(array.dtype, array.shape, array.pieces()), array.name)
