"""Probes for Kubernetes, and the same under the names of the Open Inference Protocol."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from ... import __version__
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
async def ready(services: ServicesDependency, _: NoParameters) -> Response:
    """Whether kernels are warm and the object store was reachable when last seen."""
    checks = services.readiness.checks()
    report = {
        name: {"ok": check.ok, "detail": check.detail, **({} if check.code is None else {"code": check.code})}
        for name, check in checks.items()
    }
    if all(check.ok for check in checks.values()):
        return JSONResponse({"ready": True, "checks": report})
    missing = "; ".join(
        f"{name}: {check.detail.removesuffix('.')}" for name, check in checks.items() if not check.ok
    )
    return problem_response(
        503, "not_ready", f"Not ready: {missing}.", headers={"Retry-After": "1"}, members={"checks": report}
    )


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
