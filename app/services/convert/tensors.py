"""Tensors in any form -> tensors in any form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from ...codecs.array import AnyTensor, Array, check_single, in_memory
from ...codecs.compression.encoded import json_bytes_of
from ...codecs.forms import TENSOR_CODECS, FormName
from ...codecs.options import TensorDecodeOptions, TensorEncodeOptions
from ...codecs.tensors.forms import num_messages
from ...domain.immutable import immutable
from ...domain.limits import KIB
from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.images import ImageCodecs
from ...runtime.streams import Buffer, ByteStream, peek
from ...runtime.workspace import Workspace
from ...tracing import Stage, WholeConversion, begin_whole, stage
from .whole_bodies import as_needed

#: A body up to this size is decoded in memory, which is faster.
_STREAMED_FROM: Final = 256 * KIB


@immutable()
class TensorConversion:
    """What a client asked for.

    Attributes:
        output_chosen: the client named the output format; otherwise several tensors, or the parts of a
            ragged one, which a bare TensorProto cannot hold, leave as a TFRecord of TensorProtos.
    """

    input_form: FormName
    output_form: FormName
    output_chosen: bool
    decode: TensorDecodeOptions
    encode: TensorEncodeOptions

    def with_images(self, images: ImageCodecs) -> TensorConversion:
        """The same, with what decodes and encodes images."""
        decode, encode = replace(self.decode, images=images), replace(self.encode, images=images)
        return replace(self, decode=decode, encode=encode)


@immutable()
class ConvertedTensors:
    """The answer: its form, the tensors that it holds, and its bytes, not yet drawn.

    Attributes:
        tensors: None where only the end of the body tells how many there are.
        json_bytes: the length of the JSON in front, without which the format cannot be read.
        whole: the conversion, if it is to be counted once all bytes are drawn.
    """

    form: FormName
    tensors: Sequence[AnyTensor] | None
    chunks: Iterator[Buffer]
    json_bytes: int | None
    whole: WholeConversion | None = None

    @property
    def num_messages(self) -> int | None:
        """How many TensorProtos the tensors become: the records of a TFRecord; None where not known yet."""
        return None if self.tensors is None else num_messages(self.tensors)


def decode_tensors(
    source: ByteStream, form: FormName, options: TensorDecodeOptions, workspace: Workspace
) -> Sequence[AnyTensor]:
    """All tensors of `source`.

    Raises:
        InputError: it cannot be read.
        StorageFull: it has to be whole, and there is no room to spool it.
    """
    codec, budget = TENSOR_CODECS[form], workspace.budget
    body = as_needed(source, codec, workspace)
    with stage("decode", form, budget.received) as decoding:
        found = codec.decode(body, replace(options, held=True), budget)
        held = [in_memory(tensor, budget) for tensor in found]
        decoding.count()
    return held


def open_tensors(
    source: ByteStream, form: FormName, options: TensorDecodeOptions, workspace: Workspace
) -> Iterable[AnyTensor]:
    """The tensors of `source` as they are drawn, each before the next; numbers may still be arriving.

    Raises:
        InputError: it cannot be read; also as they are drawn.
        StorageFull: it has to be whole, and there is no room to spool it.
    """
    codec = TENSOR_CODECS[form]
    return codec.decode(as_needed(source, codec, workspace), options, workspace.budget)


def convert_tensors(
    source: ByteStream,
    conversion: TensorConversion,
    workspace: Workspace,
    body_bytes: int | None = None,
) -> ConvertedTensors:
    """Decode `source`, and start encoding it; where both forms allow it, a piece of the elements at a time.

    Args:
        source: the body.
        conversion: what to do with it.
        workspace: closed by the caller once the answer is drawn or given up.
        body_bytes: the length of the body, where it is known beforehand.

    Raises:
        StorageFull: the form has to be whole, and there is no room to spool it.
        InputError: what was sent cannot be read, or does not go into the output format. Of elements that
            leave as they arrive, this may show as the bytes of the answer are drawn.
    """
    codec, budget = TENSOR_CODECS[conversion.input_form], workspace.budget
    num_bytes, source = _measure(source, body_bytes)
    streams = num_bytes is None or num_bytes > _STREAMED_FROM
    if conversion.decode.kind in ("sparse", "ragged"):
        streams = False
    # From TFRecord to TFRecord no more than one tensor is held; other forms need to know them all.
    one_by_one = conversion.input_form != "tfrecord" or conversion.output_form == "tfrecord"
    options = conversion.decode
    if codec.needs == "stream":
        options = replace(options, body_bytes=num_bytes, held=not (streams and one_by_one))
    body = as_needed(source, codec, workspace, num_bytes)
    whole = None if streams or num_bytes is None else begin_whole(num_bytes)
    with stage("decode", conversion.input_form, budget.received, whole) as decoding:
        tensors = codec.decode(body, options, budget)
        if not streams:
            # Every fault is known before the first byte of the answer.
            tensors = [in_memory(tensor, budget) for tensor in tensors]
        if isinstance(tensors, Sequence):
            decoding.count()
    if not streams and isinstance(tensors, Sequence):
        return _convert(tensors, conversion, budget, whole)
    if isinstance(tensors, Sequence):
        return _convert([_as_it_arrives(tensor, decoding) for tensor in tensors], conversion, budget)
    tensors = (_as_it_arrives(tensor, decoding) for tensor in decoding.drawn(tensors))
    if conversion.output_form == "tfrecord":
        with stage("encode", "tfrecord") as encoding:
            chunks = TENSOR_CODECS["tfrecord"].encode(tensors, conversion.encode, budget)
        return ConvertedTensors("tfrecord", None, encoding.drawn(chunks, _size_of), None)
    return _convert(_all_of(tensors, conversion, budget), conversion, budget)


def _as_it_arrives(tensor: AnyTensor, decoding: Stage) -> AnyTensor:
    """The same tensor; if it is still arriving, what draws its elements is decoding."""
    if isinstance(tensor, Array) and tensor.is_arriving:
        return replace(tensor, content=decoding.drawn(tensor.pieces()))
    return tensor


def _measure(source: ByteStream, num_bytes: int | None) -> tuple[int | None, ByteStream]:
    """The length of the body, if it is declared or short, and where the body is read from."""
    if num_bytes is not None:
        return num_bytes, source
    head, source = peek(source, _STREAMED_FROM + 1)
    return (len(head) if len(head) <= _STREAMED_FROM else None), source


def _convert(
    tensors: Sequence[AnyTensor],
    conversion: TensorConversion,
    budget: Budget,
    whole: WholeConversion | None = None,
) -> ConvertedTensors:
    form = _output_form(num_messages(tensors), conversion)
    with stage("encode", form, whole=whole) as encoding:
        chunks = TENSOR_CODECS[form].encode(tensors, conversion.encode, budget)
    return ConvertedTensors(form, tensors, encoding.drawn(chunks, _size_of), json_bytes_of(chunks), whole)


def _size_of(chunk: Buffer) -> tuple[int, int]:
    """No rows, and so many bytes."""
    return 0, memoryview(chunk).nbytes


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


def _all_of(
    tensors: Iterator[AnyTensor], conversion: TensorConversion, budget: Budget
) -> Sequence[AnyTensor]:
    """The tensors in memory; or only the first, for a form of one tensor: at its end another is refused."""
    first = next(tensors, None)
    if first is None:
        return []
    alone = conversion.output_form in ("npy", "raw") or (
        conversion.output_form == "tensorproto" and conversion.output_chosen
    )
    if alone and isinstance(first, Array) and first.is_arriving:
        return [replace(first, content=_require_single(first, tensors, conversion.output_form))]
    return [in_memory(tensor, budget) for tensor in chain([first], tensors)]


def _require_single(first: Array, others: Iterator[AnyTensor], form: FormName) -> Iterator[Buffer]:
    yield from first.pieces()
    if next(others, None) is not None:
        check_single(2, form)
