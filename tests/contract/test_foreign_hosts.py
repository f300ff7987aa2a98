"""Pages that a browser in the service's network has opened: rebound names and cross-site forms."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.api.auth.loopback import ALLOWED_BY
from app.main import create_app_with
from app.settings import Settings
from openapi.recorded import serving
from tests.contract.tokens import as_, guarded

EVIL = {"Host": "evil.example:8000"}
PROBES = ["/livez", "/readyz", "/startupz", "/v2/health/live", "/v2/health/ready"]
#: What a browser says of a form on another page that is sent without asking (a simple request of Fetch).
FORM = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example", "Content-Type": "text/plain"}


@contextmanager
def service(**settings: Any) -> Iterator[httpx.Client]:
    with serving(create_app_with(Settings(storage_url="memory://", **settings))) as client:
        yield client


@pytest.fixture(scope="module")
def local() -> Iterator[httpx.Client]:
    """A service as it is out of the box."""
    with service() as client:
        client.put("/v1/datasets/secret").raise_for_status()
        yield client


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/datasets"),
        ("GET", "/v1/datasets/secret"),
        ("HEAD", "/v1/datasets/secret"),
        ("DELETE", "/v1/datasets/secret"),
        ("POST", "/v1/tensors/serialize"),
        ("GET", "/docs"),
        ("GET", "/nowhere"),
    ],
)
def test_a_page_whose_name_was_rebound_to_loopback_gets_nothing(
    local: httpx.Client, method: str, path: str
) -> None:
    answer = local.request(method, path, headers={**EVIL, "Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 421
    if method != "HEAD":
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "unknown_host"
        assert "SHARDSMITH_ALLOWED_HOSTS" in answer.json()["detail"]
        assert "known as 'evil.example'." in answer.json()["detail"], "without the port: as it is to be added"
        assert "secret" not in answer.text
    assert local.get("/v1/datasets/secret").status_code == 200


@pytest.mark.parametrize("path", PROBES)
def test_probes_pass_under_any_name(local: httpx.Client, path: str) -> None:
    assert local.get(path, headers={"Host": "10.1.2.3:8000"}).status_code == 200


def test_http_1_0_client_without_a_host_is_accepted(local: httpx.Client) -> None:
    url = urlsplit(str(local.base_url))
    with socket.create_connection((url.hostname or "", url.port or 0), timeout=30) as connection:
        connection.sendall(b"GET /v1/datasets HTTP/1.0\r\n\r\n")
        assert b" 200 " in connection.recv(100)


def test_configured_hosts_are_accepted_as_well_as_loopback() -> None:
    with service(
        allowed_hosts="Lab.example., *.svc.example, port.example:8000, [fd00::7]:80, fd00::8"
    ) as client:
        for host in ("port.example:9", "port.example:8000", "[fd00::7]:8000", "[fd00::8]"):
            assert client.get("/v1/datasets", headers={"Host": host}).status_code == 200, host
        for host in ("lab.example", "a.svc.example:8000", "localhost", "x.localhost:1", "[::1]:8000"):
            assert client.get("/v1/datasets", headers={"Host": host}).status_code == 200, host
        assert client.get("/v1/datasets", headers=EVIL).status_code == 421


def test_who_serves_anyone_may_be_asked_under_any_name_until_names_are_given() -> None:
    with service(allow_unauthenticated=ALLOWED_BY) as client:
        assert client.get("/v1/datasets", headers=EVIL).status_code == 200
    with service(allow_unauthenticated=ALLOWED_BY, allowed_hosts="lab.example") as client:
        assert client.get("/v1/datasets", headers=EVIL).status_code == 421
        assert client.get("/v1/datasets", headers={"Host": "lab.example"}).status_code == 200
        assert client.get("/readyz", headers={"Host": "10.1.2.3:8000"}).status_code == 200


def test_with_authentication_names_count_where_they_are_given(tmp_path: Path) -> None:
    with guarded(tmp_path) as client:
        assert client.get("/v1/datasets", headers={**EVIL, **as_("reading-5f0c")}).status_code == 200
    with guarded(tmp_path, allowed_hosts="lab.example") as client:
        assert client.get("/v1/datasets", headers={**EVIL, **as_("reading-5f0c")}).status_code == 421


@pytest.mark.parametrize("settings", [{}, {"allow_unauthenticated": ALLOWED_BY}])
def test_a_form_on_another_page_converts_nothing_and_changes_nothing(settings: dict[str, str]) -> None:
    with service(**settings) as client:
        for path in (
            "/v1/tensors/serialize?from=json",
            "/v1/records/parse?from=json",
            "/v1/datasets/d/versions",
        ):
            refused = client.post(path, headers=FORM, content=b"[[1, 2]]")
            assert (refused.status_code, refused.json()["code"]) == (403, "foreign_page"), path
        own = {"Sec-Fetch-Site": "same-origin", "Content-Type": "text/plain"}
        assert client.post("/v1/tensors/serialize?from=json", headers=own, content=b"[1]").status_code == 200
