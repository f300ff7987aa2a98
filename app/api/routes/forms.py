"""`/v1/forms`: the form table as JSON."""

from __future__ import annotations

from fastapi import APIRouter
from typing_extensions import TypedDict

from ...codecs.forms import FORMS, Form, FormName, RecordsCodec, TensorCodec
from ...domain.feature import FeatureKind
from ..query.rows import NoParameters

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["forms"])

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


@router.get("/forms", operation_id="list_forms", summary="Every form, in and out")
@router.head("/forms", include_in_schema=False)
async def forms(_: NoParameters) -> FormsJson:
    """Short names, media types, directions and kinds, for tensors and for records."""
    return {
        "tensors": [_describe(form, form.tensors) for form in FORMS if form.tensors],
        "records": [_describe(form, form.records) for form in FORMS if form.records],
    }


def _describe(form: Form, codec: TensorCodec | RecordsCodec) -> FormUseJson:
    return {
        "form": form.name,
        "media_types": list(form.media_types),
        "in": True,
        "out": True,
        "kinds": codec.kinds,
        "kinds_in": codec.kinds_in,
        "by_short_name_only": form.by_short_name_only,
    }
