"""`/v1/forms`: the form table as JSON."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from ...codecs.forms import FORMS, Form, FormName, RecordsCodec, TensorCodec
from ...domain.feature import FeatureKind
from ..openapi import json_response
from ..operation import Handler, Operation

router = APIRouter(prefix="/v1", tags=["forms"], route_class=Operation)

FormUseJson = TypedDict(
    "FormUseJson",
    {
        "form": FormName,
        "media_types": list[str],
        "in": bool,
        "out": bool,
        "kinds": tuple[FeatureKind, ...],
        "kinds_in": tuple[FeatureKind, ...],
        "by_short_name_only": bool,
    },
)


class FormsJson(TypedDict):
    """The forms of tensors and of records."""

    tensors: list[FormUseJson]
    records: list[FormUseJson]


@router.get(
    "/forms",
    operation_id="list_forms",
    summary="Every format, in and out",
    openapi_extra=json_response(200, "Every format.", FormsJson),
)
@router.head("/forms", include_in_schema=False)
def forms() -> Handler:
    """Short names, media types, directions and kinds, for tensors and for records."""
    found: FormsJson = {
        "tensors": [_describe(form, form.tensors) for form in FORMS if form.tensors],
        "records": [_describe(form, form.records) for form in FORMS if form.records],
    }

    async def answer(_: Request) -> Response:
        return JSONResponse(found)

    return answer


def _describe(form: Form, codec: TensorCodec | RecordsCodec) -> FormUseJson:
    return {
        "form": form.name,
        "media_types": list(form.media_types),
        "in": True,
        "out": bool(codec.kinds),
        "kinds": codec.kinds,
        "kinds_in": codec.kinds_in,
        "by_short_name_only": form.by_short_name_only,
    }
