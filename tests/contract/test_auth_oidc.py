"""Tokens of an issuer and tokens of a file, at one service."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.contract.tokens import as_, guarded
from tests.unit.api.auth.issuers import AUDIENCE, CONFIGURATION, Issuer, issuing


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as started:
        yield started


@contextmanager
def service(issuer: Issuer, folder: Path) -> Iterator[httpx.Client]:
    """A service that takes tokens of that issuer beside those of a file."""
    claims = {"oidc_tenant_claim": "org", "oidc_scope_claim": "roles"}
    with guarded(folder, oidc_issuer=issuer.url, oidc_audience=AUDIENCE, **claims) as started:
        yield started


@pytest.fixture
def client(issuer: Issuer, tmp_path: Path) -> Iterator[httpx.Client]:
    with service(issuer, tmp_path) as started:
        assert issuer.asked, "the keys are fetched at the start"
        yield started


def test_both_are_taken_and_tenants_are_kept_apart(client: httpx.Client, issuer: Issuer) -> None:
    token = issuer.token(org="umbrella", roles=["read", "write"])
    for _ in range(2):
        created = client.put("/v1/datasets/umbrella-a", headers=as_(token))
        assert created.status_code in (200, 201), created.text
    client.put("/v1/datasets/acme-a", headers=as_("acme-4411")).raise_for_status()
    assert client.get("/v1/datasets", headers=as_(token)).json() == {"datasets": [{"dataset": "umbrella-a"}]}
    assert client.get("/v1/datasets/acme-a", headers=as_(token)).status_code == 404
    assert client.delete("/v1/datasets/umbrella-a", headers=as_(token)).status_code == 403
    refused = client.get("/v1/datasets", headers=as_(issuer.token(org="umbrella", aud="other")))
    assert (refused.status_code, refused.json()["code"]) == (401, "invalid_token")
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]


def test_while_the_issuer_is_silent_tokens_of_the_file_are_taken(issuer: Issuer, tmp_path: Path) -> None:
    issuer.answers[CONFIGURATION] = (503, {}, b"")
    issuer.asked.clear()
    token = issuer.token(org="umbrella", roles="read")
    with service(issuer, tmp_path) as client:
        for _ in range(2):
            answer = client.get("/v1/datasets", headers=as_(token))
            assert (answer.status_code, answer.json()["code"]) == (503, "issuer_unreachable")
            assert "retry-after" in answer.headers
        assert issuer.asked == [CONFIGURATION], "the issuer is not asked for each request"
        assert client.get("/v1/datasets", headers=as_("reading-5f0c")).status_code == 200
        assert client.get("/readyz").status_code == 200
