"""The libraries still write what is kept in tests/golden for tests without them."""

import json
from typing import Any, Final

from tests.golden.entries import FILES, INDEX
from tests.golden.make import make

#: How gzip, zlib, ZIP, PNG, WebP, GIF, JPEG and Parquet begin: compressors of another release write others.
COMPRESSED: Final = tuple(
    map(bytes.fromhex, ("1f8b", "789c", "785e", "504b", "8950", "5249", "4749", "ffd8", "5041"))
)


def test_the_libraries_write_what_is_kept() -> None:
    made = make()
    assert without_digests(made.pop(INDEX.name)) == without_digests(INDEX.read_bytes())
    assert {path for path, content in made.items() if content != (FILES / path).read_bytes()} <= {
        path for path, content in made.items() if content.startswith(COMPRESSED)
    }


def without_digests(index: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(index)
    for entry in [*found["good"], *found["bad"]]:
        del entry["sha256"]
    return found
