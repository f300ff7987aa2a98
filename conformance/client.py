"""Serializes a tensor, appends rows, publishes them, reads them back, and follows a problem."""

import json
import sys

from shardsmith_client import AuthenticatedClient
from shardsmith_client.api.datasets import append_records, publish_version
from shardsmith_client.api.tensors import serialize_tensors
from shardsmith_client.api.versions import read_records
from shardsmith_client.models import Append, ErrorCode, Problem, ReadRecordsTo, RowsBody, TensorsBody, Version
from shardsmith_client.types import File


def main(url: str, dataset: str, tensor: str, text: str) -> None:
    """Raises AssertionError where an answer is not what it should be."""
    # Without authentication the service looks at no token.
    client = AuthenticatedClient(base_url=url, token="none")  # noqa: S106  # no secret
    rows = json.loads(text)

    proto = serialize_tensors.sync(client=client, body=TensorsBody(dtype="float32", data=[1.5, 2.5]))
    assert isinstance(proto, File)
    assert proto.payload.read().hex() == tensor

    body = RowsBody.from_dict({"instances": rows})
    appended = append_records.sync(dataset, client=client, body=body)
    assert isinstance(appended, Append)
    assert appended.num_records == len(rows)

    version = publish_version.sync(dataset, client=client)
    assert isinstance(version, Version)
    assert version.splits["train"].num_records == len(rows)

    lines = read_records.sync(dataset, version.version, client=client, to=ReadRecordsTo.NDJSON)
    assert isinstance(lines, File)
    read = [json.loads(line) for line in lines.payload]
    assert read == rows

    wrong = RowsBody.from_dict({"instances": [{"label": "text"}]})
    problem = append_records.sync(dataset, client=client, body=wrong)
    assert isinstance(problem, Problem)
    assert (problem.status, problem.feature) == (422, "label")
    later = Problem.from_dict({**problem.to_dict(), "code": "of_a_later_release"})
    assert (problem.code, later.code) == (ErrorCode.INEXACT_INTEGER, "of_a_later_release")
    print(f"{len(read)} rows of {dataset} {version.version}, then {problem.code}")


main(*sys.argv[1:])
