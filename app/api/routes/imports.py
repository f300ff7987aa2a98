"""`/v1/datasets/{dataset}/imports`: rows that lie somewhere else become a version."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from ...codecs.forms import MEDIA_TYPES
from ...codecs.json.text import parse_json
from ...domain.names import check_idempotency_key
from ...runtime.streams import ByteStream
from ...services.datasets.imports.status import ImportJson
from ..answers import VARY, json_answer
from ..body.documents import read_document
from ..execution.events import Sight, asks_for_events, follow
from ..execution.job import Answer, Job, Plan
from ..negotiation import choose_input
from ..openapi import json_body, json_or_events, json_response
from ..operation import Handler, NegotiatingHeaders, Operation
from ..query.imports import parse_import
from ..state import Services

router = APIRouter(
    prefix="/v1/datasets/{dataset}/imports",
    tags=["datasets"],
    route_class=Operation,
    default_response_class=Response,
)

_BODY: Final = {"json": MEDIA_TYPES["json"]}

ImportKey = Annotated[
    str | None,
    Header(description="1-128 of A-Z a-z 0-9 . _ -; the same key and body find the same import."),
]


@router.post(
    "",
    operation_id="begin_import",
    openapi_extra={
        **json_body(
            'What to import: {"source": "s3://bucket/prefix", "publish": {"shuffle": true}}. All but '
            "`source` is optional.",
            "ImportBody",
            required=True,
        ),
        **json_response(
            201,
            "Planned, and begun.",
            ImportJson,
            also={
                200: (
                    "It was planned already, with the same content; this replica goes on with it.",
                    ImportJson,
                )
            },
        ),
    },
)
def begin_import(dataset: str, headers: NegotiatingHeaders, idempotency_key: ImportKey = None) -> Plan:
    """Import rows from a source that the operator allows, and publish them at the end.

    The answer comes once the source is listed and the plan is stored. `GET` of its `Location` tells how far
    the import is. If the replica dies, another one goes on.
    """
    key = None if idempotency_key is None else check_idempotency_key(idempotency_key)

    def work(job: Job, body: ByteStream) -> Answer:
        choose_input(_BODY, headers, from_=None, default="json")
        text = read_document(body, job.budget, "an import")
        request = parse_import(parse_json(text, job.budget).value, job.budget.limits)
        services = job.services
        services.import_runs.require_room(job.caller)
        import_id, is_new = services.imports.begin(dataset, request, key)
        status = services.imports.follow(dataset, import_id)
        if not status.has_ended:
            services.import_runs.start(dataset, import_id, job.caller)
        location = {"Location": f"/v1/datasets/{dataset}/imports/{import_id}"}
        return json_answer(status.to_json(), status=201 if is_new else 200, headers=location)

    return Plan(work, "store")


@router.get(
    "/{import_id}",
    operation_id="get_import",
    openapi_extra=json_or_events("How far it is.", ImportJson),
)
@router.head("/{import_id}", include_in_schema=False)
def get_import(dataset: str, import_id: str, headers: NegotiatingHeaders) -> Plan | Handler:
    """How far an import is, read off the store: any replica can tell.

    As events, each change is sent as it comes, until the import has ended.
    """

    def look(_: Request, services: Services) -> Sight:
        status = services.imports.follow(dataset, import_id)
        return Sight(status.to_json(), is_last=status.has_ended)

    if asks_for_events(headers):
        return follow(look)

    def work(job: Job, _: ByteStream) -> Answer:
        return json_answer(job.services.imports.follow(dataset, import_id).to_json(), headers=VARY)

    return Plan(work, "store")


@router.delete(
    "/{import_id}",
    operation_id="cancel_import",
    openapi_extra=json_response(200, "The import as it ended.", ImportJson),
)
def cancel_import(dataset: str, import_id: str) -> Plan:
    """Cancel an import, unless it has ended. The rows that it has stored wait for the next publication.

    Once their own publication has begun, it is too late (409 `import_publishing`).
    """

    def work(job: Job, _: ByteStream) -> Answer:
        return json_answer(job.services.imports.cancel(dataset, import_id).to_json())

    return Plan(work, "store")
