"""Pages for people: `/` says what this service is, and `/docs` is Swagger UI, which needs no internet.

Scripts and styles come from this service alone, and the pages' Content-Security-Policy allows no others.
"""

from __future__ import annotations

import html
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response

from ... import __version__
from ...errors import NotFound
from ..base_url import base_url
from ..negotiation import choose_output
from ..operation import Handler, Operation

router = APIRouter(include_in_schema=False, route_class=Operation)

_OURS: Final = Path(__file__).parent.parent / "pages"
#: Taken for its copy of Swagger UI alone, and so found without being imported.
_SWAGGER_UI: Final = Path(str(distribution("fastapi-offline").locate_file("fastapi_offline/static")))
_FILES: Final = {
    "favicon.png": (_SWAGGER_UI, "image/png"),
    "page.css": (_OURS, "text/css"),
    "start.js": (_OURS, "text/javascript"),
    "swagger-ui-bundle.js": (_SWAGGER_UI, "text/javascript"),
    "swagger-ui.css": (_SWAGGER_UI, "text/css"),
}
_POLICY: Final = (
    "default-src 'none'; base-uri 'none'; connect-src 'self'; form-action 'none'; frame-ancestors 'none'; "
    # Swagger UI draws its icons from `data:` URLs.
    "img-src 'self' data:; script-src 'self'; style-src 'self'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_ANSWERS: Final = {"json": ("application/json",), "html": ("text/html",)}


@router.get("/")
@router.head("/")
def index() -> Handler:
    """What this is and where to go: a page where Accept prefers HTML, else JSON."""
    return _index


async def _index(request: Request) -> Response:
    chosen = choose_output(_ANSWERS, request.headers, to=None, default="json")
    headers = {**_HEADERS, "Vary": "Accept"}
    if chosen.form == "html":
        page = (_OURS / "index.html").read_text(encoding="utf-8")
        url = html.escape(base_url(request))
        return HTMLResponse(page.format(version=__version__, url=url), headers=headers)
    about = {
        "name": "shardsmith",
        "version": __version__,
        "description": "Turns tensors and rows into what TensorFlow reads, and back.",
        "documentation": "/docs",
        "openapi": "/openapi.json",
        "formats": "/v1/forms",
        "ready": "/readyz",
    }
    return JSONResponse(about, headers=headers)


@router.get("/docs")
@router.head("/docs")
def docs() -> Handler:
    """Swagger UI over `/openapi.json`."""

    async def answer(_: Request) -> Response:
        return FileResponse(_OURS / "docs.html", headers=_HEADERS)

    return answer


@router.get("/docs/{file}")
@router.head("/docs/{file}")
def docs_file(file: str) -> Handler:
    """A script, style or icon of the pages.

    Raises:
        NotFound: there is no such file.
    """
    if file not in _FILES:
        raise NotFound(f"There is no page /docs/{file}.")
    folder, media_type = _FILES[file]
    headers = {**_HEADERS, "Cache-Control": "max-age=3600"}

    async def answer(_: Request) -> Response:
        return FileResponse(folder / file, media_type=media_type, headers=headers)

    return answer
