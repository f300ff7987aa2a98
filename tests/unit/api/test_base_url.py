"""Base URLs: what the client named, if no shell could take it for anything else."""

import pytest
from starlette.requests import Request

from app.api.base_url import base_url

Server = tuple[str, int | None] | None


def url_of(*hosts: str, scheme: str = "http", server: Server = ("10.0.0.1", 80)) -> str:
    headers = [(b"host", host.encode("latin-1")) for host in hosts]
    return base_url(Request({"type": "http", "scheme": scheme, "headers": headers, "server": server}))


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8000",
        "127.0.0.1:8000",
        "[::1]:8000",
        "[::1]",
        "data.example.org",
        "a_b:1",
        "X-1",
    ],
)
def test_a_host_is_taken_as_it_is_named(host: str) -> None:
    assert url_of(host) == f"http://{host}"


@pytest.mark.parametrize(
    "host",
    ["", "a b", "a'b", 'a"b', "a;b", "$(id)", "`id`", "a/b", "a\\b", "user@host", "a:b", "a:123456", "-a",
     "[::1", "[x]", "a\nb", "\xe4", "a#b", "a?b", "a%41", "{x}", "a" * 300],
)  # fmt: skip
def test_malformed_host_never_reaches_generated_lines(host: str) -> None:
    assert url_of(host) == "http://10.0.0.1:80"


def test_two_hosts_are_none() -> None:
    assert url_of("a", "b") == "http://10.0.0.1:80"


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (("::1", 8000), "http://[::1]:8000"),
        (("/run/service.sock", None), "http://localhost"),
        (None, "http://localhost"),
    ],
)
def test_without_a_host_it_is_the_address_that_was_reached(server: Server, expected: str) -> None:
    assert url_of(server=server) == expected


def test_the_scheme_is_that_of_the_request() -> None:
    assert url_of("a", scheme="https") == "https://a"
