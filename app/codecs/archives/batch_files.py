"""Batches of rows as the files of a tar archive, in a format that holds the rows of one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...errors import InputError
from ...runtime.budget import Budget
from ...runtime.streams import Buffer
from ..columns import Records
from ..options import RecordsEncodeOptions
from ..records.lease import Lease
from .tar import TarWriter

Encoder = Callable[[Records, RecordsEncodeOptions, Budget], Iterator[Buffer]]


def in_files(encode: Encoder, extension: str) -> Encoder:
    """An encoder whose answer has a file for each batch, such as `000000000.npz`, that `encode` has made.

    WebDataset takes each file for a sample.
    """

    def encode_files(records: Records, options: RecordsEncodeOptions, budget: Budget) -> Iterator[Buffer]:
        tar = TarWriter()
        num_rows = 0
        for number, batch in enumerate(records.batches):
            with Lease(budget) as lease:
                before = budget.remaining
                one = replace(records, batches=iter((batch,)), num_rows=batch.num_rows)
                try:
                    content = list(encode(one, options, budget))
                except InputError as error:
                    if error.location.row is not None:
                        error.renumber(num_rows + error.location.row)
                    raise
                lease.adopt(before)
                size = sum(memoryview(piece).nbytes for piece in content)
                yield tar.header(f"{number:09d}.{extension}", size)
                yield from content
            num_rows += batch.num_rows
        yield tar.end()

    return encode_files
