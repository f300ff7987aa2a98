"""The golden files are read and written through the form table, and those of `bad/` are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from hashlib import sha256
from typing import Any, Final
from unittest.mock import ANY

import pytest

from app.codecs.array import AnyTensor
from app.codecs.forms import FORMS, RECORDS_CODECS, TENSOR_CODECS
from app.codecs.options import (
    CsvDialect,
    RecordsDecodeOptions,
    RecordsEncodeOptions,
    TensorDecodeOptions,
    TensorEncodeOptions,
)
from app.codecs.schemas.declared import parse_schema
from app.codecs.schemas.features_json import serialize_features
from app.codecs.schemas.pbtxt import serialize_pbtxt
from app.domain.dtypes import DTYPES
from app.domain.limits import MIB, Limits
from app.domain.schema import Schema
from app.runtime.images import ImageCodecs
from tests.golden.entries import FILES, INDEX, json_bytes
from tests.support.format_cases import (
    Refusal,
    Rows,
    Values,
    alike,
    read,
    read_tensors,
    records,
    serialize,
    tensors_of,
    values_of,
    write,
    write_tensors,
)

Entry = dict[str, Any]

DOCUMENT: Final[dict[str, Any]] = json.loads(INDEX.read_text("utf-8"))
GOOD: Final = {entry["path"]: entry for entry in DOCUMENT["good"]}
DENSE: Final = "tensors/dense.json"
BAD: Final = DOCUMENT["bad"]
#: Forms of tensors that have names.
NAMED: Final = frozenset({"json", "npz", "oip", "safetensors", "arrow"})
#: Forms of rows whose answers have their schema, beside which there is to be no other.
WITH_SCHEMA: Final = frozenset({"arrow", "parquet"})
IMAGES: Final = frozenset({"jpeg", "png", "webp", "gif", "bmp"})
SCHEMAS: Final[dict[str, Callable[[Schema], bytes]]] = {
    "schema": lambda schema: json_bytes(schema.to_json()),
    "pbtxt": serialize_pbtxt,
    "features": serialize_features,
}
#: Parameters whose options are spelled otherwise.
SPELLED: Final[dict[str, Callable[[Any], Any]]] = {
    "dtype": DTYPES.__getitem__,
    "shape": tuple,
    "delimiter": {"tab": "\t"}.__getitem__,
    "boundary": str.encode,
    "schema": lambda text: Schema.from_json(json.loads(text)),
}


def content_of(path: str) -> bytes:
    return (FILES / path).read_bytes()


def entries(holds: str) -> pytest.MarkDecorator:
    found = [entry for entry in GOOD.values() if entry["holds"] == holds]
    return pytest.mark.parametrize("entry", found, ids=lambda entry: entry["path"])


def options_of(entry: Entry, kind: type) -> dict[str, Any]:
    """What the entry says of reading, or of writing."""
    given = {
        name: SPELLED[name](value) if name in SPELLED else value
        for name, value in entry.get("options", {}).items()
    }
    if kind is RecordsDecodeOptions and "delimiter" in given:
        given["csv"] = CsvDialect(given["delimiter"])
    return {item.name: given[item.name] for item in fields(kind) if item.name in given}


def of_answer(entry: Entry, content: bytes) -> Entry:
    """The entry of what the service has written: where JSON stands in front, that may have another length."""
    if entry["form"] != "oip":
        return entry
    _, end = json.JSONDecoder().raw_decode(content.decode("latin-1"))
    return {**entry, "options": {**entry["options"], "json_bytes": end}}


@cache
def tensors_in(path: str) -> dict[str, AnyTensor]:
    """The tensors of a file of values, by name."""
    options = options_of(GOOD[path], TensorDecodeOptions)
    return {str(tensor.name): tensor for tensor in tensors_of("json", content_of(path), **options)}


def test_the_files_are_those_of_the_index() -> None:
    listed = [*GOOD.values(), *BAD]
    paths = {path.relative_to(FILES).as_posix() for path in FILES.rglob("*") if path.is_file()}
    assert paths == {entry["path"] for entry in listed} | {INDEX.name}
    assert len(paths) == len(listed) + 1
    assert all(sha256(content_of(entry["path"])).hexdigest() == entry["sha256"] for entry in listed)
    assert sum(len(content_of(path)) for path in paths) < 500_000
    assert all(GOOD[entry["of"]]["holds"] == entry["holds"] for entry in GOOD.values())


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_form_has_files(form: Any) -> None:
    for holds, codec in (("tensors", form.tensors), ("rows", form.records)):
        found = [entry for entry in GOOD.values() if (entry["form"], entry["holds"]) == (form.name, holds)]
        assert bool(found) == (codec is not None), holds
        if codec is not None and codec.kinds:
            assert any("written" in entry for entry in found), holds


def test_every_dtype_is_among_the_tensors() -> None:
    assert {tensor.dtype.name for tensor in tensors_in(DENSE).values()} == set(DTYPES)
    protos = [entry for entry in GOOD.values() if entry["form"] == "tensorproto" and entry["of"] == DENSE]
    assert {name for entry in protos for name in entry["names"]} >= set(DTYPES)


@pytest.mark.parametrize(("form", "lacks"), DOCUMENT["lacks"].items())
def test_a_dtype_that_a_format_lacks_is_refused(form: Any, lacks: list[str]) -> None:
    """Every other one has a file."""
    code = "no_raw_form" if form == "raw" else "not_expressible"
    for dtype in lacks:
        assert write_tensors(form, [tensors_in(DENSE)[dtype]]) == Refusal(code, feature=ANY)


@entries("tensors")
def test_tensors(entry: Entry, images: ImageCodecs) -> None:
    lent: dict[str, Any] = {"images": images} if entry["form"] in IMAGES else {}
    wanted = tensors_in(entry["of"])
    tensors = [wanted[name] for name in entry.get("names", wanted)]

    def check(content: bytes, entry: Entry) -> None:
        found = read_tensors(entry["form"], content, **options_of(entry, TensorDecodeOptions), **lent)
        assert not isinstance(found, Refusal), found
        named = entry["form"] in NAMED and entry.get("options", {}).get("layout") != "nested"
        expected = [values_of(tensor) for tensor in tensors]
        if named:
            found, expected = sorted(found, key=name_of), sorted(expected, key=name_of)
        assert [value.name for value in found] == [value.name if named else None for value in expected]
        assert alike(list(map(plain, found)), list(map(plain, expected)))

    check(content_of(entry["path"]), entry)
    if written := entry.get("written"):
        content = serialize(entry["form"], *tensors, **options_of(entry, TensorEncodeOptions), **lent)
        assert written == "values" or content == content_of(entry["path"])
        check(content, of_answer(entry, content))


def name_of(value: Values) -> str:
    return str(value.name)


def plain(value: Values) -> Any:
    return value.dtype, value.shape, value.values, value.parts


@entries("rows")
def test_rows(entry: Entry) -> None:
    whole = parse_schema(content_of(entry["schema"]))
    schema = Schema(tuple(whole.by_name[name] for name in entry.get("names", whole.names)))
    rows = json.loads(content_of(entry["of"]))
    declared: dict[str, Any] = {"schema": schema, "undeclared": "drop"}
    expected = read("json", json_bytes(rows), **declared)
    assert isinstance(expected, Rows)

    def check(content: bytes, entry: Entry, given: Schema | None = schema) -> None:
        options = options_of(entry, RecordsDecodeOptions)
        found = read(entry["form"], content, schema=given, **options)
        assert isinstance(found, Rows), found
        assert found.schema == schema
        assert alike(found.rows, expected.rows)

    check(content_of(entry["path"]), entry)
    if written := entry.get("written"):
        options = options_of(entry, RecordsEncodeOptions)
        content = write(entry["form"], records(rows, **declared), **options)
        assert isinstance(content, bytes), content
        assert written == "values" or content == content_of(entry["path"])
        check(content, of_answer(entry, content), None if entry["form"] in WITH_SCHEMA else schema)


@entries("schema")
def test_schemas(entry: Entry) -> None:
    expected = parse_schema(content_of(entry["of"]))
    for content in (content_of(entry["path"]), SCHEMAS[entry["form"]](expected)):
        found = parse_schema(content)
        assert found == expected
        assert [feature.meaning for feature in found] == [feature.meaning for feature in expected]


@pytest.mark.parametrize("entry", BAD, ids=lambda entry: entry["path"])
def test_bad_golden_file_is_refused(entry: Entry) -> None:
    limits = Limits(max_decoded_bytes=64 * MIB)
    content = content_of(entry["path"])
    if entry["holds"] == "tensors":
        options = options_of(entry, TensorDecodeOptions)
        found: Any = read_tensors(entry["form"], content, limits=limits, **options)
    else:
        options = options_of(entry, RecordsDecodeOptions)
        found = read(entry["form"], content, limits=limits, **options)
    assert isinstance(found, Refusal)
    assert found.code == entry["code"]


def test_every_form_but_images_has_bad_files() -> None:
    """Raw elements may be anything; what is wrong with an image, its decoder says."""
    assert {entry["form"] for entry in BAD} == {*RECORDS_CODECS, *TENSOR_CODECS} - IMAGES - {"raw"}
