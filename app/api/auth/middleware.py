"""In front of every route: who asks, whether they may, and whose dataset it is."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...errors import InsufficientScope, InvalidToken, NotFound, ShardsmithError, Unauthenticated
from ..body.schemas import DATASET_SCHEMA_PREFIX, no_schema_of
from ..paths import routed_path
from ..problems import http_problem, response_for
from .audit import Audited, audit
from .bearer import Bearers
from .principal import ANONYMOUS, Principal, Right
from .routes import PUBLIC, access_table

_REALM: Final = 'Bearer realm="shardsmith"'
#: What changes, or destroys, something that is stored has a line in the audit log.
_AUDITED: Final = frozenset({"write", "admin"})
#: They need no token, and say more to who has one.
_READINESS: Final = frozenset({"/readyz", "/v2/health/ready"})


class Authentication:
    """A pure ASGI middleware: FastAPI's dependencies would cost more than a small request itself.

    Nothing reaches the application that is not in the table of routes, so that no disagreement about
    paths can lead around the check.
    """

    def __init__(self, app: ASGIApp, bearers: Bearers) -> None:
        self._app = app
        self._bearers = bearers
        self._table = access_table()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            refused, audited = await self._admit(scope)
        except ShardsmithError as error:
            refused, audited = _refusal(error), None
        if refused is not None:
            await refused(scope, receive, send)
        elif audited is not None:
            await audited.run(self._app, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> tuple[Response | None, Audited | None]:
        """The answer to who may not, or what to watch; neither where it simply goes on."""
        path, method = routed_path(scope), scope["method"]
        found = self._table.find(path)
        if found is not None and found[0].scopes.get(method, "read") is PUBLIC:
            if path in _READINESS:
                await self._identify_if_possible(scope)
            return None, None
        principal = await self._bearers.identify(scope["headers"])
        principal.enter(scope)  # before anything is refused: that page says who is signed in, too
        if found is None:
            return http_problem(scope, 404, "Not Found", {}), None
        line, parameters = found
        dataset = parameters.get("dataset")
        if method not in line.scopes:
            allowed = {"Allow": ", ".join(sorted(line.scopes))}
            return http_problem(scope, 405, "Method Not Allowed", allowed), None
        needed = line.scopes[method]
        assert needed is not None  # noqa: S101  # public routes have gone on
        try:
            _require(principal, needed)
            _require_own(principal, dataset, scope["query_string"])
        except ShardsmithError as error:
            response = _refusal(error)
            if needed in _AUDITED:
                audit(scope, principal, line.route, dataset, status=response.status_code)
            return response, None
        if needed in _AUDITED:
            return None, Audited(scope, principal, line.route, dataset)
        return None, None

    async def _identify_if_possible(self, scope: Scope) -> None:
        principal = ANONYMOUS
        with suppress(ShardsmithError):
            principal = await self._bearers.identify(scope["headers"])
        principal.enter(scope)


def _require(principal: Principal, needed: Right) -> None:
    if needed not in principal.scopes:
        raise InsufficientScope(
            f"This needs a token with the scope {needed!r}; this one has "
            f"{', '.join(sorted(principal.scopes)) or 'none'}.",
            extra={"required_scope": needed},
        )


def _require_own(principal: Principal, dataset: str | None, query: bytes) -> None:
    """Refuse the dataset of another tenant, wherever a request may name one, as if it were not there."""
    if not principal.prefix:
        return
    if dataset is not None and not principal.owns(dataset):
        raise NotFound(f"There is no dataset {dataset!r}.", code="dataset_not_found")
    if b"schema" in query or b"%" in query:
        for text in QueryParams(query).getlist("schema"):  # read as the route will read it
            name = text.removeprefix(DATASET_SCHEMA_PREFIX)
            if name != text and not principal.owns(name):
                raise no_schema_of(name)


def _refusal(error: ShardsmithError) -> Response:
    response = response_for(error)
    if isinstance(error, InvalidToken):  # RFC 6750, section 3.1
        response.headers["WWW-Authenticate"] = f'{_REALM}, error="invalid_token"'
    elif isinstance(error, Unauthenticated):
        response.headers["WWW-Authenticate"] = _REALM
    elif isinstance(error, InsufficientScope):
        needed = error.extra["required_scope"]
        response.headers["WWW-Authenticate"] = f'{_REALM}, error="insufficient_scope", scope="{needed}"'
    return response
