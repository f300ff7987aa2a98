"""Which lines a version has."""

import ast
import shlex
from dataclasses import replace

import pytest

from app.domain.compression import Compression
from app.domain.manifest import FileEntry, Manifest, SplitEntry
from app.services.loader_lines import loader_lines
from tests.rows import SCHEMA

INFO = FileEntry("dataset_info.json", 1, "0" * 64)
MANIFEST = Manifest("d", "1.2.0", {"test": SplitEntry(()), "train": SplitEntry(())}, SCHEMA, (INFO,))
URL = "http://[::1]:8000"


def test_a_download_is_two_commands() -> None:
    words = shlex.split(loader_lines(MANIFEST, URL)["download"])
    assert words == ["curl", "-fsS", f"{URL}/v1/datasets/d/versions/1.2.0/tar", "|", "tar", "x"]


@pytest.mark.parametrize("name", ["tf.data", "tfds", "python"])
def test_python_is_python(name: str) -> None:
    ast.parse(loader_lines(MANIFEST, URL)[name])


def test_the_split_is_train_or_the_first() -> None:
    assert '"d/1.2.0/d-train.tfrecord-*"' in loader_lines(MANIFEST, URL)["tf.data"]
    others = replace(MANIFEST, splits={"test": SplitEntry(()), "fit": SplitEntry(())})
    lines = loader_lines(others, URL)
    assert '"d/1.2.0/d-test.tfrecord-*"' in lines["tf.data"]
    assert 'split="test"' in lines["tfds"]
    assert 'load("test")' in lines["python"]


@pytest.mark.parametrize(("compression", "named"), [("gzip", "GZIP"), ("zlib", "ZLIB")])
def test_compressed_shards_are_named_to_tensorflow_and_not_for_tfds(
    compression: Compression, named: str
) -> None:
    lines = loader_lines(replace(MANIFEST, compression=compression, files=()), URL)
    assert f'compression_type="{named}")' in lines["tf.data"]
    assert "tfds" not in lines
