"""Small JSON objects on the store: written in one form, and distrusted when read.

An object of its own is sealed with a checksum of all bytes before it, its last member:
`{...,"crc32":"89abcdef"}`. What is read of one object goes into the next, so that a single wrong bit on its
way from the store would stay for ever: in the digest of a part, or the name of a feature. What a sealed
object names with its SHA-256 needs no seal.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from ....errors import CorruptData
from ....runtime.turns import pause

T = TypeVar("T")

#: How long until what was damaged is read again.
_AGAIN_S: Final = 0.2
_SEAL: Final = '"crc32":"%08x"}'
_SEAL_BYTES: Final = len(_SEAL % 0)


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


def seal_json(value: Mapping[str, object]) -> bytes:
    """`value`, which is not empty, as `dump_json` gives it, and sealed."""
    content = dump_json(value)[:-1] + b","
    return content + _seal(content)


def open_json(data: bytes, key: str) -> dict[str, Any]:
    """The object that `seal_json` wrote.

    Args:
        key: where it was stored, for the error.

    Raises:
        CorruptData: damaged, or not sealed.
    """
    if data[-_SEAL_BYTES:] != _seal(data[:-_SEAL_BYTES]):
        raise CorruptData(f"{key} does not match its checksum, or was written before there was one.")
    value = load_json(data, key)
    del value["crc32"]
    return value


def _seal(content: bytes) -> bytes:
    return (_SEAL % zlib.crc32(content)).encode()


def read_again(read: Callable[[], T]) -> T:
    """What `read` gives; where it finds damage, it reads once more: that may have come about on the way.

    Raises:
        CorruptData: it found damage twice.
    """
    try:
        return read()
    except CorruptData:
        pause(_AGAIN_S)
        return read()
