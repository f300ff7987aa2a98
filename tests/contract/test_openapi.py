"""openapi.yaml says what the code does, and each example in it happens as written."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, get_args

import pytest

from app.api.openapi import build_openapi
from app.api.routes.records import RECORDS_IN
from app.codecs.forms import TENSOR_CODECS
from app.domain.dtypes import DTYPES, DTypeName
from app.errors import ProblemMembers
from app.main import create_app_with
from app.settings import Settings
from openapi import error_index, forms, generate, names
from openapi.recorded import EXAMPLES, describe, fresh_service, load, play
from tests.contract.declared import DOCUMENT, require_declared
from tests.contract.declared import operations as document_operations


def operations() -> list[dict[str, Any]]:
    document = build_openapi(create_app_with(Settings(storage_url="memory://")))
    return [
        operation
        for methods in document["paths"].values()
        for method, operation in methods.items()
        if method != "head"
    ]


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
    assert generate.TARGET.read_text("utf-8") == generate.to_yaml(generate.build()), "run bin/openapi"


def test_no_name_is_gone_that_a_client_may_hold_on_to() -> None:
    listed = set(names.PAGE.read_text("utf-8").splitlines())
    found = set(names.list_names(DOCUMENT))
    assert not listed - found, "clients that were generated before break: `/v1` only ever adds"
    assert not found - listed, "run bin/openapi"


def test_a_name_that_is_changed_is_found() -> None:
    changed = deepcopy(DOCUMENT)
    changed["paths"]["/v1/datasets/{dataset}/records"]["post"]["operationId"] = "append_rows"
    changed["components"]["schemas"]["ErrorCode"]["enum"].remove("schema_conflict")
    page = names.PAGE.read_text("utf-8")
    assert set(names.with_names(page, changed).splitlines()) - set(names.list_names(changed)) == {
        "operation append_records: POST /v1/datasets/{dataset}/records",
        "code schema_conflict",
    }


def test_the_table_of_forms_has_not_drifted() -> None:
    page = forms.PAGE.read_text("utf-8")
    assert page == forms.with_forms(page), "run bin/openapi"
    assert "| `tfrecord` | `application/x-tfrecord` | in, out: dense, ragged, sparse |" in page


def is_typed(schema: dict[str, Any]) -> bool:
    """Whether a schema says of which members or items a value is made."""
    schema = resolved(schema)
    inner = [schema[key] for key in ("items", "additionalProperties") if key in schema]
    if "anyOf" in schema:
        return all(map(is_typed, schema["anyOf"]))
    return bool(schema.get("properties") or inner)


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def test_every_json_answer_is_typed() -> None:
    """A route that says nothing of its answer has the empty schema, and fails here."""
    checked = 0
    for _, method, operation in document_operations():
        for status, answer in operation["responses"].items():
            assert method == "head" or status in ("204", "304", "307") or answer["content"], operation
            for media_type, content in answer.get("content", {}).items():
                if media_type.endswith(("/json", "+json")):
                    assert is_typed(content["schema"]), (operation["operationId"], status)
                    checked += 1
        assert method != "head" or all("content" not in answer for answer in operation["responses"].values())
    assert checked > 60


@pytest.mark.parametrize("operation_id", IDS)
def test_the_recorded_answer_is_as_declared(operation_id: str) -> None:
    (operation,) = [found for _, _, found in document_operations() if found["operationId"] == operation_id]
    response = load(operation_id)["response"]
    media_type = response["headers"].get("Content-Type", "").partition(";")[0]
    if media_type.endswith(("/json", "+json")):
        require_declared(operation, response["status"], media_type, json.loads(response["body"]))
    responses = operation["responses"]
    declared = responses.get(str(response["status"]), responses["default"])
    assert not response.get("body") or media_type in declared["content"]
    for name in ("Location", "ETag", "Record-Count", "Tensor-Dtype", "Content-Range"):
        assert name not in response["headers"] or name in declared["headers"], name


@pytest.mark.parametrize(
    ("path", "method"), [(path, method) for path, method, _ in document_operations() if method == "get"]
)
def test_where_there_is_get_there_is_head(path: str, method: str) -> None:
    methods = DOCUMENT["paths"][path]
    assert methods["head"]["operationId"] == f"{methods[method]['operationId']}_head"
    example = load(methods[method]["operationId"])
    with fresh_service() as client:
        answer = play(client, {**example, "request": {**example["request"], "method": "HEAD"}})
    # Of what was never begun there is nothing to show but that.
    assert answer.status_code == (404 if example["response"]["status"] == 404 else 200)
    assert answer.content == b""


def test_numbers_have_their_width_and_parameters_are_never_null() -> None:
    text = json.dumps([operation.get("parameters", []) for _, _, operation in document_operations()])
    assert '{"type": "null"}' not in text
    for schema in walk(DOCUMENT):
        assert schema.get("type") not in ("integer", "number") or "format" in schema, schema


def walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("type"), str):
            yield value
        for inner in value.values():
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


def test_parameters_name_the_forms_that_the_route_takes() -> None:
    found = {operation["operationId"]: operation for _, _, operation in document_operations()}

    def choices(operation_id: str, name: str) -> list[str]:
        (schema,) = [item["schema"] for item in found[operation_id]["parameters"] if item["name"] == name]
        return list(schema["enum"])

    assert choices("append_records", "from") == list(RECORDS_IN)
    assert choices("parse_tensors", "from") == list(TENSOR_CODECS)
    assert choices("parse_tensors", "to") == [form for form, codec in TENSOR_CODECS.items() if codec.kinds]
    assert choices("parse_tensors", "dtype") == list(DTYPES)
    assert choices("repair_records", "to") == ["tfrecord", "json"]


def test_dtypes_are_those_of_the_table() -> None:
    assert set(get_args(DTypeName)) == {*DTYPES, "text", "bytes"}


def test_a_problem_has_every_member_that_errors_carry() -> None:
    declared = DOCUMENT["components"]["schemas"]["Problem"]
    assert ProblemMembers.__annotations__.keys() <= declared["properties"].keys()
    assert set(declared["required"]) == {"type", "title", "status", "code", "detail", "error"}


def test_the_codes_of_problems_are_listed_and_others_may_come() -> None:
    declared = DOCUMENT["components"]["schemas"]
    listed = re.findall(r"^\| `(\w+)` \|", error_index.PAGE.read_text("utf-8"), re.MULTILINE)
    assert declared["ErrorCode"]["enum"] == sorted(listed)
    assert len(listed) > 100
    code = declared["Problem"]["properties"]["code"]
    assert code["anyOf"] == [{"$ref": "#/components/schemas/ErrorCode"}, {"type": "string"}]


def test_served_document_equals_the_file() -> None:
    with fresh_service() as client:
        served = client.get("/openapi.json").json()
    written = deepcopy(DOCUMENT)
    del written["components"]["schemas"]["ErrorCode"]  # the source is not where the service is
    written["components"]["schemas"]["Problem"]["properties"]["code"] = {"type": "string"}
    for methods in written["paths"].values():
        for operation in methods.values():
            without_examples(operation)
    assert served == written


def without_examples(operation: dict[str, Any]) -> None:
    operation.pop("x-example", None)
    for message in (operation.get("requestBody", {}), *operation["responses"].values()):
        for content in message.get("content", {}).values():
            content.pop("example", None)


def test_no_member_but_a_scalar_is_called_as_its_schema() -> None:
    """openapi-python-client gives both one variable, and of scalars alone that compiles strictly."""
    for name, schema in DOCUMENT["components"]["schemas"].items():
        variable = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        member = schema.get("properties", {}).get(variable, {"type": "string"})
        assert member in ({"type": "string"}, {"type": "boolean"}), name


def test_names_and_tags_are_fit_for_methods() -> None:
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    for _, _, operation in document_operations():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", operation["operationId"])
        assert set(operation["tags"]) <= tags
        assert len(operation["tags"]) == 1
