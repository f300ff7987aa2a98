"""What the routes share: wired once by `main`, found on the application's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from ..domain.limits import Limits
from ..runtime.spool import Spool
from ..services.datasets.datasets import Datasets
from ..services.readiness import Readiness


@dataclass(frozen=True, slots=True)
class Services:
    """The service layer behind the routes."""

    limits: Limits
    spool: Spool
    datasets: Datasets
    readiness: Readiness


async def _services(request: Request) -> Services:
    # A coroutine: FastAPI would send a plain function through a thread.
    services = request.app.state.services
    assert isinstance(services, Services)  # noqa: S101  # wired by main; this is for the type
    return services


ServicesDependency = Annotated[Services, Depends(_services)]
