"""openapi.yaml says what the code does, and each example in it happens as written."""

import json
from typing import Any

import pytest

from app.api.openapi import build_openapi
from app.codecs.registry import RECORDS_CODECS, RECORDS_KINDS, TENSOR_CODECS, TENSOR_KINDS
from app.main import create_app_with
from app.settings import Settings
from openapi import forms, generate
from openapi.recorded import EXAMPLES, describe, fresh_service, load, play


def operations() -> list[dict[str, Any]]:
    document = build_openapi(create_app_with(Settings(storage_url="memory://")))
    return [operation for methods in document["paths"].values() for operation in methods.values()]


IDS = [operation["operationId"] for operation in operations()]


def comparable(described: dict[str, Any]) -> dict[str, Any]:
    """JSON bodies as values: the order of members is no part of the contract."""
    body = described.get("body")
    is_json = described["headers"].get("Content-Type", "").endswith("/json")
    return {**described, "body": json.loads(body) if is_json and body else body}


@pytest.mark.parametrize("operation_id", IDS)
def test_the_example_happens_as_written(operation_id: str) -> None:
    example = load(operation_id)
    with fresh_service() as client:
        found = describe(play(client, example))
    assert comparable(found) == comparable(example["response"])


def test_every_operation_has_an_example_and_every_example_an_operation() -> None:
    assert sorted(IDS) == sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
    assert len(set(IDS)) == len(IDS)


def test_the_document_has_not_drifted() -> None:
    assert generate.TARGET.read_text("utf-8") == generate.build(), "run bin/openapi"


def test_the_table_of_forms_has_not_drifted() -> None:
    page = forms.PAGE.read_text("utf-8")
    assert page == forms.with_forms(page), "run bin/openapi"
    assert "| `tfrecord` | `application/x-tfrecord` | in, out: dense, ragged, sparse |" in page


def test_every_form_says_which_kinds_it_holds() -> None:
    assert TENSOR_CODECS.keys() <= TENSOR_KINDS.keys()
    assert RECORDS_CODECS.keys() <= RECORDS_KINDS.keys()
