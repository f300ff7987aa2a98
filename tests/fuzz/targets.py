"""What is fuzzed: every decoder of the registry, and whatever else reads bytes that a client sent.

The first byte of an input chooses among the target's variants (declared schema, kind, options), the rest
is the body. A target must come back with a value or an `InputError`; anything else is a finding. What a
decoder hands on is checked against the layouts it promises, and goes through an encoder as well.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final, Literal, TypeVar

from starlette.datastructures import Headers

from app.api.body.content_encoding import choose_coding, parse_content_encoding
from app.api.body.multipart import open_multipart
from app.api.execution.transcoding import DecodedBody
from app.api.negotiation import choose_input, choose_output, parse_json_bytes
from app.codecs.array import AnyTensor, Array, in_memory
from app.codecs.forms import MEDIA_TYPES, RECORDS_CODECS, TENSOR_CODECS, FormName
from app.codecs.options import (
    RecordsDecodeOptions,
    RecordsEncodeOptions,
    TensorDecodeOptions,
    TensorEncodeOptions,
)
from app.codecs.schemas.declared import parse_schema
from app.codecs.schemas.features_json import serialize_features
from app.codecs.schemas.pbtxt import serialize_pbtxt
from app.codecs.schemas.python_source import serialize_python
from app.domain.compression import Compression
from app.domain.dtypes import parse_dtype
from app.domain.limits import KIB, MIB, Limits
from app.domain.losses import LostRange
from app.domain.schema import Schema
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.runtime.streams import ByteStream, MemoryStream, read_all
from app.runtime.workspace import Workspace
from app.services.convert.describe import describe_records, describe_tensors
from app.services.convert.examples import RowForm, convert_row
from app.services.convert.records import encode_records, open_records
from app.services.convert.repair import repair_records
from app.services.convert.tensors import TensorConversion, convert_tensors
from app.transforms.images.processes import ImageProcesses
from tests.fuzz.framing import FRAMINGS, Framing
from tests.support.bodies import body_of, stream_of
from tests.support.column_checks import check_batch
from tests.support.tfrecord_frames import frame

__all__ = [
    "DENSE",
    "ENCODED",
    "ENCODINGS",
    "KINDS",
    "LABELLED",
    "LIMITS",
    "SALVAGE_VARIANTS",
    "SCALARS",
    "SEQUENCE",
    "TARGETS",
    "Target",
    "run",
]

T = TypeVar("T")

#: Small, so that a declared size that is believed before it is checked stands out.
LIMITS: Final = Limits(
    max_body_bytes=4 * MIB,
    max_decoded_bytes=16 * MIB,
    max_json_depth=64,
    max_members=64,
    max_features=64,
    max_record_bytes=1 * MIB,
)

DENSE: Final = Schema.from_json(
    {
        "features": {
            "x": {"dtype": "float32", "shape": [2, 2], "nullable": True},
            "label": {"dtype": "int64", "nullable": True},
            "flag": {"dtype": "bool", "nullable": True},
            "small": {"dtype": "int8", "shape": [None], "nullable": True},
            "half": {"dtype": "bfloat16", "nullable": True},
            "text": {"dtype": "text", "nullable": True},
            "id": {"dtype": "bytes", "shape": [None], "nullable": True},
            "raw": {"dtype": "uint16", "shape": [2], "encoding": "raw", "nullable": True},
            "z": {"dtype": "complex64", "shape": [None, None], "nullable": True},
        }
    }
)
#: What CSV holds of them.
SCALARS: Final = Schema(tuple(DENSE.by_name[name] for name in ("label", "flag", "half", "text")))
#: What LibSVM holds.
LABELLED: Final = Schema.from_json(
    {
        "features": {
            "x": {"dtype": "float32", "shape": [9], "kind": "sparse"},
            "qid": {"dtype": "uint8", "nullable": True},
            "label": {"dtype": "int64"},
        }
    }
)
KINDS: Final = Schema.from_json(
    {
        "features": {
            "r": {"dtype": "float32", "shape": [None, None], "kind": "ragged", "nullable": True},
            "deep": {"dtype": "text", "shape": [None, None, None, 2], "kind": "ragged", "nullable": True},
            "s": {"dtype": "int32", "shape": [4, 3], "kind": "sparse", "nullable": True},
        }
    }
)
SEQUENCE: Final = Schema.from_json(
    {
        "features": {
            "length": {"dtype": "int64", "nullable": True},
            "tags": {"dtype": "text", "shape": [None], "nullable": True},
            "frames": {"dtype": "float32", "shape": [None, 2], "kind": "sequence", "nullable": True},
            "words": {"dtype": "bytes", "shape": [None, None], "kind": "sequence", "nullable": True},
        }
    }
)
#: What no list holds, and nothing may be absent.
ENCODED: Final = Schema.from_json(
    {
        "features": {
            "wide": {"dtype": "float64", "shape": [None, 2], "encoding": "tensor"},
            "big": {"dtype": "uint64", "shape": [None], "encoding": "raw"},
            "narrow": {"dtype": "int4", "shape": [3]},
            "tiny": {"dtype": "float8_e4m3fn", "shape": [None]},
            "names": {"dtype": "text", "shape": [2, None], "encoding": "tensor"},
            "flags": {"dtype": "bool", "shape": [2], "encoding": "raw"},
        }
    }
)

RECORDS_VARIANTS: Final = (
    RecordsDecodeOptions(),
    RecordsDecodeOptions(schema=DENSE),
    RecordsDecodeOptions(schema=KINDS),
    RecordsDecodeOptions(schema=SEQUENCE),
    RecordsDecodeOptions(message="sequence_example"),
    RecordsDecodeOptions(infer="all", nonfinite="null"),
    RecordsDecodeOptions(schema=DENSE, undeclared="drop", nonfinite="bare"),
    RecordsDecodeOptions(schema=SCALARS),
    RecordsDecodeOptions(schema=ENCODED),
    RecordsDecodeOptions(schema=LABELLED),
    RecordsDecodeOptions(archive="folders"),
    RecordsDecodeOptions(archive="samples"),
    RecordsDecodeOptions(archive="folders", labels=("cat", "dog")),
)
TENSOR_VARIANTS: Final = (
    TensorDecodeOptions(),
    TensorDecodeOptions(kind="sparse"),
    TensorDecodeOptions(kind="ragged"),
    TensorDecodeOptions(dtype=parse_dtype("float32"), shape=(2, 3)),
    TensorDecodeOptions(dtype=parse_dtype("complex64"), byte_order="big", order="F", shape=(2, 2)),
    TensorDecodeOptions(dtype=parse_dtype("bool"), nonfinite="null"),
    TensorDecodeOptions(dtype=parse_dtype("string")),
    TensorDecodeOptions(dtype=parse_dtype("int4"), shape=(3,)),
    TensorDecodeOptions(channels=3),
    TensorDecodeOptions(dtype=parse_dtype("uint16")),
)


#: What becomes of decoded rows and tensors: no encoder may fail on them in a way that is not documented.
#: None is a description.
RECORDS_OUTPUTS: Final[tuple[tuple[FormName | None, RecordsEncodeOptions], ...]] = (
    ("tfrecord", RecordsEncodeOptions(lossy=True)),
    ("json", RecordsEncodeOptions(lossy=True)),
    ("json", RecordsEncodeOptions(layout="columns", nonfinite="null", int64="string", text="utf8")),
    ("ndjson", RecordsEncodeOptions(nonfinite="error", b64="websafe")),
    ("arrow", RecordsEncodeOptions(arrow="file")),
    ("parquet", RecordsEncodeOptions()),
    ("csv", RecordsEncodeOptions()),
    ("libsvm", RecordsEncodeOptions()),
    ("npz", RecordsEncodeOptions()),
    ("oip", RecordsEncodeOptions()),
    ("safetensors", RecordsEncodeOptions()),
    ("b64", RecordsEncodeOptions()),
    ("tar", RecordsEncodeOptions()),
    (None, RecordsEncodeOptions()),
)
TENSOR_OUTPUTS: Final[tuple[tuple[FormName, TensorEncodeOptions], ...]] = (
    ("json", TensorEncodeOptions()),
    ("tensorproto", TensorEncodeOptions()),
    ("json", TensorEncodeOptions(layout="nested", nonfinite="null", int64="string", text="utf8")),
    ("json", TensorEncodeOptions(layout="oip", nonfinite="error", b64="websafe")),
    ("npy", TensorEncodeOptions()),
    ("npz", TensorEncodeOptions()),
    ("raw", TensorEncodeOptions(byte_order="big", order="F")),
    ("oip", TensorEncodeOptions()),
    ("safetensors", TensorEncodeOptions()),
    ("arrow", TensorEncodeOptions()),
    ("tfrecord", TensorEncodeOptions(compression="gzip", sparse="many")),
    ("b64", TensorEncodeOptions()),
    ("jpeg", TensorEncodeOptions(quality=50)),
    ("png", TensorEncodeOptions()),
)
Container = Literal["gzip", "zlib", "zstd"]
ENCODINGS: Final[tuple[Container, ...]] = ("gzip", "zlib", "zstd")
SALVAGE_VARIANTS: Final[tuple[Compression | None, ...]] = ("none", None)
_SMALL_READ: Final = 7
#: A TensorProto of one byte, and one of 256 KiB.
_SHORT_RECORD: Final = frame(bytes.fromhex("0804 1204 1202 0801 2201 00"))
_LONG_RECORD: Final = frame(bytes.fromhex("0804 1206 1204 08808010 22808010") + bytes(256 * KIB))


@dataclass(frozen=True, slots=True)
class Turn:
    """What an input chooses beside its variant.

    Attributes:
        output: number of what becomes of the values, counted round what there is.
        chunk: how many bytes a read gives at most.
    """

    output: int
    chunk: int | None = None

    def stream(self, body: bytes, *, whole: int = 0) -> ByteStream:
        """The body, to be read in pieces of that size behind the first `whole` bytes."""
        return stream_of(body, self.chunk, whole=whole)

    def choose(self, outputs: Sequence[T]) -> T:
        """The output among those of the target."""
        return outputs[self.output % len(outputs)]


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that reads foreign bytes.

    Attributes:
        variants: each takes a body, and gives what was made of it. The input's first byte chooses the
            variant, and by how often it goes round them, the turn: every other one reads the body in
            small pieces as well, of which the same has to come.
        framing: where set, an input is payloads, of which a body is made.
    """

    name: str
    variants: Sequence[Callable[[bytes, Turn], object]]
    framing: Framing | None = None

    def __call__(self, data: bytes) -> None:
        """Run the variant that `data` chooses.

        Raises:
            InputError: what was sent is at fault.
            AssertionError: other reads, another outcome.
        """
        if not data:
            return
        number, variant = divmod(data[0], len(self.variants))
        run_variant = self.variants[variant]
        body = data[1:] if self.framing is None else self.framing.body_of(data[1:])
        turn = Turn(number // 2)
        if number % 2:
            whole, pieces = (
                _outcome(run_variant, body, replace(turn, chunk=chunk)) for chunk in (None, _SMALL_READ)
            )
            if whole != pieces:
                raise AssertionError(f"{whole!r:.500} became {pieces!r:.500} where reads are small")
        else:
            run_variant(body, turn)


def _outcome(variant: Callable[[bytes, Turn], object], body: bytes, turn: Turn) -> object:
    try:
        return variant(body, turn)
    except InputError as error:
        # No offset: that of broken compression is how much came out of it.
        return type(error), error.code, error.location.row, error.location.feature


@cache
def image_processes() -> ImageProcesses:
    """What decodes images here, ended with the program."""
    processes = ImageProcesses(1)
    atexit.register(processes.close)
    return processes


def _oip_parts(form: FormName, body: bytes) -> tuple[bytes, int | None]:
    """For `oip` two bytes in front are the length of the JSON, which comes in a header."""
    if form != "oip":
        return body, None
    return body[2:], int.from_bytes(body[:2], "little")


def _tensors(form: FormName, options: TensorDecodeOptions, body: bytes, turn: Turn) -> object:
    body, json_bytes = _oip_parts(form, body)
    options = replace(options, json_bytes=json_bytes)
    output, encode = turn.choose(TENSOR_OUTPUTS)
    plain = TensorConversion(form, output, output != "tensorproto", options, encode)
    conversion = plain.with_images(image_processes())
    _check_streams(form, options, body, turn)
    with Workspace(Budget(LIMITS), Spool(None, 0)) as workspace:
        source = turn.stream(body)
        converted = convert_tensors(source, conversion, workspace)
        tensors = [
            in_memory(item, Budget())
            for item in converted.tensors or ()
            if not (isinstance(item, Array) and item.is_arriving)
        ]
        return describe_tensors(tensors), b"".join(converted.chunks)


def _check_streams(form: FormName, options: TensorDecodeOptions, body: bytes, turn: Turn) -> None:
    """What streams is what would be held, however short; both may be refused, for different reasons."""
    codec = TENSOR_CODECS[form]
    if codec.waits or options.kind in ("sparse", "ragged"):  # images are never streamed
        return
    # Where the first record of a TFRecord is long, the records are streamed; short ones are not.
    first = (_SHORT_RECORD, _LONG_RECORD) if form == "tfrecord" else (b"", b"")
    if first[0]:
        options = replace(options, dtype=None, shape=None)

    def read(budget: Budget, *, held: bool, has_length: bool = False) -> list[AnyTensor]:
        record = first[not held]
        data = record + body
        is_held = held or codec.needs == "file"
        source = body_of(codec, data) if is_held else turn.stream(data, whole=len(record))
        given = replace(options, held=held, body_bytes=len(data) if has_length else None)
        return [in_memory(item, budget) for item in codec.decode(source, given, budget)][bool(first[0]) :]

    held = _held(partial(read, held=True))
    for has_length in (False, True):
        streamed = _held(partial(read, held=False, has_length=has_length))
        if held != streamed and streamed != "late_field":
            raise AssertionError(f"{held!r:.500} became {streamed!r:.500} where it is streamed")


def _values(tensor: Array) -> object:
    return tensor.strings.unpack() if tensor.dtype.is_string else tensor.values.tobytes()


def _held(decode: Callable[[Budget], Sequence[AnyTensor]]) -> object:
    """The tensors, or that there are none; what is too much differs, since a stream takes less."""
    try:
        return [
            (item.name, item.dtype, item.shape, _values(item))
            for item in decode(Budget(replace(LIMITS, max_decoded_bytes=4 * LIMITS.max_decoded_bytes)))
            if isinstance(item, Array)
        ]
    except InputError as error:
        return "late_field" if error.code == "late_field" else "refused"


def _records(form: FormName, options: RecordsDecodeOptions, body: bytes, turn: Turn) -> object:
    body, json_bytes = _oip_parts(form, body)
    options = replace(options, json_bytes=json_bytes)
    budget = Budget(LIMITS)
    output, encode = turn.choose(RECORDS_OUTPUTS)
    with Workspace(budget, Spool(None, 0)) as workspace:
        records = open_records(turn.stream(body), form, options, workspace)
        checked = replace(records, batches=map(partial(check_batch, schema=records.schema), records.batches))
        if output is None:
            return describe_records(checked, "json")
        return b"".join(encode_records(checked, output, encode, budget).chunks)


def _salvaged(compression: Compression | None, body: bytes, turn: Turn) -> object:
    """What is good is kept byte for byte, and of every other byte it is said that it is lost."""
    good, lost = _salvage(turn.stream(body), compression)
    if _salvage(MemoryStream(good), "none") != (good, []):
        raise AssertionError("what was good is not so when it is read again")
    if compression == "none" and len(good) + sum(item.num_bytes for item in lost) != len(body):
        raise AssertionError("some bytes are neither kept nor lost")
    whole = bytearray()
    options = RecordsDecodeOptions(as_bytes=True, compression=compression)
    try:
        source: Any = turn.stream(body)
        records = RECORDS_CODECS["tfrecord"].decode(source, options, Budget(LIMITS))
        for batch in records.batches:
            strings: Any = batch.columns[0].values
            whole += b"".join(map(frame, strings.unpack()))
    except InputError:
        # Not all records before the fault: those in a block with it are not handed out.
        if not good.startswith(whole):
            raise AssertionError("a record before the first fault is lost") from None
    else:
        if good != whole or lost:
            raise AssertionError("something was lost of a body in which nothing is wrong")
    return good, lost


def _salvage(stream: ByteStream, compression: Compression | None) -> tuple[bytes, list[LostRange]]:
    repair = repair_records(stream, compression, Budget(LIMITS))
    return b"".join(map(bytes, repair.chunks)), repair.losses.ranges


_ROW_FORMS: Final[tuple[RowForm, ...]] = ("json", "example", "b64")


def _row(form: RowForm, options: RecordsDecodeOptions, body: bytes, turn: Turn) -> object:
    output = turn.choose(_ROW_FORMS)
    encode = RecordsEncodeOptions(lossy=True)
    return convert_row(
        turn.stream(body), form, output, options, encode, Workspace(Budget(LIMITS), Spool(None, 0))
    )


def _decoded(container: Container, body: bytes, turn: Turn) -> object:
    return bytes(read_all(DecodedBody(turn.stream(body), container, Budget(LIMITS)), Budget(LIMITS)))


def _multipart(content_type: str, body: bytes, turn: Turn) -> object:
    parts = open_multipart(turn.stream(body), content_type, Budget(LIMITS))
    data = read_all(parts.data, Budget(LIMITS))
    return parts.schema, parts.headers, bytes(data)


def _multipart_header(body: bytes, turn: Turn) -> object:
    """The Content-Type stands on the first line."""
    header, _, body = body.partition(b"\n")
    return _multipart(header.decode("latin-1"), body, turn)


def _headers(body: bytes, turn: Turn) -> object:
    """Content-Type, Accept, the length of a JSON, and encodings, a line each."""
    names = (
        *(b"content-type", b"accept", b"inference-header-content-length"),
        *(b"content-encoding", b"accept-encoding"),
    )
    headers = Headers(raw=list(zip(names, body.split(b"\n"), strict=False)))
    parse_json_bytes(headers)
    parse_content_encoding(headers)
    choose_coding(headers)
    input_form = choose_input(MEDIA_TYPES, headers, from_=None, default="json")
    return input_form, choose_output(MEDIA_TYPES, headers, to=None, default="json", octets_are="raw")


def _schema(body: bytes, turn: Turn) -> object:
    schema = parse_schema(body, LIMITS)
    if Schema.from_json(schema.to_json(), LIMITS) != schema:
        raise AssertionError(f"{schema} does not survive its own JSON")
    return turn.choose((serialize_pbtxt, serialize_features, serialize_python))(schema)


def _tensor_targets() -> Iterator[Target]:
    for form in TENSOR_CODECS:
        variants = [partial(_tensors, form, options) for options in TENSOR_VARIANTS]
        yield Target(f"tensors-{form}", variants)
        if framing := FRAMINGS.get(form):
            yield Target(f"tensors-{form}-framed", variants, framing)


def _records_targets() -> Iterator[Target]:
    for form in RECORDS_CODECS:
        variants = [partial(_records, form, replace(options, boundary=b"b")) for options in RECORDS_VARIANTS]
        yield Target(f"records-{form}", variants)
        if framing := FRAMINGS.get(form):
            yield Target(f"records-{form}-framed", variants, framing)


def _other_targets() -> Iterator[Target]:
    for form in _ROW_FORMS:
        yield Target(f"examples-{form}", [partial(_row, form, options) for options in RECORDS_VARIANTS])
    salvages = [partial(_salvaged, compression) for compression in SALVAGE_VARIANTS]
    yield Target("salvage", salvages)
    yield Target("salvage-framed", salvages, FRAMINGS["tfrecord"])
    yield Target("content-encoding", [partial(_decoded, container) for container in ENCODINGS])
    yield Target("multipart", [partial(_multipart, 'multipart/form-data; boundary="b"'), _multipart_header])
    yield Target("headers", [_headers])
    yield Target("schema", [_schema])


TARGETS: Final = {
    target.name: target for target in (*_tensor_targets(), *_records_targets(), *_other_targets())
}


def run(target: Target, data: bytes) -> InputError | None:
    """One execution; what was wrong with the input, or None where it was read.

    Raises:
        Exception: a finding: anything that the documentation does not promise.
    """
    try:
        target(data)
    except InputError as error:
        return error
    return None
