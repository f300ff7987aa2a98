"""`/v2/models`: conversions as models of the Open Inference Protocol, for Triton's and KServe's clients."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from ...codecs.forms import MEDIA_TYPES
from ...runtime.streams import ByteStream
from ...services.convert.inference import MODELS, VERSION, find_model, infer
from ..answers import VARY, json_length_header
from ..execution.job import Answer, Job, Plan
from ..negotiation import parse_json_bytes
from ..openapi import body_answer, body_of, json_response
from ..operation import Handler, NegotiatingHeaders, Operation
from ..problems import problem_response
from ..state import Services

router = APIRouter(
    prefix="/v2/models", tags=["inference"], route_class=Operation, default_response_class=Response
)

#: Clients may name the version, which is the only one.
_OF_VERSION: Final = f"/{{model}}/versions/{VERSION}"
#: A request and a response are JSON, or JSON and then bytes.
_FORMS: Final = {"json": MEDIA_TYPES["json"], "oip": MEDIA_TYPES["oip"]}


class ModelListJson(TypedDict):
    """The names of all models."""

    models: list[str]


class ModelTensorJson(TypedDict):
    """An input or an output; `ANY` is every datatype, and a request may name its inputs as it likes."""

    name: str
    datatype: str
    shape: list[int]


class ModelJson(TypedDict):
    """Model metadata of the Open Inference Protocol."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[ModelTensorJson]
    outputs: list[ModelTensorJson]


class ModelReadyJson(TypedDict):
    """The model answers now."""

    name: str
    ready: bool


@router.get("", operation_id="list_models", openapi_extra=json_response(200, "Every model.", ModelListJson))
@router.head("", include_in_schema=False)
def list_models() -> Handler:
    """The conversions that can be had as models."""

    async def answer(_: Request) -> Response:
        models: ModelListJson = {"models": list(MODELS)}
        return JSONResponse(models)

    return answer


@router.get(
    "/{model}", operation_id="get_model", openapi_extra=json_response(200, "Its metadata.", ModelJson)
)
@router.head("/{model}", include_in_schema=False)
@router.get(_OF_VERSION, include_in_schema=False)
@router.head(_OF_VERSION, include_in_schema=False)
def get_model(model: str) -> Handler:
    """What a model takes and gives: an output for each input, under its name."""
    found = find_model(model)

    async def answer(_: Request) -> Response:
        metadata: ModelJson = {
            "name": found.name,
            "versions": [VERSION],
            "platform": "shardsmith",
            "inputs": [_tensor(found.datatype_in)],
            "outputs": [_tensor(found.datatype_out)],
        }
        return JSONResponse(metadata)

    return answer


def _tensor(datatype: str | None) -> ModelTensorJson:
    """Messages are one element each; of a tensor nothing is known."""
    return {"name": "tensor", "datatype": datatype or "ANY", "shape": [-1 if datatype is None else 1]}


@router.get(
    "/{model}/ready", operation_id="model_ready", openapi_extra=json_response(200, "Ready.", ModelReadyJson)
)
@router.head("/{model}/ready", include_in_schema=False)
@router.get(f"{_OF_VERSION}/ready", include_in_schema=False)
@router.head(f"{_OF_VERSION}/ready", include_in_schema=False)
def model_ready(model: str) -> Handler:
    """Whether a model answers now, which it does where the service does."""
    name = find_model(model).name

    async def answer(request: Request) -> Response:
        services: Services = request.app.state.services
        if all(check.ok for check in services.readiness.checks().values()):
            ready: ModelReadyJson = {"name": name, "ready": True}
            return JSONResponse(ready)
        detail = "The service is not ready; GET /readyz says why."
        return problem_response(503, "not_ready", detail, headers={"Retry-After": "1"})

    return answer


@router.post(
    "/{model}/infer",
    operation_id="infer",
    openapi_extra={
        **body_answer(_FORMS, default="json", json="InferenceAnswer", named=False),
        **body_of(_FORMS, json="InferenceBody", named=False),
    },
)
@router.post(f"{_OF_VERSION}/infer", include_in_schema=False)
def infer_with(model: str, headers: NegotiatingHeaders) -> Plan:
    """Convert each input into the output of its name.

    The header `Inference-Header-Content-Length` says how long the JSON is, if bytes follow it.
    """
    found = find_model(model)
    json_bytes = parse_json_bytes(headers)

    def work(job: Job, body: ByteStream) -> Answer:
        inferred = infer(found, body, json_bytes, job)
        is_json = inferred.json_bytes is None
        media_type = "application/json" if is_json else "application/octet-stream"
        return Answer(media_type, inferred.chunks, {**VARY, **json_length_header(inferred.json_bytes)})

    return Plan(work, "conversion", on_loop=work)
