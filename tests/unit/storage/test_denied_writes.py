"""A store that denies writes refuses them for good: at once, by name, and never with an unknown outcome."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import obstore
import pytest

from app.errors import OutcomeUnknown, StorageError
from app.storage.create_once import create_once
from app.storage.object_store import ObjectStore
from app.storage.obstore_store import open_store
from tests.support.mounts import mounted, remount
from tests.support.object_stores.fake_s3 import FakeS3

ROOT = Path(__file__).parents[3]
NOBODY = 65534


def never(seconds: float) -> None:
    raise AssertionError("a refusal for good is not waited out")


WRITES: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda store: store.put("x/b", b"1"),
    "create_once": lambda store: create_once(store, "x/b", b"1", sleep=never),
    "create_once in a new folder": lambda store: create_once(store, "new/b", b"1", sleep=never),
    "put_stream": lambda store: store.put_stream("x/b", [b"1"]),
    "delete": lambda store: store.delete("x/there"),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_read_only_folder_denies(tmp_path: Path, write: str) -> None:
    with mounted(tmp_path, "size=1m"):
        store = open_store(f"file://{tmp_path}")
        store.put("x/there", b"1")
        remount(tmp_path, "ro")
        with pytest.raises(StorageError) as caught:
            WRITES[write](store)
        assert caught.value.code == "storage_denied"
        assert "Read-only file system" in caught.value.detail
        assert store.get("x/there") == b"1"


@pytest.fixture
def foreign_folder() -> Iterator[Path]:
    """A folder that another user may only read."""
    with tempfile.TemporaryDirectory() as name:
        folders = Path(name), Path(name, "x")
        folders[1].mkdir()
        (folders[1] / "there").write_bytes(b"1")
        for folder in folders:
            folder.chmod(0o555)
        yield folders[0]
        for folder in folders:
            folder.chmod(0o755)


def test_a_folder_of_another_user_denies(foreign_folder: Path) -> None:
    """In a process without root's rights, for which no folder is read-only."""
    script = (
        "import os, sys\n"
        "from app.errors import StorageError\n"
        "from app.storage.obstore_store import open_store\n"
        "from tests.unit.storage.test_denied_writes import WRITES\n"
        "store = open_store(sys.argv[1])\n"
        "if os.geteuid() == 0:\n"
        f"    os.setuid({NOBODY})\n"  # now: the interpreter may lie where only root reads
        "for write in WRITES.values():\n"
        "    try:\n"
        "        write(store)\n"
        "    except StorageError as error:\n"
        "        print(error.code, 'Permission denied' in error.detail)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, foreign_folder.as_uri()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["storage_denied True"] * len(WRITES), done.stderr


def test_blocked_connection_is_not_a_refusal_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A firewall that begins to reject packets breaks connections over which a request has gone."""
    server = FakeS3()
    try:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        store = open_store("s3://bucket")

        def cut(*args: object, **kwargs: object) -> None:
            # As reqwest and the system word it.
            raise OSError(
                "Generic S3 error: error sending request\n\nCaused by: Permission denied (os error 13)"
            )

        monkeypatch.setattr(obstore, "put", cut)
        with pytest.raises(OutcomeUnknown):
            create_once(store, "x/b", b"1", deadline_s=0)
    finally:
        server.close()


def test_a_refusal_takes_no_unknown_outcome_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials that expire between two tries: the first may have been stored."""
    server = FakeS3()
    statuses = iter([500])
    try:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.answers = lambda method, path: next(statuses, 403)
        with pytest.raises(OutcomeUnknown):
            create_once(open_store("s3://bucket"), "x/b", b"1", deadline_s=1)
        assert len(server.requests) > 1
    finally:
        server.close()


@pytest.mark.parametrize("write", ["put", "create_once"])
def test_a_bucket_that_denies_puts_is_asked_once(monkeypatch: pytest.MonkeyPatch, write: str) -> None:
    server = FakeS3()
    try:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.answers = lambda method, path: (403, b"<Error><Code>AccessDenied</Code></Error>")
        with pytest.raises(StorageError) as caught:
            WRITES[write](open_store("s3://bucket"))
        assert caught.value.code == "storage_denied"
        assert [method for method, _, _ in server.requests] == ["PUT"]
    finally:
        server.close()
