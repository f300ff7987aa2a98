"""Without authentication only this machine is served, unless that is said in so many words."""

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError

from app.api.auth.loopback import ALLOWED_BY, WithoutAuthentication, is_loopback
from app.api.auth.options import AuthConfigurationError
from app.main import _app_to_serve
from app.settings import Settings


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104  # judged, not bound
        ("::", False),
        ("", False),
        ("10.0.0.1", False),
        ("192.168.1.1", False),
        ("example.org", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
    ],
)
def test_loopback_is_what_no_other_machine_reaches(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1"])  # noqa: S104  # refused, not bound
def test_the_service_does_not_listen_beyond_without_authentication(host: str) -> None:
    with pytest.raises(AuthConfigurationError) as caught:
        _app_to_serve(Settings(storage_url="memory://", host=host))
    message = str(caught.value)
    assert ALLOWED_BY in message
    assert "SHARDSMITH_TOKENS_FILE" in message
    _app_to_serve(Settings(storage_url="memory://", host=host, allow_unauthenticated=ALLOWED_BY))


def test_a_plain_yes_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSMITH_ALLOW_UNAUTHENTICATED", "true")
    with pytest.raises(ValidationError, match=ALLOWED_BY):
        Settings()


async def nowhere(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 299, "headers": []})


def answered(
    server: tuple[str, int | None] | None,
    kind: str = "http",
    *,
    method: str = "GET",
    path: str = "/v1/datasets",
    headers: dict[str, str] | None = None,
    origins: tuple[str, ...] = (),
) -> list[Any]:
    """What comes of a request that arrived at that address."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {"type": kind, "server": server, "method": method, "path": path}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    asyncio.run(_awaited(WithoutAuthentication(nowhere, origins)(scope, None, send)))  # type: ignore[arg-type]  # unused
    return sent


async def _awaited(answer: Any) -> None:
    await answer


@pytest.mark.parametrize(
    ("server", "served"),
    [
        (("127.0.0.1", 8000), True),
        (("::1", 8000), True),
        (("/run/shardsmith.sock", None), True),
        (("test", 80), True),
        (None, True),
        (("10.1.2.3", 8000), False),
        (("fe80::1", 8000), False),
    ],
)
def test_a_server_that_listens_beyond_all_the_same_is_refused(server: Any, served: bool) -> None:
    """`uvicorn --host 0.0.0.0 --factory app.main:create_app` asks no setting of ours."""
    assert answered(server)[0]["status"] == (299 if served else 403)


HOST = {"host": "127.0.0.1:8000"}
EVIL = "https://evil.example"


@pytest.mark.parametrize(
    ("headers", "origins", "served"),
    [
        ({}, (), True),
        ({"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8000"}, (), True),
        ({"sec-fetch-site": "none"}, (), True),
        ({"origin": "http://127.0.0.1:8000"}, (), True),
        ({"sec-fetch-site": "cross-site", "origin": EVIL}, (), False),
        ({"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:3000"}, (), False),
        ({"sec-fetch-site": "cross-site"}, (), False),
        ({"origin": EVIL}, (), False),
        ({"origin": "null"}, (), False),
        ({"origin": "http://127.0.0.1:3000"}, (), False),
        ({"sec-fetch-site": "cross-site", "origin": EVIL}, (EVIL,), True),
        ({"sec-fetch-site": "cross-site", "origin": EVIL}, ("*",), True),
        ({"sec-fetch-site": "cross-site", "origin": EVIL}, ("https://lab.example",), False),
    ],
)
def test_a_foreign_page_in_a_browser_here_changes_nothing(
    headers: dict[str, str], origins: tuple[str, ...], served: bool
) -> None:
    here = ("127.0.0.1", 8000)
    acts = [
        ("POST", "/v1/datasets/x/records"),
        ("DELETE", "/v1/datasets/x"),
        ("POST", "/v1/tensors/serialize"),
    ]
    for method, path in acts:
        sent = answered(here, method=method, path=path, headers={**HOST, **headers}, origins=origins)
        assert sent[0]["status"] == (299 if served else 403)
    for method in ("GET", "HEAD", "OPTIONS"):
        read = answered(here, method=method, path="/v1/datasets/x", headers={**HOST, **headers})
        assert read[0]["status"] == 299


def test_so_is_a_websocket() -> None:
    assert answered(("10.1.2.3", 80), "websocket") == [{"type": "websocket.close", "code": 1008}]


def test_issuer_without_an_audience_is_refused() -> None:
    with pytest.raises(ValidationError, match="go together"):
        Settings(oidc_issuer="https://issuer.example")


def test_an_unsafe_issuer_ends_the_start() -> None:
    with pytest.raises(AuthConfigurationError, match="SHARDSMITH_OIDC_ISSUER"):
        _app_to_serve(
            Settings(storage_url="memory://", oidc_issuer="http://issuer.example", oidc_audience="x")
        )
