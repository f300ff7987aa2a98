"""The spool is bounded over all its files, and gives room back."""

import errno
import io
import mmap
import os
import tempfile
from pathlib import Path

import pytest

from app.errors import ShardsmithError, SpoolFull, SpoolUnavailable, StorageFull
from app.runtime.spool import Spool
from tests.support.mounts import mounted


def test_appended_bytes_are_read_at_any_offset(tmp_path: Path) -> None:
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


def test_share_of_a_request_is_used_up_piece_by_piece(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 40)
    with spool.open_share() as body, spool.open_share(beside=7) as response:
        body.append(b"1234")
        body.append(b"567")
        with pytest.raises(SpoolFull) as caught:
            body.append(b"8901")
        assert caught.value.code == "spool_full"
        body.append(b"890")
        with pytest.raises(SpoolFull):
            response.append(b"1234")
        assert (body.size, spool.used) == (10, 10)


def test_nothing_is_left_on_the_disk(tmp_path: Path) -> None:
    with Spool(tmp_path, 1000).open() as file:
        file.append(b"x" * 100)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, SpoolFull), (errno.EIO, SpoolUnavailable)])
@pytest.mark.parametrize("step", ["open", "append", "read"])
def test_a_disk_that_fails_is_an_error_of_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int, kind: type[ShardsmithError]
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


def test_a_file_of_an_expected_size_is_viewed_while_it_grows(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 100)
    with spool.open() as file:
        file.expect(12)
        views = []
        for piece in (b"hello", b" ", b"world"):
            file.append(piece)
            views.append(file.view())
            assert (spool.used, file.size) == (len(views[-1]), len(views[-1]))
            assert file.read_at(0, 100) == bytes(views[-1])
        assert [bytes(view) for view in views] == [b"hello", b"hello ", b"hello world"]
        with pytest.raises(ValueError, match="viewed"):
            file.append(b"!!")
        with pytest.raises(ValueError, match="viewed"):
            file.expect(20)
        assert file.append(b"!") == 11
    assert (bytes(views[0]), spool.used) == (b"hello", 12)
    del views
    assert spool.used == 0


def test_a_file_that_was_cleared_is_expected_to_be_empty(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 100)
    with spool.open() as file:
        file.expect(12)
        file.append(b"hello")
        file.clear()
        file.append(b"x")
        assert bytes(file.view()) == b"x"
        with pytest.raises(ValueError, match="viewed"):
            file.append(b"y")


def test_the_view_of_an_empty_file_is_empty(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 100)
    with spool.open() as file:
        assert bytes(file.view()) == b""
    assert spool.used == 0


def test_a_disk_that_cannot_be_mapped_is_an_error_of_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(mmap, "mmap", fails)
    spool = Spool(tmp_path, 100)
    with spool.open() as file:
        file.append(b"x")
        with pytest.raises(SpoolUnavailable):
            file.view()
    assert spool.used == 0


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "a" / "b", 100)
    spool.check()
    (tmp_path / "a" / "b").rmdir()
    with spool.open() as file:
        assert file.append(b"x") == 0


def test_a_file_in_place_of_the_folder_is_said_to_be_no_folder(tmp_path: Path) -> None:
    (tmp_path / "spool").touch()
    spool = Spool(tmp_path / "spool", 100)
    for use in (spool.check, spool.open):
        with pytest.raises(SpoolUnavailable) as caught:
            use()
        assert "Not a directory" in caught.value.detail
        assert "SHARDSMITH_SPOOL_DIR" in caught.value.detail
        assert str(tmp_path) not in caught.value.detail


def test_a_read_only_folder_is_said_to_be_so(tmp_path: Path) -> None:
    with mounted(tmp_path, "ro"):
        spool = Spool(tmp_path, 100)
        for use in (spool.check, spool.open):
            with pytest.raises(SpoolUnavailable, match=r"Read-only file system\..* SHARDSMITH_SPOOL_DIR"):
                use()


def test_a_full_folder_is_said_to_be_full(tmp_path: Path) -> None:
    with mounted(tmp_path, "size=64k"):
        spool = Spool(tmp_path, 1 << 30)
        with spool.open() as file:
            with pytest.raises(SpoolFull, match="SHARDSMITH_SPOOL_DIR"):
                file.append(bytes(1 << 20))
            with pytest.raises(SpoolFull):
                spool.check()
        spool.check()


def test_cleared_file_frees_its_space_and_is_written_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10)
    with spool.open() as file:
        file.append(b"0123456789")
        file.clear()
        assert (spool.used, file.size) == (0, 0)
        assert file.append(b"abcdefgh") == 0
        assert os.pread(file.fileno(), 100, 0) == b"abcdefgh"
        file.view()
        with pytest.raises(ValueError, match="viewed"):
            file.clear()
    assert spool.used == 0
