"""What a file is: by its first bytes, and by its name where those do not say it.

The bytes go first, since names lie. The name decides between formats of text, and for bytes that have no mark
of their own. Nothing is decoded here but the beginning of what is compressed.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal

from ..domain.compression import Compression
from ..domain.immutable import immutable
from ..domain.limits import KIB, MIB, Limits
from ..domain.schema import Message
from ..errors import InputError, MalformedInput, UnknownForm
from ..runtime.budget import Budget
from .compression import zstd
from .compression.inflate import WBITS, Container
from .compression.tfrecord import detect_compression
from .forms import RECORDS_CODECS, TENSOR_CODECS, FormName
from .images.header import read_header
from .kernels.messages.framing import HEADER_BYTES
from .messages.example import parse_example
from .messages.framing import frame_header
from .messages.protobuf import LENGTH_DELIMITED, VARINT, parse_varint
from .messages.tensor_proto.fields import read_tensor_fields
from .options import RecordsDecodeOptions

#: The bytes that are looked at.
HEAD_BYTES: Final = 64 * KIB

Kind = Literal["records", "tensors"]

#: The end of a file's name -> its format.
SUFFIXES: Final[dict[str, FormName]] = {
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".tfrec": "tfrecord",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".npy": "npy",
    ".npz": "npz",
    ".raw": "raw",
    ".oip": "oip",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".png": "png",
    ".webp": "webp",
    ".gif": "gif",
    ".bmp": "bmp",
    ".pb": "tensorproto",
    ".tensorproto": "tensorproto",
    ".safetensors": "safetensors",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
    ".tar": "tar",
    ".zip": "zip",
    ".b64": "b64",
}
#: The end of a compressed file's name -> what it is compressed with.
CONTAINERS: Final[dict[str, Container]] = {".gz": "gzip", ".zst": "zstd", ".zlib": "zlib"}

#: Behind the name of a shard, as TFDS and Beam number them.
_SHARD: Final = re.compile(r"-\d{5}-of-\d{5}$")
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
#: A continuation marker and the length of a message (Arrow IPC, since 0.15).
_ARROW_STREAM: Final = b"\xff\xff\xff\xff"
_LIBSVM: Final = re.compile(rb"[-+.\deE]+(?:[ \t]+(?:qid:)?\d+:[-+.\deEnaNif]+)+[ \t]*(?:#.*)?")
_DELIMITERS: Final = ",\t;|"
#: The largest number of a dtype in a TensorProto (`types.proto`), of a reference to one.
_MOST_DTYPE: Final = 132
#: Members of a tensor as JSON.
_TENSOR_MEMBERS: Final = frozenset({"dtype", "datatype", "data"})
_BY_CHECKSUM: Final = "by the checksum of its first record's length"


@immutable()
class Sniffed:
    """What a file seems to be.

    Attributes:
        kind: whether it holds rows or tensors, where its format holds either.
        container: what it is compressed with, around a format that says nothing of that.
        compression: of a TFRecord, whose decoder inflates it.
        reason: how that is known, as the end of a sentence.
        message: of a TFRecord: what its first record is, if it is one of these.
        as_bytes: of a TFRecord: its first record is no message that is known.
        delimiter: of CSV.
    """

    form: FormName
    kind: Kind
    container: Container | None = None
    reason: str = ""
    message: Message | None = None
    as_bytes: bool = False
    delimiter: str = ","
    compression: Compression = "none"

    @property
    def around(self) -> Container | None:
        """What it is compressed with, whatever inflates it."""
        return self.container if self.compression == "none" else self.compression


#: A file of other messages, or of none.
TFRECORD_OF_BYTES: Final = Sniffed(
    "tfrecord",
    "records",
    reason=f"{_BY_CHECKSUM}; its records are not Examples: each is a row of bytes",
    as_bytes=True,
)


def form_of_name(name: str) -> tuple[FormName | None, Container | None]:
    """The format that the end of a file's name says, and what the file is compressed with."""
    name = _SHARD.sub("", name.lower())
    container = next((CONTAINERS[end] for end in CONTAINERS if name.endswith(end)), None)
    if container is not None:
        name = name.rpartition(".")[0]
    longest = max((end for end in SUFFIXES if name.endswith(end)), key=len, default=None)
    if longest is None and ".tfrecord" in name:  # train.tfrecord-00
        return "tfrecord", container
    return (None if longest is None else SUFFIXES[longest]), container


def sniff(head: bytes, name: str = "") -> Sniffed:
    """What a file is that begins with `head`, the first `HEAD_BYTES` of it or all that it has.

    Raises:
        UnknownForm: neither its bytes nor its name say.
    """
    named, compressed = form_of_name(name)
    container, content = _inflate(head)
    found = _by_bytes(content, is_all=container is None and len(head) < HEAD_BYTES, named=named)
    if found is None and container == "zlib":
        container, content = None, head  # two bytes are a weak mark
        found = _by_bytes(content, is_all=len(head) < HEAD_BYTES, named=named)
    if found is None and named == "tensorproto" and _is_example(content):
        named = None
    if found is None and named is not None:
        kind: Kind = "records" if named in RECORDS_CODECS and named not in TENSOR_CODECS else "tensors"
        kind = "records" if named in ("tfrecord", "json", "arrow") else kind
        found = Sniffed(named, kind, reason="by the end of its name")
        container = container or (None if named == "tfrecord" else compressed)
    if found is None and not head:
        raise UnknownForm("It is empty, and its name does not tell its format. Set from= to say it.")
    if found is None and _is_example(content):
        raise UnknownForm(
            "This is one serialized tf.train.Example by itself, without the length and the checksums around "
            "it that make a TFRecord. Write it with tf.io.TFRecordWriter."
        )
    if found is None:
        raise UnknownForm(
            "Neither the first bytes nor the name tell what this is. Say what it is with "
            f"from= ({', '.join(SUFFIXES[end] for end in _one_suffix_each())})."
        )
    if found.form == "tfrecord":
        # Its decoder inflates it.
        return replace(found, compression=container) if container in ("gzip", "zlib") else found
    return found if container is None else _with_container(found, container)


def _one_suffix_each() -> list[str]:
    return list({form: end for end, form in reversed(SUFFIXES.items())}.values())[::-1]


def _with_container(found: Sniffed, container: Container) -> Sniffed:
    return Sniffed(
        found.form, found.kind, container, found.reason, found.message, found.as_bytes, found.delimiter
    )


def _inflate(head: bytes) -> tuple[Container | None, bytes]:
    """What the file is compressed with, and the beginning of what is in it."""
    if head.startswith(_ZSTD_MAGIC):
        with suppress(zstd.ZstdError):
            return "zstd", zstd.decompressor().decompress(head, HEAD_BYTES)
    compression = detect_compression(head)
    if compression in WBITS:
        with suppress(zlib.error):
            return compression, zlib.decompressobj(WBITS[compression]).decompress(head, HEAD_BYTES)
    return None, head


def _by_bytes(head: bytes, *, is_all: bool, named: FormName | None) -> Sniffed | None:
    return (
        _by_mark(head, named)
        or _tfrecord(head)
        or _by_text(head, is_all=is_all, named=named)
        or _proto(head, named)
    )


def _by_mark(head: bytes, named: FormName | None) -> Sniffed | None:
    """By the first bytes that a format has in every file."""
    reason = "by its first bytes"
    if head.startswith(b"\x93NUMPY"):
        return Sniffed("npy", "tensors", reason=reason)
    if head.startswith(b"PAR1"):
        return Sniffed("parquet", "records", reason=reason)
    if head.startswith(b"PK\x03\x04"):
        size = int.from_bytes(head[26:28], "little")
        if head[30 : 30 + size].endswith(b".npy") or named == "npz":
            return Sniffed("npz", "tensors", reason=reason)
        return Sniffed("zip", "records", reason=reason)
    if head.startswith(b"ARROW1\0\0") or (head.startswith(_ARROW_STREAM) and len(head) > 8):
        return Sniffed("arrow", "records", reason=reason)
    if head[257:262] == b"ustar":
        return Sniffed("tar", "records", reason=reason)
    if head[8:10] in (b'{"', b"{ ", b"{}") and int.from_bytes(head[:8], "little") < 2**32:
        return Sniffed("safetensors", "tensors", reason=reason)
    with suppress(InputError):
        return Sniffed(read_header(head).format, "tensors", reason=reason)
    return None


def _tfrecord(head: bytes) -> Sniffed | None:
    size = int.from_bytes(head[:8], "little")
    if len(head) < HEADER_BYTES or size >= 2**40 or frame_header(size) != head[:HEADER_BYTES]:
        return None
    payload = head[HEADER_BYTES : HEADER_BYTES + size]
    what = _message_of(payload, size)
    if what == "bytes" or (len(payload) == size and not _is_message(payload, what)):
        return TFRECORD_OF_BYTES
    if what == "tensor":
        return Sniffed("tfrecord", "tensors", reason=_BY_CHECKSUM)
    return Sniffed("tfrecord", "records", reason=_BY_CHECKSUM, message=what)


def _is_message(payload: bytes, what: Literal["example", "sequence_example", "tensor"]) -> bool:
    """Whether it can be read as this message, or would be one with other values."""
    budget = Budget(Limits(max_decoded_bytes=MIB))
    try:
        if what == "tensor":
            read_tensor_fields(memoryview(payload), budget, offset=0)
        else:
            deque(parse_example(payload, RecordsDecodeOptions(message=what), budget).batches, maxlen=0)
    except MalformedInput:
        return False
    except InputError as error:
        return error.code != "not_an_example"
    return True


def _message_of(payload: bytes, size: int) -> Literal["example", "sequence_example", "tensor", "bytes"]:
    """What a record of `size` bytes is, of which these are the first ones."""
    try:
        if not size:
            return "example"
        tag, at = parse_varint(payload, 0, len(payload))
        if tag == 1 << 3 | VARINT:
            dtype, at = parse_varint(payload, at, len(payload))
            follows = payload[at : at + 1] in (b"", b"\x12", b"\x18", b"\x22")
            return "tensor" if 0 < dtype <= _MOST_DTYPE and follows else "bytes"
        if tag not in (1 << 3 | LENGTH_DELIMITED, 2 << 3 | LENGTH_DELIMITED):
            return "bytes"
        length, at = parse_varint(payload, at, len(payload))
        # Features and feature lists alike are maps: entries in which a key comes first.
        is_map = not length or payload[at : at + 1] == b"\x0a"
        if not is_map or at + length > size:
            return "bytes"
    except InputError:
        return "bytes"
    return "example" if tag >> 3 == 1 and at + length == size else "sequence_example"


def _by_text(head: bytes, *, is_all: bool, named: FormName | None) -> Sniffed | None:
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if is_all or error.start < len(head) - 4:
            return None
        text = head[: error.start].decode("utf-8-sig", "replace")
    if "\0" in text or not text.strip():
        return None
    if named in ("csv", "libsvm") and text.lstrip()[:1] not in ("{", "["):
        return Sniffed(named, "records", reason="by the end of its name", delimiter=_delimiter(text))
    return _json(text, named) or _lines(text)


def _json(text: str, named: FormName | None) -> Sniffed | None:
    start = text.lstrip()
    first, _, rest = start.partition("\n")
    if named == "ndjson" or (start.startswith("{") and _parsed(first) is not None and rest.strip()):
        return Sniffed("ndjson", "records", reason="by its first line")
    if start.startswith(("{", "[")):
        return Sniffed(
            named if named == "b64" else "json", _kind_of_json(start), reason="by its first characters"
        )
    return None


def _kind_of_json(text: str) -> Kind:
    value = _parsed(text)
    if isinstance(value, list):
        value = value[0] if value else []
    if isinstance(value, dict):
        is_tensor = not _TENSOR_MEMBERS.isdisjoint(value) and ("shape" in value or "data" in value)
        return "tensors" if is_tensor or "inputs" in value or "outputs" in value else "records"
    if value is not None:
        return "tensors"
    # Only its beginning is here.
    if re.match(r'\s*\[?\s*\{\s*"(?:dtype|datatype|inputs|outputs)"', text):
        return "tensors"
    return "records" if re.match(r"\s*\[?\s*\{", text) else "tensors"


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _lines(text: str) -> Sniffed | None:
    first, second = [*text.split("\n", 2), ""][:2]
    if _LIBSVM.fullmatch(first.encode("utf-8", "replace").strip()):
        return Sniffed("libsvm", "records", reason="by its first line")
    delimiter = _delimiter(first)
    if delimiter in first and first.count(delimiter) == second.count(delimiter):
        return Sniffed("csv", "records", reason="by its first lines", delimiter=delimiter)
    return None


def _delimiter(text: str) -> str:
    first = text.partition("\n")[0]
    return max(_DELIMITERS, key=first.count)


def _is_example(content: bytes) -> bool:
    """Whether all of this is one Example, which is no file of its own."""
    return 0 < len(content) < HEAD_BYTES and _message_of(content, len(content)) == "example"


def _proto(head: bytes, named: FormName | None) -> Sniffed | None:
    """A bare TensorProto has no mark: it is taken for one where its name allows it."""
    if named in (None, "tensorproto") and len(head) < HEAD_BYTES and _message_of(head, len(head)) == "tensor":
        return Sniffed("tensorproto", "tensors", reason="by the fields of its message")
    return None
