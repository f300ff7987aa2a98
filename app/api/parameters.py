"""The query parameters of the conversion routes, each documented once.

Unknown parameters are refused by the models, repeated ones by `refuse_repeated`: `?spilt=test` must
not land in train.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field

from ..codecs.options import (
    Compression,
    RecordsDecodeOptions,
    RecordsEncodeOptions,
    TensorDecodeOptions,
    TensorEncodeOptions,
)
from ..domain.dtypes import parse_dtype
from ..domain.limits import KIB
from ..domain.schema import Message, Schema
from ..domain.tensor import Shape, check_shape
from ..errors import MalformedInput
from ..services.datasets import PublishOptions
from .parameter_types import (
    Base64,
    BytesAs,
    Delivery,
    EitherCompression,
    ExampleMessage,
    From,
    Infer,
    Int64,
    Lossy,
    Nonfinite,
    NonfiniteIn,
    NonfiniteOut,
    Order,
    RowsLayout,
    SchemaText,
    SparseAs,
    TensorKind,
    To,
    Undeclared,
)

__all__ = [
    "AppendParameters",
    "ExamplesParameters",
    "ExamplesQuery",
    "NoParameters",
    "PublishParameters",
    "RecordsParameters",
    "RecordsQuery",
    "RowsParameters",
    "TensorsParameters",
    "TensorsQuery",
    "refuse_inapplicable",
    "refuse_repeated",
]


class NoQuery(BaseModel):
    """A route without query parameters."""

    model_config = ConfigDict(extra="forbid")


class _ConversionQuery(NoQuery):
    """What every conversion takes."""

    from_: From = None
    to: To = None
    nonfinite: Nonfinite = None
    int64: Int64 = "number"
    bytes_: BytesAs = "b64"
    b64: Base64 = "standard"
    delivery: Delivery = None

    @property
    def nonfinite_in(self) -> Literal["error", "null", "bare"]:
        return self.nonfinite if self.nonfinite in ("null", "bare") else "error"

    @property
    def nonfinite_out(self) -> Literal["string", "null", "error"]:
        return self.nonfinite if self.nonfinite in ("null", "error") else "string"


class TensorsQuery(_ConversionQuery):
    """Parameters of `/v1/tensors/*`."""

    dtype: Annotated[
        str | None, Field(description="dtype of a raw or untyped JSON body; typed forms must agree.")
    ] = None
    shape: Annotated[
        str | None, Field(description="Comma-separated; empty for a scalar.", examples=["2,3"])
    ] = None
    byte_order: Annotated[Literal["little", "big"], Field(description="Of raw bodies and raw answers.")] = (
        "little"
    )
    order: Order = "C"
    kind: TensorKind = None
    sparse: SparseAs = "single"
    layout: Annotated[Literal["flat", "nested", "oip"], Field(description="Layout of a JSON answer.")] = (
        "flat"
    )
    compression: EitherCompression = None

    def decode_options(
        self, *, input_form: str, output_form: str, json_bytes: int | None
    ) -> TensorDecodeOptions:
        # Where both are TFRecord, the parameter speaks of the answer and the body is detected.
        of_input = input_form == "tfrecord" != output_form
        return TensorDecodeOptions(
            dtype=None if self.dtype is None else parse_dtype(self.dtype),
            shape=_parse_shape(self.shape),
            byte_order=self.byte_order,
            order=self.order,
            kind=self.kind,
            json_bytes=json_bytes,
            nonfinite=self.nonfinite_in,
            compression=self.compression if of_input else None,
        )

    def encode_options(self) -> TensorEncodeOptions:
        return TensorEncodeOptions(
            layout=self.layout,
            nonfinite=self.nonfinite_out,
            int64=self.int64,
            text=self.bytes_,
            byte_order=self.byte_order,
            order=self.order,
            sparse=self.sparse,
            b64=self.b64,
            compression=self.compression or "none",
        )


class ExamplesQuery(_ConversionQuery):
    """Parameters of `/v1/examples/*`."""

    schema_: SchemaText = None
    message: ExampleMessage = None
    lossy: Lossy = None
    undeclared: Undeclared = "error"

    def decode_options(self, schema: Schema | None) -> RecordsDecodeOptions:
        return RecordsDecodeOptions(
            schema=_effective_schema(schema, self.message),
            message=self.message,
            nonfinite=self.nonfinite_in,
            undeclared=self.undeclared,
        )

    def encode_options(self) -> RecordsEncodeOptions:
        return RecordsEncodeOptions(
            nonfinite=self.nonfinite_out,
            int64=self.int64,
            text=self.bytes_,
            b64=self.b64,
            lossy=self.lossy == "allow",
        )


class RecordsQuery(ExamplesQuery):
    """Parameters of `/v1/records/*`."""

    infer: Infer = "head"
    layout: RowsLayout = "rows"
    compression: EitherCompression = None

    def decode_stream_options(
        self, schema: Schema | None, *, output_form: str, json_bytes: int | None
    ) -> RecordsDecodeOptions:
        # As for tensors: with a TFRecord answer the parameter speaks of the answer.
        of_input = output_form != "tfrecord"
        return replace(
            self.decode_options(schema),
            infer=self.infer,
            compression=self.compression if of_input else None,
            json_bytes=json_bytes,
        )

    def encode_options(self) -> RecordsEncodeOptions:
        return replace(super().encode_options(), layout=self.layout, compression=self.compression or "none")


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


class AppendQuery(PublishQuery):
    """Parameters of `POST /v1/datasets/{dataset}/records`."""

    from_: From = None
    split: Annotated[str, Field(description="The split that the rows belong to.")] = "train"
    publish: Annotated[bool, Field(description="Publish everything acknowledged, in the same call.")] = False
    schema_: SchemaText = None
    message: ExampleMessage = None
    nonfinite: NonfiniteIn = None
    infer: Infer = "head"
    compression: Annotated[
        Compression | None, Field(description="Of a TFRecord body; detected by default.")
    ] = None
    lossy: Lossy = None
    undeclared: Undeclared = "error"

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

    def decode_options(self, schema: Schema | None, *, json_bytes: int | None) -> RecordsDecodeOptions:
        return RecordsDecodeOptions(
            schema=_effective_schema(schema, self.message),
            message=self.message,
            nonfinite=self.nonfinite or "error",
            infer=self.infer,
            compression=self.compression,
            undeclared=self.undeclared,
            json_bytes=json_bytes,
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


def _effective_schema(schema: Schema | None, message: Message | None) -> Schema | None:
    """The schema that the client declared, for the message that it asked for."""
    return None if schema is None else schema.with_message(message)


def _parse_shape(text: str | None) -> Shape | None:
    if text is None:
        return None
    dims = [dim.strip() for dim in text.split(",")] if text.strip() else []
    if len(text) > 8 * KIB or not all(dim.isascii() and dim.isdigit() for dim in dims):
        raise MalformedInput(
            f"shape={text[:60]!r} is not a comma-separated list of dimensions, like 2,3.",
            code="invalid_shape",
        )
    # Twenty digits are past int64 already; longer ones need not be converted to be refused.
    return check_shape([int(dim[:20]) for dim in dims])


def refuse_repeated(request: Request) -> None:
    """Refuse a query parameter that is given twice.

    Raises:
        MalformedInput: which one.
    """
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if names.count(name) > 1:
            raise MalformedInput(
                f"The query parameter {name[:40]!r} is given more than once.",
                code="repeated_parameter",
                extra={"parameter": name[:40]},
            )


def refuse_inapplicable(compression: str | None, forms: tuple[str, ...]) -> None:
    """Refuse `?compression=` where neither body nor answer is a TFRecord: it would change nothing.

    Raises:
        MalformedInput: what to do instead.
    """
    if compression is not None and "tfrecord" not in forms:
        raise MalformedInput(
            "?compression= applies to TFRecord alone, and neither the body nor the answer is one. "
            "Leave it out, or set to=tfrecord.",
            code="inapplicable_parameter",
        )


TensorsParameters = Annotated[TensorsQuery, Query()]
RecordsParameters = Annotated[RecordsQuery, Query()]
ExamplesParameters = Annotated[ExamplesQuery, Query()]
NoParameters = Annotated[NoQuery, Query()]
AppendParameters = Annotated[AppendQuery, Query()]
PublishParameters = Annotated[PublishQuery, Query()]
RowsParameters = Annotated[RowsQuery, Query()]
