"""The form table: every format, what it is called, and how it reads and writes tensors and records.

A new format is one new file and one entry here; negotiation, the documentation and the tests derive from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from ..domain.feature import FeatureKind
from ..errors import UnprocessableInput
from ..runtime.budget import Budget
from ..runtime.images import ImageFormat
from ..runtime.streams import Buffer, ByteStream, WholeBody
from .archives import read_rows as archives
from .archives import write_rows as tar_write
from .archives.form_data import MULTIPART
from .arrays import npy, npz, oip, raw, safetensors
from .arrays.read_rows import read_oip, reader_of
from .arrays.write_rows import writer_of
from .arrow import parquet as records_parquet
from .arrow import records as records_arrow
from .arrow import tensors as tensors_arrow
from .columns import Records
from .csv import libsvm
from .csv import read as csv_read
from .csv import write as csv_write
from .images import arrays as images
from .json.rows import ndjson as records_ndjson
from .json.rows import read as records_json
from .json.rows import write as write_rows
from .json.tensors import read as tensors_json
from .json.tensors import write as write_tensors
from .messages import b64 as records_b64
from .messages import tensor_b64 as tensors_b64
from .messages import tensor_tfrecord as tensors_tfrecord
from .messages import tfrecord as records_tfrecord
from .messages.tensor_proto import read as tensors_tensor_proto
from .messages.tensor_proto import write as tensor_proto_write
from .options import RecordsDecodeOptions, RecordsEncodeOptions
from .tensors.forms import TensorReader, TensorWriter, read_arrays, write_arrays, write_messages

FormName = Literal[
    "json",
    "ndjson",
    "npy",
    "npz",
    "raw",
    "oip",
    "jpeg",
    "png",
    "webp",
    "gif",
    "bmp",
    "tensorproto",
    "safetensors",
    "arrow",
    "parquet",
    "csv",
    "libsvm",
    "tar",
    "zip",
    "multipart",
    "tfrecord",
    "b64",
]

DecoderT = TypeVar("DecoderT")
EncoderT = TypeVar("EncoderT")
Kinds = tuple[FeatureKind, ...]

RecordsDecoder = Callable[[ByteStream, RecordsDecodeOptions, Budget], Records]
RecordsFileDecoder = Callable[[WholeBody, RecordsDecodeOptions, Budget], Records]
RecordsEncoder = Callable[[Records, RecordsEncodeOptions, Budget], Iterator[Buffer]]


@dataclass(frozen=True)
class Codec(Generic[DecoderT, EncoderT]):
    """How one form reads and writes tensors, or records.

    Attributes:
        decode, encode: the two directions.
        kinds: what it holds; none where the form is read alone. A form of several tensors holds a sparse or
            ragged one as its components; a form that has one array for each column holds sequences only where
            all rows have as many steps.
        kinds_in: what it can fill, where that is more: a form that has one array for each column also
            fills a ragged feature, where all rows are alike.
        needs: what the decoder reads: a stream as it arrives, or a body that is there as a whole.
        waits: for a process that decodes images, which is lent in the options; never on the event loop.
        shows_absence: without a schema, a feature that some row lacks is told from one that every row has.
    """

    decode: DecoderT
    encode: EncoderT
    kinds: Kinds
    kinds_in: Kinds = ()
    needs: Literal["stream", "file"] = "stream"
    waits: bool = False
    shows_absence: bool = False

    def __post_init__(self) -> None:
        if not self.kinds_in:
            object.__setattr__(self, "kinds_in", self.kinds)


TensorCodec = Codec[TensorReader, TensorWriter]
RecordsCodec = Codec[RecordsDecoder | RecordsFileDecoder, RecordsEncoder]


@dataclass(frozen=True)
class Form:
    """One format.

    Attributes:
        name: the short name.
        media_types: the first is what answers carry.
        tensors, records: None where the format does not hold them.
        by_short_name_only: its media type belongs to another form.
    """

    name: FormName
    media_types: tuple[str, ...]
    tensors: TensorCodec | None = None
    records: RecordsCodec | None = None
    by_short_name_only: bool = False


#: CSV with tabs in place of commas.
TAB_SEPARATED: Final = "text/tab-separated-values"

_DENSE: Final[Kinds] = ("dense",)
_TENSORS: Final[Kinds] = ("dense", "ragged", "sparse")
_FEATURES: Final[Kinds] = ("dense", "ragged", "sparse", "sequence")
_ARRAY_COLUMNS: Final[Kinds] = ("dense", "sequence")
_ARRAY_COLUMNS_IN: Final[Kinds] = ("dense", "ragged", "sequence")


def refuse_to_write(form: FormName, other: FormName) -> Callable[..., Iterator[Buffer]]:
    """The encoder of a format that is read alone."""

    def refuse(*_: object) -> Iterator[Buffer]:
        raise UnprocessableInput(
            f"The format {form!r} is read, not written. Ask for {other!r}.", code="not_expressible"
        )

    return refuse


def _image(form: ImageFormat) -> TensorCodec:
    """The codec of images that are read and written."""
    if form in ("jpeg", "png"):
        write = write_arrays(images.writer_of(form), dense_only=form)
        return TensorCodec(_read_image(form), write, _DENSE, needs="file", waits=True)
    write = refuse_to_write(form, "png")
    return TensorCodec(_read_image(form), write, (), kinds_in=_DENSE, needs="file", waits=True)


def _read_image(form: ImageFormat) -> TensorReader:
    return read_arrays(images.reader_of(form), dense_only=form)


#: Every format, in the order of the documentation, which breaks ties between media types.
FORMS: Final[tuple[Form, ...]] = (
    Form(
        "json",
        ("application/json",),
        tensors=TensorCodec(tensors_json.read, write_tensors.write, _TENSORS, needs="file"),
        records=RecordsCodec(
            records_json.decode, write_rows.encode, _FEATURES, needs="file", shows_absence=True
        ),
    ),
    Form(
        "ndjson",
        ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"),
        records=RecordsCodec(records_ndjson.decode, write_rows.encode_lines, _FEATURES, shows_absence=True),
    ),
    Form(
        "npy",
        ("application/x-npy",),
        tensors=TensorCodec(
            read_arrays(npy.read, dense_only="npy"), write_arrays(npy.write, dense_only="npy"), _DENSE
        ),
    ),
    Form(
        "npz",
        ("application/x-npz",),
        tensors=TensorCodec(read_arrays(npz.read), write_arrays(npz.write), _TENSORS, needs="file"),
        records=RecordsCodec(
            reader_of(npz.read),
            writer_of(npz.write, "NPZ"),
            _ARRAY_COLUMNS,
            kinds_in=_ARRAY_COLUMNS_IN,
            needs="file",
        ),
    ),
    Form(
        "raw",
        ("application/octet-stream",),
        tensors=TensorCodec(
            read_arrays(raw.read, dense_only="raw"), write_arrays(raw.write, dense_only="raw"), _DENSE
        ),
    ),
    Form(
        "oip",
        ("application/octet-stream",),
        tensors=TensorCodec(read_arrays(oip.read), write_arrays(oip.write), _TENSORS),
        records=RecordsCodec(
            read_oip,
            writer_of(oip.write, "OIP", oip.check_dtype),
            _ARRAY_COLUMNS,
            kinds_in=_ARRAY_COLUMNS_IN,
            needs="file",
        ),
    ),
    Form("jpeg", ("image/jpeg", "image/jpg"), tensors=_image("jpeg")),
    Form("png", ("image/png",), tensors=_image("png")),
    Form("webp", ("image/webp",), tensors=_image("webp")),
    Form("gif", ("image/gif",), tensors=_image("gif")),
    Form("bmp", ("image/bmp", "image/x-ms-bmp"), tensors=_image("bmp")),
    Form(
        "tensorproto",
        ("application/protobuf", "application/x-protobuf"),
        tensors=TensorCodec(
            read_arrays(tensors_tensor_proto.read),
            write_messages(tensor_proto_write.write),
            ("dense", "sparse"),
        ),
    ),
    Form(
        "safetensors",
        ("application/octet-stream",),
        tensors=TensorCodec(read_arrays(safetensors.read), write_arrays(safetensors.write), _TENSORS),
        records=RecordsCodec(
            reader_of(safetensors.read),
            writer_of(safetensors.write, "safetensors", safetensors.check_dtype),
            _ARRAY_COLUMNS,
            kinds_in=_ARRAY_COLUMNS_IN,
            needs="file",
        ),
        by_short_name_only=True,
    ),
    Form(
        "arrow",
        ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file"),
        tensors=TensorCodec(read_arrays(tensors_arrow.read), write_arrays(tensors_arrow.write), _TENSORS),
        records=RecordsCodec(records_arrow.decode, records_arrow.encode, _FEATURES),
    ),
    Form(
        "parquet",
        ("application/vnd.apache.parquet", "application/parquet"),
        records=RecordsCodec(records_parquet.decode, records_parquet.encode, _FEATURES, needs="file"),
    ),
    Form(
        "csv",
        ("text/csv", "application/csv", TAB_SEPARATED),
        records=RecordsCodec(csv_read.decode, csv_write.encode, _DENSE, shows_absence=True),
    ),
    Form(
        "libsvm",
        ("text/x-libsvm",),
        records=RecordsCodec(libsvm.decode, libsvm.encode, ("sparse",), shows_absence=True),
    ),
    Form(
        "tar",
        ("application/x-tar",),
        records=RecordsCodec(archives.read_tar, tar_write.encode, _DENSE, shows_absence=True),
    ),
    Form(
        "zip",
        ("application/zip", "application/x-zip-compressed"),
        records=RecordsCodec(
            archives.read_zip,
            refuse_to_write("zip", "tar"),
            (),
            kinds_in=_DENSE,
            needs="file",
            shows_absence=True,
        ),
    ),
    Form(
        "multipart",
        (MULTIPART,),
        records=RecordsCodec(
            archives.read_form, refuse_to_write("multipart", "tar"), (), kinds_in=_DENSE, shows_absence=True
        ),
    ),
    Form(
        "tfrecord",
        ("application/x-tfrecord",),
        tensors=TensorCodec(
            read_arrays(tensors_tfrecord.read), write_messages(tensors_tfrecord.write), _TENSORS
        ),
        records=RecordsCodec(records_tfrecord.decode, records_tfrecord.encode, _FEATURES),
    ),
    Form(
        "b64",
        ("application/json",),
        tensors=TensorCodec(
            read_arrays(tensors_b64.read),
            write_messages(tensors_b64.write),
            _TENSORS,
            needs="file",
        ),
        records=RecordsCodec(records_b64.decode, records_b64.encode, _FEATURES, needs="file"),
        by_short_name_only=True,
    ),
)

#: Formats whose records are messages, which say nothing of their schema.
MESSAGE_FORMS: Final = frozenset({"tfrecord", "b64"})
MEDIA_TYPES: Final = {form.name: form.media_types for form in FORMS}
SHORT_NAME_ONLY: Final = frozenset(form.name for form in FORMS if form.by_short_name_only)
TENSOR_CODECS: Final = {form.name: form.tensors for form in FORMS if form.tensors}
RECORDS_CODECS: Final = {form.name: form.records for form in FORMS if form.records}
