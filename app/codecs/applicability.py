"""Options that speak of one format: they change nothing where neither input nor output has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from .forms import MESSAGE_FORMS


class _Forms(NamedTuple):
    """The formats that an option speaks of: of the input, of the output, and what errors call them."""

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
    "batch": _Forms(_NONE, frozenset({"arrow", "ndjson", "npz"}), "Arrow, NPZ and NDJSON of columns"),
}
#: Options of which only some values speak of a format.
_VALUES: Final = {
    ("nonfinite", "bare"): _Forms(_TEXT, _NONE, "bodies of text"),
    ("nonfinite", "null"): _Forms(_TEXT, _ROWS_OF_JSON, "bodies of text and JSON answers"),
    ("nonfinite", "error"): _Forms(_NONE, _ROWS_OF_JSON, "JSON answers"),
    ("message", "bytes"): _Forms(MESSAGE_FORMS, MESSAGE_FORMS, "TFRecord and b64"),
}


def inapplicable(
    options: Iterable[tuple[str, object]], *, read: str | None = None, written: str | None = None
) -> tuple[str, object, str] | None:
    """The first of the options that would change nothing: its name, its value and what it is for.

    Args:
        options: names and values, of those that are given.
        read: the format of the input, where one is read.
        written: the format of the output, where one is chosen.
    """
    for name, value in options:
        forms = _FORMS.get(name) or _VALUES.get((name, str(value)))
        # Without compression is what every other format is.
        if forms is None or value == "none" or read in forms.read or written in forms.written:
            continue
        return name, value, forms.name
    return None
