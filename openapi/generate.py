"""Write openapi.yaml from the application's routes and the recorded examples beside this file; the table of
forms in docs/http.md (forms.py); docs/reference/errors.md (error_index.py); and names.txt (names.py).

Each operation has one example, `examples/<operationId>.yaml`: a request and the response to it, as
a test sends and checks them. They go into the document, so that what is printed is what happens.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from app.api.openapi import build_openapi
from app.main import create_app_with
from app.settings import Settings

from . import error_index, names
from .forms import PAGE, with_forms
from .recorded import load, record

TARGET = Path(__file__).parent / "openapi.yaml"


def build() -> dict[str, Any]:
    """The document, examples included."""
    app = create_app_with(Settings(storage_url="memory://"))
    document = build_openapi(app)
    for methods in document["paths"].values():
        for method, operation in methods.items():
            if method != "head":  # as GET, without content
                _add_example(operation)
    _name_codes(document["components"]["schemas"])
    return document


def to_yaml(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def _name_codes(schemas: dict[str, Any]) -> None:
    """List the codes of problems. A later release may have others, which a client must not stumble over."""
    schemas["ErrorCode"] = {
        "description": "Of an error, as docs/reference/errors.md explains it.",
        "type": "string",
        "enum": sorted(error_index.read_statuses()),
    }
    schemas["Problem"]["properties"]["code"] = {
        "anyOf": [{"$ref": "#/components/schemas/ErrorCode"}, {"type": "string"}]
    }


def _add_example(operation: dict[str, Any]) -> None:
    recorded = load(operation["operationId"])
    request, response = recorded["request"], recorded["response"]
    operation["x-example"] = {"request": request, "response": response}
    content = operation.get("requestBody", {}).get("content", {})
    _place(content, request.get("headers", {}).get("Content-Type", ""), request)
    answer = operation["responses"].get(str(response["status"]), {})
    _place(answer.get("content", {}), response.get("headers", {}).get("Content-Type", ""), response)


def _place(content: dict[str, Any], media_type: str, message: dict[str, Any]) -> None:
    """Put a JSON or text body under its media type; binary ones stay in x-example, as hex."""
    if media_type in content and "body" in message:
        body = message["body"]
        value = json.loads(body) if media_type == "application/json" and isinstance(body, str) else body
        content[media_type]["example"] = value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument(
        "--record", nargs="+", default=[], metavar="ID", help="first write these examples' responses anew"
    )
    arguments = parser.parse_args()
    for operation_id in arguments.record:
        record(operation_id)
    document = build()
    pages = {
        TARGET: to_yaml(document),
        PAGE: with_forms(PAGE.read_text("utf-8")),
        error_index.PAGE: error_index.write_index(),
        names.PAGE: names.with_names(names.PAGE.read_text("utf-8"), document),
    }
    if arguments.check:
        return 1 if sum([_has_drifted(path, wanted) for path, wanted in pages.items()]) else 0
    for path, wanted in pages.items():
        path.write_text(wanted, "utf-8")
    return 0


def _has_drifted(path: Path, wanted: str) -> bool:
    found = path.read_text("utf-8") if path.exists() else ""
    diff = difflib.unified_diff(found.splitlines(), wanted.splitlines(), path.name, "code", lineterm="")
    lines = list(diff)
    if lines:
        print("\n".join(lines[:60]), f"{path.name} has drifted; run bin/openapi", sep="\n")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
