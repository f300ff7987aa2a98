"""Parameters that speak of one form: refused where neither the body nor the answer has it.

Ignored, they would be a promise not kept: `?order=F` beside JSON whose client means column-major.
"""

from __future__ import annotations

from collections.abc import Collection

from pydantic import BaseModel

from ...codecs.applicability import inapplicable
from ...errors import MalformedInput


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
    fields = sorted(query.model_fields_set.difference(applied))
    found = inapplicable([(field, getattr(query, field)) for field in fields], read=read, written=written)
    if found is None:
        return
    field, value, forms = found
    name = type(query).model_fields[field].alias or field
    here = " and ".join(
        f"{what} is {form}" for what, form in (("the body", read), ("the answer", written)) if form
    )
    raise MalformedInput(
        f"?{name}={value} is for {forms}; here {here}. Leave it out, or choose another format.",
        code="inapplicable_parameter",
        extra={"parameter": name},
    )
