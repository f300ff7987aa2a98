"""What can go wrong, as exceptions.

ClientError
+-- Refused               the service says no; `status`, `code`, `detail`, and where: `row`, `feature`
|   +-- Denied            401, 403: no token, or one that may not do this
|   +-- NotFound          404
|   +-- Conflict          409: the state of the dataset forbids it
+-- Unavailable           no answer, or only answers that say "later", for longer than the patience
+-- OutcomeUnknown        rows that are perhaps stored, and cannot be sent again by the client itself
+-- Damaged               what came is not what was sent
+-- Unsendable            values that the client cannot write; nothing was sent
+-- LibraryMissing        pyarrow, pandas or polars has to be installed
+-- FeedError             of a feed: a state of other rows, steps that cannot be
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final


class ClientError(Exception):
    """Any failure that the client reports."""


class Refused(ClientError):
    """The service has refused the request, and the same request would be refused again.

    Attributes:
        status: of HTTP.
        code: stable, for programs; docs/reference/errors.md has them all. Empty if what answered was no
            Shardsmith.
        detail: for people: what was wrong, and what to do.
        row, feature, offset, pointer: where, as far as that is known.
        problem: the whole problem document.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(problem.get("code", ""))
        self.detail = str(problem.get("detail", ""))
        self.row: int | None = problem.get("row")
        self.feature: str | None = problem.get("feature")
        self.offset: int | None = problem.get("offset")
        self.pointer: str | None = problem.get("pointer")
        self.problem = dict(problem)
        super().__init__(f"{status} {self.code}: {self.detail}" if self.code else f"{status}: {self.detail}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.problem)


class Denied(Refused):
    """No token, a wrong one, or one that may not do this."""


class NotFound(Refused):
    """There is no such dataset, version, split, file, append or import."""


class Conflict(Refused):
    """The state of the dataset forbids it."""


class Unavailable(ClientError):
    """The service did not answer, or only said "later", for longer than the patience of the client.

    Nothing is half done: what was asked for may be asked for again.
    """


class OutcomeUnknown(ClientError):
    """Rows came out of an iterator and were on their way when the connection failed: perhaps they are stored.

    To find out, send the same rows again under the same key: they are stored once.

    Attributes:
        key: the `Idempotency-Key` of the append.
    """

    def __init__(self, key: str, cause: str) -> None:
        self.key = key
        self.cause = cause
        super().__init__(
            f"{cause} The rows are perhaps stored, and an iterator cannot be read again. Append the same "
            f"rows once more with key={key!r}: they are stored once. An append of a function that returns an "
            f"iterator is repeated by itself."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.key, self.cause)


class Damaged(ClientError):
    """What came is not what the service had sent: its digest is another one."""


class Unsendable(ClientError, ValueError):
    """Values that the client cannot write without altering them. Nothing was sent."""


class LibraryMissing(ClientError, ImportError):
    """A library that this takes is not installed; the message says which."""


class FeedError(ClientError):
    """The feed cannot be as it is asked for, or the state is one of other rows."""


_KINDS: Final[Mapping[int, type[Refused]]] = {401: Denied, 403: Denied, 404: NotFound, 409: Conflict}
#: Of a text that is no problem document, as that of a proxy.
_MOST_DETAIL: Final = 200


def read_problem(text: bytes) -> dict[str, Any]:
    """The problem document of an answer; one made of its text if it has none."""
    try:
        problem = json.loads(text)
        return {**problem, "detail": str(problem["detail"])}
    except (ValueError, LookupError, TypeError, RecursionError):
        return {"detail": text[:_MOST_DETAIL].decode(errors="replace")}


def refusal(status: int, problem: Mapping[str, Any]) -> Refused:
    """The exception for an answer that is an error."""
    return _KINDS.get(status, Refused)(status, problem)
