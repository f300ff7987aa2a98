"""Tokens of an issuer: what is believed, what is not, and what is fetched for it."""

import asyncio
import base64
import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from app.api.auth import key_set
from app.api.auth.issuer import IssuerUnreachable, Keys, fetch_keys
from app.api.auth.key_set import KeySet
from app.api.auth.oidc import OidcVerifier
from app.api.auth.options import AuthConfigurationError, AuthOptions, Oidc
from app.api.auth.principal import Principal
from app.errors import InvalidToken, IssuerUnavailable
from tests.unit.api.auth.issuers import AUDIENCE, CONFIGURATION, Issuer, issuing, private_key, public_jwk


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as started:
        yield started


def verify(issuer: Issuer, *tokens: str | Callable[[], str], **options: Any) -> list[Principal]:
    """What one verifier makes of these tokens, one after the other."""

    async def all_of_them() -> list[Principal]:
        keys = KeySet(partial(fetch_keys, issuer.url))
        verifier = OidcVerifier(Oidc(issuer.url, AUDIENCE, **options), keys)
        try:
            texts = (token if isinstance(token, str) else token() for token in tokens)
            return [await verifier.verify(text, hashlib.sha256(text.encode()).digest()) for text in texts]
        finally:
            keys.close()

    return asyncio.run(all_of_them())


def refused(issuer: Issuer, token: str, **options: Any) -> str:
    with pytest.raises(InvalidToken) as caught:
        verify(issuer, token, **options)
    assert token not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS384", "ES256", "ES384", "ES512", "EdDSA"])
def test_a_token_signed_by_the_issuer_says_who_asks(issuer: Issuer, algorithm: str) -> None:
    issuer.keys = [public_jwk(algorithm, "k"), public_jwk("RS256", "other", 1)]
    [found] = verify(issuer, issuer.token(algorithm, "k"))
    assert found.scopes == {"read", "write"}
    assert (found.name, found.prefix, found.via) == ("robot", "", "oidc")


def test_a_key_says_by_itself_what_it_signs_where_the_set_does_not(issuer: Issuer) -> None:
    described = public_jwk("ES256", None)
    del described["alg"], described["use"]
    issuer.keys = [described]
    assert verify(issuer, issuer.token("ES256", None))[0].name == "robot"


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "read"}, {"read"}),
        ({"scope": ["write", "admin", 7]}, {"write", "admin"}),
        ({"scope": "READ reader"}, set()),
        ({"scope": None}, set()),
        ({"scope": {"read": True}}, set()),
    ],
)
def test_scopes_are_taken_from_the_claim(issuer: Issuer, claims: dict[str, Any], scopes: set[str]) -> None:
    assert verify(issuer, issuer.token(**claims))[0].scopes == scopes
    renamed = {"roles": claims["scope"], "scope": "admin"}
    assert verify(issuer, issuer.token(**renamed), scope_claim="roles")[0].scopes == scopes


@pytest.mark.parametrize(
    ("tenant", "prefix"), [("acme", "acme-"), ("acme_", "acme_"), ("org_2-x", "org_2-x-")]
)
def test_the_tenant_is_taken_from_its_claim(issuer: Issuer, tenant: str, prefix: str) -> None:
    assert verify(issuer, issuer.token(org=tenant), tenant_claim="org")[0].prefix == prefix


@pytest.mark.parametrize("tenant", [None, "", "-", "a/b", "ä", 7, ["acme"], "x" * 70])
def test_a_token_without_a_tenant_is_nobodys(issuer: Issuer, tenant: Any) -> None:
    assert "'org'" in refused(issuer, issuer.token(org=tenant), tenant_claim="org")


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"iss": "https://issuer.example"}, "another issuer"),
        ({"iss": None}, "lacks one of the claims"),
        ({"aud": "another"}, "another audience"),
        ({"aud": ["another", "third"]}, "another audience"),
        ({"aud": None}, "lacks one of the claims"),
        ({"exp": 1_000_000_000}, "expired"),
        ({"exp": None}, "lacks one of the claims"),
        ({"nbf": 99_999_999_999}, "not valid yet"),
        ({"sub": None}, "lacks one of the claims"),
        ({"sub": ""}, "sub"),
        ({"sub": "x" * 300}, "sub"),
    ],
)
def test_claims_have_to_be_right(issuer: Issuer, changed: dict[str, Any], complaint: str) -> None:
    assert complaint in refused(issuer, issuer.token(**changed))


def test_clocks_may_differ_a_little(issuer: Issuer) -> None:
    now = issuer.claims()["iat"]
    assert verify(issuer, issuer.token(exp=now - 20, nbf=now + 20, aud=["x", AUDIENCE]))


def unsigned(header: bytes, payload: dict[str, Any]) -> str:
    parts = (header, json.dumps(payload).encode(), b"sig")
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def test_only_signatures_by_key_pairs_count(issuer: Issuer) -> None:
    public = private_key("RS256").public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    nothing = jwt.encode(issuer.claims(), "", "none", headers={"kid": "one"})
    header = json.dumps({"alg": "HS256", "kid": "one"}).encode()
    signed = unsigned(header, issuer.claims()).rpartition(".")[0]
    mac = base64.urlsafe_b64encode(hashlib.sha256(pem + signed.encode()).digest()).rstrip(b"=").decode()
    for token in (nothing, f"{signed}.{mac}"):
        assert "not signed by one of" in refused(issuer, token)


def test_a_key_signs_by_its_own_algorithm_alone(issuer: Issuer) -> None:
    for algorithm in ("RS512", "PS256"):
        token = jwt.encode(issuer.claims(), private_key("RS256"), algorithm, headers={"kid": "one"})
        assert "not signed by a key" in refused(issuer, token)


def test_another_key_under_the_same_id_is_another_key(issuer: Issuer) -> None:
    assert "not signed by a key" in refused(issuer, issuer.token(which=1))
    head, payload, signature = issuer.token().split(".")
    changed = unsigned(b"{}", issuer.claims(scope="admin")).split(".")[1]
    assert "not signed by a key" in refused(issuer, f"{head}.{changed}.{signature}")
    assert "not signed by a key" in refused(issuer, f"{head}.{payload}.")


@pytest.mark.parametrize(
    "header",
    [b"", b"[]", b"{}", b'{"alg": 7}', b'{"alg": "RS256", "kid": 7}', b"[" * 5000, b'{"alg":' + b"9" * 5000],
)
def test_malformed_token_is_refused(issuer: Issuer, header: bytes) -> None:
    refused(issuer, unsigned(header, issuer.claims()))


def test_critical_extensions_are_refused(issuer: Issuer) -> None:
    refused(issuer, issuer.token(headers={"crit": ["exp"], "exp": 1}))
    header = json.dumps({"alg": "RS256", "kid": "one", "crit": ["b64"], "b64": True}).encode()
    assert "critical" in refused(issuer, unsigned(header, issuer.claims()))


def test_no_url_in_a_token_is_fetched(issuer: Issuer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as bait:
        bait.settimeout(0.2)
        url = f"http://127.0.0.1:{bait.getsockname()[1]}/keys"
        own = public_jwk("RS256", "one", 1)
        headers = {"jku": url, "x5u": url, "jwk": own}
        refused(issuer, issuer.token(which=1, headers=headers))
        refused(issuer, issuer.token(which=1, kid=url, headers=headers, iss=url))
        with pytest.raises(TimeoutError):
            bait.accept()


def test_a_new_key_is_looked_for_once_in_a_while(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = issuer.token("ES256", "two")
    with pytest.raises(InvalidToken, match="not signed by a key"):
        verify(issuer, issuer.token(), unknown)
    assert issuer.asked == [CONFIGURATION, "/keys"], "the fetch was a moment ago"

    def rotated() -> str:
        issuer.keys = [public_jwk("ES256", "two")]
        return unknown

    monkeypatch.setattr(key_set, "_FETCH_EVERY_S", 0.0)
    assert verify(issuer, issuer.token(), rotated)[1].name == "robot"


def test_a_withdrawn_key_takes_its_tokens_along(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_set, "_FETCH_EVERY_S", 0.0)
    old = issuer.token()

    def new() -> str:
        issuer.keys = [public_jwk("ES256", "two")]
        return issuer.token("ES256", "two")

    with pytest.raises(InvalidToken):
        verify(issuer, old, old, new, old)


def test_many_who_ask_at_once_fetch_once(issuer: Issuer) -> None:
    async def together() -> list[Principal]:
        keys = KeySet(partial(fetch_keys, issuer.url))
        verifier = OidcVerifier(Oidc(issuer.url, AUDIENCE), keys)
        tokens = [issuer.token(jti=str(number)) for number in range(20)]
        found = await asyncio.gather(*(verifier.verify(text, text.encode()) for text in tokens))
        keys.close()
        return found

    assert len(asyncio.run(together())) == 20
    assert issuer.asked == [CONFIGURATION, "/keys"]


@pytest.mark.parametrize("age", [400.0, 4000.0])
def test_keys_are_believed_for_a_while_without_the_issuer(
    issuer: Issuer, age: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def later() -> Principal:
        keys = KeySet(partial(fetch_keys, issuer.url))
        verifier = OidcVerifier(Oidc(issuer.url, AUDIENCE), keys)
        token = issuer.token()
        await verifier.verify(token, b"digest")
        issuer.answers[CONFIGURATION] = (500, {}, b"")
        monkeypatch.setattr(keys, "_fetched_at", keys._fetched_at - age)
        monkeypatch.setattr(keys, "_asked_at", keys._asked_at - age)
        try:
            return await verifier.verify(token, b"digest")
        finally:
            keys.close()

    if age < 3600:
        assert asyncio.run(later()).name == "robot"
    else:
        with pytest.raises(IssuerUnavailable):
            asyncio.run(later())


OK = 200


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        (CONFIGURATION, (404, {}, b"")),
        (CONFIGURATION, (302, {"Location": "/elsewhere"}, b"")),
        (CONFIGURATION, (OK, {}, b"<html>")),
        (CONFIGURATION, (OK, {}, b"[]")),
        (CONFIGURATION, (OK, {}, b"[" * 100_000)),
        (CONFIGURATION, (OK, {}, b'{"issuer": "https://another.example", "jwks_uri": "https://x.example/"}')),
        (CONFIGURATION, (OK, {}, b'{"issuer": "URL"}')),
        (CONFIGURATION, (OK, {}, b'{"issuer": "URL", "jwks_uri": 7}')),
        (CONFIGURATION, (OK, {}, b'{"issuer": "URL", "jwks_uri": "file:///etc/passwd"}')),
        (CONFIGURATION, (OK, {}, b'{"issuer": "URL", "jwks_uri": "http://10.0.0.1/keys"}')),
        (CONFIGURATION, (OK, {}, b'{"issuer": "URL", "jwks_uri": "http://[/keys"}')),
        (CONFIGURATION, (OK, {"Content-Length": "10"}, b"{")),
        (CONFIGURATION, (OK, {}, b" " * 300_000)),
        ("/keys", (OK, {}, b'{"keys": {}}')),
        ("/keys", (OK, {}, b'{"keys": [' + b" " * 300_000 + b"]}")),
        ("/keys", (500, {}, b"")),
    ],
)
def test_an_issuer_that_answers_with_something_else_has_no_keys(
    issuer: Issuer, path: str, answer: tuple[int, dict[str, str], bytes]
) -> None:
    status, headers, body = answer
    issuer.answers[path] = (status, headers, body.replace(b"URL", issuer.url.encode()))
    with pytest.raises(IssuerUnreachable):
        fetch_keys(issuer.url)
    with pytest.raises(IssuerUnavailable):
        verify(issuer, issuer.token())


def test_an_issuer_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_set, "_WAIT_S", 0.01)
    gone_on = threading.Event()

    def hang() -> Keys:
        gone_on.wait(30)
        return {}

    async def asked() -> None:
        keys = KeySet(hang)
        try:
            with pytest.raises(IssuerUnavailable):
                await keys.find("one")
        finally:
            gone_on.set()
            keys.close()

    asyncio.run(asked())


def test_a_new_key_is_not_judged_while_the_issuer_is_silent(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_set, "_FETCH_EVERY_S", 0.0)

    def unknown() -> str:
        issuer.answers[CONFIGURATION] = (500, {}, b"")
        return issuer.token("ES256", "two")

    with pytest.raises(IssuerUnavailable):
        verify(issuer, issuer.token(), unknown)


def test_keys_that_are_none_are_passed_over(issuer: Issuer) -> None:
    private = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(private_key("RS256")))
    issuer.keys = [
        7,
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared", "alg": "HS256"},
        {"kty": "RSA", "kid": "broken", "alg": "RS256"},
        {**private, "kid": "private"},
        public_jwk("RS256", "weak", -1),
        public_jwk("RS256", "encrypts", use="enc"),
        public_jwk("RS256", "confused", alg="HS256"),
        {**public_jwk("RS256", None), "kid": 7},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "koblitz"},
        public_jwk("RS256", "good"),
    ]
    assert list(fetch_keys(issuer.url)) == ["good"]


def test_unreachable_issuer_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    with pytest.raises(IssuerUnreachable):
        fetch_keys(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example",
        "ftp://x",
        "issuer.example",
        "https://",
        "https://u:p@x.example",
        "https://x/?a",
        "",
    ],
)
def test_an_issuer_is_asked_over_https(url: str) -> None:
    with pytest.raises(AuthConfigurationError) as caught:
        Oidc(url, AUDIENCE)
    assert "u:p" not in str(caught.value)


def test_everybody_and_somebody_contradict(tmp_path: Any) -> None:
    with pytest.raises(AuthConfigurationError, match="contradicts"):
        AuthOptions(tmp_path, anyone=True)
