"""Versions whose shards are compressed, indexed, shuffled or copied, read by who shares no code with us."""

import gzip
import json
from pathlib import Path

import pytest

from app.domain.compression import SUFFIXES, Compression
from app.domain.manifest import Manifest
from app.services.datasets.objects.layout import record_index
from app.services.datasets.objects.publish_options import PublishOptions
from app.storage.obstore_store import open_store
from tests.support.dataset_rows import Client
from tests.support.shard_readers import (
    inflate,
    inflate_piece,
    parse_frames,
    parse_index,
    read_by_index,
    read_split,
)

COMPRESSIONS: list[Compression] = ["none", "gzip", "zlib"]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(open_store(f"file://{tmp_path}"))


def folder(root: Path, manifest: Manifest) -> Path:
    return root / manifest.dataset / manifest.version


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.services.datasets.publish.shards.writer.PIECE_BYTES", 4000)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_rows_come_back_whatever_the_compression(
    client: Client, tmp_path: Path, compression: Compression
) -> None:
    client.append(range(500), pad=30)
    client.append(range(500, 503), pad=10_000)
    plain = client.publish(PublishOptions(num_shards=3))
    expected = read_split(folder(tmp_path, plain), "train")
    client.append([503], pad=5)
    again = client.publish(PublishOptions(compression=compression, num_shards=4))
    assert again.compression == compression
    found = read_split(folder(tmp_path, again), "train", compression)
    assert found[:-1] == expected
    assert len(found) == 504
    for shard in again.splits["train"].shards:
        assert shard.file.endswith(f"-of-00004{SUFFIXES[compression]}")
    assert client.read() == list(range(504))
    assert client.read(offset=333, length=5) == [333, 334, 335, 336, 337]
    # and a compressed version can be the base of the next, whatever that one's compression
    client.append([504], pad=5)
    client.publish(PublishOptions(num_shards=2))
    assert client.read() == list(range(505))


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_each_piece_inflates_alone_and_they_cover_the_file(
    client: Client, tmp_path: Path, compression: Compression
) -> None:
    client.append(range(500), pad=30)
    client.append([500], pad=30_000)
    manifest = client.publish(PublishOptions(compression=compression))
    [entry] = manifest.splits["train"].shards
    data = (folder(tmp_path, manifest) / entry.file).read_bytes()
    index = json.loads((folder(tmp_path, manifest) / "_index.json").read_bytes())
    pieces = index["shards"][entry.file]
    assert len(pieces) > 10
    raw, offset, total = b"", 0, 0
    for size, _, _, raw_size in pieces:
        raw += inflate_piece(data[offset : offset + size], compression, first=offset == 0)
        assert len(raw) == (total := total + raw_size)
        offset += size
    assert offset == len(data) == entry.num_bytes
    assert raw == inflate(data, compression)
    assert sum(piece[2] for piece in pieces) == entry.num_records == len(list(parse_frames(raw)))


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_an_empty_shard_is_an_empty_stream(client: Client, tmp_path: Path, compression: Compression) -> None:
    client.append([1])
    manifest = client.publish(PublishOptions(compression=compression, num_shards=3))
    counts = [shard.num_records for shard in manifest.splits["train"].shards]
    assert sorted(counts) == [0, 0, 1]
    for shard in manifest.splits["train"].shards:
        data = (folder(tmp_path, manifest) / shard.file).read_bytes()
        assert len(list(parse_frames(inflate(data, compression)))) == shard.num_records
    assert client.read() == [1]


def test_tfds_is_not_led_to_compressed_shards(client: Client, tmp_path: Path) -> None:
    client.append([1])
    manifest = client.publish(PublishOptions(compression="gzip"))
    assert "dataset_info.json" not in manifest.by_file
    assert not (folder(tmp_path, manifest) / "dataset_info.json").exists()
    assert "features.json" in manifest.by_file


@pytest.mark.usefixtures("small_pieces")
def test_an_index_leads_to_every_record(client: Client, tmp_path: Path) -> None:
    client.append(range(300), pad=20)
    client.append([300], pad=20_000)
    manifest = client.publish(PublishOptions(index=True, num_shards=3))
    where, found = folder(tmp_path, manifest), []
    for shard in manifest.splits["train"].shards:
        assert shard.index is not None
        assert shard.index.file == record_index(shard.file)
        assert manifest.by_file[shard.index.file] == shard.index
        file = client.datasets.open_file("d", "latest", shard.index.file)
        assert file.media_type.startswith("text/plain")
        assert file.read_at(0, file.size) == (where / shard.index.file).read_bytes()
        assert len(parse_index(file.read_at(0, file.size).decode())) == shard.num_records
        found += read_by_index(where / shard.file, where / shard.index.file)
    assert found == read_split(where, "train")
    assert len(found) == 301


def test_the_shards_of_an_indexed_version_are_found_by_their_usual_pattern(
    client: Client, tmp_path: Path
) -> None:
    client.append([1, 2])
    manifest = client.publish(PublishOptions(index=True, num_shards=2))
    shards = [shard.file for shard in manifest.splits["train"].shards]
    assert sorted(path.name for path in folder(tmp_path, manifest).glob("d-*.tfrecord*")) == shards


def test_gunzip_reads_a_shard(client: Client, tmp_path: Path) -> None:
    client.append(range(10))
    manifest = client.publish(PublishOptions(compression="gzip"))
    [shard] = manifest.splits["train"].shards
    with gzip.open(folder(tmp_path, manifest) / shard.file) as file:
        assert len(list(parse_frames(file.read()))) == 10
