"""Pages of other origins are let in where that is configured, and not before."""

import asyncio
from typing import Any

import httpx
import pytest

from app.main import create_app_with
from app.settings import Settings
from tests.contract.declared import operations

ORIGIN = "https://lab.example"
ASKS = {
    "Origin": ORIGIN,
    "Access-Control-Request-Method": "PUT",
    "Access-Control-Request-Headers": "authorization, content-type, idempotency-key",
}


def ask(method: str, headers: dict[str, str], **settings: Any) -> httpx.Response:
    async def asked() -> httpx.Response:
        app = create_app_with(Settings(storage_url="memory://", **settings))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://localhost"
        ) as client:
            return await client.request(method, "/v1/forms", headers=headers)

    return asyncio.run(asked())


def test_by_default_no_origin_is_let_in() -> None:
    assert "access-control-allow-origin" not in ask("GET", {"Origin": ORIGIN}).headers
    refused = ask("OPTIONS", ASKS)
    assert refused.status_code == 405
    assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize("origins", [ORIGIN, f" https://a.example , {ORIGIN},", "*"])
def test_origins_that_are_named_are_let_in_without_cookies(origins: str) -> None:
    answer = ask("GET", {"Origin": ORIGIN}, cors_origins=origins)
    assert answer.headers["access-control-allow-origin"] in (ORIGIN, "*")
    assert "Repr-Digest" in answer.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in answer.headers
    assert ask("OPTIONS", ASKS, cors_origins=origins).status_code == 200


def test_others_are_not() -> None:
    answer = ask("OPTIONS", {**ASKS, "Origin": "https://evil.example"}, cors_origins=ORIGIN)
    assert answer.status_code == 400
    assert "access-control-allow-origin" not in answer.headers


def test_a_browser_may_ask_before_it_sends_a_token(tmp_path: Any) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text('{"tokens": []}')
    assert ask("OPTIONS", ASKS, cors_origins=ORIGIN, tokens_file=tokens).status_code == 200
    answer = ask("GET", {"Origin": ORIGIN}, cors_origins=ORIGIN, tokens_file=tokens)
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == ORIGIN


def test_pages_may_send_and_read_every_header_that_the_document_has() -> None:
    asked = ask("OPTIONS", ASKS, cors_origins=ORIGIN).headers["access-control-allow-headers"]
    shown = ask("GET", {"Origin": ORIGIN}, cors_origins=ORIGIN).headers["access-control-expose-headers"]
    sent, answered = set(), set()
    for _, _, operation in operations():
        sent |= {item["name"] for item in operation.get("parameters", []) if item["in"] == "header"}
        answered |= {name for answer in operation["responses"].values() for name in answer.get("headers", ())}
    assert sent
    assert {name.lower() for name in sent} <= set(asked.lower().split(", "))
    assert answered
    assert answered <= set(shown.split(", "))
