"""What a client asks of an append, and the body that comes with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

from ....codecs.columns import Batch, Records
from ....codecs.forms import FormName
from ....codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from ....domain.limits import MIB, Limits
from ....domain.names import check_idempotency_key, check_split_name
from ....domain.schema import Schema
from ....runtime.amplification import Amplification
from ....runtime.budget import Budget
from ....runtime.spool import Spool
from ....runtime.streams import ByteStream, MemoryStream
from ....runtime.workspace import Workspace
from ....transforms.apply import OnError
from ....transforms.parse import resulting_schema
from ...convert.records import open_records
from ..objects.publish_options import PublishOptions
from ..objects.same_schema import require_same_message, require_same_schema
from .widening import open_widening

_CHUNK: Final = 1 * MIB


def may_be_grouped(key: str | None, publish: object, sequence: int | None) -> bool:
    """Whether the rows of such an append may share a slot, which has no key and no number of its own."""
    return key is None and not publish and not sequence


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """What a client asks for.

    Attributes:
        dataset: created with the schema of the rows if it does not exist.
        split: the split that the rows go to.
        form: the format of the body.
        decode: how the body is read.
        encode: how the rows are encoded.
        key: an idempotency key: the same key and digest again get the first answer.
        publish: publish everything acknowledged so far once these rows are.
        sequence: orders the append before its time does; 0 if None.
        evolve: the rows may widen the schema of the dataset, as `domain/evolution.py` allows.
        on_error: what becomes of rows that a step of their transforms does not take.

    Raises:
        MalformedInput: not the name of a split, or not a key.
    """

    dataset: str
    split: str
    form: FormName
    decode: RecordsDecodeOptions
    encode: RecordsEncodeOptions
    key: str | None = None
    publish: PublishOptions | None = None
    sequence: int | None = None
    evolve: bool = False
    on_error: OnError = "fail"

    def __post_init__(self) -> None:
        check_split_name(self.split)
        if self.key is not None:
            check_idempotency_key(self.key)

    @property
    def may_be_grouped(self) -> bool:
        """Whether the rows may share a slot with others."""
        return may_be_grouped(self.key, self.publish, self.sequence)


@dataclass(frozen=True, slots=True)
class AppendBody:
    """The body of an append, and what its request lends to read it.

    Attributes:
        source: the body.
        digest: SHA-256 of what the client sent, in hex; called if there is a key, once `source` is exhausted.
        workspace: closed by the caller at the end of the request.
    """

    source: ByteStream
    digest: Callable[[], str]
    workspace: Workspace

    @classmethod
    def in_memory(cls, data: bytes, limits: Limits, spool: Spool) -> Self:
        """The body of a request without a key that is there in whole."""
        amplification = Amplification(limits.max_amplification, lambda: len(data))
        budget = Budget(limits, amplification=amplification)
        return cls(MemoryStream(data), str, Workspace(budget, spool))

    def read_rows(self, request: AppendRequest, stored: Schema | None) -> Records:
        """The rows, decoded as they are drawn, by the schema of the dataset if it has one.

        Features with transforms come as they are before those.

        Raises:
            InputError: the body cannot be read, or its rows do not fit; also as rows are drawn.
        """
        records = self._open(request, stored)
        return replace(records, batches=self._read_to_end(records.batches))

    def over(self, source: ByteStream) -> Self:
        """The same, over bytes of which some were read before."""
        return replace(self, source=source)

    def again(self, data: bytes) -> Self:
        """The same once more, over all its bytes: nothing of the budget is used yet."""
        workspace = Workspace(self.workspace.budget.anew(), self.workspace.spool)
        return replace(self, source=MemoryStream(data), workspace=workspace)

    def _open(self, request: AppendRequest, stored: Schema | None) -> Records:
        source, form, options = self.source, request.form, request.decode
        if stored is None:
            return open_records(source, form, options, self.workspace)
        require_same_message(options.message, stored)
        if request.evolve:
            return open_widening(source, form, options, stored, self.workspace)
        done: tuple[str, ...] = ()
        if options.schema is not None:
            require_same_schema(resulting_schema(options.schema), stored)
            stored = stored.with_declarations_of(options.schema)
            done = options.schema.names_without_transforms
        options = replace(options, schema=stored.as_received(done), schema_of_dataset=True)
        return open_records(source, form, options, self.workspace)

    def _read_to_end(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The batches; then whatever follows them in the body, which the client must have sent, too."""
        yield from batches
        while self.source.read(_CHUNK):
            pass
