"""The query parameters of the routes for datasets."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field

from ..codecs.options import RecordsEncodeOptions
from ..domain.compression import Compression
from ..errors import MalformedInput
from ..services.datasets import PublishOptions
from .parameter_types import Base64, BytesAs, Delivery, Int64, Lossy, NonfiniteOut, RowsLayout, To
from .parameters import BodyOfRowsQuery, NoQuery

__all__ = [
    "AppendParameters",
    "AppendQuery",
    "PublishParameters",
    "PublishQuery",
    "RowsParameters",
    "RowsQuery",
]


class PublishQuery(NoQuery):
    """Parameters of a publication."""

    num_shards: Annotated[
        int | None,
        Field(ge=1, le=10_000, description="Shards a split; by size (64 MiB to 1 GiB) if not given."),
    ] = None
    base: Annotated[
        Literal["latest", "none"],
        Field(description="`latest` adds to the last version, `none` holds the new rows alone."),
    ] = "latest"

    def publish_options(self, key: str | None = None) -> PublishOptions:
        return PublishOptions(num_shards=self.num_shards, base=self.base, publish_key=key)


class AppendQuery(BodyOfRowsQuery, PublishQuery):
    """Parameters of `POST /v1/datasets/{dataset}/records`."""

    split: Annotated[str, Field(description="The split that the rows belong to.")] = "train"
    publish: Annotated[bool, Field(description="Publish everything acknowledged, in the same call.")] = False
    sequence: Annotated[
        int | None,
        Field(
            ge=-(2**63),
            lt=2**63,
            description="Orders the append among others: by this number (0 if not given), then by time.",
        ),
    ] = None
    evolve: Annotated[
        Literal["none", "widen"],
        Field(
            description="`widen` lets the rows add features to the dataset's schema, and a declared schema "
            "also change lengths to unknown and dtypes to wider ones."
        ),
    ] = "none"
    lossy: Lossy = None

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
        given = sorted(self.model_fields_set & PublishQuery.model_fields.keys())
        if given and not self.publish:
            raise MalformedInput(
                f"?{given[0]}= applies to a publication. Set publish=true, or give it to POST .../versions.",
                code="inapplicable_parameter",
            )

    def encode_options(self) -> RecordsEncodeOptions:
        return RecordsEncodeOptions(lossy=self.lossy == "allow")


class RowsQuery(NoQuery):
    """Parameters of `GET .../records`."""

    split: Annotated[str, Field(description="The split to read.")] = "train"
    offset: Annotated[int, Field(ge=0, description="Rows to skip.")] = 0
    length: Annotated[int | None, Field(ge=0, description="Rows to read at most; all by default.")] = None
    to: To = None
    layout: RowsLayout = "rows"
    nonfinite: NonfiniteOut = "string"
    int64: Int64 = "number"
    bytes_: BytesAs = "b64"
    b64: Base64 = "standard"
    compression: Annotated[Compression | None, Field(description="Of a TFRecord answer.")] = None
    delivery: Delivery = None

    def encode_options(self) -> RecordsEncodeOptions:
        return RecordsEncodeOptions(
            layout=self.layout,
            nonfinite=self.nonfinite,
            int64=self.int64,
            text=self.bytes_,
            b64=self.b64,
            compression=self.compression or "none",
            # The rows were admitted when they were appended.
            lossy=True,
        )


AppendParameters = Annotated[AppendQuery, Query()]
PublishParameters = Annotated[PublishQuery, Query()]
RowsParameters = Annotated[RowsQuery, Query()]
