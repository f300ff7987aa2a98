"""docs/reference/errors.md: every error code with its statuses, from the source, and errors.yaml's words."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from .codes import find_codes

PAGE: Final = Path(__file__).parent.parent / "docs" / "reference" / "errors.md"
_TEXTS: Final = Path(__file__).with_name("errors.yaml")
_HEAD: Final = """\
# Error codes

<!-- Written by bin/openapi from the code and openapi/errors.yaml. -->

Every error is a problem document ([errors](../http.md#errors)). Its `code` is one of these, and keeps its
meaning from release to release. `detail` says what was wrong in this case; `pointer`, `row`, `feature` and
`offset` say where. A few codes have several statuses: 400 if something cannot be read, 422 if it can be read
but makes no sense.

If the answer has `Retry-After`, as every 503 and some 409 have, send the same request again after that many
seconds. After any other error, do first what the remedy says.

| code | status | cause | remedy |
|---|---|---|---|
"""


@cache  # walking the source takes a second
def read_statuses() -> dict[str, list[int]]:
    """Every code that a client may be told, with its statuses.

    Raises:
        ValueError: a code has no cause and remedy, or one is described that the code does not have.
    """
    texts = yaml.safe_load(_TEXTS.read_text("utf-8"))
    found = find_codes()
    described: dict[str, Any] = texts["codes"]
    known = {*described, *texts["internal"], *texts["reports"]}
    if known != set(found):
        missing, surplus = sorted(set(found) - known), sorted(known - set(found))
        raise ValueError(f"openapi/errors.yaml lacks {missing}, and has {surplus}, which no code has.")
    return {
        code: sorted({*found[code], *(further[0] if further else ())})
        for code, (_, _, *further) in sorted(described.items())
    }


def write_index() -> str:
    """The page."""
    texts: dict[str, Any] = yaml.safe_load(_TEXTS.read_text("utf-8"))["codes"]
    rows = []
    for code, statuses in read_statuses().items():
        cause, remedy, *_ = texts[code]
        rows.append(f"| `{code}` | {', '.join(map(str, statuses))} | {cause} | {remedy} |\n")
    return _HEAD + "".join(rows)
