"""What imports read from a real S3."""

import secrets

import pytest

from app.errors import InputError
from app.storage.obstore_store import ObstoreStore, open_store
from app.storage.sources import open_source
from tests.servers.running import RunningStore

#: More than a page of a listing.
MANY = 1100


class Bucket:
    """A folder of a bucket with objects."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.folder = url.split("/", 3)[3]
        self.store: ObstoreStore = open_store(url)
        for name in ("logs/a.csv", "logs/b.csv", "logs/deep/c.csv", "logs-of-others/d.csv", "logs/e.json"):
            self.store.put(name, name.encode() * 100)

    def names(self, path: str) -> list[str]:
        found = sorted(item.name for item in open_source(f"{self.url}/{path}").list())
        return [name.removeprefix(f"{self.folder}/") for name in found]


@pytest.fixture
def bucket(ceph_rgw: RunningStore, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in ceph_rgw.environment.items():
        monkeypatch.setenv(name, value)
    return Bucket(f"{ceph_rgw.url}/sources-{secrets.token_hex(4)}")


def test_a_prefix_a_pattern_and_an_object_are_listed(bucket: Bucket) -> None:
    below = ["logs/a.csv", "logs/b.csv", "logs/deep/c.csv", "logs/e.json"]
    assert bucket.names("logs") == bucket.names("logs/") == below
    assert bucket.names("logs/*.csv") == ["logs/a.csv", "logs/b.csv", "logs/deep/c.csv"]
    assert bucket.names("logs/[ab].csv") == ["logs/a.csv", "logs/b.csv"]
    assert bucket.names("logs/a.csv") == ["logs/a.csv"]
    for path in ("log", "logs/nothing", "logs/*.parquet"):
        with pytest.raises(InputError) as caught:
            bucket.names(path)
        assert caught.value.code == "source_not_found"


def test_more_than_a_page_is_listed(bucket: Bucket) -> None:
    names = [f"many/{k:04}.csv" for k in range(MANY)]
    for name in names:
        bucket.store.put(name, b"x")
    assert bucket.names("many") == names


def test_an_object_is_read_as_it_was_listed_or_not_at_all(bucket: Bucket) -> None:
    source = open_source(f"{bucket.url}/logs/a.csv")
    [item] = source.list()
    data = b"logs/a.csv" * 100
    assert item.size == len(data)
    assert bytes(source.read(item, 5, 17)) == data[5:22]
    assert bytes(source.read(item, 0, item.size)) == data
    bucket.store.put("logs/a.csv", b"logs/A.csv" * 100)
    with pytest.raises(InputError) as caught:
        source.read(item, 0, 10)
    assert caught.value.code == "source_changed"
    assert "logs/a.csv" in caught.value.detail
    bucket.store.delete("logs/a.csv")
    with pytest.raises(InputError) as caught:
        source.read(item, 0, 10)
    assert caught.value.code == "source_changed"
