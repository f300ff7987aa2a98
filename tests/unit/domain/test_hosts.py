"""Under which names the service answers."""

import pytest

from app.domain.hosts import is_known

NAMES = frozenset({"shardsmith", "lab.example", "*.svc.example", "fd00::7"})


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:8000",
        "localhost.",
        "docs.localhost:8000",
        "127.0.0.1",
        "127.0.0.1:8000",
        "127.9.9.9:1",
        "[::1]",
        "[::1]:8000",
        "shardsmith:8000",
        "LAB.example",
        "lab.example.:8000",
        "a.svc.example",
        "a.b.svc.example:80",
        "[fd00::7]:8000",
    ],
)
def test_loopback_and_the_names_that_are_given_are_known(host: str) -> None:
    assert is_known(host, NAMES)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "xlocalhost",
        "notlab.example",
        "sub.lab.example",
        "svc.example",
        "xsvc.example",
        "0.0.0.0",  # noqa: S104  # judged, not bound
        "10.0.0.1:8000",
        "[::2]",
        "[",
        ":8000",
        "*.svc.example.evil.example",
    ],
)
def test_others_are_not(host: str) -> None:
    assert not is_known(host, NAMES)
    assert is_known(host, {"*"})
