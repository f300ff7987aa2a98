"""Files of a `multipart/form-data` body as rows, through the form table."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.limits import Limits
from app.runtime.budget import Budget
from tests.support.archives import File, form_of, npy_of, part_of
from tests.support.format_cases import (
    PIECES,
    Refusal,
    Rows,
    assert_rows,
    decode,
    read,
    records,
    schema_of,
    write,
)
from tests.support.peak_memory import peak_bytes

MIB = 2**20
CATS_AND_A_DOG: tuple[str | File, ...] = (
    "cat",
    ("a.jpg", b"\xff\xd8"),
    ("b.PNG", b""),
    "dog",
    ("c.gif", b"G"),
)
ROWS = [
    {"path": b"a.jpg", "image": b"\xff\xd8", "label": b"cat"},
    {"path": b"b.PNG", "image": b"", "label": b"cat"},
    {"path": b"c.gif", "image": b"G", "label": b"dog"},
]
MALFORMED = Refusal("malformed_multipart")


def read_form(*parts: str | File | bytes, **options: Any) -> Rows | Refusal:
    """What the form makes of these parts; a refusal without its offset."""
    return read_body(form_of(*parts), **options)


def read_body(body: bytes, **options: Any) -> Rows | Refusal:
    found = read("multipart", body, **{"pieces": PIECES, "boundary": b"b", **options})
    if isinstance(found, Refusal):
        return Refusal(found.code, found.row, found.feature)
    assert found.left == 0
    return found


def test_each_file_is_a_row_with_the_label_before_it() -> None:
    found = read_form(*CATS_AND_A_DOG)
    assert_rows(found, ROWS)
    assert isinstance(found, Rows)
    assert found.features == {"path": "text", "image": "bytes", "label": "text"}


def test_labels_are_numbers_where_they_are_named() -> None:
    found = read_form(*CATS_AND_A_DOG, labels=("dog", "cat"))
    assert_rows(found, [{**row, "label": number} for row, number in zip(ROWS, [1, 1, 0], strict=True)])
    assert isinstance(found, Rows)
    assert found.schema.by_name["label"].meaning.class_names == ("dog", "cat")
    assert read_form(*CATS_AND_A_DOG, labels=("cat",)) == Refusal("schema_conflict", 2, "label")


def test_without_a_field_the_folder_is_the_label() -> None:
    files = [("pets/cat/1.jpg", b""), ("pets/cat/.DS_Store", b"x"), ("dog/2.jpg", b"")]
    found = read_form(*files)
    assert isinstance(found, Rows)
    assert [(row["path"], row["label"]) for row in found.rows] == [
        (b"pets/cat/1.jpg", b"cat"),
        (b"dog/2.jpg", b"dog"),
    ]
    assert read_form(("1.jpg", b"")) == Refusal("invalid_member_name")


def test_a_file_under_a_label_is_never_passed_over() -> None:
    found = read_form("cat", (".1.jpg", b""), ("__MACOSX/dog/2.jpg", b""))
    assert isinstance(found, Rows)
    assert [(row["path"], row["label"]) for row in found.rows] == [
        (b".1.jpg", b"cat"),
        (b"__MACOSX/dog/2.jpg", b"cat"),
    ]
    assert read_form("cat", (".DS_Store", b"")) == Refusal("invalid_member_name")


@pytest.mark.parametrize("label", ["..", "a/b", "ü", " ", "n" * 4096])
def test_a_label_may_be_any_text(label: str) -> None:
    found = read_form(label, ("1.jpg", b""))
    assert isinstance(found, Rows)
    assert [row["label"].decode() for row in found.rows] == [label]


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (b"\xc3\xbc.jpg", "ü.jpg"),
        (rb"\"1\".jpg", '"1".jpg'),
        (b"a;b=c.jpg", "a;b=c.jpg"),
        (b"%22.jpg", "%22.jpg"),
        (b"n" * 4000 + b".jpg", "n" * 4000 + ".jpg"),
    ],
)
def test_names_are_kept_as_they_are_sent(sent: bytes, name: str) -> None:
    found = read_form("cat", part_of("file", b"", sent))
    assert isinstance(found, Rows)
    assert [row["path"].decode() for row in found.rows] == [name]


def test_a_schema_may_be_declared() -> None:
    found = read_form(*CATS_AND_A_DOG, labels=("cat", "dog"), schema=schema_of(image="bytes", label="uint8"))
    assert_rows(found, [{"image": row["image"], "label": n} for row, n in zip(ROWS, [0, 0, 1], strict=True)])
    found = read_form(*CATS_AND_A_DOG, schema=schema_of(image="bytes"), undeclared="drop")
    assert_rows(found, [{"image": row["image"]} for row in ROWS])


def test_files_may_be_samples() -> None:
    found = read_form(("a.cls", b"7"), ("a.x.npy", npy_of([1.5])), ("b.cls", b"8"), archive="samples")
    assert_rows(
        found,
        [{"__key__": b"a", "cls": 7, "x.npy": [1.5]}, {"__key__": b"b", "cls": 8, "x.npy": None}],
    )
    assert read_form("cat", ("a.cls", b"7"), archive="samples") == MALFORMED
    assert read_form(("a.cls", b"7"), archive="samples", labels=("cat",)) == Refusal("inapplicable_parameter")


def test_a_part_schema_in_front_was_read_before() -> None:
    schema = part_of("schema", b'{"features": {}}')
    assert_rows(read_form(schema, *CATS_AND_A_DOG), ROWS)
    assert read_form(*CATS_AND_A_DOG, schema) == MALFORMED
    assert read_form(schema, schema, *CATS_AND_A_DOG) == MALFORMED


def test_a_content_that_looks_like_a_boundary_is_kept() -> None:
    content = b"\r\n--\r\n--a\r\n-- b--\r\n--"
    assert_rows(read_form("cat", ("a.jpg", content)), [{**ROWS[0], "image": content}])


PLAIN = part_of("file", b"1", b"a.jpg", b"Content-Transfer-Encoding: binary\r\n")
BASE64 = part_of("file", b"MQ==", b"a.jpg", b"Content-Transfer-Encoding: base64\r\n")
GZIP = part_of("label", b"cat", None, b"Content-Encoding: gzip\r\n")


@pytest.mark.parametrize(
    ("parts", "refusal"),
    [
        (("cat",), MALFORMED),
        (("cat", "dog", ("a.jpg", b"")), MALFORMED),
        (("cat", ("a.jpg", b""), "dog"), MALFORMED),
        (("", ("a.jpg", b"")), MALFORMED),
        ((part_of("label", b"\xff"), ("a.jpg", b"")), MALFORMED),
        (("n" * 4097, ("a.jpg", b"")), Refusal("member_name_too_long")),
        (("cat", part_of("file", b"")), MALFORMED),
        (("cat", part_of("image", b"", b"a.jpg")), MALFORMED),
        (("cat", ("a.jpg", b""), part_of("data", b"[]")), MALFORMED),
        (("cat", b"--b\r\n\r\n\r\n"), MALFORMED),
        (("cat", part_of("file", b"", b"")), Refusal("invalid_member_name")),
        (("cat", part_of("file", b"", b"\xff.jpg")), Refusal("invalid_member_name")),
        (("cat", part_of("file", b"", b"a\0.jpg")), Refusal("invalid_member_name")),
        (("cat", ("a.txt", b"")), Refusal("invalid_member_name")),
        (("cat", part_of("file", b"", b"n" * 4100 + b".jpg")), Refusal("member_name_too_long")),
        (("cat", part_of("file", b"", b"n" * 8000 + b".jpg")), MALFORMED),
        (("cat", part_of("file", b"", b"a.jpg", b"X: y\r\n" * 8)), MALFORMED),
        (("cat", BASE64), Refusal("unsupported_content_encoding")),
        ((GZIP, PLAIN), Refusal("unsupported_content_encoding")),
    ],
)
def test_malformed_form_is_refused(parts: tuple[str | File | bytes, ...], refusal: Refusal) -> None:
    assert read_form(*parts, pieces=(None,)) == refusal


def test_first_fault_is_reported_for_any_chunk_size() -> None:
    too_many_headers = part_of("file", b"", b"b.jpg", b"X: y\r\n" * 8)
    assert read_form("cat", too_many_headers, pieces=(None,)) == MALFORMED
    found = read_form("cat", ("a.txt", b""), too_many_headers, pieces=(None, 3))
    assert found == Refusal("invalid_member_name")


def test_a_plain_transfer_encoding_says_nothing() -> None:
    assert_rows(read_form("cat", PLAIN), [{**ROWS[0], "image": b"1"}])


def test_a_body_that_ends_early_is_refused() -> None:
    body = form_of(*CATS_AND_A_DOG).removesuffix(b"\r\n")
    for end in range(len(body)):
        found = read_body(body[:end], pieces=(None, 7))
        assert found == MALFORMED, body[:end]


@pytest.mark.parametrize("boundary", [b"", b"c", b"b" * 71])
def test_the_boundary_has_to_be_known(boundary: bytes) -> None:
    assert read_body(form_of(*CATS_AND_A_DOG), boundary=boundary) == MALFORMED


def test_the_place_of_a_refusal_is_where_the_content_begins() -> None:
    body = form_of("cat", ("a.txt", b"12345"))
    found = read("multipart", body, pieces=PIECES, boundary=b"b")
    assert found == Refusal("invalid_member_name", offset=body.index(b"12345"))


def test_a_form_is_not_written() -> None:
    assert write("multipart", records([{"x": 1}])) == Refusal("not_expressible")


def test_files_are_bounded() -> None:
    large = form_of("cat", ("a.jpg", bytes(2 * MIB)))
    assert read_body(large, pieces=(None,), limits=Limits(max_record_bytes=2 * MIB - 1)) == Refusal(
        "record_too_large"
    )
    assert isinstance(read_body(large, pieces=(None,), limits=Limits(max_record_bytes=2 * MIB)), Rows)
    codes: list[Rows | Refusal] = []
    limits = Limits(max_decoded_bytes=4 * MIB)
    huge = form_of("cat", ("a.jpg", bytes(range(256)) * 4096 * 32))
    assert peak_bytes(lambda: codes.append(read_body(huge, pieces=(64 * 1024,), limits=limits))) < 12 * MIB
    assert codes == [Refusal("payload_too_large")]


@pytest.mark.parametrize(
    "parts",
    [
        ("n" * 4096, *((f"{number}.jpg", b"") for number in range(5_000))),
        ("cat", *((f"{'n' * 3000}{number}.jpg", b"") for number in range(3_000))),
        ("cat", *((f"{number}.jpg", bytes(200_000)) for number in range(60))),
    ],
    ids=["a long label of many", "long names", "larger files"],
)
def test_many_files_are_charged_and_released(parts: tuple[str | File, ...]) -> None:
    check_charges(form_of(*parts))


def test_many_samples_are_charged_and_released() -> None:
    files = [(f"{'n' * 3000}{number}.txt", b"") for number in range(3_000)]
    check_charges(form_of(*files), archive="samples", schema=schema_of(__key__="text", txt="text"))


def check_charges(body: bytes, **options: Any) -> None:
    budget = Budget()

    def work() -> None:
        for _ in decode("multipart", body, budget, 64 * 1024, boundary=b"b", **options).batches:
            pass

    assert peak_bytes(work) < budget.peak + 6 * MIB
    assert budget.peak < 64 * MIB
