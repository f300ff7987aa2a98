"""Where a client reached the service, for lines that it is to run."""

from __future__ import annotations

import re
from typing import Final

from fastapi import Request

#: A name or an address, and perhaps a port: nothing that a shell, Python or a URL reads otherwise.
_HOST: Final = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII
)


def base_url(request: Request) -> str:
    """`http://host:port`: the Host that the client named, if it is one; else the address that it reached."""
    scheme = "https" if request.scope["scheme"] == "https" else "http"
    named = request.headers.getlist("host")
    if len(named) == 1 and _HOST.fullmatch(named[0]):
        return f"{scheme}://{named[0]}"
    host, port = request.scope.get("server") or ("localhost", None)
    reached = f"[{host}]" if ":" in host else host
    if port is not None:
        reached = f"{reached}:{port}"
    return f"{scheme}://{reached if _HOST.fullmatch(reached) else 'localhost'}"
