"""Probes for Kubernetes, and the same under the names of the Open Inference Protocol."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from ... import __version__
from ...services.readiness import Check
from ..auth.principal import ANONYMOUS, principal_of
from ..parameters import NoParameters
from ..problems import problem_response
from ..state import ServicesDependency

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get("/livez", operation_id="live", summary="Whether the process answers")
@router.head("/livez", include_in_schema=False)
@router.get("/v2/health/live", operation_id="oip_live", summary="Open Inference Protocol: liveness")
@router.head("/v2/health/live", include_in_schema=False)
async def live(_: NoParameters) -> dict[str, Any]:
    """Whether the event loop runs. Never looks at the store: a restart would not mend that."""
    return {"live": True}


@router.get("/readyz", operation_id="ready", summary="Whether requests can be served now")
@router.head("/readyz", include_in_schema=False)
@router.get("/v2/health/ready", operation_id="oip_ready", summary="Open Inference Protocol: readiness")
@router.head("/v2/health/ready", include_in_schema=False)
async def ready(request: Request, services: ServicesDependency, _: NoParameters) -> Response:
    """Whether kernels are warm, and the object store and the spool could be used when last seen.

    Where there is authentication, only a request with a token is told the details.
    """
    checks = services.readiness.checks()
    detailed = principal_of(request.scope) is not ANONYMOUS
    report = {name: _report(check, detailed=detailed) for name, check in checks.items()}
    if all(check.ok for check in checks.values()):
        return JSONResponse({"ready": True, "checks": report})
    missing = "; ".join(
        f"{name}: {check.detail.removesuffix('.')}" if detailed else name
        for name, check in checks.items()
        if not check.ok
    )
    return problem_response(
        503, "not_ready", f"Not ready: {missing}.", headers={"Retry-After": "1"}, members={"checks": report}
    )


def _report(check: Check, *, detailed: bool) -> dict[str, Any]:
    if not detailed:
        return {"ok": check.ok}
    return {"ok": check.ok, "detail": check.detail, **({} if check.code is None else {"code": check.code})}


@router.get("/startupz", operation_id="started", summary="Whether start-up is over")
@router.head("/startupz", include_in_schema=False)
async def started(services: ServicesDependency, _: NoParameters) -> Response:
    """Whether the kernels are compiled and the object store has passed its probe."""
    if services.readiness.started:
        return JSONResponse({"started": True})
    return problem_response(
        503, "not_started", "Kernels or storage are still starting.", headers={"Retry-After": "1"}
    )


@router.get("/v2", operation_id="oip_server", summary="Open Inference Protocol: server metadata")
@router.head("/v2", include_in_schema=False)
async def server(_: NoParameters) -> dict[str, Any]:
    """Name and version of the server."""
    return {"name": "shardsmith", "version": __version__, "extensions": []}
