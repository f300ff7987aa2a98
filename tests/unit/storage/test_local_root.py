"""A local root keeps keys inside, whatever symbolic links lie in it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.errors import StorageError, StorageUnavailable
from app.storage.local_root import LocalRoot
from app.storage.obstore_store import ObstoreStore, open_store


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(b"secret")
    return folder


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "file").symlink_to(outside / "secret")
    (folder / "within").mkdir()
    (folder / "within" / "object").write_bytes(b"object")
    (folder / "alias").symlink_to(folder / "within")
    (folder / "dangling").symlink_to(folder / "nowhere")
    return folder


@pytest.fixture
def store(root: Path) -> ObstoreStore:
    return open_store(f"file://{root}")


@pytest.mark.parametrize("key", ["link/secret", "file", "link/new"])
@pytest.mark.parametrize(
    "operation", ["get", "head", "delete", "put", "create", "put_stream", "get_range", "read_into"]
)
def test_no_operation_follows_a_link_out(
    store: ObstoreStore, outside: Path, operation: str, key: str
) -> None:
    arguments: dict[str, tuple[object, ...]] = {
        "put": (b"x",),
        "create": (b"x",),
        "put_stream": ([b"x"],),
        "get_range": (0, 1),
        "read_into": (0, memoryview(bytearray(1))),
    }
    with pytest.raises(StorageError) as caught:
        getattr(store, operation)(key, *arguments.get(operation, ()))
    assert caught.value.code == "outside_storage_root"
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


@pytest.mark.parametrize(("source", "target"), [("link/secret", "new"), ("within/object", "link/new")])
def test_no_copy_follows_a_link_out(store: ObstoreStore, outside: Path, source: str, target: str) -> None:
    with pytest.raises(StorageError) as caught:
        store.copy(source, target)
    assert caught.value.code == "outside_storage_root"
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert "new" not in {info.key for info in store.list("")}


def test_no_sweep_follows_a_link_out(store: ObstoreStore, root: Path, outside: Path) -> None:
    (outside / "half#1").write_bytes(b"of someone else")
    (root / "file#1").symlink_to(outside / "half#1")
    soon = datetime.now(UTC) + timedelta(days=1)
    assert store.sweep("", soon) == 0
    with pytest.raises(StorageError) as caught:
        store.sweep("link", soon)
    assert caught.value.code == "outside_storage_root"
    assert (outside / "half#1").exists()
    assert (root / "file#1").is_symlink()


def test_no_list_shows_what_lies_outside(store: ObstoreStore) -> None:
    assert {info.key for info in store.list("")} <= {"within/object", "alias/object"}
    assert "within/object" in {info.key for info in store.list("")}
    assert "link" not in store.list_children("")


@pytest.mark.parametrize("operation", ["list", "list_children"])
def test_a_link_out_cannot_be_listed(store: ObstoreStore, operation: str) -> None:
    with pytest.raises(StorageError) as caught:
        list(getattr(store, operation)("link"))
    assert caught.value.code == "outside_storage_root"


def test_a_link_that_stays_inside_is_followed(store: ObstoreStore) -> None:
    assert store.get("alias/object") == b"object"


def test_a_root_that_is_itself_a_link_is_fine(tmp_path: Path, root: Path) -> None:
    (tmp_path / "mount").symlink_to(root)
    assert open_store(f"file://{tmp_path / 'mount'}").get("within/object") == b"object"


@pytest.mark.parametrize(("key", "inside"), [("a/b", True), ("", True), ("../outside", False)])
def test_contains_resolves_the_key(root: Path, key: str, inside: bool) -> None:
    assert LocalRoot(root).contains(key) is inside


def test_a_sibling_whose_name_begins_alike_is_outside(tmp_path: Path, root: Path) -> None:
    (tmp_path / "root-2").mkdir()
    (root / "sibling").symlink_to(tmp_path / "root-2")
    assert not LocalRoot(root).contains("sibling/x")


def test_a_root_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageUnavailable, match="cannot be created") as caught:
        LocalRoot(tmp_path / "file" / "folder")
    assert str(tmp_path / "file" / "folder") in caught.value.detail
