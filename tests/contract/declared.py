"""What openapi.yaml says of an answer, and whether an answer is like that."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx
import jsonschema_rs
import yaml

from openapi.error_index import read_statuses
from openapi.generate import TARGET

#: Read by libyaml, which takes a tenth of the time.
DOCUMENT: Final[dict[str, Any]] = yaml.load(TARGET.read_text("utf-8"), yaml.CSafeLoader)
#: Longer answers, and those that are streamed or have a Content-Encoding, are not read here.
_READ_UP_TO: Final = 1 << 20


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and operation."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{\w+\}", "[^/]+", path))


_ROUTES: Final = [(_pattern(path), method, operation) for path, method, operation in operations()]
_VALIDATORS: Final[dict[tuple[str, str, str], jsonschema_rs.Validator]] = {}
#: Clients accept members that they do not know; here such members fail, since the document must have all.
_CLOSED: Final = {
    name: {"additionalProperties": False, **schema} if schema.get("type") == "object" else schema
    for name, schema in DOCUMENT["components"]["schemas"].items()
}
#: Headers that any answer may have, and that no operation declares.
_COMMON_HEADERS: Final = {
    *("accept-ranges", "cache-control", "connection", "content-disposition", "content-encoding"),
    *("content-length", "content-type", "date", "repr-digest", "server", "transfer-encoding"),
    *("vary", "x-content-type-options", "x-request-id"),
}


def find_operation(method: str, path: str) -> dict[str, Any] | None:
    """The operation that a request goes to."""
    for pattern, name, operation in _ROUTES:
        if name == method.lower() and pattern.fullmatch(path):
            return operation
    return None


def require_declared(operation: Mapping[str, Any], status: int, media_type: str, value: object) -> None:
    """Fail unless the operation declares such an answer."""
    responses = operation["responses"]
    key = str(status) if str(status) in responses else "default"
    assert key != "default" or status >= 400, f"{operation['operationId']} declares no {status}"
    content = responses[key].get("content", {})
    assert media_type in content, f"{operation['operationId']} declares no {media_type} for {status}"
    found = validator(operation["operationId"], key, media_type, content[media_type]["schema"])
    errors = [f"{error.instance_path}: {error.message}" for error in found.iter_errors(value)]
    assert not errors, f"{operation['operationId']} {status}: {errors[:3]} in {str(value)[:500]}"


def validator(
    operation_id: str, status: str, media_type: str, schema: Mapping[str, Any]
) -> jsonschema_rs.Validator:
    """A schema of the document, whose references are into it."""
    key = (operation_id, status, media_type)
    if key not in _VALIDATORS:
        whole = {**schema, "components": {"schemas": _CLOSED}}
        _VALIDATORS[key] = jsonschema_rs.Draft202012Validator(whole)
    return _VALIDATORS[key]


def require_headers(operation: Mapping[str, Any], answer: httpx.Response) -> None:
    """Fail if a success has a header that the operation does not declare."""
    responses = operation["responses"]
    if answer.is_success:
        declared = responses[str(answer.status_code)].get("headers", {})
        undeclared = answer.headers.keys() - _COMMON_HEADERS - {name.lower() for name in declared}
        assert not undeclared, f"{operation['operationId']} declares no {sorted(undeclared)}"


def require_listed(code: str, status: int) -> None:
    """Fail unless docs/reference/errors.md has the code with this status."""
    listed = read_statuses()
    assert code in listed, f"{code} is not in openapi/errors.yaml"
    assert status in (listed[code] or [status]), f"{code} is listed with {listed[code]}, not with {status}"


def check_answer(answer: httpx.Response) -> None:
    """For `event_hooks`: hold the headers and the JSON of every answer that a test gets to the document."""
    operation = find_operation(answer.request.method, answer.request.url.path)
    if operation is None:
        return
    require_headers(operation, answer)
    media_type = answer.headers.get("content-type", "").partition(";")[0]
    length = answer.headers.get("content-length", "")
    if not media_type.endswith("json") or "ndjson" in media_type or answer.request.method == "HEAD":
        return
    if not length.isdigit() or int(length) > _READ_UP_TO or "content-encoding" in answer.headers:
        return
    answer.read()
    value = answer.json()
    require_declared(operation, answer.status_code, media_type, value)
    if media_type == "application/problem+json":
        require_listed(value["code"], answer.status_code)
