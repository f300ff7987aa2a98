"""Small answers that are there at once."""

from __future__ import annotations

import json
from collections.abc import Mapping

from .exchange import Answer

__all__ = ["json_answer", "no_content"]


def json_answer(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """A JSON document, with a newline at its end for people at a terminal."""
    body = json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    return Answer("application/json", iter([body]), dict(headers or {}), status=status)


def no_content() -> Answer:
    """204."""
    return Answer("", iter(()), status=204)
