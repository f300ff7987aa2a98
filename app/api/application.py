"""The ASGI application: the way of a request from the server through the middleware to its `Operation`."""

from __future__ import annotations

from collections.abc import Awaitable

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from .paths import PathTable, routed_path
from .problems import http_problem


class Application(FastAPI):
    """FastAPI makes the OpenAPI document of these routes, and starts and stops the service.

    Requests do not take its way. Its own layers (telemetry, limits of bodies, handlers of exceptions, exit
    stacks, a router that tries one route after the other) have nothing to do here, and cost as much as the
    conversion of a small body. Only what `add_middleware` was given stands in front of the routes.
    """

    _stack: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        if self._stack is None:
            self._stack = self.build_middleware_stack()
        await self._stack(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """The routes, and what stands in front of them; the last that was added is the outermost."""
        app: ASGIApp = _Routes(self)
        for middleware, arguments, options in reversed(self.user_middleware):
            app = middleware(app, *arguments, **options)
        return app


class _Routes:
    def __init__(self, app: FastAPI) -> None:
        routes: dict[str, dict[str, Route]] = {}
        for route in app.routes:
            assert isinstance(route, Route)  # noqa: S101  # there are no mounts and no web sockets
            routes.setdefault(route.path, {}).update(dict.fromkeys(route.methods or (), route))
        self._table = PathTable(routes)
        self._router = app.router

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":  # begins and ends the lifespan, and refuses web sockets
            return self._router(scope, receive, send)
        found = self._table.find(routed_path(scope))
        if found is None:
            return http_problem(scope, 404, "Not Found", {})(scope, receive, send)
        routes, scope["path_params"] = found
        route = routes.get(scope["method"])
        if route is None:
            allowed = {"Allow": ", ".join(sorted(routes))}
            return http_problem(scope, 405, "Method Not Allowed", allowed)(scope, receive, send)
        return route.handle(scope, receive, send)
