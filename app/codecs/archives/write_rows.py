"""Rows as a tar archive that WebDataset reads: a file for each feature of a row, named by the row's key."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from ...domain.feature import Feature
from ...domain.limits import KIB
from ...domain.schema import Schema
from ...errors import UnprocessableInput
from ...runtime.budget import Budget
from ...runtime.streams import Buffer
from ..array import Array
from ..arrays.npy import npy_pieces
from ..columns import Batch, Records, no_values
from ..options import RecordsEncodeOptions
from ..records.named_columns import without_features
from ..schemas.suggest import suggest_schema
from .files import contents_of, extension_of, require_dense
from .read_rows import KEY
from .tar import TarWriter

#: Smaller pieces are joined to one of this size.
_PIECE_BYTES: Final = 256 * KIB
_CELLS_AT_ONCE: Final = 8192


def encode(records: Records, _options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:
    """A file for each feature that a row has; the archive ends as `tar` ends one.

    The key of a row is its `__key__`, or its number in nine digits.

    Raises:
        UnprocessableInput: a feature that no file holds, a row without any file, a key that is no name of a
            file (`not_expressible`), or the key of the row before (`duplicate_member`).
    """
    require_dense(records.schema)
    extensions = _extensions(records, budget)
    if not extensions:
        raise without_features("tar")
    return _join(_Rows(records.schema, extensions, budget).write(records.batches))


def _extensions(records: Records, budget: Budget) -> dict[str, str]:
    """The extension of each feature's files, by its name."""
    extensions: dict[str, str] = {}
    for feature in records.schema:
        if feature.name == KEY:
            if not (feature.is_scalar and feature.dtype.is_string):
                raise _not_expressible(feature, "the key of a row is one text")
            continue
        if not feature.is_scalar and feature.dtype.is_string:
            advice = suggest_schema(records, _holds_files)
            raise _not_expressible(feature, "a file holds one string, and no array of them", advice)
        extension = extension_of(feature)
        if "/" in extension or "\0" in extension or extension != extension.lower():
            raise _not_expressible(
                feature, "its name is the extension of a file, in lower case and without a slash"
            )
        if extension in extensions.values():
            raise UnprocessableInput(
                f"Two features would be files .{extension[:64]}. Rename one of them.",
                code="duplicate_member",
                feature=feature.name,
            )
        if not feature.dtype.is_string:  # refused before the first byte, where NPY has no such dtype
            npy_pieces(Array(feature.dtype, (0,), no_values(feature.dtype)), budget)
        extensions[feature.name] = extension
    return extensions


def _holds_files(schema: Schema) -> bool:
    return all(
        feature.kind == "dense" and (feature.is_scalar or not feature.dtype.is_string) for feature in schema
    )


def _not_expressible(
    feature: Feature, why: str, advice: str = "Rename it, or choose another format.", row: int | None = None
) -> UnprocessableInput:
    return UnprocessableInput(
        f"Feature {feature.name!r} does not go into a tar archive: {why}. {advice}",
        code="not_expressible",
        feature=feature.name,
        row=row,
    )


def _slices(batch: Batch) -> Iterator[Batch]:
    """The batch in pieces of some thousand cells, each of which is an object for a while."""
    step = max(1, _CELLS_AT_ONCE // len(batch.columns))
    for first in range(0, batch.num_rows, step):
        yield batch.rows(first, min(first + step, batch.num_rows))


class _Rows:
    """Writes batches.

    Args:
        extensions: of the files of each feature.
    """

    def __init__(self, schema: Schema, extensions: dict[str, str], budget: Budget) -> None:
        self._schema = schema
        self._extensions = extensions
        self._budget = budget
        self._tar = TarWriter()
        self._row = 0
        self._last_key: str | None = None

    def write(self, batches: Iterator[Batch]) -> Iterator[Buffer]:
        """The archive."""
        for batch in chain.from_iterable(map(_slices, batches)):
            columns = [
                (feature, column.present, iter(contents_of(feature, column, batch.num_rows)))
                for feature, column in zip(self._schema, batch.columns, strict=True)
            ]
            for number in range(batch.num_rows):
                cells = {
                    feature.name: (feature, next(contents))
                    for feature, present, contents in columns
                    if present is None or present[number]
                }
                yield from self._write_row(cells)
                self._row += 1
        yield self._tar.end()

    def _write_row(self, cells: dict[str, tuple[Feature, Array | Buffer]]) -> Iterator[Buffer]:
        named = cells.pop(KEY, None)
        key = f"{self._row:09d}" if named is None else self._check_key(*named)
        if key == self._last_key:
            raise UnprocessableInput(
                f"Row {self._row} has the key {key[:64]!r}, as the row before has: their files would be one "
                "sample.",
                code="duplicate_member",
                row=self._row,
                feature=KEY,
            )
        self._last_key = key
        if not cells:
            raise UnprocessableInput(
                f"Row {self._row} has no value, and would have no file. Choose another output format.",
                code="not_expressible",
                row=self._row,
            )
        for feature, content in cells.values():
            name = f"{key}.{self._extensions[feature.name]}"
            if isinstance(content, Array):
                header, size, pieces = npy_pieces(content, self._budget)
                yield self._tar.header(name, len(header) + size)
                yield from chain((header,), pieces)
            else:
                yield self._tar.header(name, len(content))
                yield content

    def _check_key(self, feature: Feature, content: Array | Buffer) -> str:
        try:
            key = "" if isinstance(content, Array) else bytes(content).decode()
        except UnicodeDecodeError:
            key = ""
        parts = key.split("/")
        if not all(parts) or ".." in parts or "." in parts[-1] or "\0" in key:
            raise _not_expressible(
                feature,
                f"{key[:64]!r} in row {self._row} is no name of a sample, which has no dot behind its "
                "folders",
                row=self._row,
            )
        return key


def _join(pieces: Iterator[Buffer]) -> Iterator[Buffer]:
    """The same bytes; small pieces are gathered."""
    gathered = bytearray()
    for piece in pieces:
        if memoryview(piece).nbytes >= _PIECE_BYTES:
            if gathered:
                yield gathered
                gathered = bytearray()
            yield piece
            continue
        gathered += piece
        if len(gathered) >= _PIECE_BYTES:
            yield gathered
            gathered = bytearray()
    if gathered:
        yield gathered
