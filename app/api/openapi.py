"""The OpenAPI document: what FastAPI derives, plus the bodies and problems that it cannot see.

The schema of a JSON answer comes from the type of what is answered, a TypedDict that stands beside its
`to_json` and is called `<Name>Json`; in the document it is `<Name>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import orjson
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from ..codecs.archives.form_data import MULTIPART
from ..domain.dtypes import DTYPES
from .auth.routes import ACCESS
from .execution.events import MEDIA_TYPE as EVENTS
from .negotiation import Forms, FormT
from .problems import ProblemJson

OutT = TypeVar("OutT", bound=str)

_OCTETS: Final = "application/octet-stream"
_FORMATS: Final = {"integer": "int64", "number": "double"}
_OF_FASTAPI: Final = frozenset({"HTTPValidationError", "ValidationError"})
_SERVERS: Final = [
    {"url": "/", "description": "The service that this document came from."},
    {"url": "http://127.0.0.1:8000", "description": "One on this machine."},
]
_CONDITIONS: Final = {
    "Range": "Bytes to send: `bytes=0-99`, or several ranges.",
    "If-Range": "The ETag of the file that the ranges are of; of another one all is sent.",
    "If-Match": "The ETag that the file has to have; else 412.",
    "If-None-Match": "The ETag of the file that is there already; then 304.",
}
_BINARY: Final = {"type": "string", "format": "binary"}
_DESCRIPTION: Final = """\
Tensors in, TFRecord shards out, and back again, over plain HTTP.

Decode by `Content-Type`, encode by `Accept`; `?from=` and `?to=` take the short names of the formats
and beat both. Every error is `application/problem+json` (RFC 9457) with a stable `code`.

Any body may have one `Content-Encoding`: `gzip`, `deflate` (the format of zlib) or `zstd` (a window of up to
8 MiB). `Accept-Encoding` with `gzip` or `zstd` gets JSON, NDJSON and text of 1 KiB and more in that encoding;
other answers where it refuses `identity`, and files never. `Repr-Digest` is of what is sent.
"""
_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An opaque token, or a JWT of the configured issuer. The operations name the scope that "
    "they need: `read`, `write` or `admin`. Where the service has no authentication, none is needed.",
}
_OIP_LENGTH: Final = "Inference-Header-Content-Length"
_INTEGER: Final = {"type": "integer", "format": "int64"}
_HEADERS: Final[dict[str, dict[str, Any]]] = {
    name: {"description": description, "schema": schema}
    for name, schema, description in (
        ("Tensor-Dtype", {"type": "string", "enum": list(DTYPES)}, "`raw` answers: the dtype."),
        (
            "Tensor-Shape",
            {"type": "string"},
            "`raw` answers: dimensions, with commas; empty for a scalar.",
        ),
        (
            "Tensor-Byte-Order",
            {"type": "string", "enum": ["little", "big"]},
            "Of `raw` answers.",
        ),
        (_OIP_LENGTH, _INTEGER, "`oip`: bytes of the JSON in front of the tensors."),
        ("Record-Count", _INTEGER, "Records in the answer; on long answers only where known beforehand."),
        ("Lost-Bytes", _INTEGER, "Bytes of a damaged body that are no good record."),
        ("Lost-Ranges", {"type": "string"}, "Where they are: the first 100 ranges, `first-last`."),
        ("Rounded-Features", {"type": "string"}, "Features that were rounded, percent-encoded, with commas."),
        ("Text-Features", {"type": "string"}, "Features whose times or decimals became text."),
        ("Skipped-Rows", _INTEGER, "Rows left out, since their transforms do not take them."),
        ("Dropped-Features", {"type": "string"}, "Features left out, since no row has a value of them."),
        ("Repr-Digest", {"type": "string"}, "SHA-256 of the answer (RFC 9530); on answers completed first."),
        ("Content-Digest", {"type": "string"}, "SHA-256 of what is sent, be it a range (RFC 9530)."),
        ("ETag", {"type": "string"}, "A strong validator, for `If-Match`, `If-None-Match` and `If-Range`."),
        ("Content-Range", {"type": "string"}, "Which bytes of the file, where it is one range."),
        ("Location", {"type": "string", "format": "uri-reference"}, "Of what was created, or goes on."),
        (
            "Idempotency-Replayed",
            {"type": "string"},
            "`true` where an earlier request with the key stored it.",
        ),
        ("Retry-After", _INTEGER, "Seconds to wait before the same request is sent again."),
    )
}
_DIGEST: Final = {
    "name": "Content-Digest",
    "in": "header",
    "description": "Of the body as it is sent: `sha-256=:BASE64:` (RFC 9530; also sha-512 and crc32c). A "
    "body that has another one is refused, and nothing is stored. `Repr-Digest` does the same.",
    "schema": {"type": "string"},
}
_ROW: Final = {"$ref": "#/components/schemas/Row"}
_ANY_OBJECT: Final = {"type": "object", "additionalProperties": True}
_DECLARED: Final = {
    "description": 'The schema: ours, `{"features": ...}`; a features.json; or a schema.pbtxt in a string.'
}
_TENSOR: Final[dict[str, Any]] = {
    "name": {"type": "string"},
    "shape": {"type": "array", "items": _INTEGER},
    "data": {"description": "The values, flat in row-major order or nested."},
    "values": {"description": "Sparse and ragged tensors: the values."},
    "indices": {"type": "array", "description": "Sparse tensors: the coordinates.", "items": {}},
    "dense_shape": {"type": "array", "items": _INTEGER},
    "row_splits": {"type": "array", "description": "Ragged tensors, outermost first.", "items": {}},
    "b64": {"type": "string", "description": "Bytes, in base64."},
}
#: JSON that is read and written a value at a time, so that no type of Python describes it. Where there is no
#: `type`, the members are those that an object has; a bare array or number is possible, too.
_OPEN_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "Row": {**_ANY_OBJECT, "description": "One row: a value for each feature, by name."},
    "Rows": {
        "description": "Rows; with `layout=columns` an array for each feature.",
        "anyOf": [{"type": "array", "items": _ROW}, _ANY_OBJECT],
    },
    "RowsBody": {
        "description": "Rows beside their schema, or columns. A bare array of rows is taken, too.",
        "properties": {
            "instances": {"type": "array", "items": _ROW},
            "columns": {**_ANY_OBJECT, "description": "An array for each feature."},
            "schema": _DECLARED,
        },
    },
    "RowsForm": {
        "type": "object",
        "description": "Rows in `data`, or files; a `label` is that of the files behind it.",
        "properties": {
            "schema": {"type": "string", "description": "The schema, in front of all other parts."},
            "data": {**_BINARY, "description": "Rows in the format that its Content-Type names."},
            "label": {"type": "string"},
            "file": {"type": "array", "items": _BINARY},
        },
    },
    "TensorsAnswer": {
        "description": "A tensor; several are in `tensors` or `outputs`. With `layout=nested` a bare array.",
        "properties": {
            "dtype": {"type": "string", "enum": list(DTYPES)},
            "datatype": {
                "type": "string",
                "description": "By the Open Inference Protocol.",
            },
            **_TENSOR,
            "tensors": {"type": "array", "items": {"$ref": "#/components/schemas/TensorsAnswer"}},
            "outputs": {"description": "As the Open Inference Protocol has them, or nested arrays by name."},
        },
    },
    "TensorsBody": {
        "description": "A tensor in one of several forms; docs/http.md has them. A bare array is taken, too.",
        "properties": {
            "dtype": {"type": "string", "description": "TensorFlow's name, or a common other one."},
            **_TENSOR,
            "tensors": {"type": "array", "items": {"$ref": "#/components/schemas/TensorsBody"}},
            "instances": {"description": "One tensor, as TensorFlow Serving takes it."},
            "inputs": {"description": "Of the Open Inference Protocol, or arrays by name."},
        },
    },
    "InferenceBody": {
        "type": "object",
        "description": "Inputs, and which outputs are wanted; all of them where `outputs` is left out.",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "inputs": {"type": "array", "items": {"$ref": "#/components/schemas/InferenceTensor"}},
            "outputs": {"type": "array", "items": {"$ref": "#/components/schemas/InferenceOutput"}},
            "parameters": {"type": "object", "properties": {"binary_data_output": {"type": "boolean"}}},
        },
    },
    "InferenceOutput": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "parameters": {"type": "object", "properties": {"binary_data": {"type": "boolean"}}},
        },
    },
    "InferenceTensor": {
        "type": "object",
        "description": "With `data`, or with `binary_data_size` bytes behind the JSON.",
        "required": ["name", "datatype", "shape"],
        "properties": {
            "name": {"type": "string"},
            "datatype": {"type": "string"},
            "shape": {"type": "array", "items": _INTEGER},
            "data": {"type": "array", "items": {}},
            "parameters": {"type": "object", "properties": {"binary_data_size": _INTEGER}},
        },
    },
    "InferenceAnswer": {
        "type": "object",
        "required": ["model_name", "outputs"],
        "properties": {
            "model_name": {"type": "string"},
            "model_version": {"type": "string"},
            "id": {"type": "string"},
            "outputs": {"type": "array", "items": {"$ref": "#/components/schemas/InferenceTensor"}},
        },
    },
    "ImportBody": {
        "type": "object",
        "required": ["source"],
        "properties": {
            "source": {"type": "string"},
            "from": {"type": "string"},
            "split": {"type": "string"},
            "schema": _DECLARED,
            "range_bytes": {**_INTEGER, "minimum": 1},
            "on_error": {"type": "string", "enum": ["stop", "skip"]},
            "evolve": {"type": "string", "enum": ["none", "widen"]},
            "message": {"type": "string", "enum": ["example", "sequence_example"]},
            "undeclared": {"type": "string", "enum": ["error", "drop"]},
            "nonfinite": {"type": "string", "enum": ["error", "null", "bare"]},
            "lossy": {"type": "string", "enum": ["allow", "error"]},
            "delimiter": {"type": "string"},
            "publish": {
                "anyOf": [_ANY_OBJECT, {"type": "null"}],
                "description": "Parameters of a publication; null appends alone.",
            },
        },
    },
    "DatasetBody": {
        "type": "object",
        "properties": {
            "schema": _DECLARED,
            "description": {"type": "string"},
            "keep_versions": {**_INTEGER, "minimum": 1},
        },
    },
}
_TAGS: Final = {
    "tensors": "Tensors from any format to any other.",
    "examples": "One row from or to one bare `tf.train.Example`.",
    "records": "Rows from any format to any other.",
    "datasets": "Rows appended durably, and published.",
    "versions": "What was published: manifests, files and rows.",
    "care": "Versions deleted, leftovers collected, what is stored checked.",
    "forms": "Which formats there are.",
    "inference": "Tensors converted by models of the Open Inference Protocol.",
    "health": "Probes.",
}
#: Schemas of answers, as routes ask for them.
_SCHEMAS: Final[dict[str, dict[str, Any]]] = {}


def _schema(model: Any) -> dict[str, Any]:
    """The schema of a type, or a reference to the one of that name above."""
    if isinstance(model, str):
        return {"$ref": f"#/components/schemas/{model}"}
    # As items of a list: then the type itself stands among the definitions, too.
    found = TypeAdapter(list[model]).json_schema(ref_template="#/components/schemas/{model}")
    _SCHEMAS.update(found.get("$defs", {}))
    schema: dict[str, Any] = found["items"]
    return schema


def _headers(*names: str) -> dict[str, Any]:
    return {name: _HEADERS[name] for name in names}


def _content(forms: Forms[FormT], json: Any, *first: str) -> dict[str, Any]:
    """Media types as OpenAPI content, some of them `first`; JSON is of the type `json`, the rest bytes."""
    served = dict.fromkeys([*first, *(media_type for types in forms.values() for media_type in types)])
    return {
        media_type: {"schema": _schema(json) if media_type == "application/json" else _bytes_of(media_type)}
        for media_type in served
    }


def _bytes_of(media_type: str) -> dict[str, Any]:
    if media_type == MULTIPART:
        return {"$ref": "#/components/schemas/RowsForm"}
    return {"type": "string"} if media_type.startswith("text/") else _BINARY


def _choice(name: str, forms: Forms[FormT]) -> dict[str, Any]:
    """Which values a query parameter takes here."""
    return {"name": name, "in": "query", "schema": {"enum": list(forms)}}


def body_of(inputs: Forms[FormT], *, json: str = "", named: bool = True) -> dict[str, Any]:
    """For `openapi_extra`: a body in any of these forms, and the parameters that go with them.

    Args:
        json: the schema of JSON among them: its name above.
        named: `?from=` says which format it is.
    """
    of_oip = {"name": _OIP_LENGTH, "in": "header", **_HEADERS[_OIP_LENGTH]}
    return {
        "parameters": [
            *([_choice("from", inputs)] if named else ()),
            *([of_oip] if "oip" in inputs else ()),
            _DIGEST,
        ],
        "requestBody": {
            "required": True,
            "description": f"Formats: {', '.join(f'`{form}`' for form in inputs)}.",
            "content": _content(inputs, json),
        },
    }


def body_answer(
    outputs: Forms[FormT],
    *,
    default: FormT,
    json: Any = "",
    named: bool = True,
    octets: bool = False,
    headers: Sequence[str] = (),
) -> dict[str, Any]:
    """For `openapi_extra`: an answer in any of these forms, and the headers that go with them.

    The default comes first, and behind it `application/octet-stream`: generated clients take what comes first
    of what they know.

    Args:
        json: the type of a JSON answer, or the name of one of the schemas above.
        named: `?to=` says which format it shall be.
        octets: `application/octet-stream` gets the default's bytes.
        headers: further ones.
    """
    first = list(outputs[default])
    if octets or (default != "json" and any(_OCTETS in types for types in outputs.values())):
        first.append(_OCTETS)
    names = [
        *(("Tensor-Dtype", "Tensor-Shape", "Tensor-Byte-Order") if "raw" in outputs else ()),
        *((_OIP_LENGTH,) if "oip" in outputs else ()),
        *(("Record-Count",) if "tfrecord" in outputs else ()),
        *headers,
        "Repr-Digest",
    ]
    answer = {
        "description": f"Formats: {', '.join(f'`{form}`' for form in outputs)}; default `{default}`.",
        "headers": _headers(*names),
        "content": _content(outputs, json, *first),
    }
    return {"parameters": [_choice("to", outputs)] if named else [], "responses": {"200": answer}}


def conversion(
    inputs: Forms[FormT],
    outputs: Forms[OutT],
    *,
    default: OutT,
    json: tuple[str, Any],
    octets: bool = False,
    headers: Sequence[str] = (),
) -> dict[str, Any]:
    """For `openapi_extra`: a route that converts one form into another; `json` is the JSON in and out."""
    body = body_of(inputs, json=json[0])
    answer = body_answer(outputs, default=default, json=json[1], octets=octets, headers=headers)
    return {**body, **answer, "parameters": body["parameters"] + answer["parameters"]}


def json_response(
    status: int,
    description: str,
    model: Any,
    *,
    also: Mapping[int, tuple[str, Any]] | None = None,
    headers: Sequence[str] = (),
) -> dict[str, Any]:
    """For `openapi_extra`: a JSON answer of this type, and `also` others, by status.

    Args:
        headers: of the first one, beside those that its status has.
    """
    answers = {status: (description, model), **(also or {})}
    of_status = {201: ("Location",), 202: ("Location", "Retry-After")}
    if 201 in answers:
        of_status[200] = ("Location",)  # it was created before
    named = {key: (*of_status.get(key, ()), *(headers if key == status else ())) for key in answers}
    return {"responses": {str(key): _json_answer(*answer, named[key]) for key, answer in answers.items()}}


def json_or_events(description: str, model: Any) -> dict[str, Any]:
    """For `openapi_extra`: a JSON answer of this type, or server-sent events that have one each."""
    answer = _json_answer(description, model, ())
    answer["content"][EVENTS] = {
        "schema": {
            "type": "string",
            "description": "Server-sent events: the same JSON as `data`, once at first and at each change.",
        }
    }
    return {"responses": {"200": answer}}


def _json_answer(description: str, model: Any, names: Sequence[str]) -> dict[str, Any]:
    return {
        "description": description,
        **({"headers": _headers(*names)} if names else {}),
        "content": {"application/json": {"schema": _schema(model)}},
    }


def json_body(description: str, model: Any, *, required: bool) -> dict[str, Any]:
    """For `openapi_extra`: a JSON request body."""
    content = {"application/json": {"schema": _schema(model)}}
    return {
        "parameters": [_DIGEST],
        "requestBody": {"required": required, "description": description, "content": content},
    }


def file_response(media_types: Iterable[str], what: str, *, signed: bool = False) -> dict[str, Any]:
    """For `openapi_extra`: a file of one of these types, as ranges and conditions ask for it."""
    whole = {
        media_type: {"schema": _ANY_OBJECT if media_type == "application/json" else _bytes_of(media_type)}
        for media_type in media_types
    }
    ranges = {**whole, "multipart/byteranges": {"schema": _BINARY}}
    digests = ("ETag", "Repr-Digest", "Content-Digest")
    responses: dict[str, Any] = {
        "200": {"description": f"{what}.", "headers": _headers(*digests), "content": whole},
        "206": {
            "description": f"{what}: the ranges of it that were asked for.",
            "headers": _headers(*digests, "Content-Range"),
            "content": ranges,
        },
        "304": {"description": "It is what `If-None-Match` names.", "headers": _headers("ETag")},
    }
    if signed:
        responses["307"] = {
            "description": "`redirect=signed`: where the store itself has it.",
            "headers": _headers("Location"),
        }
    conditions = [
        {"name": name, "in": "header", "description": description, "schema": {"type": "string"}}
        for name, description in _CONDITIONS.items()
    ]
    return {"parameters": conditions, "responses": responses}


def build_openapi(app: FastAPI) -> dict[str, Any]:
    """The document as a JSON-compatible value."""
    document = get_openapi(
        title="Shardsmith",
        version=app.version,
        description=_DESCRIPTION,
        routes=app.routes,
        servers=_SERVERS,
        tags=[{"name": name, "description": description} for name, description in _TAGS.items()],
        contact={"name": "Shardsmith"},
        license_info={"name": "Apache 2.0", "identifier": "Apache-2.0"},
    )
    components = document.setdefault("components", {})
    derived = components.get("schemas", {})
    problem = _schema(ProblemJson)
    components["schemas"] = {**derived, **_SCHEMAS, **_OPEN_SCHEMAS}
    for name in _OF_FASTAPI:
        components["schemas"].pop(name, None)
    components["securitySchemes"] = {"bearer": _BEARER}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            _complete(operation, problem)
            operation["security"] = _security(ACCESS[path][method.upper()])
        if "get" in methods:
            methods["head"] = _head_of(methods["get"])
    for schema in components["schemas"].values():
        _tidy(schema)
    # Last, in the text: names of types become those of schemas, wherever they stand.
    text = re.sub(rb'(#/components/schemas/\w+?)Json"', rb'\1"', orjson.dumps(document))
    named: dict[str, Any] = orjson.loads(text)
    schemas = named["components"]["schemas"]
    named["components"]["schemas"] = {name.removesuffix("Json"): schemas[name] for name in sorted(schemas)}
    return named


def _security(scope: str | None) -> list[dict[str, list[str]]]:
    """Who may call an operation. Without authentication, which is for loopback, anyone may: hence `{}`."""
    return [] if scope is None else [{"bearer": [scope]}, {}]


def _complete(operation: dict[str, Any], problem: dict[str, Any]) -> None:
    """Problems instead of FastAPI's own validation errors, and no answer that is only a guess."""
    responses = operation["responses"]
    responses.pop("422", None)
    if len(responses) > 1 and responses.get("200", {}).get("description") == "Successful Response":
        del responses["200"]
    responses["default"] = {
        "description": "A problem document.",
        "headers": _headers("Retry-After"),
        "content": {"application/problem+json": {"schema": problem}},
    }
    parameters: dict[tuple[str, str], dict[str, Any]] = {}
    for parameter in operation.pop("parameters", []):
        known = parameters.setdefault((parameter["in"], parameter["name"]), {})
        schema = {**known.get("schema", {}), **_plain(parameter["schema"])}
        known.update(parameter)
        known["schema"] = schema
    if parameters:
        operation["parameters"] = list(parameters.values())


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter: what may be left out is never null, and is described by the parameter."""
    (given,) = [item for item in schema.pop("anyOf", [{}]) if item.get("type") != "null"]
    schema = {**schema, **given}
    schema.pop("description", None)
    _tidy(schema)
    return schema


def _tidy(schema: dict[str, Any]) -> None:
    """Numbers as wide as they are, and no titles that only repeat a name."""
    schema.pop("title", None)
    if schema.get("type") in _FORMATS:
        schema.setdefault("format", _FORMATS[schema["type"]])
    for inner in _inner(schema):
        _tidy(inner)


def _inner(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from schema.get("properties", {}).values()
    yield from schema.get("anyOf", ())
    yield from (schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict))


def _head_of(operation: dict[str, Any]) -> dict[str, Any]:
    """The HEAD of a GET: the same answers without content; it takes no ranges and is not redirected."""
    responses = {
        status: {name: member for name, member in answer.items() if name != "content"}
        for status, answer in operation["responses"].items()
        if status not in ("206", "307")
    }
    return {**operation, "operationId": f"{operation['operationId']}_head", "responses": responses}
