"""The exceptions of Shardsmith. No HTTP in here: `api/problems.py` maps classes to statuses.

ShardsmithError
├── InputError                    what the client sent is at fault
│   ├── MalformedInput            the bytes, text or parameters cannot be read at all
│   │   └── AmbiguousInput        readable, but in more than one way
│   ├── UnprocessableInput        readable, but contradictory or not expressible
│   │   ├── SchemaConflict        a row does not fit the schema
│   │   └── LossyConversion       the conversion would lose or alter values
│   ├── UnknownForm               the input form is not known, or not accepted here
│   │   └── UnknownEncoding       the body is encoded in a way that is not undone here
│   ├── NotAcceptable             no output format matches what the client accepts
│   └── LimitExceeded             larger, deeper or longer than allowed
├── Unauthenticated               the caller is not known
│   └── InvalidToken              a token came that is not, or no longer, accepted
├── IssuerUnavailable             the caller cannot be checked: the keys of its issuer cannot be fetched
├── InsufficientScope             the caller is known, and may not do this
├── NotFound                      no such dataset, version, shard, ...
├── Conflict                      the state of the store forbids it
│   └── InProgress                the same is being done right now
├── StorageError                  the object store failed
│   ├── StorageUnavailable        cannot be reached, or answered with an error
│   │   └── SourceUnavailable     the same of what an import reads, which is not the store
│   ├── OutcomeUnknown            a write may or may not have been stored
│   ├── StorageFull               no room left
│   │   └── SpoolFull             no room left on the spool, the local disk for what memory does not hold
│   └── SpoolUnavailable          the spool cannot be written or read
├── Overloaded                    no worker came free in time; try again
├── CorruptData                   stored data does not match its checksum or format
└── StreamInterrupted             the client went away before its body ended
    ├── StreamAltered             what came is not what the client says that it sent
    └── StreamTimeout             the client sent nothing for too long

CannotStart stands apart: no client hears of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from typing_extensions import TypedDict

#: Options that an error may name. It says `infer=all`; whoever shows it writes them as its users do.
_OPTIONS: Final = (
    "archive", "bytes", "dtype", "evolve", "exclude", "from", "index", "infer", "labels", "layout", "lossy",
    "message", "nonfinite", "on_error", "reader", "redirect", "shape", "shuffle", "sparse", "undeclared",
)  # fmt: skip
#: Where an error names an option, an empty match; or text in quotes, which may be a client's and stays.
OPTION: Final = re.compile(rf"(?<!\w)'[^']*'(?!\w)|(?:(?<=[\s(])|^)(?=(?:{'|'.join(_OPTIONS)})=)")


@dataclass(frozen=True, slots=True)
class Location:
    """Where in the input something is wrong. Every field is optional.

    Attributes:
        pointer: JSON Pointer (RFC 6901) into a JSON body.
        row: index of the row or record, from 0, in the whole input.
        feature: name of the feature, column or tensor.
        offset: byte offset in the (decompressed) input.
    """

    pointer: str | None = None
    row: int | None = None
    feature: str | None = None
    offset: int | None = None


class ProblemMembers(TypedDict, total=False):
    """Members that some errors have beside the common ones; each is declared in the OpenAPI document.

    Attributes:
        parameter: the query parameter that is wrong.
        accepted: media types, or content codings, that are taken here.
        served: media types, or content codings, that can be had here.
        schema: the schema that the dataset has.
        step: which of the steps of the feature's transforms, from 0.
        append_id: the append that was stored, although its publication failed.
        max_num_shards: the largest number that is allowed.
        version: the version that is being published, or that this is about.
        required_scope: what the token lacks.
        checks: the conditions of readiness, by name.
    """

    parameter: str
    accepted: list[str]
    served: list[str]
    schema: Mapping[str, object]
    step: int
    append_id: str
    max_num_shards: int
    version: str
    required_scope: str
    checks: Mapping[str, object]


class CannotStart(Exception):
    """The service cannot run as it is configured; the message says why, and what to do."""


class ShardsmithError(Exception):
    """Base of all errors that Shardsmith raises on purpose.

    Args:
        detail: one or two sentences for the client: what was wrong, and what to do.
        code: stable, machine-readable name; defaults to the class's own.
        pointer, row, feature, offset: see `Location`.
        extra: further members for the client.
    """

    code: str = "internal_error"
    #: Whether `detail` may be shown to a client.
    disclosed: bool = True

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        pointer: str | None = None,
        row: int | None = None,
        feature: str | None = None,
        offset: int | None = None,
        extra: ProblemMembers | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        if code is not None:
            self.code = code
        self.location = Location(pointer=pointer, row=row, feature=feature, offset=offset)
        self.extra: ProblemMembers = {**extra} if extra else {}

    def shift(self, *, rows: int = 0, offset: int = 0, feature: str | None = None) -> ShardsmithError:
        """Move this error's location, for codecs that see only one part of the input; return this error."""
        old = self.location
        self.location = Location(
            pointer=old.pointer,
            row=None if old.row is None else old.row + rows,
            feature=old.feature if old.feature is not None else feature,
            offset=None if old.offset is None else old.offset + offset,
        )
        return self

    def renumber(self, row: int) -> None:
        """Name another row, here and in the text, for encoders that count other rows than the input has."""
        self.detail = re.sub(rf"\b([Rr]ow|[Rr]ecord) {self.location.row}\b", rf"\g<1> {row}", self.detail)
        self.location = replace(self.location, row=row)


class InputError(ShardsmithError):
    """What the client sent is at fault."""

    code = "invalid_input"


class MalformedInput(InputError):
    """The bytes, text or parameters cannot be read at all."""

    code = "malformed_input"


class AmbiguousInput(MalformedInput):
    """The input can be read in more than one way."""

    code = "ambiguous_json"


class UnprocessableInput(InputError):
    """Well-formed, but contradictory or not expressible in the target."""

    code = "unprocessable_input"


class SchemaConflict(UnprocessableInput):
    """A row does not fit the schema, declared or inferred."""

    code = "schema_conflict"


class LossyConversion(UnprocessableInput):
    """The conversion would lose or alter values; `detail` says which option permits it."""

    code = "lossy_encoding"


class UnknownForm(InputError):
    """The input form is not known, or not accepted on this route."""

    code = "unsupported_media_type"


class UnknownEncoding(UnknownForm):
    """The body is encoded in a way that is not undone here."""

    code = "unsupported_content_encoding"


class NotAcceptable(InputError):
    """No output format matches what the client accepts."""

    code = "not_acceptable"


class LimitExceeded(InputError):
    """Larger, deeper or longer than the service allows."""

    code = "limit_exceeded"


class Unauthenticated(ShardsmithError):
    """The caller is not known, and has to be."""

    code = "authentication_required"


class InvalidToken(Unauthenticated):
    """A token came that is not, or no longer, accepted."""

    code = "invalid_token"


class IssuerUnavailable(ShardsmithError):
    """The caller cannot be checked now: the keys of the token's issuer cannot be fetched."""

    code = "issuer_unreachable"


class InsufficientScope(ShardsmithError):
    """The caller is known, and may not do this."""

    code = "insufficient_scope"


class NotFound(ShardsmithError):
    """No such dataset, version, shard or file."""

    code = "not_found"


class Conflict(ShardsmithError):
    """The state of the store forbids it."""

    code = "conflict"


class InProgress(Conflict):
    """The same is being done right now; ask again when it is done."""

    code = "in_progress"


class StorageError(ShardsmithError):
    """The object store failed."""

    code = "storage_error"
    disclosed = False


class StorageUnavailable(StorageError):
    """The object store cannot be reached, or answered with an error; try again."""

    code = "storage_unavailable"


class SourceUnavailable(StorageUnavailable):
    """What an import reads cannot be reached, or answered with an error. The object store is not involved."""

    code = "source_unavailable"


class OutcomeUnknown(StorageError):
    """A write may or may not have been stored; repeat it with the same key."""

    code = "outcome_unknown"
    disclosed = True


class StorageFull(StorageError):
    """No room left on the store."""

    code = "storage_full"


class SpoolFull(StorageFull):
    """No room left on the spool."""

    code = "spool_full"
    disclosed = True


class SpoolUnavailable(StorageError):
    """The spool cannot be written or read. The object store is not involved."""

    code = "spool_unavailable"
    disclosed = True


class Overloaded(ShardsmithError):
    """No worker came free in time; nothing was done, try again.

    Args:
        short: what there is too little of, one word; for the operator, not for the client.
    """

    code = "overloaded"

    def __init__(self, detail: str, *, short: str = "", code: str | None = None) -> None:
        super().__init__(detail, code=code)
        self.short = short


class CorruptData(ShardsmithError):
    """Stored data does not match its checksum or format."""

    code = "corrupt_data"


class StreamInterrupted(ShardsmithError):
    """The client went away before its body ended; nothing is committed."""

    code = "stream_interrupted"


class StreamAltered(StreamInterrupted):
    """What came is not what the sender says that it sent: as good as nothing."""

    code = "digest_mismatch"


class StreamTimeout(StreamInterrupted):
    """The client sent nothing for too long; nothing is committed."""

    code = "request_timeout"
