"""The query parameters of the routes for datasets."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from fastapi import Query
from pydantic import Field

from ...codecs.forms import FormName
from ...codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from ...domain.compression import Compression
from ...domain.schema import Schema
from ...domain.sharding.division import parse_fractions
from ...domain.sharding.mixture import MAX_ROUND
from ...domain.sharding.row_order import MAX_SHUFFLE_BUFFER, RowOrder
from ...domain.sharding.shard_plan import MAX_SHARDS
from ...errors import MalformedInput
from ...services.datasets.objects.publish_options import DIVIDED_SPLIT, PublishOptions
from .applicability import refuse_inapplicable
from .rows import BodyOfRowsQuery, NoQuery
from .types import (
    Base64,
    BytesAs,
    Damaged,
    Delivery,
    DescribedTo,
    ExampleMessage,
    Int64,
    Lossy,
    NonfiniteOut,
    OnErrorParameter,
    RowsLayout,
    To,
    TransformsText,
)

#: Parameters that speak of another one.
_OF_SHUFFLE: Final = frozenset({"seed", "epoch"})
_OF_BATCH: Final = frozenset({"drop_remainder"})
#: Those of one split.
_NOT_MIXED: Final = frozenset({"split", "offset", "length"})
_MOST_MIXED: Final = 16
_MIXED: Final = re.compile(
    r"((?P<dataset>[^@/:,]+)@(?P<version>[^@/:,]+)/)?(?P<split>[^@/:,]+):(?P<weight>[0-9]{1,5})", re.ASCII
)


class PublishQuery(NoQuery):
    """Parameters of a publication, but for the compression of its shards, whose name two routes share."""

    num_shards: Annotated[
        int | None,
        Field(
            ge=1,
            le=MAX_SHARDS,
            description="Shards a split; by size (64 MiB to 1 GiB) if not given. At most 256, or one for "
            "each 4 MiB of records.",
        ),
    ] = None
    shard_bytes: Annotated[
        int | None, Field(ge=1, description="Size of a shard, uncompressed, instead of num_shards.")
    ] = None
    index: Annotated[
        bool | None,
        Field(description="Give each shard an index of record offsets; true unless they are compressed."),
    ] = None
    shuffle: Annotated[bool, Field(description="Shuffle each split as a whole, by `seed`.")] = False
    seed: Annotated[int, Field(description="Of shuffle and division.")] = 0
    fractions: Annotated[
        str | None,
        Field(description="Deal new rows out to splits: `train:0.8,test:0.2`. A row never moves again."),
    ] = None
    divide: Annotated[str, Field(description="The split whose new rows are dealt out.")] = DIVIDED_SPLIT
    by: Annotated[
        str | None,
        Field(description="Deal out by the value of this feature: equal ones stay together."),
    ] = None
    base: Annotated[
        Literal["latest", "none"],
        Field(description="`latest` adds to the last version, `none` holds the new rows alone."),
    ] = "latest"
    exclude: Annotated[
        str | None,
        Field(description="Appends, by append_id and separated by commas, to leave out for good."),
    ] = None

    def options(self, compression: Compression, key: str | None = None) -> PublishOptions:
        return PublishOptions(
            num_shards=self.num_shards,
            shard_bytes=self.shard_bytes,
            compression=compression,
            index=self.index,
            shuffle=self.shuffle,
            seed=self.seed or None,
            fractions=None if self.fractions is None else parse_fractions(self.fractions),
            divide=None if self.divide == DIVIDED_SPLIT else self.divide,
            by=self.by,
            base=self.base,
            exclude=() if self.exclude is None else tuple(self.exclude.split(",")),
            publish_key=key,
        )


class PublishVersionQuery(PublishQuery):
    """Parameters of `POST .../versions`."""

    compression: Annotated[Compression, Field(description="Of every shard.")] = "none"

    def publish_options(self, key: str | None = None) -> PublishOptions:
        return self.options(self.compression, key)


class AppendQuery(BodyOfRowsQuery, PublishQuery):
    """Parameters of `POST /v1/datasets/{dataset}/records`."""

    split: Annotated[str, Field(description="The split that the rows belong to.")] = "train"
    publish: Annotated[bool, Field(description="Publish everything acknowledged, in the same call.")] = False
    sequence: Annotated[
        int,
        Field(
            ge=-(2**63),
            lt=2**63,
            description="Orders the append among others: by this number, then by time.",
        ),
    ] = 0
    evolve: Annotated[
        Literal["none", "widen"],
        Field(
            description="`widen` lets the rows add features to the dataset's schema, and widen those that "
            "were inferred: int64 to float32, a length to unknown. A declared schema may also change other "
            "lengths to unknown and dtypes to wider ones."
        ),
    ] = "none"
    message: ExampleMessage = None
    lossy: Lossy = None
    damaged: Damaged = "refuse"
    on_error: OnErrorParameter = "fail"
    shard_compression: Annotated[
        Compression, Field(description="Of the shards of the publication; `compression` is that of the body.")
    ] = "none"

    def publish_options(self) -> PublishOptions:
        return self.options(self.shard_compression)

    def decode_options(self, schema: Schema | None, *, json_bytes: int | None) -> RecordsDecodeOptions:
        return self.read_options(schema, self.message, json_bytes=json_bytes)

    def refuse_contradictions(self) -> None:
        """Refuse to leave out what is to be added.

        Raises:
            MalformedInput: `undeclared=drop` beside `evolve=widen`.
        """
        if self.evolve == "widen" and self.undeclared == "drop":
            raise MalformedInput(
                "?undeclared=drop leaves out the features that ?evolve=widen is to add. Set one of them.",
                code="inapplicable_parameter",
            )

    def refuse_publish_options_alone(self) -> None:
        """Refuse options of a publication that was not asked for: they would be lost.

        Raises:
            MalformedInput: which of them.
        """
        of_publication = {*PublishQuery.model_fields, "shard_compression"}
        given = sorted(self.model_fields_set & of_publication)
        if given and not self.publish:
            raise MalformedInput(
                f"?{given[0]}= applies to a publication. Set publish=true, or give it to POST .../versions.",
                code="inapplicable_parameter",
            )

    def encode_options(self) -> RecordsEncodeOptions:
        return RecordsEncodeOptions(lossy=self.lossy == "allow", exact=self.lossy == "error")


class AppendsQuery(NoQuery):
    """Parameters of `GET .../appends`."""

    after: Annotated[str, Field(description="An append_id, `next` of the answer before.")] = ""
    limit: Annotated[int, Field(ge=1, le=1000, description="Appends in an answer, at most.")] = 100


class DownloadQuery(NoQuery):
    """Parameters of a download."""

    redirect: Annotated[
        Literal["signed"] | None,
        Field(description="`signed`: 307 to a URL of the store itself, good for an hour, where it has such."),
    ] = None


class DescribeVersionQuery(NoQuery):
    """Parameters of `GET .../describe`."""

    split: Annotated[str, Field(description="The split to describe.")] = "train"
    to: DescribedTo = None


class StatisticsQuery(NoQuery):
    """Parameters of `GET .../statistics`."""

    split: Annotated[str, Field(description="The split to describe.")] = "train"
    against_split: Annotated[
        str | None,
        Field(description="Compare with this split; without `against_version`, of the same version."),
    ] = None
    against_version: Annotated[
        str | None,
        Field(description="Compare with this version; without `against_split`, with the same split of it."),
    ] = None


@dataclass(frozen=True, slots=True)
class MixedSplit:
    """A split of a mixture, and how many of its rows come in a round.

    Attributes:
        dataset, version: None: those of the path.
    """

    dataset: str | None
    version: str | None
    split: str
    weight: int


class RowsQuery(NoQuery):
    """Parameters of `GET .../records`."""

    split: Annotated[str, Field(description="The split to read.")] = "train"
    mix: Annotated[
        str | None,
        Field(
            description="Several splits in turns, in place of `split`: `train:3,validation:1`, or "
            "`train:3,other@1.0.0/train:1` with one of another dataset. Of the weights, each split gets its "
            "share at any place, until one has no more rows."
        ),
    ] = None
    offset: Annotated[int, Field(ge=0, description="Rows to skip, in the order of the version.")] = 0
    length: Annotated[int | None, Field(ge=0, description="Rows to read at most; all by default.")] = None
    shuffle_buffer: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_SHUFFLE_BUFFER,
            description="Shuffle the rows from `offset` on: pieces of shards come in another order, and the "
            "rows are shuffled in windows of so many. 0 keeps the order.",
        ),
    ] = 0
    seed: Annotated[
        int, Field(ge=0, lt=2**63, description="Of the shuffle: the same one, the same order.")
    ] = 0
    epoch: Annotated[
        int, Field(ge=0, lt=2**63, description="Of the shuffle: another order for each pass over the rows.")
    ] = 0
    start: Annotated[
        int, Field(ge=0, description="Rows to skip in the order of the epoch, that is after the shuffle.")
    ] = 0
    stop: Annotated[
        int | None, Field(ge=0, description="The row of that order at which to end; all rows by default.")
    ] = None
    global_batch: Annotated[
        int | None,
        Field(
            ge=1,
            le=2**31,
            description="Rows of a step: from `start` on, each worker gets an equal part of so many rows, "
            "then of the next ones. Without it a worker gets an equal part of all rows.",
        ),
    ] = None
    worker: Annotated[int, Field(ge=0, description="Which share of the rows to read, from 0.")] = 0
    num_workers: Annotated[
        int, Field(ge=1, le=2**31, description="Readers who share the rows: each row goes to one of them.")
    ] = 1
    batch: Annotated[
        int | None,
        Field(
            ge=1,
            description="Rows in each record batch of an Arrow answer, in each line of NDJSON with "
            "`layout=columns`, or in each NPZ file of a tar archive, which an NPZ answer becomes. With "
            "`global_batch` it divides the part of a worker, which is the default for the other two.",
        ),
    ] = None
    drop_remainder: Annotated[
        bool,
        Field(description="Leave out the last rows where they do not fill a batch, or a `global_batch`."),
    ] = False
    transforms: TransformsText = None
    on_error: OnErrorParameter = "fail"
    to: To = None
    layout: RowsLayout = "rows"
    nonfinite: NonfiniteOut = "string"
    int64: Int64 = "number"
    bytes_: BytesAs = "b64"
    b64: Base64 = "standard"
    compression: Annotated[Compression, Field(description="Of a TFRecord answer.")] = "none"
    delivery: Delivery = None

    def encode_options(self) -> RecordsEncodeOptions:
        return RecordsEncodeOptions(
            layout=self.layout,
            nonfinite=self.nonfinite,
            int64=self.int64,
            text=self.bytes_,
            b64=self.b64,
            compression=self.compression,
            # The rows were admitted when they were appended.
            lossy=True,
        )

    def row_order(self) -> RowOrder:
        """In which order the rows come, and which of them.

        Raises:
            MalformedInput: parameters that would change nothing without another one, or contradict another.
        """
        self._refuse_alone(_OF_SHUFFLE, "shuffle_buffer")
        if self.global_batch is None:
            self._refuse_alone(_OF_BATCH, "batch")
        if self.worker >= self.num_workers:
            raise _invalid("worker", f"is none of {self.num_workers}: they are counted from 0.", self.worker)
        if self.global_batch is not None:
            self._check_steps(self.global_batch)
        return RowOrder(
            self.shuffle_buffer,
            self.seed,
            self.epoch,
            self.worker,
            self.num_workers,
            self.global_batch or 0,
            self.start,
            self.stop,
            self.drop_remainder,
        )

    def mixture(self) -> tuple[MixedSplit, ...] | None:
        """What is mixed; None where it is one split.

        Raises:
            MalformedInput: it cannot be read, or contradicts another parameter.
        """
        if self.mix is None:
            return None
        for name in sorted(self.model_fields_set & _NOT_MIXED):
            raise MalformedInput(
                f"?{name}= is of one split, and ?mix= names several. Leave one of them out.",
                code="inapplicable_parameter",
                extra={"parameter": name},
            )
        found = [_MIXED.fullmatch(item) for item in self.mix.split(",", _MOST_MIXED)]
        parts = tuple(
            MixedSplit(item["dataset"], item["version"], item["split"], int(item["weight"]))
            for item in found
            if item is not None
        )
        if len(parts) < len(found) or len(parts) > _MOST_MIXED or not all(part.weight for part in parts):
            raise _unmixable(f"Name 1 to {_MOST_MIXED} splits, each with a weight: train:3,validation:1.")
        if len({(part.dataset, part.version, part.split) for part in parts}) < len(parts):
            raise _unmixable("A split is there twice. Add up its weights.")
        if sum(part.weight for part in parts) > MAX_ROUND:
            raise _unmixable(f"The weights are more than {MAX_ROUND} together. Choose smaller ones.")
        return parts

    def _refuse_alone(self, names: Set[str], needed: str) -> None:
        given = sorted(self.model_fields_set & names)
        if given and not getattr(self, needed):
            raise MalformedInput(
                f"?{given[0]}= says something of ?{needed}=, which is not given. Give both, or neither.",
                code="inapplicable_parameter",
                extra={"parameter": given[0]},
            )

    def _check_steps(self, global_batch: int) -> None:
        part, rest = divmod(global_batch, self.num_workers)
        if rest:
            raise _invalid(
                "global_batch",
                f"cannot be divided equally among {self.num_workers} workers. Choose a multiple of that.",
                global_batch,
            )
        if self.batch is not None and part % self.batch:
            raise _invalid("batch", f"does not divide the {part} rows of a worker in a step.", self.batch)
        if self.on_error == "skip":
            raise MalformedInput(
                "?on_error=skip would leave steps with fewer rows than ?global_batch= says. Leave one of "
                "them out.",
                code="inapplicable_parameter",
                extra={"parameter": "on_error"},
            )

    def rows_of_message(self, form: FormName) -> int | None:
        """How many rows go together into a message of an answer of that form; None: as they come."""
        if self.global_batch is None or self.batch is not None:
            return self.batch
        in_messages = form == "arrow" or (form == "ndjson" and self.layout == "columns")
        return self.global_batch // self.num_workers if in_messages else None

    def refuse_inapplicable(self, form: FormName) -> None:
        """Refuse what an answer of that form has no place for.

        Raises:
            MalformedInput: which parameter.
        """
        if form != "ndjson" or self.batch is None:
            in_steps = form == "ndjson" and self.global_batch is not None
            refuse_inapplicable(self, written=form, applied={"layout"} if in_steps else ())
            return
        if self.layout != "columns":
            raise MalformedInput(
                "A batch of NDJSON is a line of columns: add layout=columns, or leave out ?batch=.",
                code="inapplicable_parameter",
                extra={"parameter": "batch"},
            )
        refuse_inapplicable(self, written=form, applied={"layout"})


def _unmixable(fault: str) -> MalformedInput:
    return MalformedInput(
        f"?mix= is no mixture. {fault}", code="invalid_parameter", extra={"parameter": "mix"}
    )


def _invalid(name: str, fault: str, value: int) -> MalformedInput:
    return MalformedInput(f"?{name}={value} {fault}", code="invalid_parameter", extra={"parameter": name})


AppendParameters = Annotated[AppendQuery, Query()]
PublishParameters = Annotated[PublishVersionQuery, Query()]
AppendsParameters = Annotated[AppendsQuery, Query()]
DescribeVersionParameters = Annotated[DescribeVersionQuery, Query()]
StatisticsParameters = Annotated[StatisticsQuery, Query()]
DownloadParameters = Annotated[DownloadQuery, Query()]
RowsParameters = Annotated[RowsQuery, Query()]
