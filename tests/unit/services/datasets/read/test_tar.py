"""A version as one tar: determined by the manifest, read at any place."""

import io
import json
import tarfile
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.limits import MIB
from app.errors import CorruptData, NotFound
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.publish_options import PublishOptions
from app.services.datasets.read.tar import TarMember, VersionTar
from app.storage.obstore_store import ObstoreStore, open_store
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore

LAYOUT = Layout("d", 1)


@pytest.fixture
def store() -> ObstoreStore:
    return open_store("memory://")


@pytest.fixture
def client(store: ObstoreStore) -> Client:
    client = Client(store)
    client.append(range(1000), pad=100)
    client.append(range(10), pad=5, split="test")
    client.publish(PublishOptions(num_shards=3))
    return client


def whole(tar: VersionTar) -> bytes:
    return tar.read_at(0, tar.size)


def test_every_object_of_the_version_is_in_it(client: Client, store: ObstoreStore) -> None:
    with tarfile.open(fileobj=io.BytesIO(whole(client.datasets.open_tar("d", "latest")))) as opened:
        found = {info.name: opened.extractfile(info).read() for info in opened}  # type: ignore[union-attr]
    stored = {info.key: store.get(info.key) for info in store.list("d/1.0.0")}
    manifests = [json.loads(files.pop("d/1.0.0/_manifest.json")) for files in (found, stored)]
    assert found == stored
    assert manifests[0] == {
        name: value for name, value in manifests[1].items() if name not in ("nonce", "crc32")
    }


def test_the_same_rows_published_elsewhere_are_the_same_tar(client: Client) -> None:
    other = Client(open_store("memory://"))
    other.append(range(1000), pad=100, key="1")
    other.append(range(10), pad=5, split="test", key="2")
    other.publish(PublishOptions(num_shards=3))
    tars = [one.datasets.open_tar("d", "1.0.0") for one in (client, other)]
    assert whole(tars[0]) == whole(tars[1])
    assert tars[0].tag == tars[1].tag


def test_tar_is_equal_from_every_replica(client: Client, store: ObstoreStore) -> None:
    one, other = (reader.datasets.open_tar("d", "1.0.0") for reader in (client, Client(store)))
    assert whole(one) == whole(other)
    assert (one.tag, one.size) == (other.tag, other.size)


def test_tar_is_equal_before_the_side_files_exist(client: Client, store: ObstoreStore) -> None:
    before = whole(client.datasets.open_tar("d", "1.0.0"))
    store.delete(LAYOUT.file(1, "dataset_info.json"))
    assert whole(Client(store).datasets.open_tar("d", "1.0.0")) == before


def test_other_versions_have_another_tag(client: Client) -> None:
    client.append([7], pad=1)
    client.publish()
    tars = [client.datasets.open_tar("d", version) for version in ("1.0.0", "1.1.0")]
    assert tars[0].tag != tars[1].tag


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_part_of_it_is_that_part(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 1500), max_size=4))
    members = [
        TarMember(f"m{i}", size, sha256(bytes([i]) * size).hexdigest(), bytes([i]) * size)
        for i, size in enumerate(sizes)
    ]
    tar = VersionTar(open_store("memory://"), members)
    content = whole(tar)
    offset, n = data.draw(st.integers(0, tar.size + 5)), data.draw(st.integers(0, tar.size + 5))
    assert tar.read_at(offset, n) == content[offset : offset + n]
    assert len(content) == tar.size == tar.segments[-1].end
    assert tar.size % tarfile.RECORDSIZE == 0
    with tarfile.open(fileobj=io.BytesIO(content)) as opened:
        assert [info.size for info in opened] == sizes


def test_segments_follow_one_another_and_say_their_checksums(client: Client) -> None:
    tar = client.datasets.open_tar("d", "1.0.0")
    content, end = whole(tar), 0
    for segment in tar.segments:
        assert segment.offset == end
        end = segment.end
        if segment.sha256 is not None:
            assert sha256(content[segment.offset : end]).hexdigest() == segment.sha256
    assert end == tar.size


def test_a_part_reads_no_more_than_it_needs(client: Client, store: ObstoreStore) -> None:
    counting = FaultStore(store)
    tar = Client(counting).datasets.open_tar("d", "1.0.0")
    counting.requests.clear()
    assert len(tar.read_at(600, 100)) == 100
    assert counting.requests == [("get_range", "d/1.0.0/d-train.tfrecord-00000-of-00003")]


def test_long_names_and_sizes_beyond_eight_gigabytes_have_headers() -> None:
    name = f"{'d' * 64}/1.0.0/{'d' * 64}-{'s' * 64}.tfrecord-00000-of-00001"
    huge = 9 * 1024 * MIB
    tar = VersionTar(open_store("memory://"), [TarMember(name, huge, "0" * 64, "key")])
    with tarfile.open(fileobj=io.BytesIO(tar.read_at(0, tar.segments[0].size))) as opened:
        info = opened.next()
    assert info is not None
    assert (info.name, info.size) == (name, huge)


def test_a_shard_that_is_gone_is_corrupt(client: Client, store: ObstoreStore) -> None:
    store.delete(LAYOUT.file(1, "d-train.tfrecord-00001-of-00003"))
    with pytest.raises(CorruptData):
        whole(client.datasets.open_tar("d", "1.0.0"))


def test_a_deleted_version_has_none(client: Client, store: ObstoreStore) -> None:
    client.append([7], pad=1)
    client.publish()
    store.put(LAYOUT.deleted(1), b"{}")
    with pytest.raises(NotFound) as caught:
        client.datasets.open_tar("d", "1.0.0")
    assert caught.value.code == "version_not_found"
