"""`/v1/forms`: the registry as JSON."""

from __future__ import annotations

from fastapi import APIRouter
from typing_extensions import TypedDict

from ...codecs.forms import (
    MEDIA_TYPES,
    RECORDS_CODECS,
    RECORDS_KINDS,
    RECORDS_KINDS_IN,
    TENSOR_CODECS,
    TENSOR_KINDS,
    FormName,
    RecordsCodec,
    TensorCodec,
)
from ...domain.schema import FeatureKind
from ..negotiation import SHORT_NAME_ONLY
from ..parameters import NoParameters

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
        "tensors": [
            _describe(codec, TENSOR_KINDS[form], TENSOR_KINDS[form]) for form, codec in TENSOR_CODECS.items()
        ],
        "records": [
            _describe(codec, RECORDS_KINDS_IN[form], RECORDS_KINDS[form])
            for form, codec in RECORDS_CODECS.items()
        ],
    }


def _describe(
    codec: TensorCodec | RecordsCodec, kinds_in: tuple[FeatureKind, ...], kinds_out: tuple[FeatureKind, ...]
) -> FormUseJson:
    return {
        "form": codec.form,
        "media_types": list(MEDIA_TYPES[codec.form]),
        "in": codec.decode is not None,
        "out": codec.encode is not None,
        "kinds": kinds_out,
        "kinds_in": kinds_in,
        "by_short_name_only": codec.form in SHORT_NAME_ONLY,
    }
