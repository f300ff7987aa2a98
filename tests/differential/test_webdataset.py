"""Tar archives of samples against WebDataset: it reads what is written here, and what it writes is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.archives import File, tar_of
from tests.support.format_cases import Rows, alike, encode, read, records, schema_of

# WebDataset leaves the files that it reads to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

#: What WebDataset adds to a sample.
_ADDED = ("__url__", "__local_path__")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("webdataset") / "samples.tar"


def samples_in(archive: Path, *, decoded: bool = False) -> list[dict[str, Any]]:
    """What WebDataset reads, by default as bytes."""
    dataset = webdataset.WebDataset(str(archive), shardshuffle=False, empty_check=False)
    found = dataset.decode() if decoded else dataset
    return [{name: sample[name] for name in sample if name not in _ADDED} for sample in found]


def test_webdataset_reads_our_tar(archive: Path) -> None:
    schema = schema_of(
        __key__="text",
        jpg="bytes",
        cls="int64",
        label="uint8",
        txt="text",
        caption={"dtype": "text", "nullable": True},
        json="text",
        npy={"dtype": "float32", "shape": [None, 2]},
        box={"dtype": "int16", "shape": [4]},
        score="float64",
    )
    rows: list[dict[str, Any]] = [
        {
            "__key__": f"train/{number:04}",
            "jpg": {"b64": "/9j/"},
            "cls": -number,
            "label": number,
            "txt": "β" * number,
            **({"caption": "one"} if number else {}),
            "json": json.dumps({"n": number}),
            "npy": [[1.5, -2.5]] * number,
            "box": [1, 2, 3, number],
            "score": number / 3,
        }
        for number in range(3)
    ]
    archive.write_bytes(encode("tar", records(rows, schema=schema)))
    found = samples_in(archive, decoded=True)
    assert len(found) == len(rows)
    for sample, row in zip(found, rows, strict=True):
        assert sample["__key__"] == row["__key__"]
        assert sample["jpg"] == b"\xff\xd8\xff"
        assert (sample["cls"], sample["label.cls"]) == (row["cls"], row["label"])
        assert (sample["txt"], sample.get("caption.txt")) == (row["txt"], row.get("caption"))
        assert sample["json"] == json.loads(row["json"])
        assert (sample["npy"].dtype, sample["npy"].tolist()) == ("<f4", row["npy"])
        assert (sample["box.npy"].dtype, sample["box.npy"].tolist()) == ("<i2", row["box"])
        assert (sample["score.npy"].dtype, sample["score.npy"].tolist()) == ("<f8", row["score"])


def test_tar_of_webdataset_is_read(archive: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "__key__": f"a/b{number}",
            "jpg": bytes([255, number]),
            "cls": number,
            "txt": "β" * number,
            "json": {"n": number},
            "left.npy": np.full((number, 2), 0.5, np.float32),
        }
        for number in range(5)
    ]
    with webdataset.TarWriter(str(archive)) as writer:
        for row in rows:
            writer.write(row)
    found = read("tar", archive.read_bytes(), pieces=(None, 1000))
    assert isinstance(found, Rows)
    assert found.features == {
        "__key__": "text",
        "cls": "int64",
        "jpg": "bytes",
        "json": "text",
        "left.npy": "float32[null,2]",
        "txt": "text",
    }
    for one, row in zip(found.rows, rows, strict=True):
        assert one["__key__"].decode() == row["__key__"]
        assert (one["jpg"], one["cls"], one["txt"].decode()) == (row["jpg"], row["cls"], row["txt"])
        assert json.loads(one["json"]) == row["json"]
        assert one["left.npy"] == row["left.npy"].tolist()


_PARTS = st.text("aBü-_ 1", min_size=1, max_size=3)
_KEYS = st.lists(_PARTS, min_size=1, max_size=2).map("/".join)
_EXTENSIONS = st.lists(_PARTS, min_size=1, max_size=2).map(".".join)


@st.composite
def archives_of_samples(draw: st.DrawFn) -> list[File]:
    """Samples of any names; each has all files, which stand side by side."""
    extensions = draw(st.lists(_EXTENSIONS, min_size=1, max_size=3, unique_by=str.lower))
    keys = draw(st.lists(_KEYS, min_size=1, max_size=4))
    # Two samples of one key side by side would be one sample with two files of each name.
    keys = [key for at, key in enumerate(keys) if not at or key != keys[at - 1]]
    return [(f"{key}.{extension}", draw(st.binary(max_size=8))) for key in keys for extension in extensions]


@settings(max_examples=300, deadline=None)
@given(files=archives_of_samples())
def test_both_find_the_same_samples(archive: Path, files: list[File]) -> None:
    data = tar_of(*files)
    archive.write_bytes(data)
    found = read("tar", data)
    assert isinstance(found, Rows)
    rows = [{**row, "__key__": row["__key__"].decode()} for row in found.rows]
    assert alike(rows, samples_in(archive))
