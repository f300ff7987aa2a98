"""Turn errors of obstore into those of this project, which say what failed, what the store said, what to set.

The body of an answer is never quoted: S3 repeats an expired session token in it, and the signed text if the
key is wrong. For the same reason the errors made here do not chain to obstore's.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, UnauthenticatedError

from ..errors import ShardsmithError, StorageError, StorageFull, StorageUnavailable
from .object_store import AlreadyExists, ObjectNotFound


class Hints(NamedTuple):
    """Which settings an operator has to check for one kind of store."""

    credentials: str
    endpoint: str


class RangeNotSatisfiable(StorageUnavailable):
    """The range seems to begin past the end of the object."""


#: ENOSPC, EFBIG and EDQUOT as Rust prints them, and HTTP's 507 as S3-compatible stores answer it.
_FULL: Final = re.compile(r"\(os error (28|27|122)\)|507 Insufficient Storage")
#: EPERM, EACCES and EROFS as Rust prints them: obstore's local store has no class for those. Of a remote
#: store they are errors of a connection, over which the request may have gone.
_DENIED: Final = re.compile(r"\(os error (1|13|30)\)")
#: A signature may stand in the query of a URL that an error quotes.
_QUERY: Final = re.compile(r"\?[^\s\"')]+")
#: How object_store words an answer that is no success; what follows is its body.
_ANSWER: Final = re.compile(r"Server returned (?:non-2xx status code: (\d{3}(?: \w+)*)|error response)")
_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>")
#: S3 and Google, Azure, and Azure's answer to a batch of deletions.
_NO_BUCKET: Final = re.compile(
    r"<Code>(?:NoSuchBucket|ContainerNotFound)</Code>|: The specified container does not exist. \(code: 404\)"
)
#: What S3 answers with 400 though it is about credentials.
_DENIED_CODES: Final = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
#: A range that begins where the object ends or after; obstore has no class for it.
_RANGE: Final = re.compile(r"Wanted range starting at|Requested range was invalid|status code: 416 ")
#: Where instances of all three providers get credentials when none are configured.
_INSTANCE_METADATA: Final = "169.254.169.254"
#: reqwest's words for a connection that was not made, or broke.
_NOT_SENT: Final = "error sending request"
_LONGEST: Final = 300


def failure(key: str, error: Exception, hints: Hints | None = None) -> ShardsmithError:
    """The error to raise for an error of obstore while it worked on `key`."""
    text = str(error)
    answer = _ANSWER.search(text)
    status = answer[1] if answer and answer[1] else ""
    code = _code(text)
    why = reason(error)
    if isinstance(error, AlreadyExistsError):
        return AlreadyExists(f"There is an object {key} already.")
    if _NO_BUCKET.search(text):
        return StorageError(
            f"The bucket or container that SHARDSMITH_STORAGE_URL names does not exist: create it, or "
            f"correct the URL ({why}).",
            code="bucket_not_found",
        )
    if isinstance(error, FileNotFoundError):
        return ObjectNotFound(f"There is no object {key}.")
    if _FULL.search(text):
        return StorageFull(f"No room left to store {key}: {why}")
    if hints is not None and _INSTANCE_METADATA in text:
        return StorageUnavailable(
            f"No credentials for the store were found. Set {hints.credentials} ({why})."
        )
    if (
        isinstance(error, (PermissionDeniedError, UnauthenticatedError, PermissionError))
        or status.startswith(("401", "403"))
        or code in _DENIED_CODES
        or (hints is None and _DENIED.search(text))
    ):
        advice = f" Check {hints.credentials}, and what they permit." if hints is not None else ""
        return StorageError(
            f"The store refuses access to {key or 'its objects'}: {why}.{advice}", code="storage_denied"
        )
    if _RANGE.search(text):
        return RangeNotSatisfiable(f"{key} has no such range: {why}.")
    if isinstance(error, ValueError):
        return StorageError(f"The store cannot hold a key like {key!r}.", code="invalid_key")
    advice = f" Check {hints.endpoint}." if hints is not None and _NOT_SENT in text else ""
    return StorageUnavailable(f"The store failed at {key or 'a list'}: {why}.{advice}")


def reason(error: Exception) -> str:
    """The request, its status and the store's own code, in one line without anything secret."""
    text = str(error)
    answer = _ANSWER.search(text)
    request = text[: answer.start()] if answer else text
    line = _QUERY.sub("", request.split("\n", 1)[0])[:_LONGEST]
    if answer is None:
        return line.rstrip(" .")
    return f"{line}answered {', '.join(filter(None, (answer[1], _code(text)))) or 'with an error'}"


def _code(text: str) -> str:
    found = _CODE.search(text)
    return found[1] if found else ""
