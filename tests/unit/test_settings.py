"""Each limit is a setting, with the limit's own default; a secret that stands in one is never shown."""

from dataclasses import fields

import pytest
from pydantic import ValidationError

from app.domain.limits import Limits
from app.errors import StorageError
from app.settings import Settings, SettingsError, ignored_port, read_settings, refuse_unknown
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


#: What the kubelet sets for a Service `shardsmith` whose port 8000 is called `http`, beside SHARDSMITH_PORT.
SERVICE = {
    "SHARDSMITH_SERVICE_HOST": "10.96.12.7",
    "SHARDSMITH_SERVICE_PORT": "8000",
    "SHARDSMITH_SERVICE_PORT_HTTP": "8000",
    "SHARDSMITH_PORT_8000_TCP": "tcp://10.96.12.7:8000",
    "SHARDSMITH_PORT_8000_TCP_PROTO": "tcp",
    "SHARDSMITH_PORT_8000_TCP_PORT": "8000",
    "SHARDSMITH_PORT_8000_TCP_ADDR": "10.96.12.7",
}
#: And for another one, `shardsmith-cache`.
OTHER_SERVICE = {name.replace("SMITH_", "SMITH_CACHE_"): value for name, value in SERVICE.items()}
LINK = "tcp://10.96.12.7:8000"


@pytest.mark.parametrize(("name", "default"), [("port", 8000), ("metrics_port", None)])
def test_service_link_is_not_a_port(name: str, default: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = f"SHARDSMITH_{name.upper()}"
    monkeypatch.setenv(variable, LINK)
    assert getattr(read_settings(), name) == default
    refuse_unknown({variable: LINK})
    warning = ignored_port({variable: LINK})
    assert warning is not None
    assert warning.startswith(f"{variable} ")
    assert "Kubernetes" in warning
    assert ignored_port({variable: "8000"}) is None


def test_metrics_have_another_port_than_the_interface() -> None:
    with pytest.raises(SettingsError, match="SHARDSMITH_METRICS_PORT and SHARDSMITH_PORT"):
        read_settings(port=8001, metrics_port=8001)
    assert read_settings(port=0, metrics_port=0).metrics_port == 0


def test_service_link_sets_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSMITH_STORAGE_URL", LINK)
    assert read_settings(host=LINK).host == LINK
    assert read_settings().storage_url == LINK, "for the store to refuse: the default is another place"
    refuse_unknown({"SHARDSMITH_STORAGE_URL": LINK})
    assert ignored_port({"SHARDSMITH_STORAGE_URL": LINK}) is None


def test_service_links_are_not_misspellings() -> None:
    others = {"SHARDSMITH_CACHE_PORT": LINK, "SHARDSMITH_TEST_RCLONE": "x", "PATH": "x", "SHARDSMITHS": "x"}
    refuse_unknown({**SERVICE, **OTHER_SERVICE, **others, "SHARDSMITH_HOST": "x", "shardsmith_port": "1"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SHARDSMITH_MAX_ROW", "SHARDSMITH_MAX_ROWS"),
        ("SHARDSMITH_PROT", "SHARDSMITH_PORT"),
        ("SHARDSMITH_STORAGE", "SHARDSMITH_STORAGE_URL"),
        ("shardsmith_log_fromat", "SHARDSMITH_LOG_FORMAT"),
    ],
)
def test_misspelt_setting_names_the_intended_one(name: str, meant: str) -> None:
    with pytest.raises(SettingsError) as caught:
        refuse_unknown({"SHARDSMITH_HOST": "x", name: "1"})
    assert str(caught.value) == f"{name} is no setting. Did you mean {meant}?"


def test_an_unknown_setting_that_resembles_none_is_named() -> None:
    with pytest.raises(SettingsError) as caught:
        refuse_unknown({"SHARDSMITH_QQ": "1"})
    assert str(caught.value) == "SHARDSMITH_QQ is no setting. docs/settings.md lists all."


def test_workers_need_a_store_that_they_have_in_common() -> None:
    with pytest.raises(SettingsError, match="memory:// is the memory of one process"):
        read_settings(workers=2, storage_url="memory://")
    assert read_settings(workers=1, storage_url="memory://").workers == 1
    assert read_settings(workers=2, storage_url="file:///data").workers == 2


def test_every_invalid_setting_is_named_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSMITH_MAX_ROWS", CANARY)
    monkeypatch.setenv("SHARDSMITH_OIDC_ISSUER", "https://issuer.example")
    monkeypatch.setenv("SHARDSMITH_STREAMS", "0")
    with pytest.raises(SettingsError) as caught:
        read_settings()
    assert str(caught.value) == (
        "SHARDSMITH_MAX_ROWS: Input should be a valid integer, unable to parse string as an integer. "
        "SHARDSMITH_STREAMS: Input should be greater than or equal to 1."
    )


def test_argument_overrides_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSMITH_PORT", "nonsense")
    assert read_settings(port=9).port == 9
