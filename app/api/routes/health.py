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
from ..problems import problem_response
from ..query.rows import NoParameters
from ..state import ServicesDependency

__all__ = ["router"]

router = APIRouter(tags=["health"])


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


_READY: Final = json_response(200, "Ready.", ReadyJson)


class StartedJson(TypedDict):
    """Start-up is over."""

    started: bool


class ServerJson(TypedDict):
    """Server metadata of the Open Inference Protocol."""

    name: str
    version: str
    extensions: list[str]


@router.get("/livez", operation_id="live", summary="Whether the process answers")
@router.head("/livez", include_in_schema=False)
@router.get("/v2/health/live", operation_id="oip_live", summary="Open Inference Protocol: liveness")
@router.head("/v2/health/live", include_in_schema=False)
async def live(_: NoParameters) -> LiveJson:
    """Whether the event loop runs. Never looks at the store: a restart would not mend that."""
    return {"live": True}


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
async def ready(request: Request, services: ServicesDependency, _: NoParameters) -> Response:
    """Whether kernels are warm, and the object store and the spool could be used when last seen.

    Where there is authentication, only a request with a token is told the details.
    """
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
async def started(services: ServicesDependency, _: NoParameters) -> Response:
    """Whether the kernels are compiled and the object store has passed its probe."""
    if services.readiness.started:
        answer: StartedJson = {"started": True}
        return JSONResponse(answer)
    return problem_response(
        503, "not_started", "Kernels or storage are still starting.", headers={"Retry-After": "1"}
    )


@router.get("/v2", operation_id="oip_server", summary="Open Inference Protocol: server metadata")
@router.head("/v2", include_in_schema=False)
async def server(_: NoParameters) -> ServerJson:
    """Name and version of the server."""
    return {"name": "shardsmith", "version": __version__, "extensions": []}
