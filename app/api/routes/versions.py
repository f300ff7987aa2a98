"""`/v1/datasets/{dataset}/versions`: manifests, files and rows of what was published."""

from __future__ import annotations

from functools import partial
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response
from typing_extensions import TypedDict

from ...codecs.columns import in_batches
from ...runtime.streams import ByteStream
from ...services.convert.describe import DESCRIPTIONS, DescriptionJson, describe_records
from ...services.convert.records import encode_records
from ...services.datasets.publish.progress import Progress, ProgressJson
from ...services.datasets.version_statistics import ComparedStatisticsJson, Computing, ComputingJson, compare
from ...transforms.apply import SkippedRows
from ..answers import (
    VersionJson,
    computing_answer,
    description_answer,
    json_answer,
    manifest_json,
    records_answer,
    records_options,
    underway_answer,
)
from ..auth.principal import require_visible
from ..body.schemas import declared_transforms, transformed
from ..downloads.files import Download, Downloads
from ..execution.job import Answer, Job, Plan
from ..negotiation import choose_output
from ..openapi import body_answer, file_response, json_response
from ..operation import Handler, NegotiatingHeaders, Operation
from ..query.datasets import (
    DescribeVersionParameters,
    DownloadParameters,
    DownloadQuery,
    RowsParameters,
    StatisticsParameters,
)
from ..query.rows import refuse_body
from .records import RECORDS_OUT

router = APIRouter(
    prefix="/v1/datasets/{dataset}/versions",
    tags=["versions"],
    route_class=Operation,
    default_response_class=Response,
)

#: Of what a version holds: shards, and side files, which either route hands out.
_FILE_TYPES: Final = ("application/x-tfrecord", "application/json", "text/plain")
_TAR: Final = "application/x-tar"
_SUMS: Final = {"text": ("text/plain",)}


class VersionListJson(TypedDict):
    """The published versions of a dataset, oldest first."""

    dataset: str
    versions: list[str]


class AbortedJson(TypedDict):
    """A version that was given up, and why."""

    version: str
    aborted: str


@router.get(
    "",
    operation_id="list_versions",
    openapi_extra=json_response(200, "Versions, oldest first.", VersionListJson),
)
@router.head("", include_in_schema=False)
def list_versions(dataset: str) -> Plan:
    """The published versions of a dataset."""

    def work(job: Job, _: ByteStream) -> Answer:
        versions = job.services.datasets.versions(dataset)
        listed: VersionListJson = {"dataset": dataset, "versions": list(versions)}
        return json_answer(listed)

    return Plan(work, "metadata")


@router.get(
    "/{version}",
    operation_id="get_version",
    openapi_extra=json_response(
        200,
        "The manifest.",
        VersionJson,
        also={202: ("It is being published: `percent` of its records are in finished shards.", ProgressJson)},
    ),
)
@router.head("/{version}", include_in_schema=False)
def get_version(dataset: str, version: str) -> Plan:
    """The manifest of a version (or of `latest`): splits, shards, counts, sizes, checksums, schema.

    `load` has lines that load it, ready to run: `download` (curl and tar), then `tf.data` or `tfds` on what
    that made; `python` reads rows over HTTP with the standard library alone. While the version is being
    published the answer is 202 and says how far that is, whichever replica is asked.
    """

    def work(job: Job, _: ByteStream) -> Answer:
        found = job.services.datasets.follow(dataset, version)
        if isinstance(found, Progress):
            return underway_answer(found.to_json(), f"{dataset}/versions/{found.version}")
        return json_answer(manifest_json(found, job.request))

    return Plan(work, "metadata")


@router.post(
    "/{version}/abort",
    operation_id="abort_version",
    openapi_extra=json_response(200, "Aborted, now or before, and why.", AbortedJson),
)
def abort_version(dataset: str, version: str) -> Plan:
    """Give up a version that is being published. Its number stays a gap; its appends are free again."""

    def work(job: Job, body: ByteStream) -> Answer:
        refuse_body(body)
        aborted: AbortedJson = {"version": version, "aborted": job.services.datasets.abort(dataset, version)}
        return json_answer(aborted)

    return Plan(work, "metadata")


@router.get(
    "/{version}/shards/{file}",
    operation_id="download_shard",
    openapi_extra=file_response(_FILE_TYPES, "The TFRecord file", signed=True),
)
@router.head("/{version}/shards/{file}", include_in_schema=False)
def download_shard(dataset: str, version: str, file: str, query: DownloadParameters) -> Handler:
    """Download a shard. Understands ranges and conditions (RFC 9110); the ETag is its SHA-256."""
    return partial(_download, dataset, version, file, query)


@router.get(
    "/{version}/files/{file}",
    operation_id="download_file",
    openapi_extra=file_response(_FILE_TYPES, "The side file", signed=True),
)
@router.head("/{version}/files/{file}", include_in_schema=False)
def download_file(dataset: str, version: str, file: str, query: DownloadParameters) -> Handler:
    """Download a side file: dataset_info.json, features.json, schema.pbtxt, an index of records."""
    return partial(_download, dataset, version, file, query)


async def _download(
    dataset: str, version: str, file: str, query: DownloadQuery, request: Request
) -> Response:
    state = request.app.state
    stored = await state.runner.call(
        request, partial(state.services.datasets.open_file, dataset, version, file)
    )
    # A URL that is signed for GET refuses HEAD.
    if query.redirect == "signed" and request.method != "HEAD":
        url = await state.runner.call(request, stored.sign)
        return Response(None, 307, {"Location": url, "Cache-Control": "no-store"})
    download = Download(
        file=stored,
        name=file,
        media_type=stored.media_type,
        tag=stored.sha256,
        sha256=stored.sha256,
        immutable=version != "latest",
    )
    return await _answer(request, download)


@router.get(
    "/{version}/tar",
    operation_id="download_version",
    openapi_extra=file_response((_TAR,), "The tar file"),
)
@router.head("/{version}/tar", include_in_schema=False)
def download_version(dataset: str, version: str) -> Handler:
    """Download all files of a version as one tar, below the folder `{dataset}/{version}`.

    The same bytes each time, so that `Range` and `If-Range` resume it.
    """
    return partial(_download_tar, dataset, version)


async def _download_tar(dataset: str, version: str, request: Request) -> Response:
    state = request.app.state
    tar = await state.runner.call(request, partial(state.services.datasets.open_tar, dataset, version))
    download = Download(
        file=tar,
        name=f"{dataset}-{version}.tar",
        media_type=_TAR,
        tag=tar.tag,
        sha256=None,
        immutable=version != "latest",
    )
    return await _answer(request, download)


async def _answer(request: Request, download: Download) -> Response:
    downloads: Downloads = request.app.state.downloads
    return await downloads.answer(request, download)


@router.get(
    "/{version}/SHA256SUMS",
    operation_id="list_checksums",
    openapi_extra=body_answer(_SUMS, default="text", named=False),
)
@router.head("/{version}/SHA256SUMS", include_in_schema=False)
def list_checksums(dataset: str, version: str) -> Plan:
    """The SHA-256 of each shard and side file, for `sha256sum -c` in the folder that holds them."""

    def work(job: Job, _: ByteStream) -> Answer:
        sums = job.services.datasets.manifest(dataset, version).sha256sums()
        return description_answer(sums.encode(), _SUMS["text"][0])

    return Plan(work, "metadata")


@router.get(
    "/{version}/describe",
    operation_id="describe_version",
    openapi_extra=body_answer(DESCRIPTIONS, default="json", json=DescriptionJson),
)
@router.head("/{version}/describe", include_in_schema=False)
def describe_version(
    dataset: str, version: str, query: DescribeVersionParameters, headers: NegotiatingHeaders
) -> Plan:
    """Describe a split: its schema, counts, and statistics of each feature; or the schema alone.

    The answer is that of `POST /v1/records/describe` for all rows of the split.
    """
    chosen = choose_output(DESCRIPTIONS, headers, to=query.to, default="json")
    # The schema alone is in the manifest, and rows that are stored fit it.
    length = None if chosen.form == "json" else 0

    def work(job: Job, _: ByteStream) -> Answer:
        rows = job.services.datasets.read_records(
            dataset, version, query.split, length=length, budget=job.budget
        )
        return description_answer(describe_records(rows, chosen.form), chosen.media_type)

    return Plan(work, "store")


@router.get(
    "/{version}/statistics",
    operation_id="get_statistics",
    openapi_extra=json_response(
        200,
        "The statistics.",
        ComparedStatisticsJson,
        also={202: ("They are being found: `percent` of the records were read.", ComputingJson)},
    ),
)
@router.head("/{version}/statistics", include_in_schema=False)
def get_statistics(dataset: str, version: str, query: StatisticsParameters) -> Plan:
    """Statistics of a split: how the values of each feature are spread, and which are frequent.

    All rows are read for them once; they are kept beside the version. While that lasts the answer is 202 and
    says how far it is. With `against_split` or `against_version` the answer has the statistics of both, and
    says of each feature how far apart they are.
    """

    def work(job: Job, _: ByteStream) -> Answer:
        find = partial(job.services.datasets.statistics, caller=job.caller)
        found = find(dataset, version, query.split)
        if isinstance(found, Computing):
            return computing_answer(found.to_json())
        if query.against_split is None and query.against_version is None:
            return json_answer(found)
        other = find(dataset, query.against_version or version, query.against_split or query.split)
        if isinstance(other, Computing):
            return computing_answer(other.to_json())
        return json_answer(compare(found, other))

    return Plan(work, "store")


@router.get(
    "/{version}/records",
    operation_id="read_records",
    openapi_extra=body_answer(RECORDS_OUT, default="ndjson", headers=("Skipped-Rows",), json="Rows"),
)
@router.head("/{version}/records", include_in_schema=False)
def read_records(dataset: str, version: str, query: RowsParameters, headers: NegotiatingHeaders) -> Plan:
    """Rows of a split in any records format: in order, or shuffled, batched and shared out for training.

    `offset` and `length` count in the order of the version, before rows are shuffled or shared out; `start`
    and `stop` count in the order of the epoch, which is that of all workers. `mix` takes several splits in
    turns.
    """
    chosen = choose_output(RECORDS_OUT, headers, to=query.to, default="ndjson")
    query.refuse_inapplicable(chosen.form)
    order, mixture = query.row_order(), query.mixture()
    transforms = declared_transforms(query.transforms)
    batch = query.rows_of_message(chosen.form)
    batch_files = chosen.form == "npz" and batch is not None

    def work(job: Job, _: ByteStream) -> Answer:
        datasets = job.services.datasets
        if mixture is None:
            rows = datasets.read_records(
                dataset,
                version,
                query.split,
                offset=query.offset,
                length=query.length,
                order=order,
                budget=job.budget,
            )
        else:
            parts = [
                (part.dataset or dataset, part.version or version, part.split, part.weight)
                for part in mixture
            ]
            require_visible(job.request.scope, [part[0] for part in parts])
            rows = datasets.read_mixture(parts, order=order, budget=job.budget)
        skipped = SkippedRows() if query.on_error == "skip" else None
        rows = transformed(rows, job, transforms, skipped)
        if batch is not None:
            rows = in_batches(rows, batch, job.budget, drop_remainder=query.drop_remainder)
        options = records_options(query.encode_options(), chosen)
        numbering = skipped if batch is None else None
        converted = encode_records(rows, chosen.form, options, job.budget, numbering, batch_files=batch_files)
        return records_answer(converted, _TAR if batch_files else chosen.media_type, skipped=skipped)

    complete_first = query.delivery == "checked" or query.on_error == "skip"
    return Plan(work, "store", complete_first)
