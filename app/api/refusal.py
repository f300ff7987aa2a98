"""The answer to a request for which there is no room, made once: a refusal shall cost next to nothing."""

from __future__ import annotations

import json
from typing import Final

from starlette.types import Message, Scope, Send

from .problems import PROBLEM_MEDIA_TYPE, problem, retry_after

__all__ = ["refuse"]

_BODY: Final = json.dumps(
    problem(503, "overloaded", "The service is too busy; nothing was done. Try again.")
).encode()


async def refuse(scope: Scope, send: Send) -> None:
    """Tell the client to come again."""
    headers = [
        (b"content-type", PROBLEM_MEDIA_TYPE.encode()),
        (b"content-length", str(len(_BODY)).encode()),
        (b"retry-after", retry_after().encode()),
        (b"vary", b"Accept"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else _BODY
    message: Message = {"type": "http.response.body", "body": body, "more_body": False}
    await send(message)
