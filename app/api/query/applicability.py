"""Parameters that speak of one form: refused where neither the body nor the answer has it.

Ignored, they would be a promise not kept: `?order=F` beside JSON whose client means column-major.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from pydantic import BaseModel

from ...codecs.forms import MESSAGE_FORMS
from ...errors import MalformedInput


class _Forms(NamedTuple):
    """The forms that a parameter speaks of: of the body, of the answer, and what errors call them."""

    read: frozenset[str]
    written: frozenset[str]
    name: str


_NONE: Final[frozenset[str]] = frozenset()
_RAW: Final = frozenset({"raw"})
_TFRECORD: Final = frozenset({"tfrecord"})
_CSV: Final = frozenset({"csv"})
_ARCHIVES: Final = frozenset({"tar", "zip", "multipart"})
_IMAGES: Final = frozenset({"jpeg", "png", "webp", "gif", "bmp"})
_ROWS_OF_JSON: Final = frozenset({"json", "ndjson"})
#: Forms whose numbers are text.
_TEXT: Final = frozenset({"json", "ndjson", "oip", "csv"})

_FORMS: Final = {
    "byte_order": _Forms(_RAW, _RAW, "raw bodies and raw answers"),
    "order": _Forms(_RAW, _RAW, "raw bodies and raw answers"),
    "compression": _Forms(_TFRECORD, _TFRECORD, "TFRecord"),
    "delimiter": _Forms(_CSV, _NONE, "CSV bodies"),
    "null_": _Forms(_CSV, _NONE, "CSV bodies"),
    "archive": _Forms(_ARCHIVES, _NONE, "archives"),
    "labels": _Forms(_ARCHIVES, _NONE, "archives"),
    "damaged": _Forms(_TFRECORD, _NONE, "TFRecord bodies"),
    "channels": _Forms(_IMAGES, _NONE, "images"),
    "quality": _Forms(_NONE, frozenset({"jpeg"}), "JPEG answers"),
    "sparse": _Forms(_NONE, frozenset({"tensorproto", "tfrecord", "b64"}), "answers of TensorProtos"),
    "layout": _Forms(_NONE, frozenset({"json"}), "JSON answers"),
    "int64": _Forms(_NONE, _ROWS_OF_JSON, "JSON answers"),
    "bytes_": _Forms(_NONE, _ROWS_OF_JSON, "JSON answers"),
    "b64": _Forms(_NONE, _ROWS_OF_JSON | {"b64"}, "JSON answers"),
    "batch": _Forms(_NONE, frozenset({"arrow", "ndjson"}), "Arrow answers and NDJSON of columns"),
}
#: Parameters of which only some values speak of a form.
_VALUES: Final = {
    ("nonfinite", "bare"): _Forms(_TEXT, _NONE, "bodies of text"),
    ("nonfinite", "null"): _Forms(_TEXT, _ROWS_OF_JSON, "bodies of text and JSON answers"),
    ("nonfinite", "error"): _Forms(_NONE, _ROWS_OF_JSON, "JSON answers"),
    ("message", "bytes"): _Forms(MESSAGE_FORMS, MESSAGE_FORMS, "TFRecord and b64"),
}


def refuse_inapplicable(
    query: BaseModel, *, read: str | None = None, written: str | None = None, applied: Collection[str] = ()
) -> None:
    """Refuse a parameter that would change nothing.

    Args:
        query: the parameters of the request.
        read: the form of the body, where the route reads one.
        written: the form of the answer, where the route negotiates one.
        applied: fields that here change something, although the forms alone do not say so.

    Raises:
        MalformedInput: which one, and what it is for.
    """
    for field in sorted(query.model_fields_set.difference(applied)):
        value = getattr(query, field)
        forms = _FORMS.get(field) or _VALUES.get((field, value))
        # Without compression is what every other form is.
        if forms is None or value == "none" or read in forms.read or written in forms.written:
            continue
        name = type(query).model_fields[field].alias or field
        here = " and ".join(
            f"{what} is {form}" for what, form in (("the body", read), ("the answer", written)) if form
        )
        raise MalformedInput(
            f"?{name}={value} is for {forms.name}; here {here}. Leave it out, or choose another form.",
            code="inapplicable_parameter",
            extra={"parameter": name},
        )
