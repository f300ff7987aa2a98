from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.codecs.kernels import cache


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    cache.writable_folder.cache_clear()
    yield
    cache.writable_folder.cache_clear()


def test_the_folder_is_named_by_sources_and_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert cache.writable_folder() == tmp_path / f"kernels-{cache.digest()}"
    before = cache.digest()
    monkeypatch.setattr(cache, "version", lambda _: "0.0")
    assert cache.digest() != before


COMPILE = (
    "from {0}.codecs.kernels import crc32c, compile; print(compile.compiled(crc32c.extend_crc).__module__)"
)


@pytest.mark.exhaustive
def test_the_installed_package_does_not_load_what_was_compiled_for_the_tests(tmp_path: Path) -> None:
    """`bin/test`, then `bin/serve`: to the service there is no package `app`."""
    root = Path(__file__).parents[4]
    for name, folder in (("app", root), ("shardsmith", tmp_path)):
        result = subprocess.run(
            [sys.executable, "-c", COMPILE.format(name)],
            cwd=folder,
            env={"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert result.stdout == f"{name}.codecs.kernels.crc32c\n", result.stderr
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_without_a_folder_of_numbas_own_the_users_cache_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.base_folder() == tmp_path / "xdg" / "shardsmith"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.base_folder() == tmp_path / "home" / ".cache" / "shardsmith"


def test_where_the_base_cannot_be_written_a_folder_of_this_process_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
    folder = cache.writable_folder()
    assert folder is not None
    assert not folder.is_relative_to(tmp_path / "file")
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert not list(folder.iterdir())


def test_a_filled_read_only_base_is_copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    filled = tmp_path / f"kernels-{cache.digest()}" / "kernels_1"
    filled.mkdir(parents=True)
    (filled / "crc.nbi").write_bytes(b"index")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_is_writable", lambda _: False)
    folder = cache.writable_folder()
    assert folder is not None
    assert not folder.is_relative_to(tmp_path / f"kernels-{cache.digest()}")
    assert (folder / "kernels_1" / "crc.nbi").read_bytes() == b"index"


def test_unwritable_folder_disables_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))

    def refuse(**_: object) -> str:
        raise PermissionError

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    assert cache.writable_folder() is None
