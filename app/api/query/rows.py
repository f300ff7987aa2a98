"""The query parameters of the conversion routes, each documented once.

Unknown parameters are refused by the models, repeated ones by `Operation`: `?spilt=test` must not land in
train.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, Self

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.datastructures import Headers, QueryParams

from ...codecs.options import CsvDialect, RecordsDecodeOptions, RecordsEncodeOptions
from ...domain.compression import Compression
from ...domain.schema import Message, Schema
from ...errors import MalformedInput
from ...runtime.streams import ByteStream
from ...transforms.parse import TRANSFORMS
from ..body.multipart import boundary_of
from ..negotiation import has_tabs
from .types import (
    Archive,
    Base64,
    BytesAs,
    Damaged,
    Delimiter,
    Delivery,
    DescribedTo,
    EitherCompression,
    ExampleMessage,
    From,
    Infer,
    Int64,
    Labels,
    Lossy,
    Nonfinite,
    NonfiniteIn,
    NullTexts,
    OnErrorParameter,
    RecordMessage,
    RecordMessageName,
    RowsLayout,
    SchemaText,
    To,
    TransformsText,
    Undeclared,
)


class NoQuery(BaseModel):
    """A route without query parameters, and the base of those that have some."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="after")
    def forget_defaults(self) -> Self:
        """Count a parameter that stands at its default as not given: generated clients send all of them."""
        fields = type(self).model_fields
        defaults = {name for name in self.model_fields_set if getattr(self, name) == fields[name].default}
        self.model_fields_set.difference_update(defaults)
        return self

    def given(self, parameters: QueryParams) -> list[tuple[str, str]]:
        """Those of the request's parameters that are not at their defaults, sorted."""
        fields = type(self).model_fields
        names = {fields[name].alias or name for name in self.model_fields_set}
        return sorted(item for item in parameters.multi_items() if item[0] in names)


class ConversionQuery(NoQuery):
    """What every conversion takes."""

    from_: From = None
    to: To = None
    nonfinite: Nonfinite = "string"
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


class RowConversionQuery(ConversionQuery):
    """What conversions of rows take."""

    schema_: SchemaText = None
    lossy: Lossy = None
    undeclared: Undeclared = "error"
    transforms: TransformsText = None

    def read_options(self, schema: Schema | None, message: Message | None) -> RecordsDecodeOptions:
        return RecordsDecodeOptions(
            schema=_effective_schema(schema, message),
            message=message,
            nonfinite=self.nonfinite_in,
            undeclared=self.undeclared,
            transforms=TRANSFORMS,
        )

    def encode_options(self) -> RecordsEncodeOptions:
        return RecordsEncodeOptions(
            nonfinite=self.nonfinite_out,
            int64=self.int64,
            text=self.bytes_,
            b64=self.b64,
            lossy=self.lossy == "allow",
            exact=self.lossy == "error",
        )


class ExamplesQuery(RowConversionQuery):
    """Parameters of `/v1/examples/*`."""

    message: ExampleMessage = None

    def decode_options(self, schema: Schema | None) -> RecordsDecodeOptions:
        return self.read_options(schema, self.message)


class BodyFormatQuery(NoQuery):
    """How a body of CSV, of an archive, or of files is written."""

    delimiter: Delimiter = None
    null_: NullTexts = None
    archive: Archive = None
    labels: Labels = None

    def for_body(
        self, options: RecordsDecodeOptions, headers: Headers, from_: str | None
    ) -> RecordsDecodeOptions:
        """The options, with what the parameters and the media type of the body say.

        Args:
            headers: of the rows.
            from_: the query parameter `from`.

        Raises:
            MalformedInput: labels that are empty or stand twice (`invalid_labels`).
        """
        dialect, labels = self._csv_dialect(headers, from_), parse_labels(self.labels)
        boundary = boundary_of(headers.get("content-type", ""))
        return replace(options, csv=dialect, archive=self.archive, labels=labels, boundary=boundary)

    def _csv_dialect(self, headers: Headers, from_: str | None) -> CsvDialect:
        if self.delimiter is None:
            delimiter = "\t" if has_tabs(headers, from_) else ","
        else:
            delimiter = "\t" if self.delimiter == "tab" else self.delimiter
        return CsvDialect(delimiter, () if self.null_ is None else tuple(self.null_.split(",")))


class BodyOfRowsQuery(BodyFormatQuery):
    """Parameters of the routes that read rows and answer with something else."""

    from_: From = None
    schema_: SchemaText = None
    nonfinite: NonfiniteIn = None
    infer: Infer = "head"
    compression: Annotated[
        Compression | None, Field(description="Of a TFRecord body; detected by default.")
    ] = None
    undeclared: Undeclared = "error"

    def read_options(
        self, schema: Schema | None, message: Message | None, *, json_bytes: int | None
    ) -> RecordsDecodeOptions:
        return RecordsDecodeOptions(
            schema=_effective_schema(schema, message),
            message=message,
            nonfinite=self.nonfinite or "error",
            infer=self.infer,
            compression=self.compression,
            undeclared=self.undeclared,
            json_bytes=json_bytes,
            transforms=TRANSFORMS,
        )


class DescribeRecordsQuery(BodyOfRowsQuery):
    """Parameters of `POST /v1/records/describe`."""

    to: DescribedTo = None
    message: RecordMessage = None

    def decode_options(self, schema: Schema | None, *, json_bytes: int | None) -> RecordsDecodeOptions:
        options = self.read_options(schema, _parsed_message(self.message), json_bytes=json_bytes)
        return replace(options, as_bytes=self.message == "bytes")


class RecordsQuery(RowConversionQuery, BodyFormatQuery):
    """Parameters of `/v1/records/*`."""

    message: RecordMessage = None
    infer: Infer = "head"
    layout: RowsLayout = "rows"
    compression: EitherCompression = None
    damaged: Damaged = "refuse"
    on_error: OnErrorParameter = "fail"

    def decode_stream_options(
        self, schema: Schema | None, *, output_form: str, json_bytes: int | None
    ) -> RecordsDecodeOptions:
        # As for tensors: with a TFRecord answer the parameter speaks of the answer.
        of_input = output_form != "tfrecord"
        return replace(
            self.read_options(schema, _parsed_message(self.message)),
            as_bytes=self.message == "bytes",
            infer=self.infer,
            compression=self.compression if of_input else None,
            json_bytes=json_bytes,
        )

    def encode_options(self) -> RecordsEncodeOptions:
        return replace(
            super().encode_options(),
            layout=self.layout,
            compression=self.compression or "none",
            as_bytes=self.message == "bytes",
        )


def parse_labels(text: str | None) -> tuple[str, ...] | None:
    """The names in `labels`.

    Raises:
        MalformedInput: one is empty, or stands twice (`invalid_labels`).
    """
    if text is None:
        return None
    labels = tuple(text.split(","))
    if "" in labels or len(set(labels)) < len(labels):
        raise MalformedInput(
            f"labels={text[:60]!r} has an empty name, or one twice. Write names of folders, separated by "
            "commas.",
            code="invalid_labels",
            extra={"parameter": "labels"},
        )
    return labels


def _parsed_message(message: RecordMessageName | None) -> Message | None:
    """The message that records are parsed as; None also where they are not parsed."""
    return None if message == "bytes" else message


def _effective_schema(schema: Schema | None, message: Message | None) -> Schema | None:
    """The schema that the client declared, for the message that it asked for."""
    return None if schema is None else schema.with_message(message)


def refuse_body(body: ByteStream) -> None:
    """Refuse a body on a route that reads none: options in it would be lost in silence.

    Raises:
        MalformedInput: there is one (`unexpected_body`).
    """
    if body.read(1):
        raise MalformedInput(
            "This route takes no body. Options are query parameters, as in ?num_shards=8.",
            code="unexpected_body",
        )


class RepairQuery(NoQuery):
    """Parameters of `POST /v1/records/repair`."""

    to: Annotated[
        Literal["tfrecord", "json"] | None,
        Field(description="The good records, or the report alone; beats Accept."),
    ] = None
    compression: Annotated[Compression | None, Field(description="Of the body; detected by default.")] = None


RecordsParameters = Annotated[RecordsQuery, Query()]
DescribeRecordsParameters = Annotated[DescribeRecordsQuery, Query()]
RepairParameters = Annotated[RepairQuery, Query()]
ExamplesParameters = Annotated[ExamplesQuery, Query()]
