"""Every error of the service has a status and a problem document."""

import inspect
import json

import pytest

from app import errors
from app.api.problems import STATUS, problem_response, response_for, status_of

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.ShardsmithError)
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_has_a_status_and_a_code(kind: type[errors.ShardsmithError]) -> None:
    error = kind("What was wrong. What to do.")
    assert status_of(error) == next(STATUS[base] for base in kind.__mro__ if base in STATUS)
    assert 400 <= status_of(error) < 600
    assert error.code.isidentifier()


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    names = [kind.__name__ for kind in CLASSES]
    assert errors.__doc__ is not None
    assert all(f"{name} " in errors.__doc__ or f"{name}\n" in errors.__doc__ for name in names)


def test_place_is_in_the_document_and_unknown_members_are_not() -> None:
    error = errors.SchemaConflict("No.", row=3, feature="x", extra={"schema": {}})
    answer = response_for(error)
    assert answer.status_code == 422
    assert json.loads(bytes(answer.body)) == {
        "type": "about:blank",
        "title": "Unprocessable Content",
        "status": 422,
        "code": "schema_conflict",
        "detail": "No.",
        "row": 3,
        "feature": "x",
        "schema": {},
        "error": "No.",
    }


@pytest.mark.parametrize("kind", [errors.InProgress, errors.OutcomeUnknown, errors.Overloaded])
def test_temporary_error_has_retry_after(kind: type[errors.ShardsmithError]) -> None:
    assert response_for(kind("Wait.")).headers["retry-after"] in ("1", "2", "3")
    assert "retry-after" not in response_for(errors.Conflict("No.")).headers


def test_text_of_the_store_is_not_disclosed(caplog: pytest.LogCaptureFixture) -> None:
    answer = response_for(errors.StorageUnavailable("bucket s3://secret-bucket refused key AKIA"))
    assert answer.status_code == 503
    assert b"secret" not in bytes(answer.body)
    assert answer.headers["retry-after"] in ("1", "2", "3")
    assert "secret-bucket" in caplog.text


def test_a_lone_surrogate_can_be_reported() -> None:
    answer = problem_response(400, "c", "d", location=errors.Location(feature="\ud800"))
    assert json.loads(bytes(answer.body))["feature"] == "\ud800"
