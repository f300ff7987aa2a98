"""What rows become on the wire: compared with what numpy, pyarrow and JSON read in it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.client import Unsendable
from app.client.bodies import Body, body_of


def content(body: Body) -> bytes:
    opened = body.open()
    assert isinstance(opened, Iterable)
    return opened if isinstance(opened, bytes) else b"".join(opened)


def lines(body: Body) -> list[Any]:
    assert body.media_type == "application/x-ndjson"
    return [json.loads(line) for line in content(body).splitlines()]


def test_columns_are_npz_of_the_same_arrays() -> None:
    columns = {
        "bools": np.array([True, False]),
        "halves": np.array([[1.5], [-0.0]], np.float16),
        "big": np.arange(4, dtype=">i8").reshape(2, 2),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "strided": np.arange(8, dtype=np.uint16)[::4],
        "complex": np.array([1j, 2]),
        "empty": np.zeros((2, 0, 3), np.int8),
        "texts": np.array(["räum", "a"]),
        "bytes": [b"\xff\0x", b""],
        "objects": np.array(["x", "yyy"], object),
        "list": [1, 2],
    }
    body = body_of(columns)
    assert body.media_type == "application/x-npz"
    found = np.load(io.BytesIO(content(body)), allow_pickle=False)
    assert list(found) == list(columns)
    for name, values in columns.items():
        assert found[name].tolist() == np.asarray(values).tolist(), name
    assert found["big"].dtype == ">i8"
    assert content(body) == content(body_of(columns)) == content(body)


def test_large_columns_are_sent_in_pieces_and_again() -> None:
    columns = {"x": np.arange(3_000_000.0).reshape(-1, 3), "y": np.arange(1_000_000)}
    body = body_of(columns)
    digest = base64.b64encode(hashlib.sha256(content(body)).digest()).decode()
    assert body.to_headers()["Content-Digest"] == f"sha-256=:{digest}:"
    for _ in range(3):
        opened = body.open()
        assert isinstance(opened, Iterator)
        pieces = list(opened)
        assert max(map(len, pieces)) < 300_000
        found = np.load(io.BytesIO(b"".join(pieces)))
        assert all((found[name] == columns[name]).all() for name in columns)


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ({"x": [1, 2], "y": [1]}, "as many in all"),
        ({"x": np.float32(1)}, "as many in all"),
        ({}, "as many in all"),
        ({"x": 1, "y": 2}, "one row is"),
        ({1: [2]}, "names that are no str"),
        ({"a\0b": [2]}, "have a NUL"),
        (np.ones((2, 2)), "Give a dictionary"),
        (pa.chunked_array([[1]]), "no names of features"),
        ({"x": [[1], [2, 3]]}, "differ in length"),
        ({"x": np.array([1, "a"], object)}, "has objects .int, str."),
        ({"x": np.array([None, "a"], object)}, "has objects .NoneType, str."),
        ({"x": ["a\0"]}, "end in NUL"),
        ({"x": np.array([b"\0"], object)}, "end in NUL"),
        ({"x": ["a"] * 30 + ["b" * 1_000_000]}, "take as much"),
        ({"x": np.array(["2020-01-01"], "datetime64[D]")}, "datetime64"),
        ([{"x": object()}], "value of object"),
        ([{"x": np.array([1j])}], "complex128"),
        ([{1: 2}], "names are no str"),
        ([{"x": "\ud800"}], "no Unicode"),
        ([1], "int is no row"),
        ([{"x": 1}, [2]], "list is no row"),
        ("file.csv", "no rows"),
        (7, "no rows"),
        (b"x", "media_type"),
        ([b"x"], "media_type"),
        (Path("rows.dat"), "media_type"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_unsendable_value_is_refused(rows: Any, what: str) -> None:
    with pytest.raises(Unsendable, match=what):
        content(body_of(rows))


def test_rows_are_lines_with_all_that_a_row_may_hold() -> None:
    row = {
        "i": 2**63 - 1,
        "f": np.float32(0.1),
        "a": np.array([[1, 2]], np.int8),
        "b": b"\0\xff",
        "bs": np.array([b"x"], object),
        "t": "räum\n",
        "no": None,
        "l": (1, 2),
    }
    [found] = lines(body_of([row]))
    assert found == {
        "i": 2**63 - 1,
        "f": float(np.float32(0.1)),
        "a": [[1, 2]],
        "b": {"b64": "AP8="},
        "bs": [{"b64": "eA=="}],
        "t": "räum\n",
        "no": None,
        "l": [1, 2],
    }
    body = body_of([{"x": [math.nan, math.inf]}])
    assert content(body) == b'{"x":[NaN,Infinity]}\n'
    assert body.params == {"nonfinite": "bare"}


@given(
    st.lists(
        st.dictionaries(
            st.text(st.characters(codec="utf-8")), st.floats() | st.text(st.characters(codec="utf-8"))
        )
    )
)
def test_rows_come_back_from_their_lines(rows: list[dict[str, Any]]) -> None:
    assert str(lines(body_of(rows))) == str(rows)
    assert str(lines(body_of(iter(rows)))) == str(rows)
    assert str(lines(body_of(lambda: iter(rows)))) == str(rows)


def test_a_generator_is_read_no_further_than_it_is_sent() -> None:
    read = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal read
        for read in range(1000):  # noqa: B007  # it counts
            yield {"x": "y" * 100_000}

    body = body_of(rows())
    assert 0 < read < 60
    assert not spent(body)
    opened = body.open()
    assert isinstance(opened, Iterator)
    pieces = [next(opened) for _ in range(20)]
    assert max(map(len, pieces)) < 500_000
    assert read < 110
    assert spent(body)


def spent(body: Body) -> bool:
    return body.is_spent


def test_tables_are_one_arrow_stream() -> None:
    table = pa.table({"x": [[1.5, 2.0], [3.0]], "n": ["a", "b"]})
    for rows in (table, table.to_reader(), [table, table.slice(1)], (t for t in (table, table))):
        body = body_of(rows)
        assert body.media_type == "application/vnd.apache.arrow.stream"
        found = pa.ipc.open_stream(content(body)).read_all()
        assert found.slice(0, 2).equals(table)
        assert len(found) in (2, 3, 4)


def test_tables_of_other_columns_are_refused() -> None:
    with pytest.raises(Unsendable, match="Table 1 has other columns"):
        content(body_of([pa.table({"x": [1]}), pa.table({"y": [1]})]))


def test_files_are_sent_as_they_are_with_their_digest(tmp_path: Path) -> None:
    path = tmp_path / "rows.CSV"
    path.write_bytes(b"x\n1\n" * 200_000)
    body = body_of(path)
    digest = base64.b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()
    assert body.to_headers() == {
        "Content-Type": "text/csv",
        "Content-Length": "800000",
        "Content-Digest": f"sha-256=:{digest}:",
    }
    assert content(body) == content(body) == path.read_bytes()
    assert body_of(path, "text/plain").media_type == "text/plain"
    assert content(body_of([b"a", b"b"], "text/csv")) == b"ab"
    assert content(body_of(b"ab", "text/csv")) == b"ab"
