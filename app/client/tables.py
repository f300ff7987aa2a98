"""Tables of pyarrow, pandas and polars, each imported where a caller has or wants one of it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from .errors import LibraryMissing, Unsendable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    ArrowTable = pa.Table
    PandasFrame = pd.DataFrame
    PolarsFrame = pl.DataFrame


def has_arrow_stream(value: Any) -> bool:
    """Whether it is a table of a library that speaks the Arrow PyCapsule interface."""
    return hasattr(value, "__arrow_c_stream__") or _is_of(value, "pandas", "DataFrame")


def write_table(table: Any) -> Iterator[bytes]:
    """An Arrow stream of a table, in pieces.

    Raises:
        LibraryMissing: neither pyarrow is here, nor is it a table of polars.
    """
    return write_tables([table])


def write_tables(tables: Iterable[Any]) -> Iterator[bytes]:
    """One Arrow stream of several tables of one schema, in pieces; one table is held at a time."""
    given = iter(tables)
    first = next(given)
    try:
        import pyarrow as pa
    except ImportError:
        if _is_of(first, "polars", "DataFrame"):
            yield from _write_of_polars(chain([first], given))
            return
        raise LibraryMissing(
            f"Appending a {type(first).__name__} takes pyarrow: pip install pyarrow. Without it, append a "
            f"dictionary of numpy arrays."
        ) from None
    sink = io.BytesIO()
    reader = _read_batches(first)
    with pa.ipc.new_stream(sink, reader.schema) as writer:
        for index, batches in enumerate(chain([reader], map(_read_batches, given))):
            if not batches.schema.equals(reader.schema):
                raise Unsendable(
                    f"Table {index} has other columns than the first: {batches.schema}, not {reader.schema}."
                )
            for batch in batches:
                writer.write_batch(batch)
                yield _take(sink)
    yield _take(sink)


def read_pyarrow(content: bytes) -> pa.Table:
    """The rows of an Arrow stream."""
    try:
        import pyarrow as pa
    except ImportError:
        raise LibraryMissing("Rows become Arrow tables by pyarrow: pip install pyarrow.") from None
    return pa.ipc.open_stream(content).read_all()


def read_pandas(content: bytes) -> pd.DataFrame:
    """The rows of an Arrow stream."""
    try:
        import pandas as pd
    except ImportError:
        raise LibraryMissing(
            "Rows become DataFrames by pandas and pyarrow: pip install pandas pyarrow."
        ) from None
    frame = read_pyarrow(content).to_pandas()
    assert isinstance(frame, pd.DataFrame)  # noqa: S101  # pyarrow's types do not say so
    return frame


def read_polars(content: bytes) -> pl.DataFrame:
    """The rows of an Arrow stream."""
    try:
        import polars as pl
    except ImportError:
        raise LibraryMissing("Rows become DataFrames of polars by it: pip install polars.") from None
    return pl.read_ipc_stream(content)


def _read_batches(table: Any) -> pa.RecordBatchReader:
    import pyarrow as pa

    if _is_of(table, "pandas", "DataFrame"):
        # An index without a name counts rows, or says where they were taken from; it is no feature.
        keeps_index = any(name is not None for name in table.index.names)
        return pa.Table.from_pandas(table, preserve_index=keeps_index).to_reader()
    try:
        return pa.RecordBatchReader.from_stream(table)
    except pa.ArrowInvalid as error:
        raise Unsendable(
            f"A {type(table).__name__} has values, but no names of features. "
            f"Give a table, or a dictionary of it."
        ) from error


def _write_of_polars(frames: Iterable[pl.DataFrame]) -> Iterator[bytes]:
    """Of polars, which writes a stream of one frame only."""
    whole = list(frames)
    if len(whole) > 1:
        raise LibraryMissing("Appending several DataFrames as one takes pyarrow: pip install pyarrow.")
    sink = io.BytesIO()
    whole[0].write_ipc_stream(sink)
    yield sink.getvalue()


def _is_of(value: Any, library: str, name: str) -> bool:
    """Whether it is an instance of a class of a library, which is then imported already."""
    module = sys.modules.get(library)
    return module is not None and isinstance(value, getattr(module, name))


def _take(sink: io.BytesIO) -> bytes:
    taken = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return taken
