"""`/v1/records`: any records form -> any records form."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...codecs.registry import MEDIA_TYPES, RECORDS_CODECS, FormName
from ...domain.limits import Budget
from ...domain.streams import ByteStream
from ...services.describe import DESCRIPTIONS, describe_records
from ...services.records import encode_records, open_records
from ..answers import arrow_format, description_answer, records_answer
from ..applicability import refuse_inapplicable
from ..exchange import Answer
from ..negotiation import Chosen, choose_input, choose_output, parse_json_bytes
from ..openapi import body_answer, body_of, conversion
from ..parameters import (
    DescribeRecordsParameters,
    RecordsParameters,
    RecordsQuery,
    refuse_repeated,
)
from ..schemas import declared_schema, unwrap
from ..state import Services, ServicesDependency

__all__ = ["router"]

router = APIRouter(prefix="/v1/records", tags=["records"])

RECORDS_IN = {form: MEDIA_TYPES[form] for form, codec in RECORDS_CODECS.items() if codec.decode}
RECORDS_OUT = {form: MEDIA_TYPES[form] for form, codec in RECORDS_CODECS.items() if codec.encode}


@router.post(
    "/serialize",
    operation_id="serialize_records",
    summary="Any records form to TFRecord",
    openapi_extra=conversion(RECORDS_IN, RECORDS_OUT, default="tfrecord"),
)
async def serialize(request: Request, query: RecordsParameters, services: ServicesDependency) -> Response:
    """A TFRecord file of `tf.train.Example`s, byte for byte what TensorFlow writes."""
    chosen = choose_output(
        RECORDS_OUT, request.headers, to=query.to, default="tfrecord", octets_are="tfrecord"
    )
    return await _convert(request, query, services, default_input=None, chosen=chosen)


@router.post(
    "/parse",
    operation_id="parse_records",
    summary="TFRecord to any records form",
    openapi_extra=conversion(RECORDS_IN, RECORDS_OUT, default="ndjson"),
)
async def parse(request: Request, query: RecordsParameters, services: ServicesDependency) -> Response:
    """A TFRecord file (or any other records form) as NDJSON (or any other records form)."""
    chosen = choose_output(RECORDS_OUT, request.headers, to=query.to, default="ndjson")
    return await _convert(request, query, services, default_input="tfrecord", chosen=chosen)


@router.post(
    "/describe",
    operation_id="describe_records",
    summary="Schema, counts and statistics of any records form",
    openapi_extra={**body_of(RECORDS_IN), **body_answer(DESCRIPTIONS, default="json")},
)
async def describe(
    request: Request, query: DescribeRecordsParameters, services: ServicesDependency
) -> Response:
    """Schema, counts, and statistics of each feature; or the schema alone, in a form that others read."""
    refuse_repeated(request)
    chosen = choose_output(DESCRIPTIONS, request.headers, to=query.to, default="json")

    def work(body: ByteStream, budget: Budget, resources: ExitStack) -> Answer:
        schema = declared_schema(query.schema_, services)
        source, headers, schema = unwrap(body, request.headers, schema, services.limits)
        input_form = choose_input(RECORDS_IN, headers, from_=query.from_, default=None)
        refuse_inapplicable(query, read=input_form)
        decode = query.decode_options(schema, json_bytes=parse_json_bytes(headers))
        records = open_records(source, input_form, decode, budget, services.spool, resources)
        return description_answer(describe_records(records, chosen.form), chosen.media_type)

    return await services.exchanges.run(request, work)


async def _convert(
    request: Request,
    query: RecordsQuery,
    services: Services,
    *,
    default_input: FormName | None,
    chosen: Chosen[FormName],
) -> Response:
    refuse_repeated(request)

    def work(body: ByteStream, budget: Budget, resources: ExitStack) -> Answer:
        schema = declared_schema(query.schema_, services)
        source, headers, schema = unwrap(body, request.headers, schema, services.limits)
        input_form = choose_input(RECORDS_IN, headers, from_=query.from_, default=default_input)
        refuse_inapplicable(query, read=input_form, written=chosen.form)
        decode = query.decode_stream_options(
            schema, output_form=chosen.form, json_bytes=parse_json_bytes(headers)
        )
        records = open_records(source, input_form, decode, budget, services.spool, resources)
        converted = encode_records(
            records, chosen.form, replace(query.encode_options(), arrow=arrow_format(chosen)), budget
        )
        return records_answer(converted, chosen.media_type)

    return await services.exchanges.run(request, work, checked=query.delivery == "checked")
