"""A schema as clients declare it: our own JSON, a `features.json` of TFDS, a `schema.pbtxt` of TFMD.

The content tells them apart: JSON begins with a brace, and a schema.pbtxt never does; a features.json names
its class (`type` or `pythonClassName`).
"""

from __future__ import annotations

from ...domain.limits import Limits
from ...domain.schema import Schema
from ...runtime.budget import Budget
from ..json.text import parse_json
from .features_json import parse_features
from .features_read import is_features
from .pbtxt import parse_pbtxt


def parse_schema(data: bytes, limits: Limits | None = None) -> Schema:
    """The schema in any of the three forms.

    Raises:
        InputError: none of them, or a schema that no rows here can have.
    """
    limits = limits or Limits()
    if data.lstrip()[:1] in (b"{", b"[", b'"'):
        return schema_from_value(parse_json(data, Budget(limits)).value, limits)
    return parse_pbtxt(data, limits)


def schema_from_value(value: object, limits: Limits | None = None) -> Schema:
    """The schema that a member of a JSON body is: ours, a features.json, or a string with a schema.pbtxt.

    Raises:
        InputError: not a schema, or one that no rows here can have.
    """
    if isinstance(value, str):
        return parse_pbtxt(value.encode("utf-8", "replace"), limits)
    if isinstance(value, dict) and is_features(value):
        return parse_features(value, limits)
    return Schema.from_json(value, limits)
