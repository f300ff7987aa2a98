"""`/` says what this service is, or leads to the pages; `/docs` is Swagger UI, which needs no internet."""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, JSONResponse, Response

from ... import __version__
from ...errors import NotFound
from ..negotiation import choose_output
from ..operation import Handler, Operation
from .rendering import HTML, render

router = APIRouter(include_in_schema=False, route_class=Operation)

#: Taken for its copy of Swagger UI alone, and so found without being imported.
_SWAGGER_UI: Final = Path(str(distribution("fastapi-offline").locate_file("fastapi_offline/static")))
_FILES: Final = {
    "favicon.png": "image/png",
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
}
_ANSWERS: Final = {"json": ("application/json",), "html": ("text/html",)}


@router.get("/")
@router.head("/")
def index() -> Handler:
    """What this is and where to go: the pages where Accept prefers HTML, else JSON."""
    return _index


async def _index(request: Request) -> Response:
    chosen = choose_output(_ANSWERS, request.headers, to=None, default="json")
    headers = {"Vary": "Accept"}
    if chosen.form == "html":
        root = request.scope.get("root_path", "")
        return Response(None, 303, {**headers, "Location": f"{root}/ui"})
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

    async def answer(request: Request) -> Response:
        return Response(render("docs.html", request.scope, {}), media_type=HTML)

    return answer


@router.get("/docs/{file}")
@router.head("/docs/{file}")
def docs_file(file: str) -> Handler:
    """A script, style or icon of Swagger UI.

    Raises:
        NotFound: there is no such file.
    """
    if file not in _FILES:
        raise NotFound(f"There is no page /docs/{file}.")
    media_type = _FILES[file]

    async def answer(_: Request) -> Response:
        headers = {"Cache-Control": "max-age=3600"}
        return FileResponse(_SWAGGER_UI / file, media_type=media_type, headers=headers)

    return answer
