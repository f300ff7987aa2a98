"""Faults of HTTP: app/api."""

from __future__ import annotations

from typing import Final

from tests.mutations.entry import Mutation, Patch

MUTATIONS: Final = (
    Mutation(
        id="tenant-reads-schema-of-another",
        where="POST /v1/records/serialize?schema=dataset:NAME",
        given="the token of one tenant, and the name of another tenant's dataset",
        right="404, as if the dataset were not there",
        wrong="200, by the other tenant's schema",
        patch=Patch(
            "app/api/auth/middleware.py",
            "if name != text and not principal.owns(name):",
            "if name != text and not name:",
        ),
        tests=("tests/contract/test_auth.py::test_the_schema_of_another_tenant_cannot_be_taken",),
    ),
    Mutation(
        id="collection-needs-admin",
        where="POST /v1/datasets/{dataset}/collect",
        given="a token with the scopes read and write",
        right="403 with WWW-Authenticate, scope admin",
        wrong="200: it deletes objects",
        patch=Patch(
            "app/api/auth/routes.py",
            '"/v1/datasets/{dataset}/collect": {"POST": "admin"}',
            '"/v1/datasets/{dataset}/collect": {"POST": "write"}',
        ),
        tests=("tests/contract/test_auth.py::test_removing_anything_needs_admin",),
    ),
    Mutation(
        id="retry-after-of-append-in-progress",
        where="POST /v1/datasets/{dataset}/records with Idempotency-Key",
        given="the same key again while the first request is being stored",
        right="409 with Retry-After",
        wrong="409 without Retry-After: clients give up",
        patch=Patch(
            "app/api/problems.py",
            "if status in (429, 503) or isinstance(error, errors.InProgress):",
            "if status in (429, 503):",
        ),
        tests=("tests/unit/api/test_problems.py",),
    ),
    Mutation(
        id="range-of-the-last-bytes",
        where="GET /v1/datasets/{dataset}/versions/{version}/shards/{file} with Range: bytes=-9",
        given="a file of more than nine bytes",
        right="206 with the last nine",
        wrong="206 with ten",
        patch=Patch(
            "app/api/downloads/ranges.py",
            "first = max(0, size - (last or 0))",
            "first = max(0, size - (last or 0) - 1)",
        ),
        tests=("tests/unit/api/downloads/test_ranges.py",),
    ),
    Mutation(
        id="head-with-a-range",
        where="HEAD /v1/datasets/{dataset}/versions/{version}/shards/{file} with Range",
        given="Range: bytes=0-3",
        right="200 with the Content-Length of the file: Range is for GET alone",
        wrong="200 with Content-Length 4",
        patch=Patch(
            "app/api/downloads/files.py",
            'asked = request.method == "GET" and ranges_apply(request.headers, etag)',
            "asked = ranges_apply(request.headers, etag)",
        ),
        tests=("tests/unit/api/downloads/test_files.py",),
    ),
    Mutation(
        id="if-range-with-weak-etag",
        where="GET /v1/datasets/{dataset}/versions/{version}/shards/{file} with Range and If-Range",
        given='If-Range: W/"..." with the tag of the file',
        right="200 with the whole file: If-Range compares strongly",
        wrong="206",
        patch=Patch(
            "app/api/downloads/conditions.py",
            "return condition is None or condition.strip() == etag",
            'return condition is None or condition.strip().removeprefix("W/") == etag',
        ),
        tests=("tests/unit/api/downloads/test_conditions.py",),
    ),
    Mutation(
        id="second-digest-of-a-body",
        where="POST /v1/datasets/{dataset}/records with Content-Digest",
        given="two digests, of which the second is not that of the body",
        right="400: the body is not the one that was described; nothing is stored",
        wrong="201",
        patch=Patch(
            "app/api/body/digests.py",
            "in [*self._expected, *self._from_trailers()]:",
            "in [*self._expected[:1], *self._from_trailers()]:",
        ),
        tests=("tests/unit/api/body/test_digests.py",),
    ),
    Mutation(
        id="accept-with-quality-zero",
        where="POST /v1/records/serialize with Accept",
        given="Accept: application/json;q=0",
        right="406",
        wrong="200 in a format that the client refuses",
        patch=Patch(
            "app/api/negotiation.py",
            "if quality > 0 and (best is None",
            "if quality >= 0 and (best is None",
        ),
        tests=("tests/unit/api/test_negotiation.py",),
    ),
    Mutation(
        id="connections-close-while-draining",
        where="any request on a connection that is kept alive",
        given="a request after SIGTERM, while the service still takes connections",
        right="Connection: close, so that the client opens the next one elsewhere",
        wrong="the connection is kept, and its next request is cut off",
        patch=Patch("app/api/http1/receiving.py", "            and not self.others.leaving\n", ""),
        tests=(
            "tests/unit/api/http1/test_connections.py::test_leaving_process_closes_a_connection_after_its_next_response",
        ),
    ),
)
