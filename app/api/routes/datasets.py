"""`/v1/datasets`: create, append, publish; `versions.py` reads what was published."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Final

from fastapi import APIRouter, Header, Request
from starlette.datastructures import Headers
from starlette.responses import Response
from typing_extensions import TypedDict

from ...codecs.archives.form_data import MULTIPART
from ...codecs.forms import MEDIA_TYPES
from ...codecs.json.text import parse_json
from ...codecs.schemas.declared import schema_from_value
from ...domain.losses import Losses
from ...domain.manifest import Manifest
from ...domain.names import check_idempotency_key, check_split_name
from ...domain.schema import Schema
from ...errors import InputError, MalformedInput
from ...runtime.budget import Budget
from ...runtime.streams import ByteStream
from ...services.datasets.append.digests import HashingStream, request_digest
from ...services.datasets.append.request import AppendBody, AppendRequest, may_be_grouped
from ...services.datasets.append.result import AppendJson, AppendResult
from ...services.datasets.datasets import Appended, AppendStatusJson, DatasetJson
from ...services.datasets.objects.incarnation import DatasetOptions
from ...services.datasets.publications import Underway, UnderwayJson
from ...services.datasets.publish.waiting import WaitingAppendsJson
from ...services.deferred import then
from ..answers import VersionJson, json_answer, manifest_json, no_content, underway_answer
from ..auth.principal import visible_to
from ..body.documents import read_document
from ..body.multipart import boundary_of
from ..body.schemas import declared_schema, unwrap
from ..execution.job import Answer, Declined, Job, LaneName, Plan, Work
from ..execution.small import BODY_BYTES
from ..negotiation import choose_input, parse_json_bytes
from ..openapi import body_of, json_body, json_response
from ..operation import NegotiatingHeaders, Operation
from ..query.applicability import refuse_inapplicable
from ..query.datasets import AppendParameters, AppendQuery, AppendsParameters, PublishParameters
from ..query.rows import refuse_body
from .records import RECORDS_IN

router = APIRouter(
    prefix="/v1/datasets", tags=["datasets"], route_class=Operation, default_response_class=Response
)

_DESCRIPTION: Final = {"json": MEDIA_TYPES["json"]}
_CREATE_MEMBERS = {"schema", "description", "keep_versions"}

#: What a small append may say and still be decoded with others.
_DECODED_TOGETHER: Final = frozenset({"from_", "split", "nonfinite", "undeclared", "lossy"})

IdempotencyKey = Annotated[
    str | None,
    Header(description="1-128 of A-Z a-z 0-9 . _ -; the same key with the same body is stored once."),
]
PublishKey = Annotated[
    str | None,
    Header(description="1-128 of A-Z a-z 0-9 . _ -; the same key and parameters give the same version."),
]


class DatasetNameJson(TypedDict):
    """A dataset, by name."""

    dataset: str


class DatasetListJson(TypedDict):
    """The datasets that the caller may see."""

    datasets: list[DatasetNameJson]


class AppendedVersionJson(VersionJson):
    """The version that an append with `publish=true` made, and what was appended."""

    append: AppendJson


@router.get(
    "",
    operation_id="list_datasets",
    openapi_extra=json_response(200, "The datasets, by name.", DatasetListJson),
)
@router.head("", include_in_schema=False)
def list_datasets() -> Plan:
    """The names of all datasets; of one's own, where a token is for those of a tenant."""

    def work(job: Job, _: ByteStream) -> Answer:
        names = visible_to(job.request.scope, job.services.datasets.list())
        listed: DatasetListJson = {"datasets": [{"dataset": name} for name in names]}
        return json_answer(listed)

    return Plan(work, "metadata")


@router.put(
    "/{dataset}",
    operation_id="create_dataset",
    openapi_extra={
        **json_body(
            'Optional: {"schema": {"features": ...}, "description": "...", "keep_versions": 3}. The schema '
            "may also be a features.json of TFDS, or a string with a schema.pbtxt of TensorFlow Metadata. "
            "Without keep_versions all versions stay; with it, collection deletes all but the newest.",
            "DatasetBody",
            required=False,
        ),
        **json_response(
            201,
            "Created.",
            DatasetJson,
            also={200: ("It was there already, with the same content.", DatasetJson)},
        ),
    },
)
def create_dataset(dataset: str, headers: NegotiatingHeaders) -> Plan:
    """Create a dataset. Without a schema, the first append fixes it. The same request again answers 200."""

    def work(job: Job, body: ByteStream) -> Answer:
        choose_input(_DESCRIPTION, headers, from_=None, default="json")
        schema, options = _read_creation(body, job.budget)
        info, created = job.services.datasets.create(dataset, schema, options)
        location = {"Location": f"/v1/datasets/{dataset}"}
        return json_answer(info.to_json(), status=201 if created else 200, headers=location)

    return Plan(work, "metadata")


def _read_creation(body: ByteStream, budget: Budget) -> tuple[Schema | None, DatasetOptions]:
    text = read_document(body, budget, "a dataset")
    if not text:
        return None, DatasetOptions()
    value = parse_json(text, budget).value
    if not isinstance(value, dict) or set(value) - _CREATE_MEMBERS:
        raise MalformedInput(
            f"The body of this request is an object with {sorted(_CREATE_MEMBERS)}, all optional.",
            code="invalid_dataset",
        )
    description = value.get("description", "")
    if not isinstance(description, str):
        raise MalformedInput('"description" must be a string.', code="invalid_dataset")
    schema = schema_from_value(value["schema"], budget.limits) if "schema" in value else None
    return schema, DatasetOptions(description, value.get("keep_versions"))


@router.get(
    "/{dataset}",
    operation_id="get_dataset",
    openapi_extra=json_response(200, "The dataset.", DatasetJson),
)
@router.head("/{dataset}", include_in_schema=False)
def get_dataset(dataset: str) -> Plan:
    """Schema, options and versions of a dataset."""

    def work(job: Job, _: ByteStream) -> Answer:
        return json_answer(job.services.datasets.get(dataset).to_json())

    return Plan(work, "metadata")


@router.delete(
    "/{dataset}",
    operation_id="delete_dataset",
    status_code=204,
    responses={204: {"description": "Deleted, with all its versions."}},
)
def delete_dataset(dataset: str) -> Plan:
    """Delete a dataset and all its versions. A dataset created again under the name begins at 2.0.0."""

    def work(job: Job, _: ByteStream) -> Answer:
        job.services.datasets.delete(dataset)
        return no_content()

    return Plan(work, "metadata")


@router.post(
    "/{dataset}/records",
    operation_id="append_records",
    openapi_extra={
        **body_of(RECORDS_IN, json="RowsBody"),
        **json_response(
            201,
            "Stored, as durably as the store is; with `publish=true` the manifest of the new version.",
            AppendJson | AppendedVersionJson,
            also={
                202: (
                    "Stored; the publication takes longer, and can be followed at `Location`.",
                    UnderwayJson,
                )
            },
            headers=("Idempotency-Replayed",),
        ),
    },
)
def append_records(
    dataset: str,
    query: AppendParameters,
    headers: NegotiatingHeaders,
    idempotency_key: IdempotencyKey = None,
) -> Plan:
    """Append rows durably. A dataset that does not exist is created, with the schema of these rows."""
    query.refuse_publish_options_alone()
    query.refuse_contradictions()
    key = None if idempotency_key is None else check_idempotency_key(idempotency_key)

    def work(job: Job, body: ByteStream) -> Future[Answer]:
        losses = Losses() if query.damaged == "skip" else None
        declared = declared_schema(query.schema_, job.services)
        rows, of_rows, declared = unwrap(body, headers, declared, job, query.from_)
        boundary = boundary_of(of_rows.get("content-type", ""))
        hashed = HashingStream(rows, boundary)
        form = choose_input(RECORDS_IN, of_rows, from_=query.from_, default=None)
        refuse_inapplicable(query, read=form)
        json_bytes = parse_json_bytes(of_rows)
        decode = query.decode_options(declared, json_bytes=json_bytes)
        append = AppendRequest(
            dataset=dataset,
            split=query.split,
            form=form,
            key=key,
            decode=query.for_body(replace(decode, losses=losses), of_rows, query.from_),
            encode=query.encode_options(),
            publish=query.publish_options() if query.publish else None,
            sequence=query.sequence or None,
            evolve=query.evolve == "widen",
            on_error=query.on_error,
        )

        def digest() -> str:
            given = query.given(job.request.query_params)
            content_type = MULTIPART if boundary else of_rows.get("content-type", "")
            return request_digest(hashed, content_type, declared, given, json_bytes)

        source = rows if key is None else hashed
        appended = job.services.datasets.append(append, AppendBody(source, digest, job))
        counts_skipped = query.on_error == "skip"
        return then(
            appended, lambda stored: _appended(stored, losses, job.request, counts_skipped=counts_skipped)
        )

    # Without a key, rows wait for the store in a group, which holds no thread.
    lane: LaneName = "append" if may_be_grouped(key, query.publish, query.sequence) else "store"
    return Plan(work, lane, on_loop=_decode_together(dataset, query, headers, key))


def _decode_together(dataset: str, query: AppendQuery, headers: Headers, key: str | None) -> Work | None:
    """How a small append is decoded and stored with others; None where it has to be stored by itself."""
    try:
        form = choose_input(RECORDS_IN, headers, from_=query.from_, default=None)
        refuse_inapplicable(query, read=form)
        split = check_split_name(query.split)
    except InputError:
        return None  # the work says so in its turn
    if key is not None or form != "json" or query.model_fields_set - _DECODED_TOGETHER:
        return None
    decode, encode = query.decode_options(None, json_bytes=None), query.encode_options()
    append = AppendRequest(dataset, split, form, decode, encode)

    def work(job: Job, body: ByteStream) -> Future[Answer]:
        stored = job.services.datasets.append_decoded_together(append, body.read(BODY_BYTES))
        if stored is None:
            raise Declined
        return then(stored, _decoded_together)

    return work


def _decoded_together(result: AppendResult | None) -> Answer:
    if result is None:
        raise Declined
    return _stored(result)


def _stored(stored: AppendResult, losses: Losses | None = None, *, counts_skipped: bool = False) -> Answer:
    """What an append without a publication is answered."""
    location = f"/v1/datasets/{stored.dataset}/appends/{stored.append_id}"
    appended = _append_json(stored, losses, counts_skipped=counts_skipped)
    return json_answer(appended, status=201, headers={"Location": location, **_replayed(stored)})


def _replayed(stored: AppendResult) -> dict[str, str]:
    """The rows were there already: an earlier request with the same key had stored them."""
    return {"Idempotency-Replayed": "true"} if stored.replayed else {}


def _append_json(stored: AppendResult, losses: Losses | None, *, counts_skipped: bool) -> AppendJson:
    appended = stored.to_json()
    if counts_skipped:
        appended["skipped"] = stored.skipped
    if losses is not None:
        appended["lost"] = losses.to_json()
    return appended


def _appended(result: Appended, losses: Losses | None, request: Request, *, counts_skipped: bool) -> Answer:
    stored, published = result.stored, result.published
    if published is None:
        return _stored(stored, losses, counts_skipped=counts_skipped)
    append = _append_json(stored, losses, counts_skipped=counts_skipped)
    if isinstance(published, Underway):
        underway = published.to_json(stored.dataset)
        return underway_answer({**underway, "append": append}, _place_of(published, stored.dataset))
    body: AppendedVersionJson = {**manifest_json(published, request), "append": append}
    return _published(stored.dataset, published, body, _replayed(stored))


def _published(
    dataset: str,
    manifest: Manifest,
    body: VersionJson | AppendedVersionJson,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Answer:
    location = f"/v1/datasets/{dataset}/versions/{manifest.version}"
    return json_answer(body, status=201, headers={"Location": location, **headers})


def _place_of(underway: Underway, dataset: str) -> str:
    """Where the version will be, relative to the datasets; the versions until it is fixed."""
    return f"{dataset}/versions" if underway.version is None else f"{dataset}/versions/{underway.version}"


@router.get(
    "/{dataset}/appends",
    operation_id="list_appends",
    openapi_extra=json_response(200, "Appends, by id; `next` where there are more.", WaitingAppendsJson),
)
@router.head("/{dataset}/appends", include_in_schema=False)
def list_appends(dataset: str, query: AppendsParameters) -> Plan:
    """The acknowledged appends that no version holds yet, in the order of their ids.

    Small appends that were stored together share an id and are listed as one. An append that is
    `unreadable` keeps the dataset from being published; `exclude` leaves it out.
    """

    def work(job: Job, _: ByteStream) -> Answer:
        waiting = job.services.datasets.waiting_appends(dataset, after=query.after, limit=query.limit)
        return json_answer(waiting.to_json(dataset))

    return Plan(work, "metadata")


@router.get(
    "/{dataset}/appends/{append_id}",
    operation_id="get_append",
    openapi_extra=json_response(200, "What became of the append.", AppendStatusJson),
)
@router.head("/{dataset}/appends/{append_id}", include_in_schema=False)
def get_append(dataset: str, append_id: str) -> Plan:
    """Whether an append was acknowledged, and which version holds it."""

    def work(job: Job, _: ByteStream) -> Answer:
        return json_answer(job.services.datasets.get_append(dataset, append_id))

    return Plan(work, "metadata")


@router.post(
    "/{dataset}/versions",
    operation_id="publish_version",
    openapi_extra=json_response(
        201,
        "The manifest of the new version.",
        VersionJson,
        also={202: ("It takes longer, and can be followed at `Location`.", UnderwayJson)},
    ),
)
def publish_version(dataset: str, query: PublishParameters, idempotency_key: PublishKey = None) -> Plan:
    """Publish every acknowledged append as an immutable version.

    After 30 s the answer is 202, and the work goes on: `GET` of its `Location` says how far it is, and the
    same request again, best with an `Idempotency-Key`, waits for the outcome.
    """
    key = None if idempotency_key is None else check_idempotency_key(idempotency_key)

    def work(job: Job, body: ByteStream) -> Answer:
        refuse_body(body)
        manifest = job.services.datasets.publish_within(dataset, query.publish_options(key))
        if isinstance(manifest, Underway):
            return underway_answer(manifest.to_json(dataset), _place_of(manifest, dataset))
        return _published(dataset, manifest, manifest_json(manifest, job.request))

    return Plan(work, "store")
