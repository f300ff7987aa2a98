"""Every error as `application/problem+json` (RFC 9457): one map from exception class to status."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Final, Required, cast

from starlette.responses import Response
from starlette.types import Scope

from .. import errors
from ..telemetry.metrics import HTTP_PROBLEMS
from .body.content_encoding import ACCEPTED_ENCODINGS

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"

#: The nearest class in an exception's ancestry decides.
STATUS: Final[dict[type[errors.ShardsmithError], int]] = {
    errors.InputError: 400,
    errors.MalformedInput: 400,
    errors.UnprocessableInput: 422,
    errors.UnknownForm: 415,
    errors.NotAcceptable: 406,
    errors.LimitExceeded: 413,
    errors.Unauthenticated: 401,
    errors.IssuerUnavailable: 503,
    errors.InsufficientScope: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.StorageError: 503,
    errors.StorageFull: 507,
    errors.Overloaded: 503,
    errors.CorruptData: 500,
    errors.StreamInterrupted: 400,
    errors.StreamTimeout: 408,
    errors.ShardsmithError: 500,
}

#: For statuses whose cause is ours to keep: what the client is told instead.
_UNDISCLOSED: Final = "{} did not do its part. Try again; the log of the service has the cause."
_CODES: Final = {
    404: "route_not_found",
    405: "method_not_allowed",
}

#: What errors are told in HTTP's words, by code.
_IN_HTTP: Final = {
    "late_field": "The header Content-Length has it.",
    "missing_json_length": "Send that length in the header Inference-Header-Content-Length.",
}

#: RFC 9110's names, where older versions of Python have those of its predecessors.
_TITLES: Final = {413: "Content Too Large", 416: "Range Not Satisfiable", 422: "Unprocessable Content"}

logger = logging.getLogger(__name__)


def status_of(error: errors.ShardsmithError) -> int:
    """The status of the nearest class in the exception's ancestry."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


class ProblemJson(errors.ProblemMembers, total=False):
    """What was wrong, and what to do (RFC 9457).

    `code` is a stable name. `pointer` (into a JSON body), `row`, `feature` and `offset` (in bytes) say where,
    as far as that is known. `error` repeats `detail` for clients of the Open Inference Protocol.
    """

    type: Required[str]
    title: Required[str]
    status: Required[int]
    code: Required[str]
    detail: Required[str]
    pointer: str
    row: int
    feature: str
    offset: int
    error: Required[str]


def problem(
    status: int,
    code: str,
    detail: str,
    members: errors.ProblemMembers | None = None,
    location: errors.Location | None = None,
) -> ProblemJson:
    """A problem document."""
    detail = _in_http_words(code, detail)
    where = {} if location is None else asdict(location)
    found = {
        "type": "about:blank",
        "title": _TITLES.get(status) or HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        **{name: value for name, value in where.items() if value is not None},
        **(members or {}),
        "error": detail,
    }
    return cast(ProblemJson, found)


def _in_http_words(code: str, detail: str) -> str:
    """What to do, as a client of HTTP does it: options are query parameters."""
    how = _IN_HTTP.get(code)
    return errors.OPTION.sub(lambda found: found[0] or "?", detail if how is None else f"{detail} {how}")


def problem_response(
    status: int,
    code: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    members: errors.ProblemMembers | None = None,
    location: errors.Location | None = None,
    short: str = "",
) -> Response:
    """The answer that carries a problem document, which is counted.

    Args:
        short: what there is too little of, if the service is overloaded.
    """
    HTTP_PROBLEMS.labels(code, short).inc()
    # Input may hold lone surrogates, which UTF-8 cannot: escaped, they can be shown.
    body = json.dumps(problem(status, code, detail, members, location), ensure_ascii=True)
    return Response(body, status, {"Vary": "Accept", **(headers or {})}, PROBLEM_MEDIA_TYPE)


def retry_after() -> str:
    """When to come again, in seconds: not all at the same time."""
    return str(int(random.uniform(1, 4)))  # noqa: S311  # not a secret


def response_for(error: errors.ShardsmithError, *, body_unread: bool = False) -> Response:
    """The answer to an exception that was raised on purpose."""
    status = status_of(error)
    headers = {}
    if status in (429, 503) or isinstance(error, errors.InProgress):
        headers["Retry-After"] = retry_after()
    if isinstance(error, errors.UnknownEncoding):
        headers["Accept-Encoding"] = ACCEPTED_ENCODINGS
    if body_unread:
        # The rest of the body is not wanted, and would be taken for the next request.
        headers["Connection"] = "close"
    if isinstance(error, (errors.Overloaded, errors.IssuerUnavailable)):
        logger.warning("%s: %s", error.code, error.detail)
    elif status >= 500:
        logger.error("%s: %s", error.code, error.detail, exc_info=error)
    party = "The source" if isinstance(error, errors.SourceUnavailable) else "The object store"
    detail = error.detail if error.disclosed else _UNDISCLOSED.format(party)
    return problem_response(
        status,
        error.code,
        detail,
        headers=headers,
        members=error.extra,
        location=error.location,
        short=error.short if isinstance(error, errors.Overloaded) else "",
    )


def http_problem(scope: Scope, status: int, reason: str, headers: Mapping[str, str]) -> Response:
    """The answer to a request that no route takes."""
    code = _CODES.get(status, "http_error")
    detail = f"{scope['method']} {scope['path']}: {reason}. See /docs for the routes."
    return problem_response(status, code, detail, headers=headers)


def defect() -> Response:
    """The answer where the fault is ours, and the log has the cause."""
    return problem_response(500, "internal_error", "A defect in the service; its log has the cause.")


def invalid_request(found: Sequence[Any]) -> Response:
    """What pydantic found wrong with query, path or headers; the body is never validated by it."""
    first = found[0]
    where, *path = [str(part) for part in first["loc"]]
    name = path[-1] if path else where
    if first["type"] == "extra_forbidden":
        detail = f"Unknown {where} parameter {name!r}; see /docs for those of this route."
        return problem_response(400, "unknown_parameter", detail, members={"parameter": name})
    detail = f"The {where} parameter {name!r}: {first['msg']}."
    return problem_response(400, "invalid_parameter", detail, members={"parameter": name})
