"""What an append sends: rows, columns, tables or files as the body of a request.

| rows are | sent as |
|---|---|
| a mapping of columns (numpy arrays, or what numpy makes one of) | NPZ |
| a table: what has `__arrow_c_stream__`; or an iterable of these | Arrow, by pyarrow or polars |
| an iterable of mappings, each a row | NDJSON |
| a `Path`, bytes, or an iterable of bytes, with their media type | as they are |
| a function that returns one of these iterables | the same; it is called for each try |
"""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import json
import zipfile
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from .connection import Content, digest_of
from .errors import Unsendable
from .tables import has_arrow_stream, write_table, write_tables
from .values import to_array

#: A piece of a stream.
_PIECE_BYTES: Final = 1 << 18
#: Up to here a body is held as a whole, and sent with its digest.
_WHOLE_BYTES: Final = 1 << 22

_NDJSON: Final = "application/x-ndjson"
_NPZ: Final = "application/x-npz"
_ARROW: Final = "application/vnd.apache.arrow.stream"
#: By the ending of a file's name.
_MEDIA_TYPES: Final[Mapping[str, str]] = {
    ".arrow": _ARROW,
    ".arrows": _ARROW,
    ".csv": "text/csv",
    ".feather": "application/vnd.apache.arrow.file",
    ".json": "application/json",
    ".jsonl": _NDJSON,
    ".libsvm": "text/x-libsvm",
    ".ndjson": _NDJSON,
    ".npz": _NPZ,
    ".parquet": "application/vnd.apache.parquet",
    ".tar": "application/x-tar",
    ".tfrecord": "application/x-tfrecord",
    ".tfrecords": "application/x-tfrecord",
    ".tsv": "text/tab-separated-values",
    ".zip": "application/zip",
}


class ArrowStreamable(Protocol):
    """A table of any library that speaks the Arrow PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Row = Mapping[str, Any]
Items = Iterable[Row] | Iterable[ArrowStreamable] | Iterable[bytes]
#: All that can be appended; see the table above.
Rows = (
    Mapping[str, Any]
    | ArrowStreamable
    | Items
    | bytes
    | Path
    | AsyncIterable[Row]
    | AsyncIterable[bytes]
    | Callable[[], Items]
)


@dataclass
class Body:
    """A body, which may have to be sent more than once.

    Attributes:
        open: makes the content for one try.
        params: of the query, that go with how it is written.
        is_spent: it came out of an iterator that has begun, so there is no other try.
    """

    media_type: str
    open: Callable[[], Content]
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    is_spent: bool = False

    def to_headers(self) -> dict[str, str]:
        return {"Content-Type": self.media_type, **self.headers}


def body_of(rows: Rows, media_type: str | None = None) -> Body:
    """The body that holds some rows.

    Raises:
        Unsendable: they are none of what can be sent, or values that would be altered.
        LibraryMissing: a table that no library here can write.
    """
    if isinstance(rows, str):
        raise Unsendable("A str is no rows. Give a pathlib.Path for a file, or bytes with their media_type.")
    if isinstance(rows, Path):
        return _of_file(rows, media_type)
    if isinstance(rows, bytes | bytearray | memoryview):
        return _of_bytes(bytes(rows), _known(media_type, "bytes"))
    if media_type is None and has_arrow_stream(rows):
        return _of_pieces(_ARROW, lambda: write_table(rows))
    if isinstance(rows, Mapping):
        if not all(isinstance(name, str) and "\0" not in name for name in rows):
            raise Unsendable(f"Columns have names that are no str, or have a NUL: {list(rows)}.")
        columns = {name: _to_array(name, values) for name, values in rows.items()}
        _check_columns(columns)
        return _of_source(_NPZ, lambda: _write_npz(columns))
    if isinstance(rows, np.ndarray):
        raise Unsendable("An array has no name of a feature. Give a dictionary: {'x': array}.")
    if isinstance(rows, AsyncIterable):
        return _of_async(rows, media_type)
    if callable(rows):
        make = rows
        return _of_items(lambda: iter(make()), media_type)
    if isinstance(rows, Iterator):
        once = rows
        return _of_items(lambda: once, media_type, once=True)
    if isinstance(rows, Iterable):
        again = rows
        return _of_items(lambda: iter(again), media_type)
    raise Unsendable(
        f"{type(rows).__name__} is no rows. Give a dictionary of arrays, a table, a list of dictionaries, a "
        f"generator of these, a Path, or bytes with their media_type."
    )


def _known(media_type: str | None, what: str) -> str:
    if media_type is None:
        raise Unsendable(f"{what} can be of any format: say which by media_type, such as 'text/csv'.")
    return media_type


def _of_bytes(content: bytes, media_type: str, params: Mapping[str, str] | None = None) -> Body:
    return Body(media_type, lambda: content, {"Content-Digest": digest_of(content)}, params or {})


def _of_file(path: Path, media_type: str | None) -> Body:
    found = media_type or _MEDIA_TYPES.get(path.suffix.lower())
    if found is None:
        raise Unsendable(
            f"What {path.name} holds is not told by its name: say it by media_type, such as 'text/csv'."
        )

    def read() -> Iterator[bytes]:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece

    return _of_source(found, read)


def _of_source(media_type: str, read: Callable[[], Iterator[bytes]]) -> Body:
    """What is there already, and is read once more for its digest: httpx sends no trailers."""
    hashed, size = hashlib.sha256(), 0
    for piece in read():
        hashed.update(piece)
        size += len(piece)
    digest = base64.b64encode(hashed.digest()).decode()
    headers = {"Content-Length": str(size), "Content-Digest": f"sha-256=:{digest}:"}
    return Body(media_type, read, headers)


def _of_pieces(
    media_type: str,
    make: Callable[[], Iterator[bytes]],
    params: Mapping[str, str] | None = None,
    *,
    once: bool = False,
) -> Body:
    """A stream; whole, with its digest, where it is small."""
    pieces = make()
    head: list[bytes] = []
    size = 0
    for piece in pieces:
        head.append(piece)
        size += len(piece)
        if size > _WHOLE_BYTES:
            break
    else:
        return _of_bytes(b"".join(head), media_type, params)
    begun = itertools.chain(head, pieces)
    # What was made so far is the beginning of the first try.
    tries = itertools.chain([begun], iter(make, None))

    def open_once() -> Iterator[bytes]:
        body.is_spent = True
        yield from begun

    body = Body(media_type, open_once if once else lambda: next(tries), params=params or {})
    return body


def _of_items(make: Callable[[], Iterator[Any]], media_type: str | None, *, once: bool = False) -> Body:
    """An iterable of rows, tables or bytes; the first item says which."""
    items = make()
    first = next(items, None)
    head = [] if first is None else [first]
    tries = itertools.chain([itertools.chain(head, items)], iter(make, None))
    if media_type is not None or isinstance(first, bytes | bytearray | memoryview):
        found = _known(media_type, "bytes")
        return _of_pieces(found, lambda: _joined(map(_check_bytes, next(tries))), once=once)
    if has_arrow_stream(first):
        return _of_pieces(_ARROW, lambda: write_tables(next(tries)), once=once)
    if first is not None and not isinstance(first, Mapping):
        raise Unsendable(f"{type(first).__name__} is no row. A row is a dictionary of its features.")
    return _of_pieces(_NDJSON, lambda: _joined(map(_write_row, next(tries))), _ROWS, once=once)


def _of_async(rows: AsyncIterable[Any], media_type: str | None) -> Body:
    async def pieces() -> AsyncIterator[bytes]:
        body.is_spent = True
        held = bytearray()
        async for item in rows:
            held += _check_bytes(item) if media_type is not None else _write_row(item)
            if len(held) >= _PIECE_BYTES:
                yield bytes(held)
                held.clear()
        if held:
            yield bytes(held)

    body = Body(media_type or _NDJSON, pieces, params=_ROWS if media_type is None else {})
    return body


# Rows


#: NaN and infinities as Python writes them.
_ROWS: Final = {"nonfinite": "bare"}
_dumps: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=lambda value: _to_json(value)
).encode


def _write_row(row: Any) -> bytes:
    """A line of NDJSON."""
    if not isinstance(row, Mapping):
        raise Unsendable(f"{type(row).__name__} is no row. A row is a dictionary of its features.")
    if not all(isinstance(name, str) for name in row):
        raise Unsendable(f"A row has features whose names are no str: {list(row)}.")
    try:
        return f"{_dumps(row if isinstance(row, dict) else dict(row))}\n".encode()
    except UnicodeEncodeError as error:
        raise Unsendable(f"A row has text that is no Unicode ({error.reason}). Give it as bytes.") from error
    except RecursionError:
        raise Unsendable("A row is nested in itself, or too deeply.") from None


def _to_json(value: Any) -> Any:
    """What JSON has no literal for."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biufSUO":
            raise Unsendable(f"A row has values of {value.dtype}, which JSON has not. Send columns instead.")
        return value.tolist()
    raise Unsendable(
        f"A row has a value of {type(value).__name__}. Features are numbers, bool, str, bytes, arrays, and "
        f"lists of these."
    )


def _check_bytes(piece: Any) -> bytes:
    if not isinstance(piece, bytes | bytearray | memoryview):
        raise Unsendable(f"With a media_type the pieces of a body are bytes, not {type(piece).__name__}.")
    return bytes(piece)


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces that are worth sending."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


# Columns


def _to_array(name: str, values: Any) -> NDArray[Any]:
    """The array of a column, whose strings are as numpy has them."""
    array = to_array(f"Column {name!r}", values)
    if array.dtype.kind == "O":
        array = _to_strings(name, array)
    if array.dtype.kind not in "biufcSUV":
        raise Unsendable(
            f"Column {name!r} is of {array.dtype}, which TensorFlow has not. Make it numbers or text first."
        )
    return array


def _to_strings(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """An array of objects that are all text, or all bytes, as one of numpy's strings."""
    values = array.ravel().tolist()
    if not _are(values, str) and not _are(values, bytes):
        kinds = sorted({type(value).__name__ for value in values})
        raise Unsendable(
            f"Column {name!r} has objects ({', '.join(kinds)}); a column is numbers of one shape, text, or "
            f"bytes. Append rows instead, which may lack features."
        )
    end: Any = "\0" if _are(values, str) else b"\0"
    if any(value.endswith(end) for value in values):
        raise Unsendable(
            f"Column {name!r} has strings that end in NUL, which numpy drops. Append rows instead."
        )
    longest = max(map(len, values), default=0)
    if longest * len(values) > (1 << 24) + 8 * sum(map(len, values)):
        raise Unsendable(
            f"Column {name!r} has strings of up to {longest} characters; as an array of numpy each would "
            f"take as much. Append rows instead, or an Arrow table."
        )
    return np.array(values, dtype=str if _are(values, str) else bytes).reshape(array.shape)


def _are(values: list[Any], kind: type) -> TypeGuard[list[Any]]:
    return all(isinstance(value, kind) for value in values)


def _check_columns(columns: Mapping[str, NDArray[Any]]) -> None:
    lengths = {name: None if array.ndim == 0 else len(array) for name, array in columns.items()}
    if not columns or None in lengths.values() or len(set(lengths.values())) > 1:
        raise Unsendable(
            f"The first axis of each column counts rows, which are as many in all: {lengths}. A dictionary "
            f"is columns; one row is [{{...}}]."
        )


class _Sink(io.RawIOBase):
    """What is written to it, until it is taken."""

    def __init__(self) -> None:
        self._held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._held += data
        return len(data)

    def take(self) -> bytes:
        taken, self._held = bytes(self._held), bytearray()
        return taken


def _write_npz(columns: Mapping[str, NDArray[Any]]) -> Iterator[bytes]:
    """NPZ, equal for equal columns, in pieces."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, array in columns.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                header = np.lib.format.header_data_from_array_1_0(np.empty((0,), array.dtype))  # noqa: TID251  # the client does without codecs
                np.lib.format.write_array_header_2_0(member, {**header, "shape": array.shape})  # noqa: TID251  # the same
                for piece in _pieces_of(array):
                    member.write(piece)
                    yield sink.take()
    yield sink.take()


def _pieces_of(array: NDArray[Any]) -> Iterator[bytes]:
    """The elements in row-major order, some rows at a time."""
    rows = max(1, _PIECE_BYTES // max(1, array[:1].nbytes))
    for first in range(0, len(array), rows):
        yield array[first : first + rows].tobytes()
