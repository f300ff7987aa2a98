"""`/v1/records`: any records format -> any records format."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final

from fastapi import APIRouter
from starlette.datastructures import Headers
from starlette.responses import Response

from ...codecs.compression.tfrecord import detect_compression
from ...codecs.forms import MEDIA_TYPES, MESSAGE_FORMS, RECORDS_CODECS, FormName
from ...codecs.options import RecordsDecodeOptions
from ...domain.compression import Compression
from ...domain.losses import Losses
from ...domain.schema import Schema
from ...runtime.streams import ByteStream, peek
from ...services.convert.describe import DESCRIPTIONS, DescriptionJson, describe_records
from ...services.convert.records import encode_records, open_records
from ...services.convert.repair import RepairJson, repair_records
from ...transforms.apply import SkippedRows
from ..answers import VARY, description_answer, json_answer, lost_headers, records_answer, records_options
from ..body.schemas import declared_schema, declared_transforms, names_dataset, transformed, unwrap
from ..execution.job import Answer, Job, Plan
from ..negotiation import Chosen, choose_input, choose_output, parse_json_bytes
from ..openapi import body_answer, body_of, conversion
from ..operation import NegotiatingHeaders, Operation
from ..query.applicability import refuse_inapplicable
from ..query.rows import (
    DescribeRecordsParameters,
    RecordsParameters,
    RecordsQuery,
    RepairParameters,
)

router = APIRouter(
    prefix="/v1/records", tags=["records"], route_class=Operation, default_response_class=Response
)

RECORDS_IN = {form: MEDIA_TYPES[form] for form in RECORDS_CODECS}
_TFRECORD: Final = {"tfrecord": MEDIA_TYPES["tfrecord"]}
_REPAIRED: Final = {form: MEDIA_TYPES[form] for form in ("tfrecord", "json")}
_LOST: Final = ("Lost-Bytes", "Lost-Ranges")
_SAID: Final = (*_LOST, "Skipped-Rows", "Rounded-Features", "Dropped-Features", "Text-Features")
RECORDS_OUT = {form: MEDIA_TYPES[form] for form, codec in RECORDS_CODECS.items() if codec.kinds}


@router.post(
    "/serialize",
    operation_id="serialize_records",
    summary="Any records format to TFRecord",
    openapi_extra=conversion(
        RECORDS_IN, RECORDS_OUT, default="tfrecord", octets=True, headers=_SAID, json=("RowsBody", "Rows")
    ),
)
def serialize(query: RecordsParameters, headers: NegotiatingHeaders) -> Plan:
    """A TFRecord file of `tf.train.Example`s, byte for byte what TensorFlow writes."""
    chosen = choose_output(RECORDS_OUT, headers, to=query.to, default="tfrecord", octets_are="tfrecord")
    return _conversion(query, headers, None, chosen)


@router.post(
    "/parse",
    operation_id="parse_records",
    summary="TFRecord to any records format",
    openapi_extra=conversion(
        RECORDS_IN, RECORDS_OUT, default="ndjson", headers=_SAID, json=("RowsBody", "Rows")
    ),
)
def parse(query: RecordsParameters, headers: NegotiatingHeaders) -> Plan:
    """A TFRecord file (or any other records format) as NDJSON (or any other records format)."""
    chosen = choose_output(RECORDS_OUT, headers, to=query.to, default="ndjson")
    return _conversion(query, headers, "tfrecord", chosen)


@router.post(
    "/describe",
    operation_id="describe_records",
    summary="Schema, counts and statistics of any records format",
    openapi_extra=conversion(
        RECORDS_IN,
        DESCRIPTIONS,
        default="json",
        headers=("Dropped-Features",),
        json=("RowsBody", DescriptionJson),
    ),
)
def describe(query: DescribeRecordsParameters, headers: NegotiatingHeaders) -> Plan:
    """Schema, counts, and statistics of each feature; or the schema alone, in a format that others read."""
    chosen = choose_output(DESCRIPTIONS, headers, to=query.to, default="json")

    def work(job: Job, body: ByteStream) -> Answer:
        schema = declared_schema(query.schema_, job.services)
        source, of_rows, schema = unwrap(body, headers, schema, job, query.from_)
        input_form = choose_input(RECORDS_IN, of_rows, from_=query.from_, default=None)
        refuse_inapplicable(query, read=input_form)
        decode = query.decode_options(schema, json_bytes=parse_json_bytes(of_rows))
        decode = query.for_body(decode, of_rows, query.from_)
        compression: Compression = "none"
        if input_form == "tfrecord":
            head, source = peek(source, 2)
            compression = decode.compression or detect_compression(head) or "none"
        records = open_records(source, input_form, decode, job)
        records = transformed(records, job, {}, can_skip=False)
        is_inferred = decode.schema is None and decode.infer == "head" and not decode.as_bytes
        find_lengths = is_inferred and input_form in MESSAGE_FORMS
        described = describe_records(records, chosen.form, find_lengths=find_lengths, compression=compression)
        return description_answer(described, chosen.media_type, dropped=records.dropped)

    return Plan(work, "store" if names_dataset(query) else "conversion")


@router.post(
    "/repair",
    operation_id="repair_records",
    summary="The good records of a damaged TFRecord file",
    openapi_extra={
        **body_of(_TFRECORD, named=False),
        **body_answer(_REPAIRED, default="tfrecord", octets=True, headers=_LOST, json=RepairJson),
    },
)
def repair(query: RepairParameters, headers: NegotiatingHeaders) -> Plan:
    """A TFRecord file of every record whose checksums hold; or what is lost between them, as JSON.

    The headers say how many records there are, how many bytes were lost, and where. Of a compressed body
    there is no more than what comes before the damage.
    """
    chosen = choose_output(_REPAIRED, headers, to=query.to, default="tfrecord", octets_are="tfrecord")

    def work(job: Job, body: ByteStream) -> Answer:
        choose_input(_TFRECORD, headers, from_=None, default="tfrecord")
        repair = repair_records(body, query.compression, job.budget)
        if chosen.form == "json":
            deque(repair.chunks, maxlen=0)
            return json_answer(repair.to_json(), headers=VARY)
        return Answer(
            chosen.media_type,
            repair.chunks,
            VARY,
            late_headers=lambda: {
                "Record-Count": str(repair.num_records),
                **lost_headers(repair.losses),
            },
        )

    return Plan(work, "conversion", complete_first=True)


def _conversion(
    query: RecordsQuery, headers: Headers, default_input: FormName | None, chosen: Chosen[FormName]
) -> Plan:
    encode = records_options(query.encode_options(), chosen)
    transforms = declared_transforms(query.transforms)
    #: How a body is read that is the rows alone. The schema may take long to parse: made for the first body.
    kept: tuple[FormName, RecordsDecodeOptions] | None = None

    def reading(of_rows: Headers, schema: Schema | None) -> tuple[FormName, RecordsDecodeOptions]:
        input_form = choose_input(RECORDS_IN, of_rows, from_=query.from_, default=default_input)
        refuse_inapplicable(query, read=input_form, written=chosen.form)
        decode = query.decode_stream_options(
            schema, output_form=chosen.form, json_bytes=parse_json_bytes(of_rows)
        )
        return input_form, query.for_body(decode, of_rows, query.from_)

    def work(job: Job, body: ByteStream) -> Answer:
        nonlocal kept
        source = body
        if kept is None:
            schema = declared_schema(query.schema_, job.services)
            source, of_rows, schema = unwrap(body, headers, schema, job, query.from_)
            input_form, decode = reading(of_rows, schema)
            if of_rows is headers and not names_dataset(query):
                kept = input_form, decode
        else:
            input_form, decode = kept
        losses = None
        if query.damaged == "skip":
            losses = Losses()
            decode = replace(decode, losses=losses)
        num_bytes = job.body_bytes if source is body else None
        records = open_records(source, input_form, decode, job, num_bytes)
        skipped = SkippedRows() if query.on_error == "skip" else None
        records = transformed(records, job, transforms, skipped)
        converted = encode_records(records, chosen.form, encode, job.budget, skipped)
        return records_answer(converted, chosen.media_type, losses=losses, skipped=skipped)

    # What is left out stands in the headers, and is known at the end.
    complete_first = query.delivery == "checked" or query.damaged == "skip" or query.on_error == "skip"
    if names_dataset(query):
        return Plan(work, "store", complete_first)
    return Plan(work, "conversion", complete_first, on_loop=work)
