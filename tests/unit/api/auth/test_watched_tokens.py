"""The file of tokens may change while the service runs; only a whole new one takes the place of the old."""

import hashlib
import json
import logging
from pathlib import Path

import pytest

from app.api.auth.options import AuthConfigurationError
from app.api.auth.watched_tokens import WatchedTokens


def content(*tokens: str) -> str:
    entries = [
        {"name": token, "sha256": hashlib.sha256(token.encode()).hexdigest(), "scopes": ["read"]}
        for token in tokens
    ]
    return json.dumps({"tokens": entries})


def known(watched: WatchedTokens, token: str) -> bool:
    return watched.table.find(hashlib.sha256(token.encode()).digest()) is not None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.json"
    path.write_text(content("old"))
    return path


def test_a_changed_file_is_taken_over(file: Path) -> None:
    watched = WatchedTokens(file)
    file.write_text(content("new", "old"))
    watched.look()
    assert known(watched, "new")
    assert known(watched, "old")
    file.write_text(content("new"))
    watched.look()
    assert not known(watched, "old")
    assert watched.check().detail == "1 in force"


def test_a_swapped_symbolic_link_is_seen(tmp_path: Path) -> None:
    """As the kubelet brings a changed Secret: `..data` points to another folder at once."""
    for version, token in (("..1", "old"), ("..2", "new")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "tokens.json").write_text(content(token))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "tokens.json").symlink_to("..data/tokens.json")
    watched = WatchedTokens(tmp_path / "tokens.json")
    (tmp_path / "..next").symlink_to("..2")
    (tmp_path / "..next").rename(tmp_path / "..data")
    watched.look()
    assert (known(watched, "old"), known(watched, "new")) == (False, True)


@pytest.mark.parametrize("broken", ["", content("new")[:-3], '{"tokens": [{"name": "x"}]}', None])
def test_a_broken_file_leaves_the_tokens_before_it_in_force(
    file: Path, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    watched = WatchedTokens(file)
    if broken is None:
        file.unlink()
    else:
        file.write_text(broken)
    watched.look()
    assert known(watched, "old")
    assert watched.check().ok
    assert watched.check().code == "token_file_invalid"
    assert [record.levelno for record in caplog.records if "stay in force" in record.message] == [
        logging.ERROR
    ]
    file.write_text(content("new"))
    watched.look()
    assert known(watched, "new")
    assert watched.check().code is None


def test_a_file_that_stays_broken_does_not_fill_the_log(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = WatchedTokens(file)
    file.write_text("{")
    for _ in range(24):
        watched.look()
    assert len([record for record in caplog.records if "stay in force" in record.message]) == 2


@pytest.mark.parametrize("broken", ["{}", None])
def test_without_a_good_file_to_begin_with_nothing_starts(file: Path, broken: str | None) -> None:
    if broken is None:
        file.unlink()
    else:
        file.write_text(broken)
    with pytest.raises(AuthConfigurationError, match=r"tokens\.json"):
        WatchedTokens(file)


def test_the_watch_can_be_ended(file: Path) -> None:
    watched = WatchedTokens(file)
    watched.start()
    watched.stop()
    watched.stop()
