"""Requests that schemathesis draws from openapi.yaml, and the answers that it says they may have.

Half of them go to a dataset that is there, and half of the bodies are seeds of the fuzzers, so that not all
are refused at the door. The seed is fixed: the same requests each time.
"""

import sys
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.codecs.forms import MEDIA_TYPES
from openapi.generate import TARGET
from tests.contract.declared import DOCUMENT
from tests.e2e.service import Service

SEED: Final = 20261121
EXAMPLES: Final = 20
CORPUS: Final = Path(__file__).parents[1] / "fuzz" / "corpus"
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def bodies(form: str) -> st.SearchStrategy[bytes]:
    """Seeds without the byte that chooses the variant; or any bytes."""
    files = [
        path for noun in ("tensors", "records") for path in sorted((CORPUS / f"{noun}-{form}").glob("*"))
    ]
    seeds = [path.read_bytes()[1:] for path in files]
    return (st.sampled_from(seeds) if seeds else st.nothing()) | st.binary(max_size=64)


for form, media_types in MEDIA_TYPES.items():
    for media_type in media_types:
        if not media_type.endswith("/json"):
            schemathesis.openapi.media_type(media_type, bodies(form))

OPERATIONS: Final = {
    found.ok().definition.raw["operationId"]: found.ok()
    for found in schemathesis.openapi.from_path(TARGET).get_all_operations()
    if isinstance(found, Ok)  # the others show in the number of operations
}


@pytest.fixture(scope="module")
def stored(client: httpx.Client) -> dict[str, str]:
    """The parts of paths that lead to something."""
    answer = client.post(
        "/v1/datasets/drawn/records", params={"publish": "true"}, json=[{"x": 1}, {"x": 2}, {"x": 3}]
    )
    manifest = answer.json()
    return {
        "dataset": "drawn",
        "version": "latest",
        "append_id": manifest["append"]["append_id"],
        "file": manifest["splits"]["train"]["shards"][0]["file"],
    }


def test_every_operation_is_drawn() -> None:
    assert len(OPERATIONS) == sum(len(methods) for methods in DOCUMENT["paths"].values())


@pytest.mark.parametrize("operation_id", OPERATIONS)
@pytest.mark.exhaustive
def test_every_answer_is_one_that_the_document_has(
    operation_id: str, service: Service, stored: dict[str, str]
) -> None:
    operation = OPERATIONS[operation_id]

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(), st.booleans())
    def draw(case: Any, leads_somewhere: bool) -> None:
        if leads_somewhere and not operation_id.startswith("delete_"):
            for name in stored.keys() & (case.path_parameters or {}).keys():
                case.path_parameters[name] = stored[name]
        case.call_and_validate(base_url=service.url, checks=CHECKS, timeout=60)
        assert httpx.get(f"{service.url}/livez").status_code == 200

    sys.stdout.write(f"{operation_id}: seed {SEED}\n")
    draw()
