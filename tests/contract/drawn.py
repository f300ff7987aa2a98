"""What schemathesis draws requests from: openapi.yaml, and the seeds of the fuzzers as bodies.

A module of its own, since schemathesis takes a second to import and only slow tests use it.
"""

from pathlib import Path
from typing import Final

import schemathesis
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.codecs.forms import MEDIA_TYPES
from openapi.generate import TARGET

CORPUS: Final = Path(__file__).parents[1] / "fuzz" / "corpus"
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def bodies(form: str) -> st.SearchStrategy[bytes]:
    """Seeds without the byte that chooses the variant; or any bytes."""
    files = [
        path for noun in ("tensors", "records") for path in sorted((CORPUS / f"{noun}-{form}").glob("*"))
    ]
    seeds = [path.read_bytes()[1:] for path in files]
    return (st.sampled_from(seeds) if seeds else st.nothing()) | st.binary(max_size=64)


for form, media_types in MEDIA_TYPES.items():
    for media_type in media_types:
        if not media_type.endswith("/json"):
            schemathesis.openapi.media_type(media_type, bodies(form))

OPERATIONS: Final = {
    found.ok().definition.raw["operationId"]: found.ok()
    for found in schemathesis.openapi.from_path(TARGET).get_all_operations()
    if isinstance(found, Ok)  # the others show in the number of operations
}
