"""`/v1/examples`: one row <-> one bare `tf.train.Example`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from fastapi import APIRouter, Request
from starlette.datastructures import Headers
from starlette.responses import Response

from ...domain.rounded import RoundedFeatures
from ...runtime.budget import Budget
from ...runtime.streams import ByteStream
from ...services.convert.examples import ROW_FORMS, RowForm, convert_row
from ..answers import VARY, dropped_headers, rounded_headers
from ..body.schemas import declared_schema, names_dataset, unwrap
from ..fast_path import Conversion, quick_conversion
from ..negotiation import Chosen, choose_input, choose_output
from ..openapi import conversion
from ..query.applicability import refuse_inapplicable
from ..query.rows import ExamplesParameters, ExamplesQuery, refuse_repeated
from ..state import Services, ServicesDependency
from ..work import Answer

__all__ = ["QUICK_ROUTES", "router"]

_SAID: Final = ("Rounded-Features", "Dropped-Features")

router = APIRouter(prefix="/v1/examples", tags=["examples"], default_response_class=Response)


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
async def serialize(request: Request, query: ExamplesParameters, services: ServicesDependency) -> Response:
    """One JSON object, never an envelope, as `Example.SerializeToString(deterministic=True)`."""
    return await _convert(request, query, services, _prepare_serialize)


@router.post(
    "/parse",
    operation_id="parse_example",
    summary="One Example to one row",
    openapi_extra=conversion(ROW_FORMS, ROW_FORMS, default="json", headers=_SAID, json=("Row", "Row")),
)
async def parse(request: Request, query: ExamplesParameters, services: ServicesDependency) -> Response:
    """One bare Example message as one JSON object."""
    return await _convert(request, query, services, _prepare_parse)


async def _convert(
    request: Request,
    query: ExamplesQuery,
    services: Services,
    prepare: Callable[[ExamplesQuery, Headers, Services], Conversion],
) -> Response:
    refuse_repeated(request)
    work = prepare(query, request.headers, services)
    checked = query.delivery == "checked"
    return await services.exchanges.run(request, work, checked=checked, uses_store=names_dataset(query))


def _prepare_serialize(query: ExamplesQuery, headers: Headers, services: Services) -> Conversion:
    chosen = choose_output(ROW_FORMS, headers, to=query.to, default="example", octets_are="example")
    return _prepare(query, headers, services, None, chosen)


def _prepare_parse(query: ExamplesQuery, headers: Headers, services: Services) -> Conversion:
    chosen = choose_output(ROW_FORMS, headers, to=query.to, default="json")
    return _prepare(query, headers, services, "example", chosen)


def _prepare(
    query: ExamplesQuery,
    headers: Headers,
    services: Services,
    default_input: RowForm | None,
    chosen: Chosen[RowForm],
) -> Conversion:
    """What is done with the body of a request that says this."""

    def convert(body: ByteStream, budget: Budget, _: ExitStack) -> Answer:
        schema = declared_schema(query.schema_, services)
        source, of_rows, schema = unwrap(body, headers, schema, services.limits)
        input_form = choose_input(ROW_FORMS, of_rows, from_=query.from_, default=default_input)
        refuse_inapplicable(query, read=input_form, written=chosen.form)
        decode = query.decode_options(schema)
        rounded = RoundedFeatures()
        encode = replace(query.encode_options(), rounded=rounded)
        row, dropped = convert_row(source, input_form, chosen.form, decode, encode, budget, services.spool)
        told = {**rounded_headers(rounded.names), **dropped_headers(dropped)}
        return Answer(chosen.media_type, iter([row]), {**VARY, **told})

    return convert


QUICK_ROUTES: Final = {
    "/v1/examples/serialize": quick_conversion(ExamplesQuery, _prepare_serialize, is_ordinary=names_dataset),
    "/v1/examples/parse": quick_conversion(ExamplesQuery, _prepare_parse, is_ordinary=names_dataset),
}
