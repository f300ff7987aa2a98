"""Probes for Kubernetes, and the same under the names of the Open Inference Protocol."""

from __future__ import annotations

from typing import Final, NotRequired

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from ... import __version__
from ...services.readiness import Check
from ..auth.principal import ANONYMOUS, principal_of
from ..openapi import json_response
from ..operation import Handler, Operation
from ..problems import problem_response
from ..state import Services

router = APIRouter(tags=["health"], route_class=Operation)


class LiveJson(TypedDict):
    """The process answers."""

    live: bool


class CheckJson(TypedDict):
    """One condition of readiness: what is missing, and its name where it has one.

    Without a token, where tokens are needed, there is `ok` alone.
    """

    ok: bool
    detail: NotRequired[str]
    code: NotRequired[str]


class ReadyJson(TypedDict):
    """Requests can be served now."""

    ready: bool
    checks: dict[str, CheckJson]


_LIVE: Final = json_response(200, "Alive.", LiveJson)
_READY: Final = json_response(200, "Ready.", ReadyJson)


class StartedJson(TypedDict):
    """Start-up is over."""

    started: bool


class ServerJson(TypedDict):
    """Server metadata of the Open Inference Protocol."""

    name: str
    version: str
    extensions: list[str]


@router.get("/livez", operation_id="live", summary="Whether the process answers", openapi_extra=_LIVE)
@router.head("/livez", include_in_schema=False)
@router.get(
    "/v2/health/live",
    operation_id="oip_live",
    summary="Open Inference Protocol: liveness",
    openapi_extra=_LIVE,
)
@router.head("/v2/health/live", include_in_schema=False)
def live() -> Handler:
    """Whether the event loop runs. Never looks at the store: a restart would not mend that."""
    return _live


async def _live(_: Request) -> Response:
    live: LiveJson = {"live": True}
    return JSONResponse(live)


@router.get(
    "/readyz", operation_id="ready", summary="Whether requests can be served now", openapi_extra=_READY
)
@router.head("/readyz", include_in_schema=False)
@router.get(
    "/v2/health/ready",
    operation_id="oip_ready",
    summary="Open Inference Protocol: readiness",
    openapi_extra=_READY,
)
@router.head("/v2/health/ready", include_in_schema=False)
def ready() -> Handler:
    """Whether kernels are warm, and the object store and the spool could be used when last seen.

    Where there is authentication, only a request with a token is told the details.
    """
    return _ready


async def _ready(request: Request) -> Response:
    services: Services = request.app.state.services
    checks = services.readiness.checks()
    detailed = principal_of(request.scope) is not ANONYMOUS
    report = {name: _report(check, detailed=detailed) for name, check in checks.items()}
    if all(check.ok for check in checks.values()):
        answer: ReadyJson = {"ready": True, "checks": report}
        return JSONResponse(answer)
    missing = "; ".join(
        f"{name}: {check.detail.removesuffix('.')}" if detailed else name
        for name, check in checks.items()
        if not check.ok
    )
    return problem_response(
        503, "not_ready", f"Not ready: {missing}.", headers={"Retry-After": "1"}, members={"checks": report}
    )


def _report(check: Check, *, detailed: bool) -> CheckJson:
    found: CheckJson = {"ok": check.ok}
    if detailed:
        found["detail"] = check.detail
        if check.code is not None:
            found["code"] = check.code
    return found


@router.get(
    "/startupz",
    operation_id="started",
    summary="Whether start-up is over",
    openapi_extra=json_response(200, "Started.", StartedJson),
)
@router.head("/startupz", include_in_schema=False)
def started() -> Handler:
    """Whether the kernels are compiled and the object store has passed its probe."""
    return _started


async def _started(request: Request) -> Response:
    services: Services = request.app.state.services
    if services.readiness.started:
        answer: StartedJson = {"started": True}
        return JSONResponse(answer)
    return problem_response(
        503, "not_started", "Kernels or storage are still starting.", headers={"Retry-After": "1"}
    )


@router.get(
    "/v2",
    operation_id="oip_server",
    summary="Open Inference Protocol: server metadata",
    openapi_extra=json_response(200, "Name and version.", ServerJson),
)
@router.head("/v2", include_in_schema=False)
def server() -> Handler:
    """Name and version of the server."""
    return _server


async def _server(_: Request) -> Response:
    about: ServerJson = {"name": "shardsmith", "version": __version__, "extensions": ["binary_tensor_data"]}
    return JSONResponse(about)
