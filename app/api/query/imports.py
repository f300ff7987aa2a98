"""The JSON body of `POST /v1/datasets/{dataset}/imports`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...codecs.schemas.declared import schema_from_value
from ...domain.limits import Limits
from ...domain.schema import Message
from ...errors import MalformedInput
from ...services.datasets.imports.request import RANGE_BYTES, ImportRequest
from .datasets import PublishVersionQuery

_Model = TypeVar("_Model", bound=BaseModel)


class ImportBody(BaseModel):
    """What to import, and how. The members of `publish` are the parameters of a publication."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: Annotated[
        str, Field(description="`s3://bucket/prefix`, `gs://`, `az://`, `file://`, `https://`.")
    ]
    from_: Annotated[
        str | None, Field(alias="from", description="Format of the objects; their names tell it.")
    ] = None
    split: Annotated[str, Field(description="The split that the rows belong to.")] = "train"
    schema_: Annotated[Any, Field(alias="schema", description="Of the rows; transforms included.")] = None
    range_bytes: Annotated[
        int, Field(ge=1, description="How much of a large object is appended at a time.")
    ] = RANGE_BYTES
    on_error: Annotated[
        Literal["stop", "skip"], Field(description="`skip` leaves out ranges that cannot be read.")
    ] = "stop"
    evolve: Literal["none", "widen"] = "none"
    message: Message | None = None
    undeclared: Literal["error", "drop"] = "error"
    nonfinite: Literal["error", "null", "bare"] = "error"
    lossy: Literal["allow", "error"] | None = None
    delimiter: str | None = None
    publish: Annotated[
        dict[str, Any] | None, Field(description="How the rows are published at the end; null does not.")
    ] = Field(default_factory=dict)


def parse_import(value: object, limits: Limits) -> ImportRequest:
    """The import that a JSON body asks for.

    Raises:
        MalformedInput: it is none (`invalid_import`).
        InputError: its schema is none.
    """
    if not isinstance(value, dict):
        raise MalformedInput(
            'An import is a JSON object. Send one such as {"source": "s3://bucket/prefix"}.',
            code="invalid_import",
        )
    body = _read(ImportBody, value)
    publish = None if body.publish is None else _read(PublishVersionQuery, body.publish, "publish")
    return ImportRequest(
        source=body.source,
        form=body.from_,  # type: ignore[arg-type]  # which checks it
        split=body.split,
        schema=None if body.schema_ is None else schema_from_value(body.schema_, limits),
        range_bytes=body.range_bytes,
        on_error=body.on_error,
        evolve=body.evolve == "widen",
        message=body.message,
        undeclared=body.undeclared,
        nonfinite=body.nonfinite,
        lossy=body.lossy,
        delimiter=body.delimiter,
        publish=None if publish is None else publish.publish_options(),
    )


def _read(model: type[_Model], value: object, *place: str) -> _Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, [*place, *fault["loc"]]))
        raise MalformedInput(
            f"The import cannot be read at {where[:80]!a}: {fault['msg']}.", code="invalid_import"
        ) from None
