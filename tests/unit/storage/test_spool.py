"""The spool is bounded over all its files, and gives room back."""

import errno
import io
import mmap
import os
import tempfile
from pathlib import Path

import pytest

from app.errors import StorageError, StorageFull, StorageUnavailable
from app.storage.spool import Spool


def test_what_is_appended_can_be_read_anywhere(tmp_path: Path) -> None:
    with Spool(tmp_path, 1000).open() as file:
        assert file.append(b"hello") == 0
        assert file.append(memoryview(b" world")) == 5
        assert file.size == 11
        assert file.read_at(3, 5) == b"lo wo"
        assert file.read_at(9, 100) == b"ld"
        assert file.read_at(100, 1) == b""


def test_room_is_shared_and_given_back(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10)
    first, second = spool.open(), spool.open()
    first.append(b"123456")
    with pytest.raises(StorageFull) as caught:
        second.append(b"12345")
    assert caught.value.code == "spool_full"
    first.close()
    first.close()
    assert spool.used == 0
    second.append(b"1234567890")
    second.close()
    assert spool.used == 0


def test_nothing_is_left_on_the_disk(tmp_path: Path) -> None:
    with Spool(tmp_path, 1000).open() as file:
        file.append(b"x" * 100)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, StorageFull), (errno.EIO, StorageUnavailable)])
@pytest.mark.parametrize("step", ["open", "append", "read"])
def test_a_disk_that_fails_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int, kind: type[StorageError]
) -> None:
    def fails(*_: object, **__: object) -> bytes:
        raise OSError(number, os.strerror(number))

    class Failing(io.FileIO):
        seek = fails  # type: ignore[assignment]

    path = tmp_path / "file"
    path.touch()
    spool = Spool(tmp_path, 100)
    with monkeypatch.context() as patched:
        patched.setattr(
            tempfile, "TemporaryFile", fails if step == "open" else lambda **_: Failing(path, "r+")
        )
        if step == "open":
            with pytest.raises(kind):
                spool.open()
        else:
            with spool.open() as file, pytest.raises(kind):
                file.append(b"x") if step == "append" else file.read_at(0, 1)
    assert spool.used == 0
    with spool.open() as file:
        assert file.append(b"x") == 0


def test_a_view_is_all_that_was_appended_and_ends_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 100)
    with spool.open() as file:
        file.append(b"hello")
        file.append(b" world")
        view = file.view()
        assert (bytes(view), bytes(file.view()), view.readonly) == (b"hello world", b"hello world", True)
        assert file.read_at(6, 5) == b"world"
        with pytest.raises(ValueError, match="viewed"):
            file.append(b"!")
    assert bytes(view) == b"hello world"
    assert spool.used == 11
    del view
    assert spool.used == 0
    with pytest.raises(ValueError, match="closed"):
        file.view()


def test_the_view_of_an_empty_file_is_empty(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 100)
    with spool.open() as file:
        assert bytes(file.view()) == b""
    assert spool.used == 0


def test_a_disk_that_cannot_be_mapped_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(mmap, "mmap", fails)
    spool = Spool(tmp_path, 100)
    with spool.open() as file:
        file.append(b"x")
        with pytest.raises(StorageUnavailable):
            file.view()
    assert spool.used == 0
