"""A service with authentication, and tokens for it."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from app.main import create_app_with
from app.settings import Settings
from openapi.recorded import serving

#: Token -> what its entry says.
TOKENS: dict[str, dict[str, Any]] = {
    "reading-5f0c": {"name": "reader", "scopes": ["read"]},
    "writing-91ab": {"name": "writer", "scopes": ["write"]},
    "ruling-77de": {"name": "admin", "scopes": ["admin"]},
    "all-0b1c": {"name": "all", "scopes": ["read", "write", "admin"]},
    "acme-4411": {"name": "acme", "scopes": ["read", "write", "admin"], "prefix": "acme-"},
    "globex-8e8e": {"name": "globex", "scopes": ["read", "write", "admin"], "prefix": "globex-"},
    "old-2020": {"name": "old", "scopes": ["read", "write", "admin"], "expires": "2020-01-01T00:00:00Z"},
}


def token_file(tokens: dict[str, dict[str, Any]]) -> str:
    """What stands in a file of these tokens."""
    entries = [
        {**entry, "sha256": hashlib.sha256(token.encode()).hexdigest()} for token, entry in tokens.items()
    ]
    return json.dumps({"tokens": entries})


def as_(token: str) -> dict[str, str]:
    """The header that carries a token."""
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def guarded(folder: Path, **settings: Any) -> Iterator[httpx.Client]:
    """A service that knows these tokens, and its datasets in memory."""
    path = folder / "tokens.json"
    path.write_text(token_file(TOKENS))
    with serving(create_app_with(Settings(storage_url="memory://", tokens_file=path, **settings))) as client:
        yield client
