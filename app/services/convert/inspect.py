"""What a file is and holds, found out in one reading: its beginning at once, the rest when it is asked for.

Damage ends no inspection: it is a finding, beside what could be read before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, cast

from ...codecs.array import AnyTensor, Array
from ...codecs.columns import Batch, Records
from ...codecs.forms import MESSAGE_FORMS
from ...codecs.sniff import Sniffed
from ...domain.limits import MIB
from ...domain.losses import Losses
from ...domain.schema import Schema
from ...errors import InputError, MalformedInput
from ...runtime.budget import Budget
from .describe import describe_tensors, find_lengths_of, survey_records
from .distribution import Detail
from .statistics import DetailedStatisticsJson

#: Tensors whose values are kept for a look; larger ones are drawn to their ends piece by piece.
_MOST_READ: Final = 64 * MIB


class NotMessages(Exception):
    """The first records of a TFRecord are not all the messages that the first one is.

    Attributes:
        fault: what is wrong with the one that is none.
        are_others: the first record is not such a message either, so that the file holds other messages.
    """

    def __init__(self, fault: InputError) -> None:
        super().__init__(fault)
        self.fault = fault
        is_other = isinstance(fault, MalformedInput) or fault.code == "not_an_example"
        self.are_others = is_other and fault.location.row == 0


@dataclass(slots=True)
class Findings:
    """What was found out about one file.

    Attributes:
        sniffed: what it is; None where that cannot be told.
        schema: of its rows; with the lengths that all of them have, once all are read.
        num_records, features: the number of rows, and the statistics of each feature, once all are read.
        tensors: a description of each.
        losses: damaged records of a TFRecord, which are passed over.
        fault: why nothing behind it could be read.
        is_whole: all of it was read.
    """

    sniffed: Sniffed | None = None
    schema: Schema | None = None
    num_records: int | None = None
    features: Mapping[str, DetailedStatisticsJson] = field(default_factory=dict)
    tensors: list[Any] = field(default_factory=list)
    losses: Losses = field(default_factory=Losses)
    fault: InputError | None = None
    is_whole: bool = False

    @property
    def is_damaged(self) -> bool:
        return self.fault is not None or self.losses.num_ranges > 0


class RowsInspection:
    """Looks at a file of rows: first at those in front, then at all of them.

    Args:
        findings: say what it is, and are completed here.
        open_rows: opens the rows; told where damaged records are to be noted, None where there are none.
        is_inferred: nobody has said what the lengths of the values are.

    Attributes:
        first: the rows in front; None where there are none.
        first_schema: theirs, with the lengths that all of them have.

    Raises:
        NotMessages: some of the first records are other messages than the first one.
        InputError: the beginning cannot be read.
    """

    def __init__(
        self, findings: Findings, open_rows: Callable[[Losses | None], Records], *, is_inferred: bool
    ) -> None:
        self.findings, sniffed = findings, findings.sniffed
        form, as_bytes = ("", False) if sniffed is None else (sniffed.form, sniffed.as_bytes)
        is_tfrecord = form == "tfrecord"
        try:
            self.records = open_rows(self.findings.losses if is_tfrecord else None)
            self.first: Batch | None = next(self.records.batches, None)
        except InputError as error:
            if is_tfrecord and not as_bytes:
                raise NotMessages(error) from error
            raise
        self._find_lengths = is_inferred and form in MESSAGE_FORMS
        self.findings.schema = self.first_schema = self.records.schema
        if self._find_lengths and self.first is not None:
            self.first_schema = find_lengths_of(self.first, self.records.schema)

    def finish(self, details: Sequence[Detail] = ()) -> None:
        """Draw all rows: their number, statistics, lengths, and what is damaged.

        Args:
            details: how closely the first features are looked at.
        """
        found = self.findings
        batches = chain([] if self.first is None else [self.first], self._until_fault())
        rows = replace(self.records, batches=batches)
        found.schema, described = survey_records(rows, find_lengths=self._find_lengths, details=details)
        found.num_records = described["num_records"]
        found.features = cast(dict[str, DetailedStatisticsJson], described["features"])
        found.is_whole = found.fault is None

    def _until_fault(self) -> Iterator[Batch]:
        try:
            yield from self.records.batches
        except InputError as error:
            self.findings.fault = error


def inspect_tensors(tensors: Iterable[AnyTensor], findings: Findings, budget: Budget) -> Iterator[AnyTensor]:
    """Each tensor, its values in memory unless they are many; and behind it, in `findings`, what it is.

    Raises:
        InputError: not even the first one can be read.
    """
    try:
        for tensor in tensors:
            held = 0
            if isinstance(tensor, Array) and tensor.is_arriving and tensor.num_bytes <= _MOST_READ:
                held, tensor = tensor.num_bytes, tensor.read(budget)
            yield tensor
            findings.tensors += json.loads(describe_tensors([tensor]))
            budget.release(held)
        findings.is_whole = True
    except InputError as error:
        if not findings.tensors:
            raise
        findings.fault = error
