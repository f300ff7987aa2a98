"""The spool is bounded over all its files, and gives room back."""

from pathlib import Path

import pytest

from app.errors import StorageFull
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
