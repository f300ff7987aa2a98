"""Which lines a version has."""

import ast
import shlex
import socket
import threading
from dataclasses import replace
from typing import Any

import pytest

from app.api.downloads.loader_lines import loader_lines, torch_lines
from app.domain.compression import Compression
from app.domain.manifest import FileEntry, Manifest, ShardEntry, SplitEntry
from tests.support.dataset_rows import SCHEMA

INFO = FileEntry("dataset_info.json", 1, "0" * 64)
SPLIT = SplitEntry((ShardEntry("shard", 2, 100, "0" * 64),))
MANIFEST = Manifest("d", "1.2.0", {"test": SPLIT, "train": SPLIT}, SCHEMA, (INFO,))
URL = "http://[::1]:8000"


def test_a_download_ends_with_a_look_for_the_last_file() -> None:
    words = shlex.split(loader_lines(MANIFEST, URL)["download"])
    assert words[:6] == ["curl", "-fsS", f"{URL}/v1/datasets/d/versions/1.2.0/tar", "|", "tar", "x"]
    assert words[6:] == ["&&", "test", "-e", "d/1.2.0/_manifest.json"]


@pytest.mark.parametrize("splits", [{}, {"train": SplitEntry(())}])
def test_a_version_without_records_can_be_downloaded(splits: dict[str, SplitEntry]) -> None:
    assert list(loader_lines(replace(MANIFEST, splits=splits), URL)) == ["download"]


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("split", ["train", "test"])
def test_python_notices_an_answer_that_breaks_off_between_two_rows(split: str, chunked: bool) -> None:
    row = b'{"x": 1}\n'
    framing = b"Transfer-Encoding: chunked\r\n\r\n9\r\n" if chunked else b"Content-Length: 18\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + framing + row + (b"\r\n" if chunked else b""))

        server = threading.Thread(target=answer)
        server.start()
        module: dict[str, Any] = {}
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        exec(loader_lines(MANIFEST, url)["python"], module)  # noqa: S102  # as it is printed
        rows = module["load"](split)
        assert next(rows) == {"x": 1}
        with pytest.raises(EOFError, match="1 rows are missing"):
            next(rows)
        server.join()


@pytest.mark.parametrize("name", ["tf.data", "tfds", "python"])
def test_python_is_python(name: str) -> None:
    ast.parse(loader_lines(MANIFEST, URL)[name])
    ast.parse(torch_lines(MANIFEST) or "")


def test_the_split_is_train_or_the_first() -> None:
    assert '"d/1.2.0/d-train.tfrecord-*"' in loader_lines(MANIFEST, URL)["tf.data"]
    others = replace(MANIFEST, splits={"train": SplitEntry(()), "test": SPLIT, "fit": SPLIT})
    lines = loader_lines(others, URL)
    assert '"d/1.2.0/d-test.tfrecord-*"' in lines["tf.data"]
    assert 'load("d/1.2.0/d-test.tfrecord-*")' in (torch_lines(others) or "")
    assert 'split="test"' in lines["tfds"]
    assert 'load("test")' in lines["python"]


@pytest.mark.parametrize(("compression", "named"), [("gzip", "GZIP"), ("zlib", "ZLIB")])
def test_compressed_shards_are_named_to_tensorflow_and_not_for_tfds(
    compression: Compression, named: str
) -> None:
    lines = loader_lines(replace(MANIFEST, compression=compression, files=()), URL)
    assert f'compression_type="{named}")' in lines["tf.data"]
    assert "tfds" not in lines
