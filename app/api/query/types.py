"""The types of query parameters that several routes share, each documented once."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ...domain.compression import Compression
from ...domain.schema import Message
from ...transforms.apply import OnError

From = Annotated[str | None, Field(alias="from", description="Format of the body; beats Content-Type.")]
To = Annotated[str | None, Field(description="Format of the answer; beats Accept.")]
DescribedTo = Annotated[
    str | None,
    Field(
        description="`json` (counts and statistics, the default), or the schema alone: `schema` (JSON), "
        "`pbtxt` (TensorFlow Metadata), `features` (TFDS), `python` (source for tf.data), `torch` (for "
        "PyTorch)."
    ),
]
Nonfinite = Annotated[
    Literal["string", "null", "error", "bare"],
    Field(
        description="NaN and infinities in JSON. In: `null` reads null as NaN, `bare` accepts the bare "
        'tokens. Out: `string` (default) "NaN", "Infinity", "-Infinity"; `null`; `error` refuses.'
    ),
]
NonfiniteIn = Annotated[
    Literal["null", "bare"] | None,
    Field(description="JSON: `null` reads null as NaN, `bare` accepts the tokens NaN and Infinity."),
]
NonfiniteOut = Annotated[
    Literal["string", "null", "error"], Field(description="NaN and infinities in JSON answers.")
]
Int64 = Annotated[Literal["number", "string"], Field(description="64-bit integers in JSON answers.")]
BytesAs = Annotated[
    Literal["b64", "utf8"],
    Field(alias="bytes", description='Bytes in JSON answers: {"b64": ...}, or text (422 if invalid).'),
]
Delivery = Annotated[
    Literal["checked"] | None,
    Field(description="`checked` completes the answer before its first byte leaves."),
]
SchemaText = Annotated[
    str | None,
    Field(
        alias="schema",
        description="The schema, up to 8 KiB: JSON, the text of a features.json or of a schema.pbtxt; "
        "or `dataset:NAME`.",
    ),
]
TransformsText = Annotated[
    str | None,
    Field(
        alias="transforms",
        description='Steps for the values of features, done before the answer is written, as JSON: `{"x": '
        '[{"step": "cast", "dtype": "int64"}]}`, up to 8 KiB.',
    ),
]
OnErrorParameter = Annotated[
    OnError,
    Field(
        description="Rows with a value that a step of the transforms does not take: `skip` leaves them out "
        "and says how many."
    ),
]
Infer = Annotated[
    Literal["head", "all"],
    Field(description="Infer the schema from the first 1,000 rows, or from all of them."),
]
Lossy = Annotated[
    Literal["allow", "error"] | None,
    Field(
        description="What becomes of float64 that nobody declared in an Example's FloatList, which holds "
        "float32. By default it is rounded, unless it is beyond 2^24 and not held exactly; `error` refuses "
        "to round anything; `allow` rounds all, declared float64 too, and lets uint64 into an Int64List."
    ),
]
Delimiter = Annotated[
    Literal[",", ";", "|", "tab"] | None,
    Field(
        description="What separates the fields of a CSV body. By default a comma, or a tab where its media "
        "type is `text/tab-separated-values`."
    ),
]
NullTexts = Annotated[
    str | None,
    Field(
        alias="null",
        description="Texts without quotes that mean null in a CSV body, separated by commas, beside the "
        "empty field.",
        examples=["NA,NaN"],
    ),
]
Archive = Annotated[
    Literal["samples", "folders"] | None,
    Field(
        description="How an archive, or the files of a form, are rows: `samples` are the files that share a "
        "name, as in WebDataset (the default of tar); `folders` hold images, whose labels are the names of "
        "the folders (the default of zip), or the field `label` before them (the default of multipart)."
    ),
]
Labels = Annotated[
    str | None,
    Field(
        description="Names of labels, separated by commas: a label is then its place here. The names are the "
        "`class_names` of the feature.",
        examples=["cat,dog"],
    ),
]
Undeclared = Annotated[
    Literal["error", "drop"], Field(description="Features that a declared schema does not name.")
]
RowsLayout = Annotated[Literal["rows", "columns"], Field(description="Layout of a JSON answer.")]
EitherCompression = Annotated[
    Compression | None,
    Field(description="Of a TFRecord answer, or of a TFRecord body (detected by default)."),
]
Damaged = Annotated[
    Literal["refuse", "skip"],
    Field(description="Records of a TFRecord body that are damaged: `skip` leaves them out and says so."),
]
ExampleMessage = Annotated[
    Message | None,
    Field(
        description="What a row is: an Example, or a SequenceExample. By default what the schema says, "
        "else an Example. It has to agree with a schema that has features of kind `sequence`."
    ),
]
#: A `Message`, or none at all.
RecordMessageName = Literal["example", "sequence_example", "bytes"]
RecordMessage = Annotated[
    RecordMessageName | None,
    Field(
        description="What a record is: an Example, or a SequenceExample. By default what the schema says, "
        "else an Example. It has to agree with a schema that has features of kind `sequence`. With `bytes` "
        "a record of TFRecord (or `b64`) holds anything, and a row has one feature with its bytes, `value`."
    ),
]
Base64 = Annotated[
    Literal["standard", "websafe"],
    Field(
        description="Alphabet of base64 in JSON answers: the standard one, or that of "
        "`tf.io.encode_base64` (web-safe, no padding). Bodies may use either."
    ),
]
Channels = Annotated[
    Literal["0", "1", "3", "4"],
    Field(
        description="What an image is decoded to: `1` grey, `3` RGB, `4` RGBA (no JPEG has that); `0`, the "
        "default, are its own."
    ),
]
Quality = Annotated[int, Field(ge=1, le=100, description="Of a JPEG answer.")]
Order = Annotated[
    Literal["C", "F"],
    Field(description="How the elements of raw bodies and raw answers lie: row-major or column-major."),
]
TensorKind = Annotated[
    Literal["dense", "sparse", "ragged"] | None,
    Field(
        description="What the components in the body are: `sparse` indices, values, dense_shape, or what "
        "`tf.io.serialize_sparse` gives; `ragged` values, then row_splits, outermost first. Without it "
        "a format that says so itself is believed, and bytes are never guessed to be tensors."
    ),
]
SparseAs = Annotated[
    Literal["single", "many"],
    Field(
        description="A sparse tensor as TensorProto: as `tf.io.serialize_sparse` gives it, or as "
        "`tf.io.serialize_many_sparse` does, where the first axis counts the rows."
    ),
]
