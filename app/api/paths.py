"""Paths: what a table of routes has for the path of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from starlette.routing import compile_path
from starlette.types import Scope

T = TypeVar("T")

_NO_PARAMETERS: Final[Mapping[str, str]] = {}


class PathTable(Generic[T]):
    """Finds what belongs to a path, by its template (`/v1/datasets/{dataset}`).

    The router, authentication and the access log each look a path up in such a table, so all three take it
    for the same route. The number of slashes, of which a parameter has none, leaves few templates to try.

    Args:
        lines: template -> what belongs to it.
    """

    def __init__(self, lines: Mapping[str, T]) -> None:
        self._fixed: dict[str, tuple[T, Mapping[str, str]]] = {}
        self._patterns: dict[int, list[tuple[re.Pattern[str], T]]] = {}
        for template, line in lines.items():
            if "{" in template:
                pattern = compile_path(template)[0]
                self._patterns.setdefault(template.count("/"), []).append((pattern, line))
            else:
                self._fixed[template] = line, _NO_PARAMETERS

    def find(self, path: str) -> tuple[T, Mapping[str, str]] | None:
        """What belongs to `path`, and its parameters; None if no template fits."""
        found = self._fixed.get(path)
        if found is not None:
            return found
        for pattern, line in self._patterns.get(path.count("/"), ()):
            match = pattern.match(path)
            if match is not None:
                return line, match.groupdict()
        return None


def routed_path(scope: Scope) -> str:
    """The path that decides about the route: that of the request, without the prefix of a proxy."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and (path == root or path.startswith(f"{root}/")):
        return path[len(root) :]
    return path
