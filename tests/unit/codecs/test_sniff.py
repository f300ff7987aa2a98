"""What a file is, by its bytes and by its name."""

import gzip
import io
import struct

import numpy as np
import pytest

from app.codecs.sniff import HEAD_BYTES, form_of_name, sniff
from app.errors import UnknownForm
from tests.support.example_messages import entry, floats, ints
from tests.support.feature_values import field
from tests.support.tfrecord_frames import frame


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(3))
    return file.getvalue()


EXAMPLE = frame(b"\x0a\x07\x0a\x05\x0a\x01x\x12\x00")
SEQUENCE = frame(b"\x0a\x00\x12\x09\x0a\x07\x0a\x01x\x12\x02\x0a\x00")
TENSOR = frame(b"\x08\x01\x12\x00")


@pytest.mark.parametrize(
    ("head", "name", "form", "kind"),
    [
        (npy(), "x.tfrecord", "npy", "tensors"),
        (EXAMPLE, "x.npy", "tfrecord", "records"),
        (SEQUENCE, "", "tfrecord", "records"),
        (TENSOR, "", "tfrecord", "tensors"),
        (gzip.compress(EXAMPLE), "", "tfrecord", "records"),
        (b"PAR1" + bytes(20), "", "parquet", "records"),
        (b"ARROW1\0\0" + bytes(20), "", "arrow", "records"),
        (struct.pack("<Q", 40) + b'{"x":{"dtype":"F32"', "", "safetensors", "tensors"),
        (b'{"x": 1}\n{"x": 2}\n', "", "ndjson", "records"),
        (b'[{"x": 1}]', "", "json", "records"),
        (b"[[1, 2], [3, 4]]", "", "json", "tensors"),
        (b'{"dtype": "int8", "shape": [1], "data": [1]}', "", "json", "tensors"),
        (b"a,b\n1,2\n", "", "csv", "records"),
        (b"a\tb\n1\t2\n", "", "csv", "records"),
        (b"1 3:0.5 7:1\n", "", "libsvm", "records"),
        (b"", "x.tfrecord", "tfrecord", "records"),
        (b"\0\1\2", "x.raw", "raw", "tensors"),
        (bytes(100), "train.tfrecord-00000-of-00002", "tfrecord", "records"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bytes_decide_before_the_name(head: bytes, name: str, form: str, kind: str) -> None:
    found = sniff(head, name)
    assert (found.form, found.kind) == (form, kind)


def test_the_first_record_of_a_tfrecord_tells_what_they_are() -> None:
    assert (sniff(EXAMPLE).message, sniff(SEQUENCE).message) == ("example", "sequence_example")
    assert sniff(frame(b"\xff\xff")).as_bytes
    assert sniff(frame(b"\nplain text\n")).as_bytes


@pytest.mark.parametrize(
    "record",
    [
        b"\x0a\x00\x12\x02hi",  # two fields that a SequenceExample has, the second one with text in it
        b"\x0a\x05\x0a\x03abc",  # a message in a message, as the features of an Example are
        b"\x0a\x05\x0a\x03abc\x12\x01x",
        b"\x08\x01\x12\x02\x12\x09",  # the dtype of a TensorProto, and no shape
    ],
)
def test_records_that_look_like_messages_and_are_not_are_bytes(record: bytes) -> None:
    found = sniff(frame(record) + frame(record))
    assert (found.kind, found.as_bytes, found.message) == ("records", True, None)
    assert "its records are not Examples" in found.reason


def test_a_message_with_a_fault_is_a_message() -> None:
    of_two_kinds = field(0x0A, entry(b"x", ints(1) + floats(1.0)))
    assert sniff(frame(of_two_kinds)).message == "example"
    resource = b"\x08\x14\x12\x00"  # a TensorProto of a dtype that is not read
    assert sniff(frame(resource)).kind == "tensors"


def test_compression_around_a_format_is_told() -> None:
    found = sniff(gzip.compress(b'{"x": 1}\n{"x": 2}\n'), "x.ndjson.gz")
    assert (found.form, found.container) == ("ndjson", "gzip")
    assert sniff(gzip.compress(EXAMPLE)).container is None  # its decoder knows


def test_a_bomb_is_inflated_no_further_than_its_beginning() -> None:
    bomb = gzip.compress(b'{"x": 1}\n' * 10_000_000)
    assert sniff(bomb[:HEAD_BYTES]).form == "ndjson"


def test_unknown_file_is_refused() -> None:
    for head in (b"", b"\0\1\2\3", b"just a sentence", b"\x78\x9c"):
        with pytest.raises(UnknownForm):
            sniff(head, "x")


@pytest.mark.parametrize(
    ("name", "form", "container"),
    [
        ("a.tfrecord.gz", "tfrecord", "gzip"),
        ("A.CSV.ZST", "csv", "zstd"),
        ("a.tfrecord-00001-of-00010", "tfrecord", None),
        ("a.parquet", "parquet", None),
        ("a", None, None),
    ],
)
def test_the_end_of_a_name(name: str, form: str | None, container: str | None) -> None:
    assert form_of_name(name) == (form, container)
