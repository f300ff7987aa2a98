"""ZIP archives, and images in folders of either archive, through the form table."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
from typing import Any

import pytest

from app.codecs.forms import FormName
from app.domain.limits import Limits
from app.errors import InputError
from app.runtime.amplification import Amplification
from app.runtime.budget import Budget
from tests.support.archives import File, npy_of, tar_of, zip_of
from tests.support.format_cases import (
    PIECES,
    Refusal,
    Rows,
    assert_rows,
    decode,
    encode,
    read,
    records,
    schema_of,
    write,
)
from tests.support.peak_memory import peak_bytes

MIB = 2**20
PETS = [("cat/1.jpg", b"\xff\xd8"), ("cat/2.PNG", b"\x89P"), ("dog/3.jpeg", b"")]
ROWS = [
    {"path": b"cat/1.jpg", "image": b"\xff\xd8", "label": b"cat"},
    {"path": b"cat/2.PNG", "image": b"\x89P", "label": b"cat"},
    {"path": b"dog/3.jpeg", "image": b"", "label": b"dog"},
]


def read_both(*files: File, **options: Any) -> Rows | Refusal:
    """What the form makes of a ZIP archive, which has to be what it makes of a tar archive."""
    options = {"archive": "folders", **options}
    found = read("zip", zip_of(*files), **options)
    other = read("tar", tar_of(*files), pieces=PIECES, **options)
    if isinstance(found, Refusal):
        assert isinstance(other, Refusal)
        assert (found.code, found.row, found.feature) == (other.code, other.row, other.feature)
        return Refusal(found.code, found.row, found.feature)
    assert isinstance(other, Rows)
    assert (other.schema, other.rows) == (found.schema, found.rows)
    assert found.left == other.left == 0
    return found


def test_images_in_folders_are_rows_with_the_name_of_the_folder() -> None:
    found = read_both(*PETS)
    assert_rows(found, ROWS)
    assert isinstance(found, Rows)
    assert found.features == {"path": "text", "image": "bytes", "label": "text"}
    assert_rows(read("zip", zip_of(*PETS)), ROWS)


def test_the_label_is_the_innermost_folder() -> None:
    found = read_both(("./pets/train/cat/1.gif", b""), ("ü/2.webp", b""))
    assert isinstance(found, Rows)
    assert [row["label"].decode() for row in found.rows] == ["cat", "ü"]


def test_labels_are_numbers_where_they_are_named() -> None:
    found = read_both(*PETS, labels=("dog", "cat"))
    assert_rows(found, [{**row, "label": number} for row, number in zip(ROWS, [1, 1, 0], strict=True)])
    assert isinstance(found, Rows)
    assert found.features["label"] == "int64"
    assert found.schema.by_name["label"].meaning.class_names == ("dog", "cat")
    assert read_both(*PETS, labels=("cat",)) == Refusal("schema_conflict", 2, "label")
    assert read("tar", tar_of(*PETS), labels=("cat", "dog")) == Refusal("inapplicable_parameter")


def test_a_schema_may_be_declared() -> None:
    declared = {"image": "bytes", "label": "uint8"}
    found = read_both(*PETS, labels=("cat", "dog"), schema=schema_of(**declared))
    assert_rows(found, [{"image": row["image"], "label": n} for row, n in zip(ROWS, [0, 0, 1], strict=True)])
    assert read_both(*PETS, schema=schema_of(image="bytes")) == Refusal("schema_conflict", 0, "label")
    found = read_both(*PETS, schema=schema_of(image="bytes", path="text"), undeclared="drop")
    assert_rows(found, [{"image": row["image"], "path": row["path"]} for row in ROWS])
    assert read_both(*PETS, schema=schema_of(label="int64")) == Refusal("schema_conflict", 0, "image")


def test_a_declared_label_has_the_same_names_or_gets_them() -> None:
    for declared in ("int64", {"dtype": "int64", "class_names": ["cat", "dog"]}):
        schema = schema_of(image="bytes", label=declared)
        found = read_both(*PETS, labels=("cat", "dog"), schema=schema)
        assert isinstance(found, Rows)
        assert found.schema.by_name["label"].meaning.class_names == ("cat", "dog")
    for labels in (("dog", "cat"), ("cat", "dog", "bird")):
        assert read_both(*PETS, labels=labels, schema=schema) == Refusal("schema_conflict", None, "label")
    for dtype in ("text", "bytes"):  # in which "0" would stand beside "cat"
        schema = schema_of(image="bytes", label=dtype)
        assert read_both(*PETS, labels=("cat", "dog"), schema=schema) == Refusal(
            "schema_conflict", None, "label"
        )
    found = read_both(*PETS, labels=("cat", "dog"), schema=schema_of(image="bytes", label="float32"))
    assert isinstance(found, Rows)
    assert found.schema.by_name["label"].meaning.class_names == ()


def test_names_of_classes_that_a_schema_has_need_not_be_sent_again() -> None:
    schema = schema_of(label={"dtype": "int64", "class_names": ["dog", "cat"]})
    assert_rows(read_both(*PETS, schema=schema, undeclared="drop"), [{"label": n} for n in (1, 1, 0)])
    numbered = [(f"{n}/{name}", b"") for n, name in enumerate(("a.jpg", "b.jpg"))]
    assert_rows(read_both(*numbered, schema=schema, undeclared="drop"), [{"label": 0}, {"label": 1}])
    found = read_both(("cow/1.jpg", b""), schema=schema, undeclared="drop")
    assert found == Refusal("inexact_integer", 0, "label")


def test_numeric_folder_is_a_class_name() -> None:
    schema = schema_of(label={"dtype": "int64", "class_names": ["3", "5", "8"]})
    assert_rows(read_both(("5/a.jpg", b""), schema=schema, undeclared="drop"), [{"label": 1}])
    found = read_both(("5/a.jpg", b""), ("1/b.jpg", b""), schema=schema, undeclared="drop")
    assert found == Refusal("schema_conflict", 1, "label")


def test_notes_of_the_system_are_passed_over() -> None:
    notes = [("cat/.DS_Store", b"x"), ("__MACOSX/cat/1.jpg", b"x"), ("cat/._1.jpg", b"x")]
    assert_rows(read_both(*notes, *PETS), ROWS)


@pytest.mark.parametrize("name", ["1.jpg", "./1.jpg", "cat/1.txt", "cat/1", "cat/../1.jpg", "/1.jpg"])
def test_file_without_a_label_or_image_is_refused(name: str) -> None:
    assert read_both(("cat/0.jpg", b""), (name, b"")) == Refusal("invalid_member_name")


def test_samples_may_come_in_a_zip() -> None:
    found = read_both(("a.cls", b"7"), ("a.x.npy", npy_of([1.5])), ("b.cls", b"8"), archive="samples")
    assert_rows(
        found,
        [{"__key__": b"a", "cls": 7, "x.npy": [1.5]}, {"__key__": b"b", "cls": 8, "x.npy": None}],
    )


def test_system_files_are_not_samples() -> None:
    notes = [("d/._a.cls", b"x"), ("__MACOSX/._a.cls", b"x"), ("._b", b"x")]
    found = read_both(*notes, ("d/a.cls", b"7"), ("d/._a.txt", b""), ("d/a.txt", b"8"), archive="samples")
    assert_rows(found, [{"__key__": b"d/a", "cls": 7, "txt": b"8"}])
    assert read_both(("d/.a.cls", b"7"), archive="samples") == Refusal("invalid_member_name")


def test_a_zip_is_not_written() -> None:
    assert write("zip", records([{"x": 1}])) == Refusal("not_expressible")


GOOD = zip_of(("a/1.jpg", b"1" * 100))
STORED = zip_of(("a/1.jpg", b"1" * 100), method=zipfile.ZIP_STORED)


def changed(archive: bytes, old: bytes, new: bytes) -> bytes:
    assert old in archive
    return archive.replace(old, new)


def special(name: str, mode: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("x", (1980, 1, 1, 0, 0, 0))
        info.filename = info.orig_filename = name  # even an empty one
        info.external_attr = mode << 16
        archive.writestr(info, b"target")
    return out.getvalue()


def encrypted(archive: bytes) -> bytes:
    at = archive.index(b"PK\1\2")
    return archive[: at + 8] + b"\1" + archive[at + 9 :]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_zip"),
        (b"PK\3\4", "invalid_zip"),
        (GOOD[:-1], "invalid_zip"),
        (b"x" + GOOD, "invalid_zip"),
        (GOOD + GOOD, "invalid_zip"),
        (GOOD + b"x", "trailing_bytes"),
        (changed(STORED, b"1" * 100, b"1" * 99 + b"2"), "invalid_zip"),
        (changed(STORED, struct.pack("<I", 100), struct.pack("<I", 99)), "invalid_zip"),
        (encrypted(GOOD), "encrypted_member"),
        (zip_of(("a/1.jpg", b"1"), method=zipfile.ZIP_BZIP2), "unsupported_compression"),
        (special("a/1.jpg", stat.S_IFLNK | 0o777), "unsupported_member"),
        (changed(STORED, b"a/1.jpg", b"a/1\0jpg"), "invalid_member_name"),
        (changed(STORED, b"a/1.jpg", b"\0/1.jpg"), "invalid_member_name"),
        (special("", stat.S_IFREG), "invalid_member_name"),
        (zip_of(("a/" + "n" * 5000 + ".jpg", b"")), "member_name_too_long"),
        (zip_of(("a/1.jpg", b"1"), ("b/1.jpg", b"1"), ("a/1.jpg", b"1")), "duplicate_member"),
        (zip_of(("a/1.jpg", b"1"), ("a/1.jpg", b"2")), "duplicate_member"),
    ],
)
def test_malformed_zip_is_refused(body: bytes, code: str) -> None:
    found = read("zip", body)
    assert isinstance(found, Refusal)
    assert found.code == code


def test_an_empty_archive_has_no_rows() -> None:
    assert_rows(read("zip", zip_of()), [])
    assert_rows(read("zip", zip_of(("a/", b""))), [])


def code_of(form: FormName, body: bytes, budget: Budget) -> str:
    try:
        for _ in decode(form, body, budget).batches:
            pass
    except InputError as error:
        return error.code
    return ""


def test_the_directory_and_the_files_are_charged_before_they_are_read() -> None:
    many = zip_of(*((f"a/{number}.jpg", b"") for number in range(8_000)), method=zipfile.ZIP_STORED)
    budget = Budget()
    assert peak_bytes(lambda: code_of("zip", many, budget)) < budget.peak + 2 * MIB
    assert code_of("zip", many, Budget(Limits(max_decoded_bytes=4 * MIB))) == "payload_too_large"
    large = zip_of(("a/1.jpg", bytes(range(256)) * 4096 * 16), method=zipfile.ZIP_STORED)
    codes: list[str] = []
    small = Budget(Limits(max_decoded_bytes=4 * MIB))
    assert peak_bytes(lambda: codes.append(code_of("zip", large, small))) < 12 * MIB
    assert codes == ["payload_too_large"]
    assert code_of("zip", large, Budget(Limits(max_record_bytes=MIB))) == "record_too_large"


def test_inflated_bytes_are_limited() -> None:
    body = zip_of(("a/1.jpg", bytes(900_000)), ("a/2.jpg", bytes(900_000)))
    assert read("zip", body, limits=Limits(max_amplification=100)) == Refusal("compression_ratio_exceeded")
    amplification = Amplification(100, lambda: len(body), allowance=MIB)
    assert code_of("zip", body, Budget(amplification=amplification)) == "compression_ratio_exceeded"


def test_folders_become_samples() -> None:
    rows = decode("zip", zip_of(*PETS))
    found = read("tar", encode("tar", rows))
    assert isinstance(found, Rows)
    assert [row["label.txt"] for row in found.rows] == [b"cat", b"cat", b"dog"]
    assert [row["image"] for row in found.rows] == [row["image"] for row in ROWS]
