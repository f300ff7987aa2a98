"""Tensors in any form -> tensors in any form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from ..codecs.compression.encoded import headers_of
from ..codecs.forms import TENSOR_CODECS, FormName
from ..codecs.messages.tensor_tfrecord import encode_stream as encode_records
from ..codecs.options import TensorDecodeOptions, TensorEncodeOptions
from ..codecs.tensor_stream import NamedStream, TensorStream
from ..codecs.tensors.arriving import Arrival, Arriving, ArrivingOneByOne, in_memory
from ..codecs.tensors.declared import round_tensor
from ..codecs.tensors.kinds import num_messages
from ..codecs.tensors.single import check_single
from ..domain.limits import KIB
from ..domain.tensor import NamedAny, NamedTensor
from ..errors import UnprocessableInput
from ..runtime.budget import Budget
from ..runtime.spool import Spool
from ..runtime.streams import Buffer, ByteStream, PrefixedStream, read_up_to
from .whole_bodies import as_needed

__all__ = ["ConvertedTensors", "TensorConversion", "convert_tensors", "decode_tensors"]

#: A body up to this size is decoded in memory, which is faster.
_STREAMED_FROM: Final = 256 * KIB


@dataclass(frozen=True, slots=True)
class TensorConversion:
    """What a client asked for.

    Attributes:
        output_chosen: the client named the output form; otherwise several tensors, or the parts of a
            ragged one, which a bare TensorProto cannot hold, leave as a TFRecord of TensorProtos.
        body_bytes: the length of the body, where it is known beforehand.
    """

    input_form: FormName
    output_form: FormName
    output_chosen: bool
    decode: TensorDecodeOptions
    encode: TensorEncodeOptions
    body_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ConvertedTensors:
    """The answer: its form, the tensors that it holds, and its bytes, not yet drawn.

    Attributes:
        tensors: None where only the end of the body tells how many there are.
        headers: without which the form cannot be read.
    """

    form: FormName
    tensors: Sequence[NamedAny | NamedStream] | None
    chunks: Iterator[Buffer]
    headers: Mapping[str, str]

    @property
    def num_messages(self) -> int | None:
        """How many TensorProtos the tensors become: the records of a TFRecord; None where not known yet."""
        return None if self.tensors is None else num_messages(self.tensors)


def decode_tensors(
    source: ByteStream, form: FormName, options: TensorDecodeOptions, budget: Budget, spool: Spool
) -> Sequence[NamedAny]:
    """All tensors of `source`.

    Args:
        spool: room for a form that has to be whole before it can be read.

    Raises:
        InputError: it cannot be read.
        StorageFull: it has to be whole, and there is no room to spool it.
    """
    codec = TENSOR_CODECS[form]
    with ExitStack() as resources:
        body = as_needed(source, codec, budget, spool, resources)
        found = codec.decode(body, options, budget)  # type: ignore[arg-type]  # `needs` says which
        return [
            round_tensor(named, options, budget) if isinstance(named, NamedTensor) else named
            for named in found
        ]


def convert_tensors(
    source: ByteStream,
    conversion: TensorConversion,
    budget: Budget,
    spool: Spool,
    resources: ExitStack,
) -> ConvertedTensors:
    """Decode `source`, and start encoding it; where both forms allow it, a piece of the elements at a time.

    Args:
        source: the body.
        conversion: what to do with it.
        budget: what it may hold in memory.
        spool: room for a form that has to be whole before it can be read.
        resources: closed by the caller once the answer is drawn or given up.

    Raises:
        StorageFull: the form has to be whole, and there is no room to spool it.
        InputError: what was sent cannot be read, or does not go into the output form. Of elements that
            leave as they arrive, this may show as the bytes of the answer are drawn.
    """
    form, options = conversion.input_form, conversion.decode
    codec = TENSOR_CODECS[form]
    if codec.decode_stream is not None and options.kind not in ("sparse", "ragged"):
        large, source = _is_large(source, conversion.body_bytes)
        if large:
            body: Any = as_needed(source, codec, budget, spool, resources)  # `needs` says which
            arriving = codec.decode_stream(body, options, budget, conversion.body_bytes)
            return _convert_arriving(arriving, conversion, budget)
    return _convert_held(decode_tensors(source, form, options, budget, spool), conversion)


def _is_large(source: ByteStream, num_bytes: int | None) -> tuple[bool, ByteStream]:
    """Whether the body is worth streaming, and where it is read from."""
    if num_bytes is not None:
        return num_bytes > _STREAMED_FROM, source
    head = read_up_to(source, _STREAMED_FROM + 1)
    return len(head) > _STREAMED_FROM, PrefixedStream(head, source)


def _convert_held(tensors: Sequence[NamedAny], conversion: TensorConversion) -> ConvertedTensors:
    form = _output_form(num_messages(tensors), conversion)
    chunks = TENSOR_CODECS[form].encode(tensors, conversion.encode)
    return ConvertedTensors(form, tensors, chunks, headers_of(chunks))


def _output_form(count: int, conversion: TensorConversion) -> FormName:
    """The form in which `count` messages leave.

    Raises:
        UnprocessableInput: a TensorProto was asked for, which holds one (`several_tensors`).
    """
    if conversion.output_form != "tensorproto" or count == 1:
        return conversion.output_form
    if conversion.output_chosen:
        raise UnprocessableInput(
            f"{count} tensors do not fit one TensorProto (a ragged one is its values and row splits). "
            "Ask for to=tfrecord (one TensorProto a record, in input order).",
            code="several_tensors",
        )
    return "tfrecord"


def _convert_arriving(arriving: Arriving, conversion: TensorConversion, budget: Budget) -> ConvertedTensors:
    form = conversion.output_form
    if isinstance(arriving, ArrivingOneByOne):
        if form == "tfrecord":
            declared = (_as_declared(arrival, conversion, budget) for arrival in arriving)
            return ConvertedTensors(form, None, encode_records(declared, conversion.encode), {})
        arriving = _all_of(arriving, conversion, budget)
    arriving = [_as_declared(arrival, conversion, budget) for arrival in arriving]
    streams = [arrival for arrival in arriving if isinstance(arrival, NamedStream)]
    if len(streams) == len(arriving):
        form = _output_form(len(streams), conversion)
        encode = TENSOR_CODECS[form].encode_stream
        chunks = None if encode is None else encode(streams, conversion.encode)
        if chunks is not None:
            return ConvertedTensors(form, streams, chunks, {})
    return _convert_held([in_memory(arrival, budget) for arrival in arriving], conversion)


def _as_declared(arrival: Arrival, conversion: TensorConversion, budget: Budget) -> Arrival:
    """A stream is so already."""
    if isinstance(arrival, NamedStream):
        return arrival
    return round_tensor(arrival, conversion.decode, budget)


def _all_of(arriving: ArrivingOneByOne, conversion: TensorConversion, budget: Budget) -> Sequence[Arrival]:
    """The tensors in memory; or only the first, for a form of one tensor: at its end another is refused."""
    arriving.kept = True
    first = next(arriving, None)
    if first is None:
        return []
    alone = conversion.output_form in ("npy", "raw") or (
        conversion.output_form == "tensorproto" and conversion.output_chosen
    )
    if alone and isinstance(first, NamedStream):
        return [_followed_by_none(first, arriving, conversion.output_form)]
    return [in_memory(arrival, budget) for arrival in chain([first], arriving)]


def _followed_by_none(named: NamedStream, others: Iterator[Arrival], form: FormName) -> NamedStream:
    def content() -> Iterator[Buffer]:
        yield from named.tensor.content
        if next(others, None) is not None:
            check_single(2, form)

    return NamedStream(TensorStream(named.tensor.dtype, named.tensor.shape, content()), named.name)
