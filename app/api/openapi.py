"""The OpenAPI document: what FastAPI derives, plus the bodies and problems that it cannot see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from .auth.routes import ACCESS
from .negotiation import Forms, FormT

__all__ = [
    "JSON_OBJECT",
    "body_answer",
    "body_of",
    "build_openapi",
    "conversion",
    "file_response",
    "json_body",
    "json_response",
]

JSON_OBJECT: Final = {"type": "object"}

_BINARY: Final = {"type": "string", "format": "binary"}
_DESCRIPTION: Final = """\
Tensors in, TFRecord shards out, and back again, over plain HTTP.

Decode by `Content-Type`, encode by `Accept`; `?from=` and `?to=` take the short names of the forms
and beat both. Every error is `application/problem+json` (RFC 9457) with a stable `code`.

Any body may have one `Content-Encoding`: `gzip`, `deflate` (the format of zlib) or `zstd` (a window of up to
8 MiB). `Accept-Encoding` with `gzip` or `zstd` gets JSON, NDJSON and text of 1 KiB and more in that encoding;
other answers where it refuses `identity`, and files never. `Repr-Digest` is of what is sent.
"""
_PROBLEM_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "description": "RFC 9457 problem document.",
    "required": ["type", "title", "status", "code", "detail", "error"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "Stable, machine-readable name."},
        "detail": {"type": "string", "description": "What was wrong, and what to do."},
        "pointer": {"type": "string", "description": "JSON Pointer into the body."},
        "row": {"type": "integer", "description": "Index of the row or record, from 0."},
        "feature": {"type": "string", "description": "Name of the feature, column or tensor."},
        "offset": {"type": "integer", "description": "Byte offset in the body."},
        "error": {"type": "string", "description": "The detail again, for Open Inference clients."},
    },
}


_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An opaque token, or a JWT of the configured issuer. The operations name the scope that "
    "they need: `read`, `write` or `admin`. Where the service has no authentication, none is needed.",
}
_RAW_HEADERS: Final = ("Tensor-Dtype", "Tensor-Shape", "Tensor-Byte-Order")
_OIP_HEADERS: Final = ("Inference-Header-Content-Length",)
_COUNT_HEADERS: Final = ("Record-Count",)
_HEADERS: Final = {
    "Tensor-Dtype": "`raw` answers: the dtype, by TensorFlow's name.",
    "Tensor-Shape": "`raw` answers: the dimensions, comma-separated; empty for a scalar.",
    "Tensor-Byte-Order": "`raw` answers: `little` or `big`.",
    "Inference-Header-Content-Length": "`oip`: bytes of the JSON in front of the tensors.",
    "Record-Count": "Records in the answer; on long answers only where known beforehand.",
    "Repr-Digest": "SHA-256 of the answer (RFC 9530); on answers that are completed first.",
}


def _content(forms: Forms[FormT]) -> dict[str, Any]:
    """Media types as OpenAPI content; JSON is any JSON, the rest is bytes."""
    media_types = dict.fromkeys(media_type for types in forms.values() for media_type in types)
    return {
        media_type: {"schema": {} if media_type.endswith("json") else _BINARY} for media_type in media_types
    }


def body_of(inputs: Forms[FormT]) -> dict[str, Any]:
    """For `openapi_extra`: a body in any of these forms, and the headers that go with them."""
    headers = [
        {"name": name, "in": "header", "description": _HEADERS[name], "schema": {"type": "integer"}}
        for name in (_OIP_HEADERS if "oip" in inputs else ())
    ]
    return {
        "parameters": headers,
        "requestBody": {
            "required": True,
            "description": f"Forms: {', '.join(f'`{form}`' for form in inputs)}.",
            "content": _content(inputs),
        },
    }


def body_answer(outputs: Forms[FormT], *, default: FormT) -> dict[str, Any]:
    """For `openapi_extra`: an answer in any of these forms, and the headers that go with them."""
    description = f"Forms: {', '.join(f'`{form}`' for form in outputs)}; default `{default}`."
    names = [
        *(_RAW_HEADERS if "raw" in outputs else ()),
        *(_OIP_HEADERS if "oip" in outputs else ()),
        *(_COUNT_HEADERS if "tfrecord" in outputs else ()),
    ]
    headers = {
        name: {"description": _HEADERS[name], "schema": {"type": "string"}}
        for name in [*names, "Repr-Digest"]
    }
    answer = {"description": description, "headers": headers, "content": _content(outputs)}
    return {"responses": {"200": answer}}


def conversion(inputs: Forms[FormT], outputs: Forms[FormT], *, default: FormT) -> dict[str, Any]:
    """For `openapi_extra`: a route that converts one form into another."""
    return {**body_of(inputs), **body_answer(outputs, default=default)}


def json_response(
    status: int, description: str, schema: Mapping[str, Any], *, also: Mapping[int, str] | None = None
) -> dict[str, Any]:
    """For `openapi_extra`: one JSON answer, and `also` others of that schema, by status."""
    content = {"application/json": {"schema": dict(schema)}}
    answers = {status: description, **(also or {})}
    return {
        "responses": {str(key): {"description": text, "content": content} for key, text in answers.items()}
    }


def json_body(description: str, schema: Mapping[str, Any], *, required: bool) -> dict[str, Any]:
    """For `openapi_extra`: a JSON request body."""
    content = {"application/json": {"schema": dict(schema)}}
    return {"requestBody": {"required": required, "description": description, "content": content}}


def file_response(media_types: Iterable[str], what: str, *, signed: bool = False) -> dict[str, Any]:
    """For `openapi_extra`: a file of one of these types, as ranges and conditions ask for it.

    The route has to have `response_class=Response`: otherwise FastAPI adds JSON.
    """
    whole = {media_type: {"schema": _BINARY} for media_type in media_types}
    ranges = {**whole, "multipart/byteranges": {"schema": _BINARY}}
    responses: dict[str, Any] = {
        "200": {"description": f"{what}.", "content": whole},
        "206": {"description": f"{what}: the ranges of it that were asked for.", "content": ranges},
        "304": {"description": "It is what `If-None-Match` names."},
    }
    if signed:
        responses["307"] = {"description": "`redirect=signed`: the URL is in `Location`."}
    return {"responses": responses}


def build_openapi(app: FastAPI) -> dict[str, Any]:
    """The document as a JSON-compatible value."""
    document = get_openapi(
        title="Shardsmith", version=app.version, description=_DESCRIPTION, routes=app.routes
    )
    components = document.setdefault("components", {})
    components["schemas"] = {"Problem": _PROBLEM_SCHEMA}
    components["securitySchemes"] = {"bearer": _BEARER}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            _complete(operation)
            operation["security"] = _security(ACCESS[path][method.upper()])
    return document


def _security(scope: str | None) -> list[dict[str, list[str]]]:
    """Who may call an operation. Without authentication, which is for loopback, anyone may: hence `{}`."""
    return [] if scope is None else [{"bearer": [scope]}, {}]


def _complete(operation: dict[str, Any]) -> None:
    """Problems instead of FastAPI's own validation errors, and no answer that is only a guess."""
    responses = operation["responses"]
    responses.pop("422", None)
    if len(responses) > 1 and responses.get("200", {}).get("description") == "Successful Response":
        del responses["200"]
    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
    responses["default"] = {
        "description": "A problem document.",
        "content": {"application/problem+json": problem},
    }
