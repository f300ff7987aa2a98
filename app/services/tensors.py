"""Tensors in any form -> tensors in any form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..codecs.encoded import headers_of
from ..codecs.options import TensorDecodeOptions, TensorEncodeOptions
from ..codecs.registry import TENSOR_CODECS, FormName
from ..codecs.tensors.kinds import num_messages
from ..domain.limits import Budget
from ..domain.streams import Buffer, ByteStream
from ..domain.tensor import NamedAny
from ..errors import UnprocessableInput

__all__ = ["ConvertedTensors", "TensorConversion", "convert_tensors", "decode_tensors"]


@dataclass(frozen=True, slots=True)
class TensorConversion:
    """What a client asked for.

    Attributes:
        output_chosen: the client named the output form; otherwise several tensors, or the parts of a
            ragged one, which a bare TensorProto cannot hold, leave as a TFRecord of TensorProtos.
    """

    input_form: FormName
    output_form: FormName
    output_chosen: bool
    decode: TensorDecodeOptions
    encode: TensorEncodeOptions


@dataclass(frozen=True, slots=True)
class ConvertedTensors:
    """The answer: its form, the tensors that it holds, and its bytes, not yet drawn.

    Attributes:
        headers: without which the form cannot be read.
    """

    form: FormName
    tensors: Sequence[NamedAny]
    chunks: Iterator[Buffer]
    headers: Mapping[str, str]

    @property
    def num_messages(self) -> int:
        """How many TensorProtos the tensors become: the records of a TFRecord."""
        return num_messages(self.tensors)


def decode_tensors(
    source: ByteStream, form: FormName, options: TensorDecodeOptions, budget: Budget
) -> Sequence[NamedAny]:
    """All tensors of `source`.

    Raises:
        InputError: it cannot be read.
    """
    decode = TENSOR_CODECS[form].decode
    if decode is None:
        raise LookupError(f"{form} has no tensor decoder")
    return decode(source, options, budget)


def convert_tensors(source: ByteStream, conversion: TensorConversion, budget: Budget) -> ConvertedTensors:
    """Decode `source` whole, and start encoding it.

    Raises:
        InputError: what was sent cannot be read, or does not go into the output form.
    """
    tensors = decode_tensors(source, conversion.input_form, conversion.decode, budget)
    form = conversion.output_form
    if form == "tensorproto" and (count := num_messages(tensors)) != 1:
        if conversion.output_chosen:
            raise UnprocessableInput(
                f"{count} tensors do not fit one TensorProto (a ragged one is its values and row splits). "
                "Ask for to=tfrecord (one TensorProto a record, in input order).",
                code="several_tensors",
            )
        form = "tfrecord"
    encode = TENSOR_CODECS[form].encode
    if encode is None:
        raise LookupError(f"{form} has no tensor encoder")
    chunks = encode(tensors, conversion.encode)
    return ConvertedTensors(form, tensors, chunks, headers_of(chunks))
