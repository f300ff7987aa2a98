"""How a codec reads and writes: one frozen value each, filled from the request by the services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, Protocol

from ..domain.compression import Compression
from ..domain.dtypes import DType
from ..domain.immutable import immutable
from ..domain.losses import Losses
from ..domain.rounded import RoundedFeatures
from ..domain.schema import Message, Schema
from ..domain.tensor import Shape
from ..runtime.images import ImageCodecs

ByteOrder = Literal["little", "big"]
#: How the elements of a raw body lie: row-major (C) or column-major (Fortran).
ElementOrder = Literal["C", "F"]
#: How the files of an archive are rows: samples that share a name (WebDataset), or images in folders.
ArchiveLayout = Literal["samples", "folders"]
#: Arrow IPC: messages one after another, or the same with a footer by which batches are found.
ArrowFormat = Literal["stream", "file"]


@immutable()
class TensorDecodeOptions:
    """For decoders of tensors.

    Attributes:
        dtype, shape: what the client declared. `raw` needs both (a missing shape is one dimension);
            untyped JSON takes them; a form that carries its own must agree (422 otherwise).
        byte_order, order: of `raw` input.
        kind: what the components in the body are (`sparse`: indices, values, dense_shape, or what
            `tf.io.serialize_sparse` gives; `ragged`: values, then row_splits, outermost first);
            None: a form that says so itself is believed, and bytes are never guessed to be tensors.
        json_bytes: of `oip`: the length of the JSON in front.
        nonfinite: `null` reads null as NaN, `bare` accepts the tokens NaN and Infinity in JSON.
        compression: of `tfrecord`; None detects it.
        lossy: floats are rounded to a narrower `dtype` of floats.
        body_bytes: of a form that is read as a stream: the length of the body, where it is known beforehand.
        held: of such a form: the caller reads all tensors into memory; otherwise each of those that come one
            by one is given up before the next is asked for.
        dtypes: what a schema declares the elements of the arrays of these names to be; only bfloat16 in NPZ
            needs it.
        channels: of a decoded image: 1 grey, 3 RGB, 4 RGBA, 0 those of the image.
        images: decodes images; lent to forms that say so (`Codec.waits`).
    """

    dtype: DType | None = None
    shape: Shape | None = None
    byte_order: ByteOrder = "little"
    order: ElementOrder = "C"
    kind: Literal["dense", "sparse", "ragged"] | None = None
    json_bytes: int | None = None
    nonfinite: Literal["error", "null", "bare"] = "error"
    compression: Compression | None = None
    lossy: bool = False
    body_bytes: int | None = None
    held: bool = False
    dtypes: Mapping[str, DType] = field(default_factory=dict, hash=False)
    channels: int = 0
    images: ImageCodecs | None = None


@immutable()
class TensorEncodeOptions:
    """For encoders of tensors.

    Attributes:
        layout: JSON: `flat` {dtype, shape, data}, `nested` arrays, `oip` Open Inference Protocol.
        nonfinite: JSON: as the strings "NaN", "Infinity", "-Infinity", as null, or refused.
        int64: JSON: 64-bit integers as numbers or as strings of digits.
        text: JSON: strings as {"b64": ...} or as UTF-8 text (422 where invalid).
        byte_order, order: of `raw`.
        sparse: a sparse tensor as TensorProto: as `tf.io.serialize_sparse` gives it, or as
            `tf.io.serialize_many_sparse` does, with the first axis counting the rows.
        b64: the alphabet of base64 in JSON: the standard one, or TensorFlow's web-safe one without
            padding (`tf.io.encode_base64`).
        compression: of `tfrecord`.
        arrow: which format of Arrow IPC.
        quality: of `jpeg`, 1 to 100.
        images: encodes images; lent to forms that say so (`Codec.waits`).
    """

    layout: Literal["flat", "nested", "oip"] = "flat"
    nonfinite: Literal["string", "null", "error"] = "string"
    int64: Literal["number", "string"] = "number"
    text: Literal["b64", "utf8"] = "b64"
    byte_order: ByteOrder = "little"
    order: ElementOrder = "C"
    sparse: Literal["single", "many"] = "single"
    b64: Literal["standard", "websafe"] = "standard"
    compression: Compression = "none"
    arrow: ArrowFormat = "stream"
    quality: int = 95
    images: ImageCodecs | None = None


class Transforms(Protocol):
    """What the steps in a schema mean, which codecs do not know."""

    def check(self, schema: Schema) -> Schema:
        """The schema, its steps checked and written out with all their arguments.

        Raises:
            InputError: steps that cannot be done.
        """

    def result(self, schema: Schema) -> Schema:
        """The schema of rows that went through all steps of a checked one."""


@immutable()
class CsvDialect:
    """How a CSV body is written.

    Attributes:
        delimiter: one ASCII character between two fields.
        nulls: texts without quotes that mean null, beside the empty one.
    """

    delimiter: str = ","
    nulls: tuple[str, ...] = ()


@immutable()
class RecordsDecodeOptions:
    """For decoders of records.

    Attributes:
        schema: declared by the client; None infers one.
        message: what a row of a TFRecord is, and what is made of rows without a declared schema; None
            is what the schema says, or an Example.
        schema_of_dataset: the schema is that of the dataset appended to; a schema in the body is then
            no second declaration, but has to equal it.
        body_schema_seen: `schema` takes account of one in the body, which is passed over.
        known: where a schema is inferred, features that are not: they are as this one has them.
        nonfinite: as for tensors.
        infer: from the first 1,000 rows, or from all of them.
        compression: of `tfrecord`; None detects it.
        undeclared: what happens to features that a declared schema does not name.
        json_bytes: as for tensors.
        csv: how a CSV body is written.
        archive: how a `tar`, `zip` or `multipart` body is laid out; None is what most of that form are.
        labels: of images in folders: names of folders, whose places here are the labels; None takes the
            names.
        boundary: of `multipart`: what stands between the parts.
        as_bytes: each record of a `tfrecord` or `b64` body is one value of bytes, whatever it holds.
        transforms: knows the steps in a schema that stands in the body; None where there can be none.
        row_groups: of a `parquet` body, those to read; None is all of them.
        losses: records of a damaged `tfrecord` are passed over, and what is lost is noted here; None
            refuses the damage.
    """

    schema: Schema | None = None
    message: Message | None = None
    schema_of_dataset: bool = False
    body_schema_seen: bool = False
    known: Schema | None = None
    nonfinite: Literal["error", "null", "bare"] = "error"
    infer: Literal["head", "all"] = "head"
    compression: Compression | None = None
    undeclared: Literal["error", "drop"] = "error"
    json_bytes: int | None = None
    csv: CsvDialect = CsvDialect()
    archive: ArchiveLayout | None = None
    labels: tuple[str, ...] | None = None
    boundary: bytes = b""
    as_bytes: bool = False
    transforms: Transforms | None = None
    row_groups: range | None = None
    losses: Losses | None = None


@immutable()
class RecordsEncodeOptions:
    """For encoders of records.

    Attributes:
        layout: JSON: `rows` [{...}] or `columns` {name: [...]}; NDJSON: a line a row, or a batch.
        nonfinite, int64: as for tensors.
        text: JSON: features of dtype bytes as {"b64": ...} or as UTF-8 text; text is always text.
        b64: as for tensors.
        compression: of `tfrecord`.
        arrow: as for tensors.
        delimiter: of `csv`: one ASCII character between two fields.
        as_bytes: each record of a `tfrecord` or `b64` answer is a row's one value of bytes, not a message.
        lossy: float64 may go into a FloatList and uint64 into an Int64List, whatever becomes of the values.
        exact: a float64 that a FloatList would round is refused, even where its dtype was inferred.
        rounded: notes the features of which values were rounded; None notes nothing.
    """

    layout: Literal["rows", "columns"] = "rows"
    nonfinite: Literal["string", "null", "error"] = "string"
    int64: Literal["number", "string"] = "number"
    text: Literal["b64", "utf8"] = "b64"
    b64: Literal["standard", "websafe"] = "standard"
    compression: Compression = "none"
    arrow: ArrowFormat = "stream"
    delimiter: str = ","
    as_bytes: bool = False
    lossy: bool = False
    exact: bool = False
    rounded: RoundedFeatures | None = None
