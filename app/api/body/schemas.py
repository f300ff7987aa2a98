"""The schema that a request declares, in its query or in a part before its rows; and the rows behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from starlette.datastructures import Headers

from ...codecs.archives.form_data import MULTIPART
from ...codecs.columns import Records
from ...codecs.json.text import parse_json
from ...codecs.schemas.declared import parse_schema
from ...domain.feature import steps_text
from ...domain.limits import KIB
from ...domain.schema import Schema
from ...errors import MalformedInput, NotFound, UnknownForm
from ...runtime.budget import Budget
from ...runtime.streams import ByteStream
from ...transforms.apply import SkippedRows, apply_transforms
from ...transforms.parse import check_transforms, with_transforms
from ..execution.job import Declined, Job
from ..query.rows import DescribeRecordsQuery, RowConversionQuery
from ..state import Services
from .headers import check_body_headers
from .multipart import is_multipart, open_multipart

#: `?schema=dataset:NAME` takes the schema of a dataset.
DATASET_SCHEMA_PREFIX = "dataset:"
_MAX_QUERY_BYTES = 8 * KIB


def declared_schema(text: str | None, services: Services) -> Schema | None:
    """What `?schema=` gives, or None. Reads the store for `dataset:NAME`, so not on the event loop.

    Raises:
        InputError: longer than 8 KiB, or as `parse_schema`.
        NotFound: the dataset does not exist or has no schema yet.
    """
    if text is None:
        return None
    if text.startswith(DATASET_SCHEMA_PREFIX):
        name = text.removeprefix(DATASET_SCHEMA_PREFIX)
        schema = services.datasets.schema(name)
        if schema is None:
            raise no_schema_of(name)
        return schema.as_declared()
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > _MAX_QUERY_BYTES:
        raise MalformedInput(
            "?schema= is longer than 8 KiB; put it into the body beside the rows.", code="invalid_schema"
        )
    return check_transforms(parse_schema(encoded, services.limits))


def declared_transforms(text: str | None) -> dict[str, str]:
    """What `?transforms=` gives: the text of the steps, by feature.

    Raises:
        InputError: longer than 8 KiB, not JSON, or not an object of lists (`invalid_transform`).
    """
    if text is None:
        return {}
    encoded = text.encode("utf-8", "replace")
    value = parse_json(encoded, Budget()).value if len(encoded) <= _MAX_QUERY_BYTES else None
    if not isinstance(value, dict):
        raise MalformedInput(
            '?transforms= is an object of at most 8 KiB: {"x": [{"step": "flatten"}]}. More fits into the '
            "schema beside the rows.",
            code="invalid_transform",
        )
    return {name: steps_text(name, "transforms", steps) for name, steps in value.items()}


def transformed(
    records: Records,
    job: Job,
    transforms: Mapping[str, str],
    skipped: SkippedRows | None = None,
    *,
    can_skip: bool = True,
) -> Records:
    """The rows after the transforms of their schema and those of the query.

    Args:
        transforms: as `declared_transforms` gives them.
        skipped: as `apply_transforms`.
        can_skip: as `apply_transforms`.

    Raises:
        Declined: there are some, for which the event loop would have to wait.
        InputError: as `with_transforms` and `apply_transforms`.
    """
    if transforms:
        records = replace(records, schema=with_transforms(records.schema, transforms))
    if job.is_on_loop and records.schema.has_transforms:
        raise Declined
    return apply_transforms(records, job.services.images, job.budget, skipped, can_skip=can_skip)


def names_dataset(query: RowConversionQuery | DescribeRecordsQuery) -> bool:
    """Whether `?schema=` has to be looked up in the store."""
    return (query.schema_ or "").startswith(DATASET_SCHEMA_PREFIX)


def no_schema_of(name: str) -> NotFound:
    """What is said of a dataset whose schema cannot be taken."""
    return NotFound(f"Dataset {name!r} does not exist or has no schema.", code="dataset_not_found")


def unwrap(
    body: ByteStream, headers: Headers, schema: Schema | None, job: Job, from_: str | None
) -> tuple[ByteStream, Headers, Schema | None]:
    """The rows of a body, the headers that describe them, and the schema declared for them.

    A `multipart/form-data` body is opened up to its part `data`; one with files is read by the form
    `multipart`. Any other body is the rows themselves.

    Args:
        from_: the query parameter `from`.

    Raises:
        InputError: a multipart body or a schema that cannot be read, or a schema given twice.
        UnknownForm: a part that is encoded, or files where `from` says something else.
    """
    content_type = headers.get("content-type", "")
    if not is_multipart(content_type):
        return body, headers, schema
    limits = job.services.limits
    parts = open_multipart(body, content_type, job.budget)
    check_body_headers(parts.headers, limits)
    if parts.is_files and from_ not in (None, "multipart", MULTIPART):
        raise UnknownForm(
            f"The body has files, but from={from_[:40]!r} is given. Leave it out, or send the rows in a part "
            "'data'."
        )
    if parts.schema is not None:
        if schema is not None:
            raise MalformedInput(
                "The schema is given twice, in the query and in the part 'schema'. Give it once.",
                code="schema_twice",
            )
        schema = check_transforms(parse_schema(parts.schema, limits))
    return parts.data, parts.headers, schema
