"""The golden files are what TensorFlow wrote, are all in their index, and are converted both ways."""

import json
from hashlib import sha256
from typing import Any

import pytest

from app.codecs.forms import FormName
from app.domain.dtypes import DTYPES
from app.domain.schema import Schema
from tests.golden.files import FILES, INDEX, files
from tests.unit.codecs.seam import Rows, read, records, serialize, tensors_of, write

ENTRIES: list[dict[str, Any]] = json.loads((FILES / INDEX).read_text("utf-8"))
MADE_OF = [entry for entry in ENTRIES if "of" in entry]
FORMS: dict[str, FormName] = {".raw": "raw", ".json": "json", ".npy": "npy", ".pb": "tensorproto"}


def content_of(path: str) -> bytes:
    return (FILES / path).read_bytes()


def tensor_of(entry: dict[str, Any], path: str) -> Any:
    form = FORMS[path[path.rindex(".") :]]
    declared: dict[str, Any] = (
        {"dtype": DTYPES[entry["dtype"]], "shape": tuple(entry["shape"])} if form == "raw" else {}
    )
    [tensor] = tensors_of(form, content_of(path), **declared)
    return tensor


def test_the_files_are_those_of_the_index_and_what_tensorflow_wrote() -> None:
    """`tests/differential/test_golden.py` asks TensorFlow once more."""
    made = files()
    assert [entry for entry, _ in made] == ENTRIES
    assert all(content_of(entry["path"]) == content for entry, content in made)
    paths = {path.relative_to(FILES).as_posix() for path in FILES.rglob("*") if path.is_file()}
    assert paths == {entry["path"] for entry in ENTRIES} | {INDEX}
    assert all(sha256(content_of(entry["path"])).hexdigest() == entry["sha256"] for entry in ENTRIES)
    assert sum(len(content_of(path)) for path in paths) < 1_000_000
    assert {entry["dtype"] for entry in MADE_OF if "dtype" in entry} == {
        dtype.name for dtype in DTYPES.values() if dtype.has_kernel
    }


@pytest.mark.parametrize(
    "entry", [entry for entry in MADE_OF if "dtype" in entry], ids=lambda entry: entry["path"]
)
def test_tensors_both_ways(entry: dict[str, Any]) -> None:
    for source, target in ((entry["of"], entry["path"]), (entry["path"], entry["of"])):
        form = FORMS[target[target.rindex(".") :]]
        written = serialize(form, tensor_of(entry, source))
        if form == "json":  # of which there are many spellings
            assert json.loads(written)["data"] == json.loads(content_of(target))["data"]
        else:
            assert written == content_of(target)


@pytest.mark.parametrize(
    "entry", [entry for entry in MADE_OF if "schema" in entry], ids=lambda entry: entry["path"]
)
def test_rows_both_ways(entry: dict[str, Any]) -> None:
    schema = Schema.from_json(json.loads(content_of(entry["schema"])))
    if entry["path"].endswith(".tfrecord"):  # compressed bytes depend on the release of zlib
        rows = records(json.loads(content_of(entry["of"])), schema=schema)
        assert write("tfrecord", rows) == content_of(entry["path"])
    found = read("tfrecord", content_of(entry["path"]), schema=schema)
    assert isinstance(found, Rows)
    assert found == read("json", content_of(entry["of"]), schema=schema)
