"""The file of tokens: SHA-256 digests, never the tokens themselves.

```json
{"tokens": [{"name": "ingest", "sha256": "<64 hex digits>", "scopes": ["write"],
             "prefix": "acme-", "expires": "2027-01-01T00:00:00Z"}]}
```

No message from here quotes a value that may be a secret: who puts a token where its digest belongs does
not find it in a log.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from ...domain.limits import MIB
from .options import AuthConfigurationError
from .principal import SCOPES, Principal, Right, is_prefix, is_right

#: What a Kubernetes Secret holds at most; some thousands of entries.
MAX_FILE_BYTES: Final = 1 * MIB

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_SHA256: Final = re.compile(r"[0-9A-Fa-f]{64}", re.ASCII)
_MEMBERS: Final = {"name", "sha256", "scopes", "prefix", "expires"}
_NEEDED: Final = ("name", "sha256", "scopes")


class InvalidTokenFile(AuthConfigurationError):
    """The file of tokens cannot be read, or says something else than tokens."""


@dataclass(frozen=True, slots=True)
class _Entry:
    digest: bytes
    principal: Principal | None


#: Stands in where no entry is found, so that a comparison is made in any case.
_NOBODY: Final = _Entry(bytes(32), None)


class TokenTable:
    """The accepted tokens."""

    def __init__(self, entries: Iterable[tuple[bytes, Principal]] = ()) -> None:
        self._entries = {digest: _Entry(digest, principal) for digest, principal in entries}

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, digest: bytes) -> Principal | None:
        """Who has the token with that SHA-256 digest, expired or not.

        What takes longer for one digest than for another tells nothing about the tokens: those who ask
        choose a token, not its digest; the hash of a dict is keyed anew in each process; and the digests are
        compared in constant time.
        """
        entry = self._entries.get(digest, _NOBODY)
        return entry.principal if hmac.compare_digest(entry.digest, digest) else None


def parse_tokens(data: bytes) -> TokenTable:
    """What the file says.

    Raises:
        InvalidTokenFile: where it is wrong, and how.
    """
    if len(data) > MAX_FILE_BYTES:
        raise InvalidTokenFile(f"it is larger than {MAX_FILE_BYTES} bytes")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_without_repetition)
    except RecursionError:
        raise InvalidTokenFile("it is nested too deeply") from None
    except json.JSONDecodeError as error:  # which would carry the whole text along
        raise InvalidTokenFile(f"it is not JSON: line {error.lineno}, column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise InvalidTokenFile(f"it is not UTF-8: byte {error.start}") from None
    if not isinstance(value, dict) or set(value) != {"tokens"} or not isinstance(value["tokens"], list):
        raise InvalidTokenFile('it is not an object with the one member "tokens", a list')
    entries = [_parse_entry(entry, f"tokens[{index}]") for index, entry in enumerate(value["tokens"])]
    _refuse_twice("sha256", [digest for digest, _ in entries])
    _refuse_twice("name", [principal.name for _, principal in entries])
    return TokenTable(entries)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise InvalidTokenFile("an object in it has a member twice")
    return value


def _refuse_twice(member: str, values: list[Any]) -> None:
    seen: dict[Any, int] = {}
    for index, value in enumerate(values):
        if (first := seen.setdefault(value, index)) != index:
            raise InvalidTokenFile(f"tokens[{index}].{member} is that of tokens[{first}] too")


def _parse_entry(value: Any, where: str) -> tuple[bytes, Principal]:
    if not isinstance(value, dict):
        raise InvalidTokenFile(f"{where} is not an object")
    if unknown := len(set(value) - _MEMBERS):
        raise InvalidTokenFile(
            f"{where} has {unknown} unknown member(s); known: {', '.join(sorted(_MEMBERS))}"
        )
    if missing := [name for name in _NEEDED if name not in value]:
        raise InvalidTokenFile(f"{where} lacks {', '.join(missing)}")
    name = value["name"]
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidTokenFile(f"{where}.name is not 1 to 64 of A-Z a-z 0-9 . _ @ -")
    prefix = value.get("prefix", "")
    if "prefix" in value and not (isinstance(prefix, str) and is_prefix(prefix)):
        raise InvalidTokenFile(
            f"{where}.prefix is not how names of datasets may begin: A-Z a-z 0-9 _ -, with _ or - at its end"
        )
    principal = Principal(
        name, _parse_scopes(value["scopes"], where), prefix, _parse_expiry(value.get("expires"), where)
    )
    return _parse_digest(value["sha256"], where), principal


def _parse_digest(value: Any, where: str) -> bytes:
    if not isinstance(value, str) or _SHA256.fullmatch(value) is None:
        raise InvalidTokenFile(f"{where}.sha256 is not the 64 hexadecimal digits of a SHA-256 digest")
    digest = bytes.fromhex(value)
    if digest in (hashlib.sha256(b"").digest(), hashlib.sha256(b"\n").digest(), _NOBODY.digest):
        raise InvalidTokenFile(f"{where}.sha256 is the digest of nothing; was the variable empty?")
    return digest


def _parse_scopes(value: Any, where: str) -> frozenset[Right]:
    scopes = value if isinstance(value, list) else []
    rights = [scope for scope in scopes if isinstance(scope, str) and is_right(scope)]
    if not rights or len(set(rights)) != len(scopes):
        raise InvalidTokenFile(f"{where}.scopes is not a list of some of {', '.join(SCOPES)}, each once")
    return frozenset(rights)


def _parse_expiry(value: Any, where: str) -> float:
    if value is None:
        return math.inf
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidTokenFile(
            f"{where}.expires is not a time with its offset from UTC, as in 2027-01-31T12:00:00Z (RFC 3339)"
        )
    return moment.timestamp()
