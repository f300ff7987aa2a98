"""Requests that schemathesis draws from openapi.yaml, and the answers that it says they may have.

Half of them go to a dataset that is there, and half of the bodies are seeds of the fuzzers, so that not all
are refused at the door. The seed is fixed: the same requests each time.
"""

import sys
from typing import Any, Final

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.contract.declared import operations
from tests.support.service import Service

pytestmark = pytest.mark.exhaustive
SEED: Final = 20261121
EXAMPLES: Final = 20
IDS: Final = [operation["operationId"] for _, _, operation in operations()]


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
    from tests.contract.drawn import OPERATIONS

    assert sorted(OPERATIONS) == sorted(IDS)


@pytest.mark.parametrize("operation_id", IDS)
def test_every_answer_is_one_that_the_document_has(
    operation_id: str, service: Service, stored: dict[str, str]
) -> None:
    from tests.contract.drawn import CHECKS, OPERATIONS

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
            case.headers.pop("Content-Digest", None)  # one that is drawn is never right
        case.call_and_validate(base_url=service.url, checks=CHECKS, timeout=60)
        assert httpx.get(f"{service.url}/livez").status_code == 200

    sys.stdout.write(f"{operation_id}: seed {SEED}\n")
    draw()
