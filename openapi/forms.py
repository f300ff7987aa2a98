"""The table of forms in docs/http.md, from the registry: what is printed there is what is served."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from app.codecs.forms import (
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
from app.domain.schema import FeatureKind

__all__ = ["PAGE", "with_forms"]

PAGE: Final = Path(__file__).parent.parent / "docs" / "http.md"
_BEGIN: Final = "<!-- forms: written by bin/openapi -->\n"
_END: Final = "<!-- end of forms -->\n"
_HEAD: Final = """\
| form | media types | tensors | records | of a body of records |
|---|---|---|---|---|
"""


def with_forms(page: str) -> str:
    """The page with the table as it is now between its two marks."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    rows = [_row(form) for form in MEDIA_TYPES if form in TENSOR_CODECS or form in RECORDS_CODECS]
    return "".join((before, _BEGIN, _HEAD, *rows, _END, after))


def _row(form: FormName) -> str:
    media_types = ", ".join(f"`{media_type}`" for media_type in MEDIA_TYPES[form])
    records = RECORDS_CODECS.get(form)
    reads = "" if records is None or records.decode is None else _READS[records.needs]
    return f"| `{form}` | {media_types} | {_tensors(form)} | {_records(form)} | {reads} |\n"


_READS: Final = {"stream": "streamed", "file": "spooled"}


def _tensors(form: FormName) -> str:
    codec = TENSOR_CODECS.get(form)
    return "" if codec is None else _cell(codec, TENSOR_KINDS[form], TENSOR_KINDS[form])


def _records(form: FormName) -> str:
    codec = RECORDS_CODECS.get(form)
    return "" if codec is None else _cell(codec, RECORDS_KINDS_IN[form], RECORDS_KINDS[form])


def _cell(
    codec: TensorCodec | RecordsCodec, kinds_in: tuple[FeatureKind, ...], kinds_out: tuple[FeatureKind, ...]
) -> str:
    reads = ", ".join(kinds_in) if codec.decode else ""
    writes = ", ".join(kinds_out) if codec.encode else ""
    if reads == writes:
        return f"in, out: {reads}"
    return "; ".join(f"{way}: {kinds}" for way, kinds in (("in", reads), ("out", writes)) if kinds)
