"""Tokens of an issuer and tokens of a file, at one service."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.contract.tokens import as_, guarded
from tests.support.waiting import wait_for
from tests.unit.api.auth.issuers import AUDIENCE, CONFIGURATION, Issuer, issuing, private_key


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
    issuer.answers.clear()  # what another test made it say
    with service(issuer, tmp_path) as started:
        wait_for(lambda: bool(issuer.asked))  # the keys are fetched at the start
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


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()  # NaN and infinities, too: json.loads takes them
    | st.text(max_size=8)  # lone surrogates, too
    | st.sampled_from(["", "99999999999", "RS256", "none", "one", AUDIENCE]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
HEADER_MEMBERS = ["alg", "kid", "typ", "crit", "b64", "zip", "jku", "jwk", "x5u", "cty", "epk"]
CLAIMS = ["iss", "aud", "sub", "exp", "nbf", "iat", "jti", "roles", "org"]


def members(names: list[str]) -> st.SearchStrategy[Any]:
    """Members that take the place of good ones, or a value that takes the place of the whole."""
    changed = st.dictionaries(st.sampled_from(names), JSON, max_size=3)
    return st.fixed_dictionaries({"changed": changed}) | st.fixed_dictionaries({"whole": JSON})


def signed(header: Any, payload: Any) -> str:
    """A token of any header and payload, signed by the issuer's key."""
    parts = (json.dumps(part).encode() for part in (header, payload))
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    signature = jwt.get_algorithm_by_name("RS256").sign(text, private_key("RS256", 0))
    return (text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def laid_over(good: dict[str, Any], drawn: dict[str, Any]) -> Any:
    return drawn["whole"] if "whole" in drawn else {**good, **drawn["changed"]}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=members(HEADER_MEMBERS), payload=members(CLAIMS))
@example(header={"changed": {"alg": []}}, payload={"changed": {}})
@example(header={"changed": {"alg": {}}}, payload={"changed": {}})
@example(header={"changed": {"kid": []}}, payload={"changed": {}})
@example(header={"changed": {}}, payload={"changed": {"exp": 10**400}})
@example(header={"changed": {}}, payload={"changed": {"exp": -(10**400)}})
@example(header={"changed": {}}, payload={"changed": {"exp": float("nan")}})
@example(header={"changed": {}}, payload={"changed": {"iat": 10**400, "nbf": float("inf")}})
@example(header={"changed": {}}, payload={"changed": {"aud": [[]], "sub": {}}})
def test_any_header_and_claims_are_taken_or_refused(
    client: httpx.Client, issuer: Issuer, header: dict[str, Any], payload: dict[str, Any]
) -> None:
    good = issuer.claims(org="umbrella", roles="read")
    token = signed(laid_over({"alg": "RS256", "kid": "one"}, header), laid_over(good, payload))
    answer = client.get("/v1/datasets", headers=as_(token))
    assert answer.status_code in (200, 401, 403), (answer.status_code, token)
    if answer.status_code != 200:
        code = {401: "invalid_token", 403: "insufficient_scope"}[answer.status_code]
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == code, token


@pytest.mark.parametrize(
    ("header", "claims"),
    [
        ({"alg": []}, {}),
        ({"alg": {"RS256": 1}}, {}),
        ({}, {"exp": 10**400}),
        ({}, {"exp": "99999999999"}),
        ({}, {"exp": True}),
        ({}, {"exp": float("inf")}),
        ({}, {"sub": ["robot"]}),
    ],
)
def test_a_token_whose_members_are_of_another_type_is_refused(
    client: httpx.Client, issuer: Issuer, header: dict[str, Any], claims: dict[str, Any]
) -> None:
    good = issuer.claims(org="umbrella", roles="read")
    whole = {"alg": "RS256", "kid": "one"}
    assert client.get("/v1/datasets", headers=as_(signed(whole, good))).status_code == 200
    answer = client.get("/v1/datasets", headers=as_(signed({**whole, **header}, {**good, **claims})))
    assert (answer.status_code, answer.json()["code"]) == (401, "invalid_token")
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]
