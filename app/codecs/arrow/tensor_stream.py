"""A tensor as Arrow IPC while it arrives: the batch that `arrow.py` writes, of one column, as a stream.

Any other Arrow is read whole: its first dimension is known once all of its batches are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from ...domain.dtypes import BOOL, DType
from ...domain.tensor import num_elements
from ...errors import InputError, MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream, PrefixedStream, read_exactly, read_up_to
from ..columns import check_columns
from ..content_stream import arriving_pieces
from ..options import TensorDecodeOptions, TensorEncodeOptions
from ..tensor_stream import NamedStream, TensorStream
from ..tensors.arriving import Arriving, named_arrival
from .batch import MAX_HEAD_BYTES, BatchHead, list_type, padding_of, read_batch_head, serialize_batch
from .batches import storage_type
from .features import value_dtype
from .messages import END
from .tensors import arrow_field, arrow_schema_of, decode, field_name, is_marked, marked_shape

__all__ = ["decode_stream", "encode_stream"]


def decode_stream(
    source: ByteStream, options: TensorDecodeOptions, budget: Budget, num_bytes: int | None
) -> Arriving:
    """As `decode`, while the body arrives, where it holds one tensor of numbers.

    Raises:
        InputError: as `decode`, here or as the content is drawn; of a body of unknown length also what
            follows the batch (`late_batch`).
    """
    head = read_up_to(source, MAX_HEAD_BYTES)
    found = read_batch_head(head)
    opened = None if found is None else _open(found, head, source, num_bytes, budget)
    if found is None or opened is None:
        return decode(PrefixedStream(head, source), options, budget)
    return [named_arrival(opened, options, found.name)]


def _open(
    found: BatchHead, head: bytes, source: ByteStream, num_bytes: int | None, budget: Budget
) -> TensorStream | None:
    """The tensor, or None where it is not one that `arrow.encode` writes."""
    field = found.schema.field(0)
    lists, marks = list_type(field.type), field.metadata or {}
    dtype = None if lists is None else value_dtype(lists.value_type, marks)
    if lists is None or dtype is None or not _is_plain(dtype) or not is_marked(found.schema):
        return None
    try:
        check_columns([found.name], budget)
        shape = marked_shape(marks, found.name)
    except InputError:
        return None
    size = num_elements(shape) * dtype.itemsize
    end = found.offset + size + padding_of(size)
    if num_elements(shape) != lists.list_size or num_bytes not in (None, end, end + len(END)):
        return None
    pieces = _pieces(PrefixedStream(head[found.offset :], source), size, found.offset)
    return TensorStream(dtype, shape, pieces)


def _is_plain(dtype: DType) -> bool:
    """Whether Arrow holds the elements as they lie in a tensor."""
    return not (dtype.is_string or dtype is BOOL or dtype.is_narrow)


def _pieces(source: ByteStream, size: int, offset: int) -> Iterator[Buffer]:
    yield from arriving_pieces(source, size, "the body of a message", offset=offset)
    padding = padding_of(size)
    read_exactly(source, padding, "the body of a message", offset=offset + size)
    end = read_up_to(source, len(END) + 1)
    offset += size + padding
    if end in (b"", END):
        return
    if END.startswith(end):
        raise MalformedInput("The body ends inside a message.", code="truncated", offset=offset)
    if end.startswith(END):
        raise MalformedInput(
            "Bytes follow the end of the Arrow stream. Send one stream.",
            code="trailing_bytes",
            offset=offset + len(END),
        )
    raise UnprocessableInput(
        "This Arrow stream goes on behind the one batch of its tensor. Send it with a Content-Length, so "
        "that this can be seen beforehand.",
        code="late_batch",
        offset=offset,
    )


def encode_stream(tensors: Sequence[NamedStream], options: TensorEncodeOptions) -> Iterator[Buffer] | None:
    """As `encode`, of one tensor that is arriving; None where the bytes of its elements change.

    Raises:
        UnprocessableInput: as `encode`.
    """
    if len(tensors) != 1 or options.arrow != "stream":
        return None
    named = tensors[0]
    stream = named.tensor
    if not _is_plain(stream.dtype) or not stream.num_bytes:
        return None
    field = arrow_field(field_name(named.name, 0, 1), stream.dtype, stream.shape)
    count = num_elements(stream.shape)
    before, behind = serialize_batch(arrow_schema_of([field]), storage_type(stream.dtype), count)
    return chain([before], stream.content, [behind])
