"""An append from its body to its acknowledgement, and on to the publication where that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from ..codecs.options import RecordsDecodeOptions, RecordsEncodeOptions
from ..codecs.registry import FormName
from ..domain.limits import Budget
from ..domain.streams import ByteStream
from ..errors import ShardsmithError
from ..storage.spool import Spool
from .dataset.catalog import require_same_message, require_same_schema
from .datasets import AppendResult, Datasets, Destination, PublishOptions
from .records import open_records

__all__ = ["AppendRequest", "Appended", "append_rows"]


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """What a client asked for.

    Attributes:
        key: the idempotency key.
        publish: publish everything acknowledged so far once these rows are.
    """

    dataset: str
    split: str
    form: FormName
    key: str | None
    decode: RecordsDecodeOptions
    encode: RecordsEncodeOptions
    publish: PublishOptions | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer: its body, and the place of what was made, relative to the datasets."""

    body: dict[str, Any]
    location: str


def append_rows(
    datasets: Datasets,
    request: AppendRequest,
    source: ByteStream,
    digest: Callable[[], str],
    budget: Budget,
    spool: Spool,
    resources: ExitStack,
) -> Appended:
    """Decode, store and acknowledge the rows of `source`; then publish, if asked to.

    Args:
        datasets: where to.
        request: what to do.
        source: the body.
        digest: what identifies the request; called once the body is exhausted.
        budget: what the request may hold.
        spool: room for forms that have to be whole.
        resources: closed by the caller at the end of the request.

    Raises:
        InputError: the rows cannot be read or do not fit; nothing is stored.
        ShardsmithError: as `Datasets.append` and `Datasets.publish`; where the publication failed
            after the append was acknowledged, it carries `append_id`.
    """
    destination = datasets.destination(request.dataset)
    decode = _by_schema_of(destination, request.decode)
    records = open_records(source, request.form, decode, budget, spool, resources)
    appended = datasets.append(
        request.dataset,
        request.split,
        records,
        key=request.key,
        digest=digest,
        options=request.encode,
        budget=budget,
        destination=destination,
    )
    if request.publish is None:
        return Appended(appended.to_json(), f"{request.dataset}/appends/{appended.append_id}")
    return _publish(datasets, destination, appended, request.publish)


def _by_schema_of(destination: Destination, options: RecordsDecodeOptions) -> RecordsDecodeOptions:
    """Rows are read by the schema of the dataset, once it has one."""
    if destination.schema is None:
        return options
    if options.schema is not None:
        require_same_schema(options.schema, destination.schema)
    require_same_message(options.message, destination.schema)
    return replace(options, schema=destination.schema, schema_of_dataset=True)


def _publish(
    datasets: Datasets, destination: Destination, appended: AppendResult, options: PublishOptions
) -> Appended:
    name = appended.dataset
    try:
        manifest = datasets.publish(name, options, wants=appended.append_id, destination=destination)
    except ShardsmithError as error:
        error.extra["append_id"] = appended.append_id
        raise
    body = {**manifest.to_json(), "append": appended.to_json()}
    return Appended(body, f"{name}/versions/{manifest.version}")
