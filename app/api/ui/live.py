"""What goes on right now: appends a second, publications and imports; each change comes as an event.

The event has the same HTML as the page, so that a browser has nothing to draw by itself.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.types import Scope

from ...domain.wording import count_text
from ...runtime.streams import ByteStream
from ...services.activity import MOST
from ...services.datasets.recent_appends import KEPT_S
from ..auth.principal import visible_to
from ..execution.events import Sight, asks_for_events, follow
from ..execution.job import Answer, Job, Plan
from ..operation import Handler, NegotiatingHeaders, Operation
from ..query.rows import NoQuery
from ..state import Services
from .charts import bars
from .rendering import page, render

router = APIRouter(include_in_schema=False, route_class=Operation)

#: Seconds over which a rate is told.
_RATE_S: Final = 10


@router.get("/ui/live")
@router.head("/ui/live")
def live_page(query: Annotated[NoQuery, Query()], headers: NegotiatingHeaders) -> Plan | Handler:
    """What goes on, as it is now; or as events, as long as the page is shown."""
    del query

    def look(request: Request, services: Services) -> Sight:
        values = _see(request.scope, services)
        html = render("live_now.html", request.scope, values).decode()
        return Sight({"said": values["said"], "html": html})

    if asks_for_events(headers):
        return follow(look)

    def work(job: Job, _: ByteStream) -> Answer:
        return page("live.html", job, {"section": "live", **_see(job.request.scope, job.services)})

    return Plan(work, "store")


def _see(scope: Scope, services: Services) -> dict[str, Any]:
    """What the templates show: that of the datasets which the token may see."""
    recent = services.datasets.recent_appends
    seen = services.activity.look()
    publications = [each for each in seen.publications if visible_to(scope, [each.dataset])]
    num_publications = count_text(sum(not each.end for each in publications), "publication")
    num_imports = count_text(len(visible_to(scope, [dataset for dataset, _ in seen.running])), "import")
    seconds = recent.by_second(visible_to(scope, recent.datasets))
    titles = [
        f"{count_text(each.num_appends, 'append')}, {count_text(each.num_records, 'row')}" for each in seconds
    ]
    lately = seconds[-_RATE_S:]
    return {
        "publications": publications,
        "imports": [each.to_json() for each in seen.imports if visible_to(scope, [each.dataset])],
        "said": f"{num_publications} and {num_imports} under way.",
        "facts": [
            ("Appends a second", f"{sum(each.num_appends for each in lately) / _RATE_S:,.1f}"),
            ("Rows a second", f"{sum(each.num_records for each in lately) / _RATE_S:,.1f}"),
            ("Appends in the last minute", f"{sum(each.num_appends for each in seconds):,}"),
        ],
        "bars": [bar for bar in bars([each.num_appends for each in seconds], titles) if bar.height],
        "kept_s": KEPT_S,
        "most": MOST,
    }
