"""`/` says what this service is, or leads to the pages; `/docs` is `/openapi.json` for people."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import JSONResponse, Response

from ... import __version__
from ..negotiation import choose_output
from ..operation import Handler, Operation
from .rendering import HTML, render

router = APIRouter(include_in_schema=False, route_class=Operation)

_ANSWERS: Final = {"json": ("application/json",), "html": ("text/html",)}


@dataclass(frozen=True, slots=True)
class _Call:
    """An operation as the page shows it. HEAD is as GET, and is not shown.

    Attributes:
        scope: what a token must have; empty where none is needed.
        content: the operation as the document has it.
    """

    method: str
    path: str
    scope: str
    content: dict[str, Any]


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
    """The operations of `/openapi.json` and what they take and give."""
    return _docs


async def _docs(request: Request) -> Response:
    values = {"reference": _reference(request.app)}
    return Response(render("docs.html", request.scope, values), media_type=HTML)


@lru_cache(maxsize=1)
def _reference(app: FastAPI) -> str:
    """What is the same in every answer, and takes the longest to write; HTML."""
    document = app.openapi()
    calls: dict[str, list[_Call]] = {}
    for path, methods in document["paths"].items():
        for method, content in methods.items():
            if method != "head":
                scope = content["security"][0]["bearer"][0] if content["security"] else ""
                calls.setdefault(content["tags"][0], []).append(_Call(method, path, scope, content))
    values = {
        "description": document["info"]["description"],
        "sections": [(tag["name"], tag["description"], calls[tag["name"]]) for tag in document["tags"]],
        "schemas": document["components"]["schemas"],
    }
    return render("reference.html", {}, values).decode()
