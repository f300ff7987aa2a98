"""Each limit is a setting, with the limit's own default; a secret that stands in one is never shown."""

from dataclasses import fields

import pytest
from pydantic import ValidationError

from app.domain.limits import Limits
from app.errors import StorageError
from app.settings import Settings
from app.storage.obstore_store import open_store

CANARY = "canary-Zx9"


def test_the_defaults_are_those_of_the_limits() -> None:
    assert Settings().limits == Limits()


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_each_limit_can_be_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SHARDSMITH_{name.upper()}", "7")
    assert getattr(Settings().limits, name) == 7


SECRET_URLS = [
    f"s3://key:{CANARY}@bucket",
    f"az://container?sig={CANARY}",
    f"s3://a:{CANARY}/x@bucket/prefix",
]


@pytest.mark.parametrize("url", SECRET_URLS)
def test_a_secret_in_a_url_shows_nowhere(url: str) -> None:
    settings = Settings(
        storage_url=url, oidc_issuer=f"https://key:{CANARY}@issuer.example", oidc_audience="x"
    )
    assert settings.storage_url == url
    shown = [repr(settings), str(settings), str(settings.model_dump()), settings.model_dump_json()]
    assert [text for text in shown if CANARY in text] == []


@pytest.mark.parametrize("name", ["SHARDSMITH_PORT", "SHARDSMITH_TOKENS_FILE", "SHARDSMITH_OIDC_ISSUER"])
def test_a_secret_shows_in_no_error_of_settings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSMITH_STORAGE_URL", f"s3://key:{CANARY}@bucket")
    monkeypatch.setenv("SHARDSMITH_MAX_ROWS", CANARY)
    monkeypatch.setenv(name, CANARY)
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert "max_rows" in str(caught.value)
    assert CANARY not in str(caught.value)


def test_half_an_issuer_is_refused_without_a_word_of_the_other_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHARDSMITH_STORAGE_URL", f"s3://key:{CANARY}@bucket")
    monkeypatch.setenv("SHARDSMITH_OIDC_ISSUER", "https://issuer.example")
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert "SHARDSMITH_OIDC_AUDIENCE" in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "url", [f"s3://a:{CANARY}/x@bucket", f"az://key:{CANARY}@container", f"ftp://{CANARY}@x", f"{CANARY}@"]
)
def test_a_secret_in_a_url_shows_in_no_error_of_the_store(url: str) -> None:
    with pytest.raises(StorageError) as caught:
        open_store(url)
    assert CANARY not in f"{caught.value}{caught.value.detail}"
