"""Small JSON objects on the store: written in one form, and distrusted when read."""

from __future__ import annotations

import json
from typing import Any

from ...errors import CorruptData

__all__ = ["dump_json", "load_json"]


def dump_json(value: object) -> bytes:
    """Compact JSON in ASCII, members in the given order: that of a schema's features carries meaning."""
    return json.dumps(value, separators=(",", ":")).encode()


def load_json(data: bytes, key: str) -> dict[str, Any]:
    """The object that `dump_json` wrote.

    Args:
        key: where it was stored, for the error.

    Raises:
        CorruptData: not a JSON object.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"{key} is not JSON.") from error
    if not isinstance(value, dict):
        raise CorruptData(f"{key} is not a JSON object.")
    return value
