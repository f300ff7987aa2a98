"""Which route needs which scope: one table. A request that is not in it reaches no route."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.routing import compile_path
from starlette.types import Scope

from .principal import Right

__all__ = ["ACCESS", "PUBLIC", "Access", "AccessTable", "routed_path"]

#: Needs no token: probes, and what says nothing that the repository does not say.
PUBLIC: Final = None

_VERSION: Final = "/v1/datasets/{dataset}/versions/{version}"

#: Path -> method -> scope. Where there is GET there is HEAD, under the same scope.
ACCESS: Final[Mapping[str, Mapping[str, Right | None]]] = {
    "/livez": {"GET": PUBLIC},
    "/readyz": {"GET": PUBLIC},
    "/startupz": {"GET": PUBLIC},
    "/v2": {"GET": PUBLIC},
    "/v2/health/live": {"GET": PUBLIC},
    "/v2/health/ready": {"GET": PUBLIC},
    "/": {"GET": PUBLIC},
    "/docs": {"GET": PUBLIC},
    "/docs/{file}": {"GET": PUBLIC},
    "/openapi.json": {"GET": PUBLIC},
    "/v1/forms": {"GET": "read"},
    "/v1/tensors/serialize": {"POST": "read"},
    "/v1/tensors/parse": {"POST": "read"},
    "/v1/tensors/describe": {"POST": "read"},
    "/v1/examples/serialize": {"POST": "read"},
    "/v1/examples/parse": {"POST": "read"},
    "/v1/records/serialize": {"POST": "read"},
    "/v1/records/parse": {"POST": "read"},
    "/v1/records/describe": {"POST": "read"},
    "/v1/records/repair": {"POST": "read"},  # of the body; nothing stored is touched
    "/v1/datasets": {"GET": "read"},
    "/v1/datasets/{dataset}": {"GET": "read", "PUT": "write", "DELETE": "admin"},
    "/v1/datasets/{dataset}/records": {"POST": "write"},
    "/v1/datasets/{dataset}/appends": {"GET": "read"},
    "/v1/datasets/{dataset}/appends/{append_id}": {"GET": "read"},
    "/v1/datasets/{dataset}/collect": {"POST": "admin"},
    "/v1/datasets/{dataset}/versions": {"GET": "read", "POST": "write"},
    _VERSION: {"GET": "read", "DELETE": "admin"},
    f"{_VERSION}/abort": {"POST": "admin"},
    f"{_VERSION}/validate": {"POST": "read"},
    f"{_VERSION}/records": {"GET": "read"},
    f"{_VERSION}/describe": {"GET": "read"},
    f"{_VERSION}/SHA256SUMS": {"GET": "read"},
    f"{_VERSION}/shards/{{file}}": {"GET": "read"},
    f"{_VERSION}/files/{{file}}": {"GET": "read"},
    f"{_VERSION}/tar": {"GET": "read"},
}


@dataclass(frozen=True, slots=True)
class Access:
    """One path of the table, as the router sees it.

    Attributes:
        route: the template.
        scopes: method -> scope, HEAD included.
    """

    route: str
    scopes: Mapping[str, Right | None]


class AccessTable:
    """Finds the line of the table that a path belongs to.

    It matches with the very expressions of the router, so that both always mean the same route. The number
    of slashes, of which a parameter has none, leaves few to try.
    """

    def __init__(self, access: Mapping[str, Mapping[str, Right | None]] = ACCESS) -> None:
        self._fixed: dict[str, Access] = {}
        self._patterns: dict[int, list[tuple[re.Pattern[str], Access]]] = {}
        for route, methods in access.items():
            line = Access(route, dict(_with_head(methods)))
            if "{" in route:
                self._patterns.setdefault(route.count("/"), []).append((compile_path(route)[0], line))
            else:
                self._fixed[route] = line

    def find(self, path: str) -> tuple[Access, str | None] | None:
        """The line for `path`, and the dataset that it names, if any; None where no route has that path."""
        line = self._fixed.get(path)
        if line is not None:
            return line, None
        for pattern, line in self._patterns.get(path.count("/"), ()):
            match = pattern.match(path)
            if match is not None:
                return line, match.groupdict().get("dataset")
        return None


def _with_head(methods: Mapping[str, Right | None]) -> Iterator[tuple[str, Right | None]]:
    for method, scope in methods.items():
        yield method, scope
        if method == "GET":
            yield "HEAD", scope


def routed_path(scope: Scope) -> str:
    """The path that the router looks at: that of the request, without the prefix of a proxy."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and (path == root or path.startswith(f"{root}/")):
        return path[len(root) :]
    return path
