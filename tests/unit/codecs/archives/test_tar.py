"""Tar archives of samples through the form table."""

import bz2
import gzip
import json
import lzma
import random
import tarfile
import zipfile
from typing import Any

import numpy as np
import pytest

from app.codecs.columns import Batch, Column, Records, Strings
from app.codecs.forms import RECORDS_CODECS, FormName
from app.codecs.options import RecordsEncodeOptions
from app.domain.limits import Limits
from app.errors import InputError, MalformedInput
from app.runtime.budget import Budget
from tests.support.archives import File, files_of, form_of, header_of, npy_of, tar_of, zip_of
from tests.support.format_cases import (
    PIECES,
    WHOLE,
    Pieces,
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
from tests.support.images import encode as encode_image
from tests.support.images import pixels
from tests.support.peak_memory import peak_bytes
from tests.support.zstandard import zstd

FORM: FormName = "tar"
KIB, MIB = 2**10, 2**20
BLOCK = 512
END = bytes(2 * BLOCK)
MATRIX = {"dtype": "int16", "shape": [None, 2]}


def read_tar(*files: File, pieces: Pieces = PIECES, **options: Any) -> Rows | Refusal:
    return read(FORM, tar_of(*files), pieces=pieces, **options)


def row(**members: Any) -> dict[str, Any]:
    return {"__key__": b"a", **members}


@pytest.mark.parametrize(
    ("files", "features", "row"),
    [
        ([("a.jpg", b"\xff\xd8")], {"jpg": "bytes"}, {"jpg": b"\xff\xd8"}),
        ([("a.cls", b"7\n")], {"cls": "int64"}, {"cls": 7}),
        ([("a.cls", b" -12 ")], {"cls": "int64"}, {"cls": -12}),
        ([("a.txt", "β\n".encode())], {"txt": "text"}, {"txt": "β\n".encode()}),
        ([("a.json", b'{"x": 1}')], {"json": "text"}, {"json": b'{"x": 1}'}),
        ([("a.npy", npy_of([[1.5], [2.5]]))], {"npy": "float64[2,1]"}, {"npy": [[1.5], [2.5]]}),
        ([("a.npy", npy_of(np.uint8(3)))], {"npy": "uint8"}, {"npy": 3}),
        ([("a.npy", npy_of([b"x", b"yz"]))], {"npy": "bytes[2]"}, {"npy": [b"x", b"yz"]}),
        ([("a.npy", npy_of(["β"]))], {"npy": "text[1]"}, {"npy": ["β".encode()]}),
        ([("a.npz", b"any")], {"npz": "bytes"}, {"npz": b"any"}),
        ([("a.jpg", b"")], {"jpg": "bytes"}, {"jpg": b""}),
        (
            [("a.left.PNG", b"1"), ("a.right.png", b"2"), ("a.seg.cls", b"3")],
            {"left.png": "bytes", "right.png": "bytes", "seg.cls": "int64"},
            {"left.png": b"1", "right.png": b"2", "seg.cls": 3},
        ),
    ],
)
def test_files_are_features_by_their_extension(
    files: list[File], features: dict[str, str], row: dict[str, Any]
) -> None:
    found = read_tar(*files)
    assert_rows(found, [{"__key__": b"a", **row}])
    assert isinstance(found, Rows)
    assert found.features == {"__key__": "text", **features}
    assert found.left == 0


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a.txt", "a"),
        ("./a.txt", "./a"),
        ("train/dog/001.txt", "train/dog/001"),
        ("v1.2/a.txt", "v1.2/a"),
        ("ü.txt", "ü"),
        ("n" * 3000 + ".txt", "n" * 3000),
        ("f" * 150 + "/" + "n" * 90 + ".txt", "f" * 150 + "/" + "n" * 90),
    ],
)
@pytest.mark.parametrize("layout", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_key_is_the_name_up_to_the_first_dot_after_the_folders(name: str, key: str, layout: int) -> None:
    found = read(FORM, tar_of((name, b"1"), ("z.txt", b"2"), layout=layout), pieces=(None, 3))
    assert_rows(found, [{"__key__": key.encode(), "txt": b"1"}, {"__key__": b"z", "txt": b"2"}])


def test_plain_ustar_and_the_format_before_it_are_read() -> None:
    expected = [row(txt=b"1")]
    assert_rows(read(FORM, tar_of(("a.txt", b"1"), layout=tarfile.USTAR_FORMAT)), expected)
    old = bytearray(header_of("a.txt", 1))
    old[257:265] = bytes(8)  # neither magic nor version
    old[148:156] = b"%06o\0 " % (sum(old[:148] + old[156:]) + 8 * 32)
    assert_rows(read(FORM, bytes(old) + b"1".ljust(BLOCK, b"\0") + END), expected)


def test_size_in_an_extended_header_is_used() -> None:
    record = b"10 size=3\n"
    body = header_of("pax", len(record), type=tarfile.XHDTYPE) + record.ljust(BLOCK, b"\0")
    body += header_of("a.txt", 0) + b"abc".ljust(BLOCK, b"\0") + END
    assert_rows(read(FORM, body, pieces=PIECES), [row(txt=b"abc")])


def test_folders_and_notes_of_other_programs_are_passed_over() -> None:
    folder = header_of("d/", type=tarfile.DIRTYPE)
    note = b"19 comment=a4bc3d5\n"
    comment = header_of("g", len(note), type=tarfile.XGLTYPE) + note.ljust(BLOCK, b"\0")
    link = header_of("././@LongLink", 4, type=tarfile.GNUTYPE_LONGLINK) + b"old\0".ljust(BLOCK, b"\0")
    body = comment + folder + link + tar_of(("d/a.txt", b"1"))
    assert_rows(read(FORM, body, pieces=PIECES), [{"__key__": b"d/a", "txt": b"1"}])


def test_an_empty_archive_has_no_rows() -> None:
    assert_rows(read(FORM, END, pieces=PIECES), [])
    assert_rows(read(FORM, bytes(BLOCK)), [])
    assert_rows(read(FORM, tar_of(("a.txt", b""))[:BLOCK] + END), [row(txt=b"")])


def test_a_feature_that_a_row_lacks_is_nullable() -> None:
    found = read_tar(("a.cls", b"1"), ("b.cls", b"2"), ("b.x.npy", npy_of([1, 2])), ("c.txt", b"3"))
    assert isinstance(found, Rows)
    assert found.features == {"__key__": "text", "cls": "int64?", "x.npy": "int64[2]?", "txt": "text?"}
    assert [list(one.values())[1:] for one in found.rows] == [
        [1, None, None],
        [2, [1, 2], None],
        [None, None, b"3"],
    ]


@pytest.mark.parametrize(
    ("arrays", "feature", "values"),
    [
        ([np.ones(1), np.ones(2)], "float64[null]", [[1.0], [1.0, 1.0]]),
        ([np.ones((1, 2)), np.zeros((2, 1))], "float64[null,null]", [[[1.0, 1.0]], [[0.0], [0.0]]]),
        ([np.ones((1, 2)), np.zeros((0, 2))], "float64[null,2]", [[[1.0, 1.0]], []]),
        ([np.ones((0, 2)), np.zeros((0, 3))], "float64[0,null]", Refusal("schema_conflict", 0, "x.npy")),
        ([np.ones(1), np.ones((1, 1))], "", Refusal("schema_conflict", 1, "x.npy")),
        ([np.ones(1), np.ones(1, "f4")], "", Refusal("schema_conflict", 1, "x.npy")),
    ],
)
def test_arrays_have_the_shape_that_all_of_them_have(arrays: Any, feature: str, values: Any) -> None:
    found = read_tar(*((f"{n}.x.npy", npy_of(array)) for n, array in enumerate(arrays)))
    if isinstance(values, Refusal):
        assert found == values
        return
    assert isinstance(found, Rows)
    assert found.features["x.npy"] == feature
    assert [one["x.npy"] for one in found.rows] == values


@pytest.mark.parametrize(
    ("feature", "file", "content", "value"),
    [
        ("int8", "x.cls", b"-128", -128),
        ("int8", "x", b"-128\n", -128),
        ("float32", "x", b"0.5", 0.5),
        ("float32", "x.txt", b"0.5", 0.5),
        ("bool", "x", b"true", True),
        ("uint64", "x.cls", b"18446744073709551615", 2**64 - 1),
        ("text", "x", b"a", b"a"),
        ("text", "x.txt", b"a", b"a"),
        ("text", "x.cls", b"1", b"1"),
        ("bytes", "x", b"\xff", b"\xff"),
        ("bytes", "x.npy", b"\xff", b"\xff"),
        ("float32", "x.npy", npy_of(1.5), 1.5),
        ("int8", "x.npy", npy_of(3), 3),
        (MATRIX, "x.npy", npy_of([[1, 2]]), [[1, 2]]),
        (
            {"dtype": "bfloat16", "shape": [2]},
            "x.npy",
            npy_of(np.array([0x3F80, 0], "<u2").view("V2")),
            [1.0, 0.0],
        ),
        ({"dtype": "text", "shape": [None]}, "x.npy", npy_of(["a", "b"]), [b"a", b"b"]),
        ("float32", "x", b"\x96", Refusal("schema_conflict", 1, "x")),
        ("int8", "x.cls", b"128", Refusal("out_of_range", 1, "x")),
        ("int8", "x.cls", b"1.5", Refusal("inexact_integer", 1, "x")),
        ("int8", "x.cls", b"", Refusal("inexact_integer", 1, "x")),
        ("int8", "x.npy", npy_of(300), Refusal("out_of_range", 1, "x")),
        ("int8", "x.npy", npy_of([3]), Refusal("schema_conflict", 1, "x")),
        ("int8", "x.npy", npy_of("a"), Refusal("schema_conflict", 1, "x")),
        ("text", "x", b"\xff", Refusal("invalid_utf8", 1, "x")),
        (MATRIX, "x", b"1", Refusal("schema_conflict", 1, "x")),
        (MATRIX, "x.npy", npy_of([1, 2]), Refusal("schema_conflict", 1, "x")),
        (MATRIX, "x.npy", npy_of([[1, 2, 3]]), Refusal("schema_conflict", 1, "x")),
        (MATRIX, "x.npy", b"none at all", Refusal("not_npy", 1, "x")),
        (MATRIX, "x.npy", npy_of([[1, 2]])[:-1], Refusal("truncated", 1, "x")),
        (MATRIX, "x.npy", npy_of([[1, 2]]) + b"\0", Refusal("trailing_bytes", 1, "x")),
        ({"dtype": "text", "shape": [1]}, "x.npy", npy_of([b"\xff"]), Refusal("invalid_utf8", 1, "x")),
        (
            {"dtype": "int8", "shape": [0, None]},
            "x.npy",
            npy_of(np.ones((0, 1))),
            Refusal("schema_conflict", 1, "x"),
        ),
    ],
)
def test_a_declared_feature_is_read_as_it_says(feature: Any, file: str, content: bytes, value: Any) -> None:
    declared = feature if isinstance(feature, dict) else {"dtype": feature}
    schema = schema_of(id="text", x={**declared, "nullable": True})
    found = read_tar(("a.id", b"1"), ("b.id", b"2"), (f"b.{file}", content), schema=schema)
    if isinstance(value, Refusal):
        assert found == value
    else:
        assert_rows(found, [{"id": b"1", "x": None}, {"id": b"2", "x": value}])


def test_the_key_is_a_feature_if_it_is_declared() -> None:
    schema = schema_of(__key__="int64", cls="int64")
    assert_rows(read_tar(("12.cls", b"1"), schema=schema), [{"__key__": 12, "cls": 1}])
    assert read_tar(("a.cls", b"1"), schema=schema) == Refusal("inexact_integer", 0, "__key__")


def test_undeclared_member_is_refused_or_dropped() -> None:
    files = [("a.cls", b"1"), ("b.cls", b"2"), ("b.jpg", b"x")]
    schema = schema_of(cls="int64")
    assert read_tar(*files, schema=schema) == Refusal("schema_conflict", 1, "jpg")
    assert_rows(read_tar(*files, schema=schema, undeclared="drop"), [{"cls": 1}, {"cls": 2}])
    assert read_tar(("a.txt", b"1"), schema=schema) == Refusal("schema_conflict", 0, "txt")
    assert read_tar(("a.txt", b"1"), schema=schema, undeclared="drop") == Refusal("schema_conflict", 0, "cls")


@pytest.mark.parametrize(
    ("files", "refusal"),
    [
        ([("a.cls", b"x")], Refusal("schema_conflict", 0, "cls")),
        ([("a.cls", b"1"), ("b.cls", b"1\xff")], Refusal("schema_conflict", 1, "cls")),
        ([("a.cls", b"1"), ("b.cls", b"1.5")], Refusal("schema_conflict", 1, "cls")),
        ([("a.cls", b"9223372036854775808")], Refusal("out_of_range", 0, "cls")),
        ([("a.txt", b"1"), ("b.txt", b"\xff")], Refusal("invalid_utf8", 1, "txt")),
        ([("a.json", b"\xff")], Refusal("invalid_utf8", 0, "json")),
        ([("a.npy", b"no array")], Refusal("not_npy", 0, "npy")),
        ([("README", b"")], Refusal("invalid_member_name", offset=BLOCK)),
        ([("d/.DS_Store", b"")], Refusal("invalid_member_name", offset=BLOCK)),
        ([("a.", b"")], Refusal("invalid_member_name", offset=BLOCK)),
        ([("a.b/c", b"")], Refusal("invalid_member_name", offset=BLOCK)),
        ([("a.cls", b"1"), ("a.CLS", b"1")], Refusal("duplicate_member", 0, "cls")),
        ([("a.cls", b"1"), ("b.cls", b"1"), ("a.txt", b"")], Refusal("split_sample", 2)),
        ([("a.cls", b"1"), ("b.cls", b"1"), ("a.txt", b""), ("b.txt", b"")], Refusal("split_sample", 2)),
    ],
)
def test_files_that_are_not_samples_are_refused(files: list[File], refusal: Refusal) -> None:
    assert read_tar(*files) == refusal


def test_whole_samples_may_have_the_same_key() -> None:
    files = [("a.cls", b"1"), ("b.cls", b"2"), ("a.cls", b"3")]
    assert_rows(read_tar(*files), [row(cls=1), {"__key__": b"b", "cls": 2}, row(cls=3)])


def test_two_files_of_one_declared_feature_are_refused() -> None:
    files = [("a.x", b"1"), ("a.x.cls", b"1")]
    assert read_tar(*files, schema=schema_of(x="int64")) == Refusal("duplicate_member", 0, "x.cls")


GOOD = tar_of(("a.txt", b"1"))
DAMAGED = bytearray(tar_of(("a.txt", b"1"), ("b.txt", b"2")))
DAMAGED[2 * BLOCK] ^= 1


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        (b"", Refusal("invalid_tar", offset=0)),
        (b"x" * 100, Refusal("invalid_tar", offset=0)),
        (b"x" * 2000, Refusal("invalid_tar", offset=0)),
        # Python's own reader takes these for the end of the archive.
        (bytes(DAMAGED), Refusal("invalid_tar", offset=2 * BLOCK)),
        (GOOD[: 2 * BLOCK], Refusal("truncated", offset=2 * BLOCK)),
        (GOOD[: 2 * BLOCK + 9], Refusal("truncated", offset=2 * BLOCK)),
        (GOOD + GOOD, Refusal("trailing_bytes", offset=len(GOOD))),
        (GOOD + b"\1", Refusal("trailing_bytes", offset=len(GOOD))),
        (GOOD[: BLOCK + 1], Refusal("truncated", offset=BLOCK + 1)),
        (GOOD[:BLOCK], Refusal("truncated", offset=BLOCK)),
        (header_of("a.txt", -1), Refusal("invalid_tar", offset=0)),
        (header_of("a.txt", 5 * 2**40), Refusal("record_too_large", offset=BLOCK)),
        (header_of("a", type=tarfile.SYMTYPE, linkname="b"), Refusal("unsupported_member", offset=BLOCK)),
        (header_of("a", type=tarfile.LNKTYPE, linkname="b"), Refusal("unsupported_member", offset=BLOCK)),
        (header_of("a", type=tarfile.CHRTYPE), Refusal("unsupported_member", offset=BLOCK)),
        (header_of("a", type=tarfile.BLKTYPE), Refusal("unsupported_member", offset=BLOCK)),
        (header_of("a", type=tarfile.FIFOTYPE), Refusal("unsupported_member", offset=BLOCK)),
        (header_of("a", type=tarfile.GNUTYPE_SPARSE), Refusal("unsupported_member", offset=BLOCK)),
        (header_of("a", type=b"V"), Refusal("unsupported_member", offset=BLOCK)),
        (header_of("p", 2**40, type=tarfile.XHDTYPE), Refusal("member_name_too_long", offset=BLOCK)),
        (header_of("p", 2**40, type=tarfile.XGLTYPE), Refusal("member_name_too_long", offset=BLOCK)),
        (header_of("p", 2**40, type=tarfile.GNUTYPE_LONGNAME), Refusal("member_name_too_long", offset=BLOCK)),
        (header_of("p", 600, type=tarfile.GNUTYPE_LONGNAME) + b"x", Refusal("truncated", offset=BLOCK + 1)),
        (tar_of(("n" * 5000 + ".txt", b"")), Refusal("member_name_too_long", offset=BLOCK * 12)),
        (tar_of(("a\udcff.txt", b"")), Refusal("invalid_member_name", offset=3 * BLOCK)),
    ],
)  # fmt: skip
def test_malformed_tar_is_refused_with_its_place(body: bytes, refusal: Refusal) -> None:
    found = read(FORM, body, schema=schema_of(txt="text"))
    assert found == refusal
    assert all(isinstance(read(FORM, body, pieces=(chunk,)), Refusal) for chunk in PIECES)


@pytest.mark.parametrize(
    "record",
    [
        b"3 x\n",
        b"0 path=a\n",
        b"x path=a\n",
        b"99 path=a\n",
        b"9 path=ab\n",
        b"11 size=-3\n\n",
        b"10 size=x\n",
        b"8 path\n ",
    ],
)
def test_a_damaged_extended_header_is_refused(record: bytes) -> None:
    body = header_of("pax", len(record), type=tarfile.XHDTYPE) + record.ljust(BLOCK, b"\0") + GOOD
    assert read(FORM, body) == Refusal("invalid_tar", offset=BLOCK)


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        (tarfile.XHDTYPE, b"22 GNU.sparse.major=1\n"),
        (tarfile.XGLTYPE, b"14 path=a.txt\n"),
        (tarfile.XGLTYPE, b"10 size=3\n"),
    ],
)
def test_extended_headers_that_change_files_are_not_passed_over(kind: bytes, record: bytes) -> None:
    body = header_of("pax", len(record), type=kind) + record.ljust(BLOCK, b"\0") + GOOD
    assert read(FORM, body) == Refusal("unsupported_member", offset=BLOCK)


def test_a_schema_is_inferred_from_a_thousand_rows_or_sixteen_mebibytes() -> None:
    small = [(f"{n:05}.txt", b"1") for n in range(1000)]
    late = [("z.cls", b"1"), ("z.txt", b"2")]
    assert read_tar(*small, *late, pieces=WHOLE) == Refusal("schema_conflict", 1000, "cls")
    found = read_tar(*small, *late, pieces=WHOLE, infer="all")
    assert isinstance(found, Rows)
    assert found.features == {"__key__": "text", "txt": "text", "cls": "int64?"}
    assert isinstance(read_tar(*small[1:], *late, pieces=WHOLE), Rows)
    large = [("a.txt", b"1" * 16 * MIB)]
    assert read_tar(*large, *late, pieces=(None, 70_001)) == Refusal("schema_conflict", 1, "cls")
    assert isinstance(read_tar(("a.txt", large[0][1][1:]), *late, pieces=WHOLE), Rows)


def test_a_batch_is_bounded_by_its_rows_and_by_its_bytes() -> None:
    small = read_tar(*((f"{n}.txt", b"1") for n in range(2050)), pieces=WHOLE)
    assert isinstance(small, Rows)
    assert small.batches == [1024, 1024, 2]
    large = read_tar(*((f"{n}.txt", b"1" * MIB) for n in range(9)), pieces=WHOLE)
    assert isinstance(large, Rows)
    assert large.batches == [4, 4, 1]
    assert small.left == large.left == 0


def test_an_archive_is_never_held_whole() -> None:
    body = tar_of(*((f"{n}.jpg", bytes(MIB)) for n in range(64)))
    budget = Budget()

    def drain() -> None:
        for _ in decode(FORM, body, budget, chunk=70_001, schema=schema_of(jpg="bytes")).batches:
            pass

    assert peak_bytes(drain) < 16 * MIB
    assert budget.peak < 14 * MIB


def test_held_files_are_charged() -> None:
    files = [(f"{n}.x{m}", b"1") for n in range(1000) for m in range(8)]
    body, budget = tar_of(*files), Budget()

    def drain() -> None:
        for _ in decode(FORM, body, budget, infer="all").batches:
            pass

    assert peak_bytes(drain) < budget.peak + 6 * MIB


def test_a_file_is_refused_before_it_is_held() -> None:
    body = header_of("a.txt", 64 * MIB) + bytes(64 * MIB)
    codes = []

    def drain() -> None:
        try:
            decode(FORM, body, Budget(Limits(max_decoded_bytes=8 * MIB)), chunk=65536)
        except InputError as error:
            codes.append(error.code)

    assert peak_bytes(drain) < 24 * MIB
    assert codes == ["payload_too_large"]


@pytest.mark.parametrize(
    ("features", "rows", "files"),
    [
        ({"jpg": "bytes"}, [{"jpg": {"b64": "/9g="}}], [("000000000.jpg", b"\xff\xd8")]),
        ({"cls": "int64"}, [{"cls": -3}, {"cls": 4}], [("000000000.cls", b"-3"), ("000000001.cls", b"4")]),
        ({"label": "uint64"}, [{"label": 2**64 - 1}], [("000000000.label.cls", b"18446744073709551615")]),
        ({"txt": "text"}, [{"txt": "β"}], [("000000000.txt", "β".encode())]),
        ({"json": "text"}, [{"json": "{}"}], [("000000000.json", b"{}")]),
        ({"caption": "text"}, [{"caption": ""}], [("000000000.caption.txt", b"")]),
        ({"x": "float32"}, [{"x": 0.5}], [("000000000.x.npy", npy_of(np.float32(0.5)))]),
        ({"b": "bool"}, [{"b": True}], [("000000000.b.npy", npy_of(np.True_))]),
        (
            {"npy": {"dtype": "int16", "shape": [None, 2]}},
            [{"npy": [[1, 2]]}, {"npy": []}],
            [
                ("000000000.npy", npy_of(np.array([[1, 2]], "<i2"))),
                ("000000001.npy", npy_of(np.zeros((0, 2), "<i2"))),
            ],
        ),
        (
            {"x": {"dtype": "uint8", "shape": [None, None]}},
            [{"x": [[1], [2]]}],
            [("000000000.x.npy", npy_of(np.array([[1], [2]], "u1")))],
        ),
        (
            {"__key__": "text", "a": "bytes", "b": {"dtype": "bytes", "nullable": True}},
            [{"__key__": "d/x", "a": "1"}, {"__key__": "./y", "a": "2", "b": "3"}],
            [("d/x.a", b"1"), ("./y.a", b"2"), ("./y.b", b"3")],
        ),
    ],
)
def test_rows_are_written_as_files(features: Any, rows: Any, files: list[File]) -> None:
    schema = schema_of(**features)
    archive = encode(FORM, records(rows, schema=schema))
    assert files_of(archive) == files
    assert len(archive) % tarfile.RECORDSIZE == 0
    again = read(FORM, archive, schema=schema)
    expected = read("json", json.dumps(rows).encode(), schema=schema)
    assert isinstance(again, Rows)
    assert isinstance(expected, Rows)
    assert_rows(again, expected.rows)
    assert encode(FORM, records(rows, schema=schema)) == archive


@pytest.mark.parametrize(
    ("features", "rows", "refusal"),
    [
        (
            {"x": {"dtype": "int64", "shape": [None, None], "kind": "ragged"}},
            [],
            Refusal("unsupported_kind", None, "x"),
        ),
        ({"x": {"dtype": "text", "shape": [2]}}, [], Refusal("not_expressible", None, "x")),
        ({"x": {"dtype": "float8_e4m3fn", "shape": [2]}}, [], Refusal("not_expressible")),
        ({"a/b": "bytes"}, [], Refusal("not_expressible", None, "a/b")),
        ({"A": "bytes"}, [], Refusal("not_expressible", None, "A")),
        ({"a\0": "bytes"}, [], Refusal("not_expressible", None, "a\0")),
        ({"x": "int64", "x.cls": "int64"}, [], Refusal("duplicate_member", None, "x.cls")),
        ({"__key__": "text"}, [{"__key__": "a"}], Refusal("not_expressible")),
        ({"__key__": "int64", "x": "text"}, [], Refusal("not_expressible", None, "__key__")),
        ({}, [{}], Refusal("not_expressible")),
        ({"x": {"dtype": "text", "nullable": True}}, [{"x": "a"}, {}], Refusal("not_expressible", 1)),
        *(
            (
                {"__key__": "text", "x": "text"},
                [{"__key__": "ok", "x": ""}, {"__key__": key, "x": ""}],
                Refusal("not_expressible", 1, "__key__"),
            )
            for key in ("", "a.b", "/a", "a//b", "a/", "../a", "a/../b", "a\0", ".a")
        ),
        (
            {"__key__": "text", "x": "text"},
            [{"__key__": "a", "x": ""}, {"__key__": "a", "x": ""}],
            Refusal("duplicate_member", 1, "__key__"),
        ),
    ],
)
def test_value_without_a_file_form_is_refused(features: Any, rows: Any, refusal: Refusal) -> None:
    assert write(FORM, records(rows, schema=schema_of(**features))) == refusal


def test_lists_of_strings_are_refused_with_the_schema_that_would_help() -> None:
    found = write(FORM, records([{"x": ["a"]}], schema=schema_of(x={"dtype": "bytes", "shape": [None]})))
    assert isinstance(found, Refusal)
    assert found.code == "not_expressible"
    assert '{"features": {"x": {"dtype": "bytes"}}}' in found.detail


def test_large_values_are_not_copied() -> None:
    values = Strings(np.zeros(32 * MIB, np.uint8), np.array([0, 32 * MIB]))
    rows = Records(schema_of(jpg="bytes"), iter([Batch(1, (Column(values),))]))
    pieces = RECORDS_CODECS[FORM].encode(rows, RecordsEncodeOptions(), Budget())
    sizes: list[int] = []
    assert peak_bytes(lambda: sizes.extend(memoryview(piece).nbytes for piece in pieces)) < MIB
    assert sizes == [BLOCK, 32 * MIB, 3 * BLOCK]


@pytest.mark.parametrize(
    ("body", "remedy"),
    [
        (gzip.compress(GOOD, mtime=0), "gzip. Declare the content encoding gzip, or unpack it"),
        (
            gzip.compress(bytes(random.Random(1).randbytes(5000)), mtime=0),
            "gzip. Declare the content encoding gzip, or unpack it",
        ),
        (bz2.compress(GOOD), "bzip2. Unpack it"),
        (lzma.compress(GOOD), "xz. Unpack it"),
        (zstd.compress(GOOD), "zstd. Declare the content encoding zstd, or unpack it"),
        (zip_of(("a.txt", b"1")), "a ZIP archive. Send it as application/zip"),
        (
            zip_of(("a.txt", bytes(5000)), method=zipfile.ZIP_STORED),
            "a ZIP archive. Send it as application/zip",
        ),
    ],
)
def test_other_format_in_place_of_tar_is_named(body: bytes, remedy: str) -> None:
    with pytest.raises(MalformedInput, match=remedy) as caught:
        list(decode(FORM, body).batches)
    assert (caught.value.code, caught.value.location.offset) == ("invalid_tar", 0)


@pytest.mark.parametrize("name", ["BZh.txt", "PK\3\4.txt"])
def test_a_name_may_begin_as_another_archive_does(name: str) -> None:
    assert_rows(read_tar((name, b"1"), schema=schema_of(txt="text")), [{"txt": b"1"}])


IMAGES = {form: encode_image(pixels(5, 4, 3), form) for form in ("jpeg", "png", "gif", "webp", "bmp")}


@pytest.mark.parametrize(
    ("files", "image"),
    [
        (["jpeg"], {"format": "jpeg"}),
        (["gif"], {"format": "gif"}),
        (["webp", "webp"], {"format": "webp"}),
        (["png", "jpeg", "bmp"], {"format": None}),
        # TensorFlow's reader of any format gives these another number of dimensions.
        (["jpeg", "gif"], None),
        (["webp", "png"], None),
        (["jpeg", "none"], None),
        (["none"], None),
    ],
)
def test_files_that_are_images_are_said_to_be(files: list[str], image: Any) -> None:
    """By what they are, whatever they are called."""
    contents = [IMAGES.get(form, IMAGES["jpeg"][:9]) for form in files]
    samples = tar_of(*((f"{n}.bin", content) for n, content in enumerate(contents)))
    folders = [(f"cat/{n}.jpg", content) for n, content in enumerate(contents)]
    found = [
        decode(FORM, samples).schema.by_name["bin"],
        decode(FORM, tar_of(*folders), archive="folders").schema.by_name["image"],
        decode("zip", zip_of(*folders)).schema.by_name["image"],
        decode("multipart", form_of("cat", *folders), boundary=b"b").schema.by_name["image"],
    ]
    expected = {} if image is None else {"image": {**image, "shape": [None, None, None]}}
    for feature in found:
        assert feature.meaning.to_json() == expected


def test_the_first_rows_say_whether_files_are_images() -> None:
    files = [(f"{n:05}.jpg", IMAGES["jpeg"]) for n in range(1000)] + [("x.jpg", b"none")]
    assert decode(FORM, tar_of(*files)).schema.by_name["jpg"].meaning.image
    assert not decode(FORM, tar_of(*files), infer="all").schema.by_name["jpg"].meaning.image
    folders = [(f"a/{name}", content) for name, content in files]
    assert decode("zip", zip_of(*folders)).schema.by_name["image"].meaning.image
