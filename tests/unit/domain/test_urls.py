"""What of a URL may be shown."""

import pytest

from app.domain.urls import hide_secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory://", "memory://"),
        ("file://./data", "file://./data"),
        ("file:///a@b/c", "file:///a@b/c"),
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("s3://canary@bucket/prefix", "s3://***@bucket/prefix"),
        ("s3://key:canary@bucket/prefix", "s3://***@bucket/prefix"),
        ("s3://key:ca/na@ry@bucket", "s3://***@bucket"),
        ("az://container/prefix?sig=canary", "az://container/prefix?***"),
        ("az://container#canary?sig=canary", "az://container?***"),
        ("https://issuer.example/realm", "https://issuer.example/realm"),
        ("key:canary@bucket", "***@bucket"),
        ("", ""),
    ],
)
def test_who_signs_in_and_queries_are_hidden(url: str, shown: str) -> None:
    assert hide_secrets(url) == shown
