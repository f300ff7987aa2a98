"""TensorFlow in a process that is bounded: what it is given, and what becomes of it."""

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.errors import Overloaded, SpoolFull, UnprocessableInput
from app.runtime.spool import Spool
from app.runtime.streams import MemoryStream
from app.transforms.tensorflow_reader import Reading, TensorFlowReader
from tests.support.tfrecord_frames import frame

PARSE = b"def parse(record):\n    return {'record': record}\n"
RECORDS = b"".join(frame(b"%d" % number) for number in range(2500))


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path, 1 << 20)
    yield spool
    assert spool.used == 0


def changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.tensorflow
def test_files_are_read_one_after_the_other(spool: Spool) -> None:
    last = len(RECORDS) - 5
    with TensorFlowReader(PARSE, "none", spool) as reader:
        assert reader.read(MemoryStream(RECORDS), "a") == Reading(2500, None)
        assert reader.read(MemoryStream(b""), "b") == Reading(0, None)
        assert reader.read(MemoryStream(frame(b"x")), "c") == Reading(1, None)
        broken = reader.read(MemoryStream(changed(RECORDS, last)), "d")
        assert broken.num_records == 2499
        assert re.match("corrupted record at [0-9]+", str(broken.fault)), broken
        assert reader.read(MemoryStream(frame(b"x")[:-1]), "e").fault is not None


@pytest.mark.tensorflow
def test_process_writes_no_bytecode(spool: Spool) -> None:
    """Cut off at the bound on files, it would end every later import of the same module."""
    source = b"import sys\nassert sys.dont_write_bytecode\n" + PARSE
    with TensorFlowReader(source, "none", spool) as reader:
        assert reader.read(MemoryStream(frame(b"x")), "a") == Reading(1, None)


@pytest.mark.tensorflow
def test_a_record_that_is_not_parsed_is_numbered(spool: Spool) -> None:
    parse = (
        b"import tensorflow as tf\n"
        b"def parse(record):\n"
        b"    return tf.io.parse_single_example(record, {'x': tf.io.FixedLenFeature([], tf.int64)})\n"
    )
    good = bytes.fromhex("0a0c0a0a0a017812051a030a0101")
    with TensorFlowReader(parse, "none", spool) as reader:
        found = reader.read(MemoryStream(frame(good) * 1030 + frame(b"")), "a")
    assert found.num_records == 1030
    assert "Feature: x (data type: int64) is required" in str(found.fault)


@pytest.mark.tensorflow
def test_the_process_knows_no_secret_of_the_service(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    source = b"import os\nassert 'secret' not in os.environ.values()\n" + PARSE
    with TensorFlowReader(source, "none", spool) as reader:
        assert reader.read(MemoryStream(b""), "a") == Reading(0, None)


@pytest.mark.tensorflow
def test_a_process_that_takes_too_much_memory_ends(spool: Spool) -> None:
    with (
        pytest.raises(UnprocessableInput, match="ended while it was started") as caught,
        TensorFlowReader(PARSE, "none", spool, memory_bytes=100 << 20),
    ):
        pass
    assert caught.value.code == "tensorflow_failed"


@pytest.mark.tensorflow
def test_a_process_that_takes_too_long_ends(spool: Spool) -> None:
    source = b"import time\ntime.sleep(1000)\n" + PARSE
    with (
        pytest.raises(UnprocessableInput, match=r"ended while it was started \(signal 9\)") as caught,
        TensorFlowReader(source, "none", spool, patience_s=0.1),
    ):
        pass
    assert caught.value.code == "tensorflow_failed"


@pytest.mark.tensorflow
def test_process_that_ends_while_reading_names_the_file(spool: Spool) -> None:
    source = b"import os\ndef parse(record):\n    os._exit(3)\n"
    with (
        TensorFlowReader(source, "none", spool) as reader,
        pytest.raises(UnprocessableInput, match=r"ended while it read a-file \(status 3\)"),
    ):
        reader.read(MemoryStream(RECORDS), "a-file")


@pytest.mark.tensorflow
def test_second_process_is_refused(spool: Spool) -> None:
    refused: list[Overloaded] = []

    def second() -> None:
        try:
            with TensorFlowReader(PARSE, "none", spool):
                pass
        except Overloaded as error:
            refused.append(error)

    with TensorFlowReader(PARSE, "none", spool):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(60)
    assert len(refused) == 1
    with TensorFlowReader(PARSE, "none", spool) as reader:
        assert reader.read(MemoryStream(b""), "a") == Reading(0, None)


@pytest.mark.tensorflow
def test_file_larger_than_the_spool_is_refused(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    with TensorFlowReader(PARSE, "none", spool) as reader:
        with pytest.raises(SpoolFull):
            reader.read(MemoryStream(RECORDS), "a")
        assert reader.read(MemoryStream(frame(b"x")), "b") == Reading(1, None)
    assert spool.used == 0


def test_without_tensorflow_the_extra_is_named(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with (
        pytest.raises(UnprocessableInput, match=r"install shardsmith\[tensorflow\]") as caught,
        TensorFlowReader(PARSE, "none", spool),
    ):
        pass
    assert caught.value.code == "tensorflow_missing"
