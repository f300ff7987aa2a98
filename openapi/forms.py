"""The table of forms in docs/http.md, from the form table: what is printed there is what is served."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from app.codecs.forms import FORMS, Form, RecordsCodec, TensorCodec

PAGE: Final = Path(__file__).parent.parent / "docs" / "http.md"
_BEGIN: Final = "<!-- forms: written by bin/openapi -->\n"
_END: Final = "<!-- end of forms -->\n"
_HEAD: Final = """\
| format | media types | tensors | records | a body of records is |
|---|---|---|---|---|
"""


def with_forms(page: str) -> str:
    """The page with the table as it is now between its two marks."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    rows = [_row(form) for form in FORMS]
    return "".join((before, _BEGIN, _HEAD, *rows, _END, after))


def _row(form: Form) -> str:
    media_types = ", ".join(f"`{media_type}`" for media_type in form.media_types)
    reads = _READS[form.records.needs] if form.records else ""
    return f"| `{form.name}` | {media_types} | {_cell(form.tensors)} | {_cell(form.records)} | {reads} |\n"


_READS: Final = {"stream": "streamed", "file": "spooled"}


def _cell(codec: TensorCodec | RecordsCodec | None) -> str:
    if codec is None:
        return ""
    reads, writes = ", ".join(codec.kinds_in), ", ".join(codec.kinds)
    if not writes:
        return f"in: {reads}"
    return f"in, out: {reads}" if reads == writes else f"in: {reads}; out: {writes}"
