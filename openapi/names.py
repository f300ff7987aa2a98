"""names.txt: what clients hold on to, by name. bin/openapi adds what is new; what stands there stays.

Generated clients have a function for each operation and a type for each schema, and programs compare codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

PAGE: Final = Path(__file__).with_name("names.txt")


def list_names(document: dict[str, Any]) -> Iterator[str]:
    """The names in a document, each with what it names."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"operation {operation['operationId']}: {method.upper()} {path}"
    schemas = document["components"]["schemas"]
    yield from (f"schema {name}" for name in schemas)
    yield from (f"code {code}" for code in schemas["ErrorCode"]["enum"])


def with_names(page: str, document: dict[str, Any]) -> str:
    """The page with what is new. What the document lacks stays, for a test to find."""
    return "".join(f"{name}\n" for name in sorted({*page.splitlines(), *list_names(document)}))
