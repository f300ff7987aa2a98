"""Care for datasets: versions deleted, leftovers collected, what is stored checked."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from ...runtime.streams import ByteStream
from ...services.datasets.collect.sweep import SweepJson
from ...services.datasets.validate.problems import ValidationJson
from ..answers import json_answer, no_content
from ..execution.job import Answer, Job, Plan
from ..openapi import json_response
from ..operation import Operation
from ..query.rows import NoQuery, refuse_body

router = APIRouter(
    prefix="/v1/datasets/{dataset}", tags=["care"], route_class=Operation, default_response_class=Response
)


class CollectQuery(NoQuery):
    """Parameters of `POST /v1/datasets/{dataset}/collect`."""

    dry_run: Annotated[bool, Field(description="Say what would go, and change nothing.")] = False


CollectParameters = Annotated[CollectQuery, Query()]


class ValidateQuery(NoQuery):
    """Parameters of `POST /v1/datasets/{dataset}/versions/{version}/validate`."""

    reader: Annotated[
        Literal["shardsmith", "tensorflow"],
        Field(
            description="`tensorflow`: have TensorFlow read and parse every record, where it is installed. "
            "The first record of a shard that it cannot read is a problem `tensorflow_fault`."
        ),
    ] = "shardsmith"


ValidateParameters = Annotated[ValidateQuery, Query()]


@router.post(
    "/collect",
    operation_id="collect_dataset",
    openapi_extra=json_response(
        200, "What was deleted, by kind; what was left because an outcome is unknown.", SweepJson
    ),
)
def collect_dataset(dataset: str, query: CollectParameters) -> Plan:
    """Remove leftovers of failed appends and publications, deleted versions, and deleted datasets.

    The service does so by itself now and then; nothing that is acknowledged or published is touched.
    """

    def work(job: Job, body: ByteStream) -> Answer:
        refuse_body(body)
        return json_answer(job.services.datasets.collect(dataset, dry_run=query.dry_run).to_json())

    return Plan(work, "store")


@router.delete(
    "/versions/{version}",
    operation_id="delete_version",
    status_code=204,
    responses={204: {"description": "Deleted."}},
)
def delete_version(dataset: str, version: str) -> Plan:
    """Delete a version, unless it is the latest. Collection takes its bytes after an hour."""

    def work(job: Job, _: ByteStream) -> Answer:
        job.services.datasets.delete_version(dataset, version)
        return no_content()

    return Plan(work, "metadata")


@router.post(
    "/versions/{version}/validate",
    operation_id="validate_version",
    openapi_extra=json_response(200, "Whether it is as it should be, and what is not.", ValidationJson),
)
def validate_version(dataset: str, version: str, query: ValidateParameters) -> Plan:
    """Read every byte of a version, and name the file, the record and the byte offset of what is wrong."""

    def work(job: Job, body: ByteStream) -> Answer:
        refuse_body(body)
        with_tensorflow = query.reader == "tensorflow"
        report = job.services.datasets.validate(dataset, version, job.budget, with_tensorflow=with_tensorflow)
        return json_answer(report.to_json())

    return Plan(work, "store")
