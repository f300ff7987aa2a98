"""`/v1/examples`: one row <-> one bare `tf.train.Example`."""

from __future__ import annotations

from contextlib import ExitStack

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...domain.limits import Budget
from ...domain.streams import ByteStream
from ...services.examples import ROW_FORMS, RowForm, convert_row
from ..answers import VARY
from ..applicability import refuse_inapplicable
from ..exchange import Answer
from ..negotiation import Chosen, choose_input, choose_output
from ..openapi import conversion
from ..parameters import ExamplesParameters, ExamplesQuery, refuse_repeated
from ..schemas import declared_schema, unwrap
from ..state import Services, ServicesDependency

__all__ = ["router"]

router = APIRouter(prefix="/v1/examples", tags=["examples"])


@router.post(
    "/serialize",
    operation_id="serialize_example",
    summary="One row to one Example",
    openapi_extra=conversion(ROW_FORMS, ROW_FORMS, default="example"),
)
async def serialize(request: Request, query: ExamplesParameters, services: ServicesDependency) -> Response:
    """One JSON object, never an envelope, as `Example.SerializeToString(deterministic=True)`."""
    chosen = choose_output(ROW_FORMS, request.headers, to=query.to, default="example", octets_are="example")
    return await _convert(request, query, services, default_input=None, chosen=chosen)


@router.post(
    "/parse",
    operation_id="parse_example",
    summary="One Example to one row",
    openapi_extra=conversion(ROW_FORMS, ROW_FORMS, default="json"),
)
async def parse(request: Request, query: ExamplesParameters, services: ServicesDependency) -> Response:
    """One bare Example message as one JSON object."""
    chosen = choose_output(ROW_FORMS, request.headers, to=query.to, default="json")
    return await _convert(request, query, services, default_input="example", chosen=chosen)


async def _convert(
    request: Request,
    query: ExamplesQuery,
    services: Services,
    *,
    default_input: RowForm | None,
    chosen: Chosen[RowForm],
) -> Response:
    refuse_repeated(request)

    def work(body: ByteStream, budget: Budget, _: ExitStack) -> Answer:
        schema = declared_schema(query.schema_, services)
        source, headers, schema = unwrap(body, request.headers, schema, services.limits)
        input_form = choose_input(ROW_FORMS, headers, from_=query.from_, default=default_input)
        refuse_inapplicable(query, read=input_form, written=chosen.form)
        decode = query.decode_options(schema)
        row = convert_row(source, input_form, chosen.form, decode, query.encode_options(), budget)
        return Answer(chosen.media_type, iter([row]), VARY)

    return await services.exchanges.run(request, work, checked=query.delivery == "checked")
