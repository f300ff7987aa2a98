"""What is tried again, how long that goes on, and what failures become: over answers that a script gives."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import httpx
import pytest

from app.client import Conflict, Damaged, Denied, NotFound, OutcomeUnknown, Refused, Unavailable, Unsendable
from app.client.aio import AsyncDataset, AsyncService
from app.client.connection import Connection, Patience
from app.client.transport import Task, iterate, run

#: An answer, or what happens instead of one.
Step = httpx.Response | Exception
KEY = "Idempotency-Key"


class Scripted:
    """A transport that answers as a script says, and lives in a time of its own."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.requests: list[httpx.Request] = []
        self.bodies: list[bytes] = []
        self.waits: list[float] = []

    async def send(self, request: httpx.Request) -> ScriptedReply:
        step = self.steps.pop(0)
        if isinstance(step, httpx.ConnectError):
            raise step
        self.requests.append(request)
        assert isinstance(request.stream, Iterable)
        self.bodies.append(b"".join(request.stream))
        if isinstance(step, Exception):
            raise step
        return ScriptedReply(step)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def now(self) -> float:
        return sum(self.waits)

    async def aside(self, call: Callable[[], Any]) -> Any:
        return call()

    async def gather(self, tasks: Sequence[Task], at_once: int) -> None:
        for task in tasks:
            await task()

    async def close(self) -> None: ...


class ScriptedReply:
    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self._pieces: Iterator[bytes] = iter([response.content])
        self._failure = response.extensions.get("then")

    async def next_piece(self) -> bytes | None:
        piece = next(self._pieces, None)
        if piece is None and self._failure is not None:
            raise self._failure
        return piece

    async def close(self) -> None: ...


def connection(transport: Scripted, **patience: float) -> Connection:
    return Connection(transport, "http://service", {"Authorization": "Bearer t"}, Patience(**patience))


def dataset(transport: Scripted, **patience: float) -> AsyncDataset:
    return AsyncDataset(connection(transport, **patience), "d")


def stored(**members: Any) -> httpx.Response:
    return httpx.Response(201, json={"dataset": "d", "append_id": "a", "num_records": 1, **members})


def problem(status: int, code: str, detail: str = "It is so.", **members: Any) -> httpx.Response:
    retry_after = members.pop("retry_after", None)
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return httpx.Response(status, json={"code": code, "detail": detail, **members}, headers=headers)


def generator() -> Iterator[dict[str, Any]]:
    """Of more than is held as a whole."""
    for i in range(5):
        yield {"id": i, "x": "y" * 1_000_000}


NO_ANSWER = httpx.RemoteProtocolError("Server disconnected without sending a response.")


@pytest.mark.parametrize(
    "failure",
    [
        NO_ANSWER,
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("no bytes"),
        problem(503, "overloaded"),
        problem(503, "outcome_unknown"),
        problem(409, "append_in_progress"),
        problem(400, "digest_mismatch"),
        problem(408, "request_timeout"),
        httpx.Response(502, text="<h1>Bad Gateway</h1>"),
        httpx.Response(201, content=b'{"datas', extensions={"then": NO_ANSWER}),
        httpx.Response(201, content=b"{}", headers={"Repr-Digest": "sha-256=:AAAA:"}),
    ],
    ids=[
        "disconnected", "refused", "timeout", "overloaded", "outcome_unknown", "append_in_progress",
        "altered", "slow", "bad_gateway", "cut_short", "damaged",
    ],
)  # fmt: skip
def test_temporary_failure_is_retried_with_the_same_key(failure: Step) -> None:
    transport = Scripted(failure, failure, stored())
    assert run(dataset(transport).append([{"x": 1}]))["append_id"] == "a"
    assert len({request.headers[KEY] for request in transport.requests}) == 1
    assert set(transport.bodies) == {b'{"x":1}\n'}
    assert len(transport.waits) == 2


def test_each_append_has_a_key_of_its_own_and_a_digest() -> None:
    transport = Scripted(stored(), stored(), stored())
    for key in (None, None, "mine"):
        run(dataset(transport).append([{"x": 1}], key=key))
    keys = [request.headers[KEY] for request in transport.requests]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"
    digest = base64.b64encode(hashlib.sha256(b'{"x":1}\n').digest()).decode()
    assert {request.headers["Content-Digest"] for request in transport.requests} == {f"sha-256=:{digest}:"}


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (problem(422, "schema_conflict", row=3, feature="x"), Refused),
        (problem(401, "authentication_required"), Denied),
        (problem(403, "insufficient_scope"), Denied),
        (problem(404, "dataset_not_found"), NotFound),
        (problem(409, "append_expired"), Conflict),
        (problem(507, "storage_full"), Refused),
        (problem(500, "corrupt_data"), Refused),
    ],
    ids=lambda value: (
        json.loads(value.content)["code"] if isinstance(value, httpx.Response) else value.__name__
    ),
)
def test_refusal_is_raised_at_once(failure: httpx.Response, kind: type[Refused]) -> None:
    with pytest.raises(kind) as caught:
        run(dataset(Scripted(failure)).append([{"x": 1}]))
    told = json.loads(failure.content)
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code, error.detail) == (failure.status_code, told["code"], "It is so.")
    assert (error.row, error.feature) == (told.get("row"), told.get("feature"))
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    assert (str(copy), copy.problem) == (str(error), error.problem)


def test_waits_double_up_to_the_longest_and_are_spread_out() -> None:
    transport = Scripted(*[NO_ANSWER] * 10, stored())
    run(dataset(transport, first_s=1.0, longest_s=8.0, total_s=1000.0).append([{"x": 1}]))
    longest = [1, 2, 4, 8, 8, 8, 8, 8, 8, 8]
    assert all(most / 2 <= wait <= most for wait, most in zip(transport.waits, longest, strict=True))
    assert len(set(transport.waits)) == 10


@pytest.mark.parametrize("retry_after", ["7", "Fri, 31 Dec 9999 23:59:59 GMT", "soon"])
def test_retry_after_is_waited_or_given_up(retry_after: str) -> None:
    transport = Scripted(problem(503, "overloaded", retry_after=retry_after), stored())
    if "GMT" in retry_after:
        with pytest.raises(Unavailable, match="overloaded"):
            run(dataset(transport).append([{"x": 1}]))
        return
    run(dataset(transport).append([{"x": 1}]))
    assert transport.waits[0] == 7 if retry_after == "7" else transport.waits[0] < 1


def test_patience_ends_and_says_what_the_last_failure_was() -> None:
    transport = Scripted(*[problem(503, "overloaded")] * 100)
    with pytest.raises(Unavailable, match=r"has failed for \d\d s: 503 overloaded: It is so\."):
        run(dataset(transport, total_s=60.0).append([{"x": 1}]))
    assert 60 <= transport.now() < 71


def test_an_iterator_is_sent_again_while_none_of_it_was_read() -> None:
    transport = Scripted(httpx.ConnectError("refused"), stored())
    run(dataset(transport).append(generator()))
    assert transport.bodies[0].count(b"\n") == 5


def test_a_function_is_called_again() -> None:
    transport = Scripted(NO_ANSWER, problem(503, "overloaded"), stored())
    run(dataset(transport).append(generator))
    assert len(transport.bodies) == 3
    assert len(set(transport.bodies)) == 1
    assert transport.bodies[0].count(b"\n") == 5


def test_a_small_iterator_is_sent_again_as_it_is_held() -> None:
    transport = Scripted(NO_ANSWER, stored())
    run(dataset(transport).append(iter([{"x": 1}])))
    assert transport.bodies == [b'{"x":1}\n'] * 2


@pytest.mark.parametrize(
    ("failure", "kind", "what"),
    [
        (NO_ANSWER, OutcomeUnknown, "once more with key='k'"),
        (problem(503, "outcome_unknown"), OutcomeUnknown, "perhaps stored"),
        (httpx.Response(504, text="slow"), OutcomeUnknown, "perhaps stored"),
        (problem(503, "overloaded"), Unavailable, "Nothing was stored"),
        (problem(422, "schema_conflict"), Refused, "schema_conflict"),
    ],
    ids=["disconnected", "outcome_unknown", "gateway_timeout", "overloaded", "refused"],
)
def test_an_iterator_that_was_read_is_not_sent_again(failure: Step, kind: type[Exception], what: str) -> None:
    transport = Scripted(failure)
    with pytest.raises(kind, match=what):
        run(dataset(transport).append(generator(), key="k"))
    assert transport.waits == []


def test_error_in_a_generator_is_raised_by_append() -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield from generator()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(dataset(Scripted(stored())).append(rows()))


def test_a_long_publication_is_asked_for_until_it_is_there() -> None:
    underway = httpx.Response(202, json={"state": "publishing"}, headers={"Retry-After": "5"})
    transport = Scripted(underway, NO_ANSWER, underway, httpx.Response(201, json={"version": "1.0.0"}))
    version = run(dataset(transport).publish(num_shards=2, shuffle=True))
    assert run(version.name()) == "1.0.0"
    assert transport.waits[0] == transport.waits[-1] == 5
    assert len({request.headers[KEY] for request in transport.requests}) == 1
    assert {str(request.url) for request in transport.requests} == {
        "http://service/v1/datasets/d/versions?num_shards=2&shuffle=true"
    }


def test_a_version_that_is_being_published_is_waited_for() -> None:
    underway = httpx.Response(202, json={"state": "publishing"}, headers={"Retry-After": "5"})
    manifest = {"version": "1.1.0", "splits": {}, "files": [], "schema": {"features": {}}}
    transport = Scripted(underway, httpx.Response(200, json=manifest))
    version = dataset(transport).version("1.1.0")
    assert run(version.shards()) == []
    assert transport.waits == [5]


def test_an_append_that_publishes_waits_for_its_version() -> None:
    stored = {"dataset": "d", "append_id": "a", "num_records": 5}
    planning = {"state": "publishing", "append": stored}
    transport = Scripted(
        httpx.Response(202, json=planning, headers={"Retry-After": "1"}),
        httpx.Response(202, json={**planning, "version": "1.0.0"}, headers={"Retry-After": "2"}),
        httpx.Response(202, json={"state": "publishing", "version": "1.0.0"}, headers={"Retry-After": "3"}),
        httpx.Response(200, json={"version": "1.0.0"}),
    )
    found = run(dataset(transport).append([{"x": 1}], publish=True, num_shards=2))
    assert found == {**stored, "version": "1.0.0"}
    assert transport.waits == [1, 2, 3]
    first, again, *followed = transport.requests
    assert (first.headers[KEY], first.url) == (again.headers[KEY], again.url)
    assert (first.url.params["publish"], first.url.params["num_shards"]) == ("true", "2")
    assert transport.bodies[0] == transport.bodies[1] == b'{"x":1}\n'
    assert {(r.method, r.url.path) for r in followed} == {("GET", "/v1/datasets/d/versions/1.0.0")}


def test_an_append_that_publishes_at_once_names_the_version() -> None:
    manifest = {"version": "2.0.0", "append": {"append_id": "a"}}
    transport = Scripted(httpx.Response(201, json=manifest), stored())
    found = run(dataset(transport).append([{"x": 1}], publish=True))
    assert (found["append_id"], found["version"]) == ("a", "2.0.0")
    assert "version" not in run(dataset(transport).append([{"x": 1}]))
    assert b"publish" not in transport.requests[1].url.query


def test_an_iterator_that_was_read_is_not_sent_again_to_be_published() -> None:
    planning = {"state": "publishing", "append": {"append_id": "a"}}
    transport = Scripted(
        httpx.Response(202, json={**planning, "version": "1.0.0"}),
        httpx.Response(200, json={"version": "1.0.0"}),
        httpx.Response(202, json=planning),
    )
    found = run(dataset(transport).append(generator(), publish=True))
    assert (found["append_id"], found["version"]) == ("a", "1.0.0")
    with pytest.raises(OutcomeUnknown, match="once more with key='k'"):
        run(dataset(transport).append(generator(), key="k", publish=True))
    assert [request.method for request in transport.requests] == ["POST", "GET", "POST"]


def test_statistics_are_asked_for_until_they_are_there() -> None:
    underway = httpx.Response(202, json={"percent": 7}, headers={"Retry-After": "4"})
    manifest = httpx.Response(200, json={"version": "1.1.0"})
    transport = Scripted(manifest, underway, NO_ANSWER, underway, httpx.Response(200, json={"features": {}}))
    found = run(dataset(transport).version().statistics("test", against_split="train"))
    assert found == {"features": {}}
    assert transport.waits[0] == transport.waits[-1] == 4
    assert {str(request.url) for request in transport.requests[1:]} == {
        "http://service/v1/datasets/d/versions/1.1.0/statistics?split=test&against_split=train"
    }


def events(*states: str, then: Exception | None = None) -> httpx.Response:
    text = "".join(f'data: {{"state": "{state}", "rows": {i}}}\n\n' for i, state in enumerate(states))
    extensions = {} if then is None else {"then": then}
    return httpx.Response(
        200, text=f"retry: 2000\n{text}:\n\n", headers={"Content-Type": "text/event-stream"},
        extensions=extensions,
    )  # fmt: skip


def test_an_import_is_followed_by_events_which_may_break_off() -> None:
    transport = Scripted(
        events("running", "running", then=NO_ANSWER),
        events("running", "publishing"),
        problem(503, "overloaded"),
        httpx.Response(200, json={"state": "publishing", "rows": 1}),
        httpx.Response(200, json={"state": "done", "rows": 1}),
    )
    told = list(iterate(dataset(transport).import_("i").follow(every_s=3)))
    assert [(progress["state"], progress["rows"]) for progress in told] == [
        ("running", 0), ("running", 1), ("running", 0), ("publishing", 1), ("done", 1)
    ]  # fmt: skip
    accepted = [request.headers.get("Accept") for request in transport.requests]
    assert accepted == ["text/event-stream"] * 3 + [None] * 2
    assert transport.waits == [3, 3, 3]


@pytest.mark.parametrize(
    "first",
    [
        problem(406, "not_acceptable"),
        httpx.Response(200, json={"state": "running"}),
        httpx.ReadTimeout("a proxy that collects"),
    ],
    ids=["http_1_0", "json", "held_back"],
)
def test_an_import_without_events_is_asked_for(first: Step) -> None:
    states = [httpx.Response(200, json={"state": state}) for state in ("running", "running", "stopped")]
    transport = Scripted(first, *states)
    told = run(dataset(transport).import_("i").wait(every_s=3))
    assert told["state"] == "stopped"
    assert [request.headers.get("Accept") for request in transport.requests] == [
        "text/event-stream",
        *[None] * 3,
    ]
    assert transport.waits == [3, 3]


def test_an_import_that_is_not_there_is_an_error() -> None:
    with pytest.raises(NotFound):
        run(dataset(Scripted(problem(404, "import_not_found"))).import_("i").wait())


def test_redirects_are_refused_and_the_token_stays() -> None:
    moved = httpx.Response(308, headers={"Location": "http://elsewhere/v1/datasets"})
    transport = Scripted(moved)
    with pytest.raises(Refused, match="sends requests on to http://elsewhere"):
        run(AsyncService(connection(transport)).datasets())
    assert [request.url.host for request in transport.requests] == ["service"]


def test_permanent_failure_is_not_retried() -> None:
    strange = httpx.ConnectError("certificate verify failed")
    strange.__cause__ = ssl.SSLCertVerificationError()
    for failure, kind in (
        (strange, Unavailable),
        (httpx.LocalProtocolError("Illegal header value"), Unsendable),
    ):
        transport = Scripted(failure)
        with pytest.raises(kind):
            run(AsyncService(connection(transport)).datasets())
        assert transport.waits == []


def test_each_try_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    run(
        dataset(Scripted(NO_ANSWER, problem(503, "overloaded", retry_after="7"), stored())).append([{"x": 1}])
    )
    first, second = caplog.messages
    assert first.startswith("Server disconnected without sending a response. Trying again in 0.")
    assert second == "503 overloaded: It is so. Trying again in 7.0 s."


def test_other_server_is_named_as_not_a_service() -> None:
    with pytest.raises(Damaged, match="not a Shardsmith"):
        run(AsyncService(connection(Scripted(httpx.Response(200, text="<html>")))).datasets())


def test_rows_resume_after_the_last_one_received() -> None:
    manifest = {"version": "1.1.0", "schema": {"features": {"x": {"dtype": "int64"}}}}
    transport = Scripted(
        httpx.Response(200, json=manifest),
        httpx.Response(200, content=b'{"x":0}\n{"x":1}\n{"x', extensions={"then": NO_ANSWER}),
        httpx.Response(200, content=b'{"x":2}\n{"x":'),
        httpx.Response(200, content=b'{"x":3}\n', headers={"Record-Count": "2"}),
        httpx.Response(200, content=b'{"x":4}\n', headers={"Record-Count": "1"}),
    )
    rows = iterate(dataset(transport).version().rows("test", stop=9))
    assert [row["x"] for row in rows] == [0, 1, 2, 3, 4]
    asked = [request.url for request in transport.requests[1:]]
    assert [url.params["start"] for url in asked] == ["0", "2", "3", "4"]
    assert {(url.path, url.params["split"], url.params["stop"]) for url in asked} == {
        ("/v1/datasets/d/versions/1.1.0/records", "test", "9")
    }


DEEP = b"[" * 100_000
ANSWERED: dict[str, Callable[[AsyncService, AsyncDataset], Any]] = {
    "datasets": lambda service, _: service.datasets(),
    "versions": lambda _, dataset: dataset.versions(),
    "publish": lambda _, dataset: dataset.publish(),
    "append": lambda _, dataset: dataset.append([{"x": 1}], publish=True),
    "import": lambda _, dataset: dataset.begin_import("s3://bucket/x"),
    "manifest": lambda _, dataset: dataset.version().manifest(),
    "follow": lambda _, dataset: dataset.import_("i").wait(),
}


@pytest.mark.parametrize("body", [DEEP, b"{}", b"null", b'{"datasets": [null], "versions": 5, "append": 3}'])
@pytest.mark.parametrize("call", ANSWERED)
def test_a_server_that_answers_anything_is_not_a_service(call: str, body: bytes) -> None:
    answer = httpx.Response(200, content=body, headers={"Content-Type": "application/json"})
    transport = Scripted(answer, answer)
    service = AsyncService(connection(transport))
    with pytest.raises(Damaged, match="not a Shardsmith"):
        run(ANSWERED[call](service, dataset(transport)))


def test_a_problem_that_is_nested_deeply_is_a_refusal() -> None:
    transport = Scripted(httpx.Response(404, content=DEEP))
    with pytest.raises(NotFound):
        run(dataset(transport).versions())
