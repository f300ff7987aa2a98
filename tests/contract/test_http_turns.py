"""Whoever waits lends its turn: no worker sleeps, waits for a thread or asks the store with it."""

import functools
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import obstore
import pytest
from fastapi import FastAPI
from obstore.exceptions import GenericError

from app.main import create_app_with
from app.runtime.turns import has_turn
from app.services.datasets.append import key_locks
from app.services.datasets.append.key_locks import KeyLocks
from app.services.datasets.objects.layout import INDEX, MANIFEST
from app.settings import Settings
from app.storage.object_store import ObjectStore
from app.storage.obstore_store import open_store
from openapi.recorded import serving
from tests.support.waiting import wait_for

MIB = 1 << 20
URL = "/v1/datasets/d"
#: More than is done on the event loop.
LARGE = [{"x": n, "text": "a" * 50} for n in range(1000)]
#: More than is held in one part, so that parts are stored while later rows arrive.
PARTS = b"".join(b'{"x": %d, "text": "%b"}\n' % (n, b"a" * MIB) for n in range(18))
#: Of obstore: what sends a request.
REQUESTS = (
    "copy", "delete", "get", "get_range", "head", "list", "list_with_delimiter", "open_writer", "put",
)  # fmt: skip


#: To begin a thread takes no longer than the system needs.
BEGINNING = ("_adjust_thread_count", "_start")


class Watch:
    """Looks at each call that waits: whether its thread keeps its turn.

    Attributes:
        kept: where a thread did, as a traceback.
        paused: the modules that slept.
    """

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.paused: set[str] = set()

    def look(self) -> None:
        if has_turn():
            stack = traceback.extract_stack()
            if not any(frame.name in BEGINNING for frame in stack):
                self.kept.append("".join(stack.format()[-12:]))

    def watching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.look()
            return function(*args, **kwargs)

        return watched

    def asking(self, function: Callable[..., Any], delay: Callable[[float], None]) -> Callable[..., Any]:
        """A call of obstore, slow enough that whoever needs its result has to wait for it."""

        def asked(*args: Any, **kwargs: Any) -> Any:
            self.look()
            delay(0.001)
            result = function(*args, **kwargs)
            is_whole = result is None or isinstance(result, (int, dict, bytes, obstore.Bytes))
            return result if is_whole else _Watched(self, result)

        return asked


class _Watched:
    """An answer of obstore whose parts are asked for later, each by a request of its own."""

    def __init__(self, watch: Watch, inner: Any) -> None:
        self._watch, self._inner = watch, inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        return self._watch.asking(found, lambda _: None)

    def __iter__(self) -> "_Watched":
        return _Watched(self._watch, iter(self._inner))

    def __next__(self) -> Any:
        self._watch.look()
        return next(self._inner)

    def __exit__(self, *error: Any) -> None:
        self._watch.look()
        self._inner.__exit__(*error)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """From now on; `time.sleep`, all that Python waits by, and all that obstore is asked."""
    watch, sleep = Watch(), time.sleep

    def sleeping(seconds: float) -> None:
        caller, sleeper, _ = traceback.extract_stack(limit=3)
        if sleeper.name != "make_way":  # which is for the event loop, and not to be lent
            watch.look()
        watch.paused.add(Path(caller.filename).stem)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", sleeping)
    monkeypatch.setattr(threading.Condition, "wait", watch.watching(threading.Condition.wait))
    for name in REQUESTS:
        monkeypatch.setattr(obstore, name, watch.asking(getattr(obstore, name), sleep))
    return watch


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return open_store("memory://" if request.param == "memory" else tmp_path.as_uri())


def replica(store: ObjectStore) -> FastAPI:
    """One turn for all, so that who keeps it is seen."""
    settings = Settings(storage_url="memory://", compute_threads=1, collect_interval_s=0)
    return create_app_with(settings, store=store)


def done(answer: httpx.Response) -> httpx.Response:
    assert answer.is_success, answer.text
    return answer


def fail_once(monkeypatch: pytest.MonkeyPatch, name: str, part: str) -> None:
    """The first such request for a key with that part has no answer that is definite."""
    function, left = getattr(obstore, name), [1]

    def failing(store: Any, key: str, *args: Any, **kwargs: Any) -> Any:
        if part in key and left:
            left.clear()
            raise GenericError("the connection broke")
        return function(store, key, *args, **kwargs)

    monkeypatch.setattr(obstore, name, failing)


def damage_first(monkeypatch: pytest.MonkeyPatch, *keys: str) -> None:
    """The first read of each object whose key ends so comes with a wrong bit."""
    left = list(keys)

    def damaged(data: bytes, key: str) -> bytes:
        for end in left:
            if key.endswith(end):
                left.remove(end)
                return bytes([data[0] ^ 1]) + data[1:]
        return data

    class Spoiled:
        def __init__(self, inner: Any, key: str) -> None:
            self._inner, self._key = inner, key

        def bytes(self) -> bytes:
            return damaged(bytes(self._inner.bytes()), self._key)

        def stream(self, **options: Any) -> Any:
            return self._inner.stream(**options)

    get, get_range = obstore.get, obstore.get_range
    monkeypatch.setattr(obstore, "get", lambda s, key, **rest: Spoiled(get(s, key, **rest), key))
    monkeypatch.setattr(
        obstore, "get_range", lambda s, key, **rest: damaged(bytes(get_range(s, key, **rest)), key)
    )


def test_no_route_keeps_its_turn_while_it_waits(
    watch: Watch, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(replica(store)) as client:
        done(client.put(URL))
        done(client.post(f"{URL}/records", json=LARGE, headers={"Idempotency-Key": "k"}))
        fail_once(monkeypatch, "put", "slots")
        done(client.post(f"{URL}/records", json=LARGE, headers={"Idempotency-Key": "l"}))
        done(client.post(f"{URL}/records", json=LARGE, headers={"Idempotency-Key": "l"}))
        done(client.post(f"{URL}/records", json=LARGE[:1]))
        done(client.post(f"{URL}/records", json=LARGE))
        ndjson = {"Content-Type": "application/x-ndjson"}
        append = done(client.post(f"{URL}/records?split=big", content=PARTS, headers=ndjson)).json()
        assert (
            client.post(f"{URL}/records?split=big", content=PARTS + b"{", headers=ndjson).status_code == 400
        )
        done(client.get(f"{URL}/appends/{append['append_id']}"))
        done(client.post(f"{URL}/versions"))
        done(client.post(f"{URL}/records?publish=true", json=LARGE))
        done(client.post(f"{URL}/records?publish=true&shuffle=true", json=LARGE))
        done(client.get("/v1/datasets"))
        done(client.get(URL))
        done(client.get(f"{URL}/versions"))
        manifest = done(client.get(f"{URL}/versions/latest")).json()
        shard = manifest["splits"]["train"]["shards"][0]["file"]
        done(client.get(f"{URL}/versions/latest/shards/{shard}"))
        done(client.get(f"{URL}/versions/latest/tar"))
        done(client.get(f"{URL}/versions/latest/records?split=train&shuffle_buffer=100"))
        done(client.post(f"{URL}/versions/latest/validate"))
        done(client.post("/v1/records/serialize?schema=dataset:d", json=LARGE))
        done(client.delete(f"{URL}/versions/1.0.0"))
        done(client.post(f"{URL}/collect"))
    with serving(replica(store)) as client:  # a replica that remembers nothing
        damage_first(monkeypatch, f"/{MANIFEST}", f"/{INDEX}", f"/{shard}")
        done(client.get(f"{URL}/versions/latest/records?split=train"))
        done(client.get(f"{URL}/versions/latest/records?split=big"))
        done(client.delete(URL))
        done(client.post(f"{URL}/collect"))
    assert not watch.kept, "".join(dict.fromkeys(watch.kept))
    assert {"create_once", "log", "stored_json", "stream"} <= watch.paused


def test_who_repeats_a_key_that_is_in_use_does_not_stop_a_conversion(
    watch: Watch, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three clients wait, with one turn for all, until the first attempt has ended: a conversion does not."""
    monkeypatch.setattr(key_locks, "_PATIENCE_S", 120.0)
    go_on, rows = threading.Event(), b'{"x": 1}\n' * 50_000

    def body() -> Iterator[bytes]:
        yield rows  # so much that a worker begins
        go_on.wait(120)
        yield rows

    app = replica(store)
    with serving(app) as client, ThreadPoolExecutor(4) as threads:
        headers = {"Idempotency-Key": "k", "Content-Type": "application/x-ndjson"}
        keys: KeyLocks = app.state.services.datasets._appends._keys
        attempts = [threads.submit(client.post, f"{URL}/records", content=body(), headers=headers)]
        try:
            wait_for(lambda: bool(keys._slots))
            attempts += [
                threads.submit(client.post, f"{URL}/records", content=rows + rows, headers=headers)
                for _ in range(3)
            ]
            wait_for(lambda: "key_locks" in watch.paused)
            done(client.post("/v1/records/serialize", json=LARGE))
            assert not any(attempt.done() for attempt in attempts)
        finally:
            go_on.set()
        answers = [done(attempt.result(120)) for attempt in attempts]
    assert len({answer.json()["append_id"] for answer in answers}) == 1
    assert not watch.kept, "".join(dict.fromkeys(watch.kept))
