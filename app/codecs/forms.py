"""Every codec, by noun and form. A new format is one new file and one line here.

Decode by `Content-Type`, encode by `Accept`: the map from media type to candidate forms is derived
from this table, never written by hand. The order is that of the documentation and breaks ties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from ..domain.schema import FeatureKind
from ..runtime.budget import Budget
from ..runtime.streams import Buffer, ByteStream, WholeBody
from .arrays import npy as tensors_npy
from .arrays import npz as tensors_npz
from .arrays import npz_records as records_npz
from .arrays import oip as tensors_oip
from .arrays import oip_records as records_oip
from .arrays import raw as tensors_raw
from .arrays import safetensors as tensors_safetensors
from .arrays import safetensors_records as records_safetensors
from .arrow import parquet as records_parquet
from .arrow import records as records_arrow
from .arrow import tensor_stream as arrow_stream
from .arrow import tensors as tensors_arrow
from .csv import records as records_csv
from .json import ndjson as records_ndjson
from .json import records as records_json
from .json import tensors as tensors_json
from .messages import b64 as records_b64
from .messages import tensor_b64 as tensors_b64
from .messages import tensor_proto as tensors_tensor_proto
from .messages import tensor_proto_stream
from .messages import tensor_tfrecord as tensors_tfrecord
from .messages import tensor_tfrecord_stream as tfrecord_stream
from .messages import tfrecord as records_tfrecord
from .options import RecordsDecodeOptions, RecordsEncodeOptions
from .records.columns import Records
from .tensors.arriving import FileStreamDecoder, StreamDecoder, StreamEncoder
from .tensors.kinds import (
    TensorDecoder,
    TensorEncoder,
    TensorFileDecoder,
    assembled,
    dense_in,
    dense_out,
    in_components,
    in_messages,
)

__all__ = [
    "MEDIA_TYPES",
    "RECORDS_CODECS",
    "RECORDS_KINDS",
    "RECORDS_KINDS_IN",
    "TENSOR_CODECS",
    "TENSOR_KINDS",
    "Codec",
    "FormName",
    "RecordsCodec",
    "TensorCodec",
]

FormName = Literal[
    "json",
    "ndjson",
    "npy",
    "npz",
    "raw",
    "oip",
    "tensorproto",
    "safetensors",
    "arrow",
    "parquet",
    "csv",
    "tfrecord",
    "b64",
]

DecoderT = TypeVar("DecoderT")
EncoderT = TypeVar("EncoderT")

RecordsDecoder = Callable[[ByteStream, RecordsDecodeOptions, Budget], Records]
RecordsFileDecoder = Callable[[WholeBody, RecordsDecodeOptions, Budget], Records]
RecordsEncoder = Callable[[Records, RecordsEncodeOptions, Budget], Iterator[Buffer]]

#: Short name -> media types; the first is what answers carry. `b64` and `safetensors` go by their short
#: names alone.
MEDIA_TYPES: Final[dict[FormName, tuple[str, ...]]] = {
    "json": ("application/json",),
    "ndjson": ("application/x-ndjson", "application/jsonl"),
    "npy": ("application/x-npy",),
    "npz": ("application/x-npz",),
    "raw": ("application/octet-stream",),
    "oip": ("application/octet-stream",),
    "tensorproto": ("application/protobuf", "application/x-protobuf"),
    "safetensors": ("application/octet-stream",),
    "arrow": ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file"),
    "parquet": ("application/vnd.apache.parquet",),
    "csv": ("text/csv",),
    "tfrecord": ("application/x-tfrecord",),
    "b64": ("application/json",),
}


@dataclass(frozen=True)
class Codec(Generic[DecoderT, EncoderT]):
    """One form of one noun.

    Attributes:
        form: the short name.
        decode, encode: None where that direction does not exist.
        needs: what the decoder reads: a stream as it arrives, or a body that is there as a whole.
    """

    form: FormName
    decode: DecoderT | None
    encode: EncoderT | None
    needs: Literal["stream", "file"] = "stream"

    @property
    def media_type(self) -> str:
        """The media type that answers carry."""
        return MEDIA_TYPES[self.form][0]


@dataclass(frozen=True)
class TensorCodec(Codec[TensorDecoder | TensorFileDecoder, TensorEncoder]):
    """One form of tensors.

    Attributes:
        decode_stream, encode_stream: the same for dense tensors a piece at a time; None where they have to
            be in memory.
    """

    decode_stream: StreamDecoder | FileStreamDecoder | None = None
    encode_stream: StreamEncoder | None = None


RecordsCodec = Codec[RecordsDecoder | RecordsFileDecoder, RecordsEncoder]

TENSOR_CODECS: Final[dict[FormName, TensorCodec]] = {
    codec.form: codec
    for codec in (
        TensorCodec(
            "json",
            tensors_json.decode,
            tensors_json.encode,
            encode_stream=tensors_json.encode_stream,
            needs="file",
        ),
        TensorCodec(
            "npy",
            dense_in(tensors_npy.decode, "npy"),
            dense_out(tensors_npy.encode, "npy"),
            decode_stream=tensors_npy.decode_stream,
            encode_stream=tensors_npy.encode_stream,
        ),
        TensorCodec(
            "npz",
            assembled(tensors_npz.decode),
            in_components(tensors_npz.encode),
            decode_stream=tensors_npz.decode_stream,
            needs="file",
        ),
        TensorCodec(
            "raw",
            dense_in(tensors_raw.decode, "raw"),
            dense_out(tensors_raw.encode, "raw"),
            decode_stream=tensors_raw.decode_stream,
            encode_stream=tensors_raw.encode_stream,
        ),
        TensorCodec("oip", assembled(tensors_oip.decode), in_components(tensors_oip.encode)),
        TensorCodec(
            "tensorproto",
            assembled(tensors_tensor_proto.decode),
            in_messages(tensors_tensor_proto.encode),
            decode_stream=tensor_proto_stream.decode_stream,
            encode_stream=tensor_proto_stream.encode_stream,
        ),
        TensorCodec(
            "safetensors",
            assembled(tensors_safetensors.decode),
            in_components(tensors_safetensors.encode),
            decode_stream=tensors_safetensors.decode_stream,
            encode_stream=tensors_safetensors.encode_stream,
        ),
        TensorCodec(
            "arrow",
            assembled(tensors_arrow.decode),
            in_components(tensors_arrow.encode),
            decode_stream=arrow_stream.decode_stream,
            encode_stream=arrow_stream.encode_stream,
        ),
        TensorCodec(
            "tfrecord",
            assembled(tensors_tfrecord.decode),
            in_messages(tensors_tfrecord.encode),
            decode_stream=tfrecord_stream.decode_stream,
            encode_stream=tfrecord_stream.encode_stream,
        ),
        TensorCodec("b64", assembled(tensors_b64.decode), in_messages(tensors_b64.encode), needs="file"),
    )
}

RECORDS_CODECS: Final[dict[FormName, RecordsCodec]] = {
    codec.form: codec
    for codec in (
        RecordsCodec("json", records_json.decode, records_json.encode, needs="file"),
        RecordsCodec("ndjson", records_ndjson.decode, records_ndjson.encode),
        RecordsCodec("npz", records_npz.decode, records_npz.encode, needs="file"),
        RecordsCodec("oip", records_oip.decode, records_oip.encode, needs="file"),
        RecordsCodec("safetensors", records_safetensors.decode, records_safetensors.encode, needs="file"),
        RecordsCodec("arrow", records_arrow.decode, records_arrow.encode),
        RecordsCodec("parquet", records_parquet.decode, records_parquet.encode, needs="file"),
        RecordsCodec("csv", records_csv.decode, records_csv.encode),
        RecordsCodec("tfrecord", records_tfrecord.decode, records_tfrecord.encode),
        RecordsCodec("b64", records_b64.decode, records_b64.encode, needs="file"),
    )
}

_KINDS: Final[tuple[FeatureKind, ...]] = ("dense", "ragged", "sparse", "sequence")
_TENSOR_KINDS: Final = _KINDS[:3]

#: The kinds of tensors that each form holds, in whichever directions it has. Forms of several tensors hold
#: a sparse or ragged one as its components.
TENSOR_KINDS: Final[dict[FormName, tuple[FeatureKind, ...]]] = {
    "json": _TENSOR_KINDS,
    "npy": ("dense",),
    "npz": _TENSOR_KINDS,
    "raw": ("dense",),
    "oip": _TENSOR_KINDS,
    "tensorproto": ("dense", "sparse"),
    "safetensors": _TENSOR_KINDS,
    "arrow": _TENSOR_KINDS,
    "tfrecord": _TENSOR_KINDS,
    "b64": _TENSOR_KINDS,
}

#: The kinds of features that each form of records holds. A form that has one array for each column holds
#: sequences only where all rows have as many steps.
RECORDS_KINDS: Final[dict[FormName, tuple[FeatureKind, ...]]] = {
    "json": _KINDS,
    "ndjson": _KINDS,
    "npz": ("dense", "sequence"),
    "oip": ("dense", "sequence"),
    "safetensors": ("dense", "sequence"),
    "arrow": _KINDS,
    "parquet": _KINDS,
    "csv": ("dense",),
    "tfrecord": _KINDS,
    "b64": _KINDS,
}

#: The kinds of features that each form of records can fill: a form that has one array for each column also
#: fills a ragged one, where all rows are alike.
RECORDS_KINDS_IN: Final[dict[FormName, tuple[FeatureKind, ...]]] = {
    **RECORDS_KINDS,
    "npz": ("dense", "ragged", "sequence"),
    "oip": ("dense", "ragged", "sequence"),
    "safetensors": ("dense", "ragged", "sequence"),
}
