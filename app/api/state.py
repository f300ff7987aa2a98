"""What the routes share: wired once by `main`, found on the application's state."""

from __future__ import annotations

from dataclasses import dataclass

from ..domain.limits import Limits
from ..runtime.images import ImageCodecs
from ..runtime.spool import Spool
from ..services.activity import Activity
from ..services.datasets.datasets import Datasets
from ..services.datasets.imports.imports import Imports
from ..services.datasets.imports.runs import ImportRuns
from ..services.readiness import Readiness


@dataclass(frozen=True, slots=True)
class Services:
    """The service layer behind the routes."""

    limits: Limits
    spool: Spool
    datasets: Datasets
    imports: Imports
    import_runs: ImportRuns
    activity: Activity
    images: ImageCodecs
    readiness: Readiness
