"""`/v1/examples`: one row <-> one bare `tf.train.Example`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fastapi import APIRouter
from starlette.datastructures import Headers
from starlette.responses import Response

from ...codecs.columns import Records
from ...domain.rounded import RoundedFeatures
from ...runtime.streams import ByteStream
from ...services.convert.examples import ROW_FORMS, RowForm, convert_row
from ..answers import VARY, dropped_headers, rounded_headers
from ..body.schemas import declared_schema, declared_transforms, names_dataset, transformed, unwrap
from ..execution.job import Answer, Job, Plan
from ..negotiation import Chosen, choose_input, choose_output
from ..openapi import conversion
from ..operation import NegotiatingHeaders, Operation
from ..query.applicability import refuse_inapplicable
from ..query.rows import ExamplesParameters, ExamplesQuery

_SAID: Final = ("Rounded-Features", "Dropped-Features")

router = APIRouter(
    prefix="/v1/examples", tags=["examples"], route_class=Operation, default_response_class=Response
)


@router.post(
    "/serialize",
    operation_id="serialize_example",
    summary="One row to one Example",
    openapi_extra=conversion(
        ROW_FORMS,
        ROW_FORMS,
        default="example",
        octets=True,
        headers=_SAID,
        json=("Row", "Row"),
    ),
)
def serialize(query: ExamplesParameters, headers: NegotiatingHeaders) -> Plan:
    """One JSON object, never an envelope, as `Example.SerializeToString(deterministic=True)`."""
    chosen = choose_output(ROW_FORMS, headers, to=query.to, default="example", octets_are="example")
    return _conversion(query, headers, None, chosen)


@router.post(
    "/parse",
    operation_id="parse_example",
    summary="One Example to one row",
    openapi_extra=conversion(ROW_FORMS, ROW_FORMS, default="json", headers=_SAID, json=("Row", "Row")),
)
def parse(query: ExamplesParameters, headers: NegotiatingHeaders) -> Plan:
    """One bare Example message as one JSON object."""
    chosen = choose_output(ROW_FORMS, headers, to=query.to, default="json")
    return _conversion(query, headers, "example", chosen)


def _conversion(
    query: ExamplesQuery, headers: Headers, default_input: RowForm | None, chosen: Chosen[RowForm]
) -> Plan:
    transforms = declared_transforms(query.transforms)

    def work(job: Job, body: ByteStream) -> Answer:
        def transform(row: Records) -> Records:
            return transformed(row, job, transforms, can_skip=False)

        schema = declared_schema(query.schema_, job.services)
        source, of_rows, schema = unwrap(body, headers, schema, job, query.from_)
        input_form = choose_input(ROW_FORMS, of_rows, from_=query.from_, default=default_input)
        refuse_inapplicable(query, read=input_form, written=chosen.form)
        decode = query.decode_options(schema)
        rounded = RoundedFeatures()
        encode = replace(query.encode_options(), rounded=rounded)
        row, dropped = convert_row(source, input_form, chosen.form, decode, encode, job, transform)
        told = {**rounded_headers(rounded.names), **dropped_headers(dropped)}
        return Answer(chosen.media_type, iter([row]), {**VARY, **told})

    complete_first = query.delivery == "checked"
    if names_dataset(query):
        return Plan(work, "store", complete_first)
    return Plan(work, "conversion", complete_first, on_loop=work)
