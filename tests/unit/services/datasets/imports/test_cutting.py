"""Cutting CSV: each range has whole rows, as who reads the object in one go would see them, or is refused."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.codecs.forms import RECORDS_CODECS
from app.codecs.options import CsvDialect, RecordsDecodeOptions
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.spool import Spool
from app.runtime.streams import MemoryStream
from app.runtime.workspace import Workspace
from app.services.datasets.imports import reading
from app.services.datasets.imports.cutting import cut
from app.services.datasets.imports.ranges import Range
from app.storage.sources import open_source
from tests.support.arrow_rows import as_arrow

SCHEMA = Schema.from_json({"features": {name: {"dtype": "text", "nullable": True} for name in "ab"}})
HEADERS = {",": b"a,b\n", "\t": b'"a"\tb\r\n', ";": b'\xef\xbb\xbf"a";b\n'}
#: Rows that are right, of which some look as if one ended inside them; and such that are not.
RIGHT = ['1,"2"', ',""', '"x""\n3,4",5', '"\r\n",x', '"\n6,""7""\n",8', "9,\n10,11"]
WRONG = ['1",2', '"3"x,4', '5,x"6"', '"7', '8,"9"""', "10", "1\r2,3"]


def read(text: bytes, delimiter: str) -> list[tuple[str, str]] | None:
    """The rows of a CSV; None if it is refused."""
    options = RecordsDecodeOptions(schema=SCHEMA, csv=CsvDialect(delimiter))
    try:
        csv: Any = RECORDS_CODECS["csv"]
        records = csv.decode(MemoryStream(text), options, Budget())
        return [tuple(row.values()) for batch in as_arrow(records) for row in batch.to_pylist()]
    except InputError:
        return None


def ranges_of(path: Path, delimiter: str, range_bytes: int) -> list[Range]:
    source = open_source(path.as_uri())
    [item] = source.list()
    with Workspace(Budget(Limits()), Spool(None, 1 << 20)) as workspace:
        return list(cut(source, item, "csv", range_bytes, delimiter, workspace, None))


def random_texts(wrong: float) -> Iterator[tuple[bytes, str, random.Random]]:
    for seed in range(60):
        rng = random.Random(seed)
        delimiter = rng.choice(list(HEADERS))
        rows = [rng.choice(WRONG if rng.random() < wrong else RIGHT) for _ in range(rng.randrange(1, 30))]
        body = "".join(row + rng.choice(["\n", "\r\n"]) for row in rows).replace(",", delimiter)
        yield HEADERS[delimiter] + body.encode(), delimiter, rng


@pytest.fixture(params=[3, pytest.param(7, marks=pytest.mark.exhaustive), 8 << 20])
def piece_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Read at a time."""
    monkeypatch.setattr(reading, "PIECE_BYTES", request.param)
    return int(request.param)


@pytest.mark.usefixtures("piece_bytes")
def test_ranges_hold_the_rows_of_the_whole(tmp_path: Path) -> None:
    path, num_ranges = tmp_path / "a.csv", 0
    for text, delimiter, rng in random_texts(wrong=0):
        path.write_bytes(text)
        found = ranges_of(path, delimiter, rng.randrange(1, 20))
        num_ranges += len(found)
        parts = [text[: part.head] * bool(part.start) + text[part.start : part.stop] for part in found]
        rows = [read(part, delimiter) for part in parts]
        assert [row for some in rows if some is not None for row in some] == read(text, delimiter)
        assert None not in rows
        assert (found[0].start, found[-1].stop) == (0, len(text))
    assert num_ranges > 400


@pytest.mark.usefixtures("piece_bytes")
def test_range_after_a_stray_quote_is_not_read(tmp_path: Path) -> None:
    """Skipped, it would make the others begin inside of quotes: their rows would be none of the object."""
    path, num_read, num_refused = tmp_path / "a.csv", 0, 0
    for text, delimiter, rng in random_texts(wrong=0.1):
        path.write_bytes(text)
        found = ranges_of(path, delimiter, rng.randrange(1, 20))
        assert [part.start for part in found[1:]] == [part.stop for part in found[:-1]]
        for part in found:
            rows = read(text[: part.head] * bool(part.start) + text[part.start : part.stop], delimiter)
            if rows is None:
                num_refused += 1
                continue
            num_read += 1
            # The rows before it are closed: read together with these they are the same, and no others.
            assert whole_rows(text, delimiter, part.start), (text, part)
            assert whole_rows(text, delimiter, part.stop), (text, part)
    assert num_read > 80
    assert num_refused > 30


def whole_rows(text: bytes, delimiter: str, end: int) -> bool:
    """Whether a row ends there, by the grammar of RFC 4180 and byte by byte."""
    inside, begins = False, True
    text = text.removeprefix(b"\xef\xbb\xbf").rjust(len(text), b"\n")
    for at, byte in enumerate(text[:end]):
        if byte != ord('"'):
            begins = not inside and byte in (10, ord(delimiter))
        elif inside:
            inside = False
            begins = text[at + 1 : at + 2] == b'"'
            if text[at + 1 : at + 2] not in (b"", b"\n", b"\r", b'"', delimiter.encode()):
                return False
        elif not begins:
            return False
        else:
            inside = True
    return not inside and text[end - 1 : end] in (b"", b"\n")
