"""Which route needs which scope: one table. A request that is not in it reaches no route."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ..paths import PathTable
from .principal import Right

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
    "/v2/models": {"GET": "read"},
    "/v2/models/{model}": {"GET": "read"},
    "/v2/models/{model}/ready": {"GET": "read"},
    "/v2/models/{model}/infer": {"POST": "read"},
    "/v2/models/{model}/versions/1": {"GET": "read"},
    "/v2/models/{model}/versions/1/ready": {"GET": "read"},
    "/v2/models/{model}/versions/1/infer": {"POST": "read"},
    "/": {"GET": PUBLIC},
    "/docs": {"GET": PUBLIC},
    "/openapi.json": {"GET": PUBLIC},
    "/ui/assets/{tag}/{file}": {"GET": PUBLIC},
    "/ui": {"GET": "read"},
    "/ui/live": {"GET": "read"},
    "/ui/file": {"GET": "read", "POST": "read"},
    "/ui/datasets/{dataset}": {"GET": "read"},
    "/ui/datasets/{dataset}/{version}": {"GET": "read"},
    "/ui/datasets/{dataset}/{version}/rows": {"GET": "read"},
    "/ui/datasets/{dataset}/{version}/row": {"GET": "read"},
    "/ui/datasets/{dataset}/{version}/statistics": {"GET": "read"},
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
    "/v1/datasets/{dataset}/imports": {"POST": "write"},
    "/v1/datasets/{dataset}/imports/{import_id}": {"GET": "read", "DELETE": "admin"},
    "/v1/datasets/{dataset}/versions": {"GET": "read", "POST": "write"},
    _VERSION: {"GET": "read", "DELETE": "admin"},
    f"{_VERSION}/abort": {"POST": "admin"},
    f"{_VERSION}/validate": {"POST": "read"},
    f"{_VERSION}/records": {"GET": "read"},
    f"{_VERSION}/describe": {"GET": "read"},
    f"{_VERSION}/statistics": {"GET": "read"},
    f"{_VERSION}/SHA256SUMS": {"GET": "read"},
    f"{_VERSION}/shards/{{file}}": {"GET": "read"},
    f"{_VERSION}/files/{{file}}": {"GET": "read"},
    f"{_VERSION}/tar": {"GET": "read"},
}


@dataclass(frozen=True, slots=True)
class Access:
    """One path of the table.

    Attributes:
        route: the template.
        scopes: method -> scope, HEAD included.
    """

    route: str
    scopes: Mapping[str, Right | None]


def access_table() -> PathTable[Access]:
    """`ACCESS`, by path."""
    return PathTable({route: Access(route, dict(_with_head(methods))) for route, methods in ACCESS.items()})


def _with_head(methods: Mapping[str, Right | None]) -> Iterator[tuple[str, Right | None]]:
    for method, scope in methods.items():
        yield method, scope
        if method == "GET":
            yield "HEAD", scope
