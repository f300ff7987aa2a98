"""`/v1/forms`: the registry as JSON."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from ...codecs.registry import MEDIA_TYPES, RECORDS_CODECS, TENSOR_CODECS, RecordsCodec, TensorCodec
from ..negotiation import SHORT_NAME_ONLY
from ..parameters import NoParameters

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["forms"])


@router.get("/forms", operation_id="list_forms", summary="Every form, in and out")
@router.head("/forms", include_in_schema=False)
async def forms(_: NoParameters) -> dict[str, Any]:
    """Short names, media types and directions, for tensors and for records."""
    return {
        "tensors": [_describe(codec) for codec in TENSOR_CODECS.values()],
        "records": [_describe(codec) for codec in RECORDS_CODECS.values()],
    }


def _describe(codec: TensorCodec | RecordsCodec) -> dict[str, Any]:
    return {
        "form": codec.form,
        "media_types": list(MEDIA_TYPES[codec.form]),
        "in": codec.decode is not None,
        "out": codec.encode is not None,
        "by_short_name_only": codec.form in SHORT_NAME_ONLY,
    }
