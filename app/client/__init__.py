"""For programs that use the service: imports nothing of it, only httpx and numpy.

from shardsmith.client import Client

with Client("http://127.0.0.1:8000") as client:
    flowers = client.dataset("flowers")
    flowers.append([{"petals": [6.5, 2.25], "label": 1}])
    version = flowers.publish()
    print(version.to_numpy()["petals"])
"""

from __future__ import annotations

try:
    from .aio import AsyncClient as AsyncClient
    from .blocking import Client as Client
    from .errors import ClientError as ClientError
    from .errors import Conflict as Conflict
    from .errors import Damaged as Damaged
    from .errors import Denied as Denied
    from .errors import LibraryMissing as LibraryMissing
    from .errors import NotFound as NotFound
    from .errors import OutcomeUnknown as OutcomeUnknown
    from .errors import Refused as Refused
    from .errors import Unavailable as Unavailable
    from .errors import Unsendable as Unsendable
except ModuleNotFoundError as error:
    if error.name not in ("httpx", "numpy"):
        raise
    raise ModuleNotFoundError(
        f"shardsmith.client needs the package {error.name}, which is not installed. "
        "Install it with: pip install 'shardsmith[client]'",
        name=error.name,
    ) from None
