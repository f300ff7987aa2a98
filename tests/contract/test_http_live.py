"""The live page: what goes on, as a page and as events, of all replicas where it is on the store."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.main import create_app_with
from app.services.activity import EVERY_S, KEPT_S, Activity
from app.settings import Settings
from app.storage.obstore_store import open_store
from openapi.recorded import serving
from tests.contract.test_following import SteppedStore, planned
from tests.contract.tokens import TOKENS, as_, guarded, token_file
from tests.support.waiting import wait_for

HTML = {"Accept": "text/html"}
EVENTS = {"Accept": "text/event-stream"}
ROWS = [{"x": number} for number in range(10)]


@contextmanager
def events(client: httpx.Client, path: str, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of the page at `path`, as they come."""
    with client.stream("GET", path, headers={**EVENTS, **headers}) as answer:
        assert answer.status_code == 200, answer.read()
        assert "content-security-policy" in answer.headers
        yield (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))


def appends(shown: str) -> int:
    """Those of the last minute."""
    return int(shown.partition("Appends in the last minute</dt><dd>")[2].partition("<")[0])


@pytest.fixture
def store() -> Iterator[SteppedStore]:
    stepped = SteppedStore(open_store("memory://"))
    yield stepped
    stepped.let(1000)


@pytest.fixture
def app(store: SteppedStore) -> FastAPI:
    return create_app_with(Settings(storage_url="memory://"), store=store, publish_wait_s=0.01)


@pytest.fixture
def publishing(app: FastAPI, store: SteppedStore) -> Iterator[httpx.Client]:
    """A replica that publishes version 1.0.0 of `d` in five shards, as fast as the store lets it."""
    with serving(app) as client:
        client.post("/v1/datasets/d/records", json=ROWS).raise_for_status()
        planned(client, "/v1/datasets/d/versions?num_shards=5")
        yield client
        store.let(1000)


def test_a_publication_is_seen_while_it_goes_on_and_a_minute_more(
    publishing: httpx.Client, store: SteppedStore
) -> None:
    with events(publishing, "/ui/live") as seen:
        first = next(seen)
        assert first["said"] == "1 publication and 0 imports under way."
        assert "0 of 5 shards done" in first["html"]
        store.let(2)
        assert any("2 of 5 shards done" in event["html"] for event in seen)
        page = publishing.get("/ui/live", headers=HTML).text
        assert 'value="40"' in page
        assert "those of the process that answers" in page
        other = create_app_with(Settings(storage_url="memory://"), store=store)
        with serving(other) as client:
            assert "Nothing is being published or imported" in client.get("/ui/live", headers=HTML).text
        store.let(3)
        last = next(event for event in seen if event["said"].startswith("0 publications"))
        assert '<span class="tag">published</span>' in last["html"]
        assert "shards done" not in last["html"]


def test_aborted_publication_is_shown(publishing: httpx.Client, store: SteppedStore) -> None:
    with events(publishing, "/ui/live") as seen:
        assert "0 of 5 shards done" in next(seen)["html"]
        publishing.post("/v1/datasets/d/versions/1.0.0/abort").raise_for_status()
        assert any('<span class="tag">given up</span>' in event["html"] for event in seen)
        store.let(1000)


def test_an_import_is_seen_from_any_replica_and_a_minute_after_its_end(
    tmp_path: Path, store: SteppedStore
) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"id": {k}}}\n' for k in range(10)))
    settings = Settings(storage_url="memory://", import_sources=f"file://{tmp_path}")
    with (
        serving(create_app_with(settings, store=store)) as one,
        serving(create_app_with(settings, store=store)) as other,
    ):
        request = {"source": f"file://{tmp_path}/rows.jsonl", "publish": {"num_shards": 1}}
        place = one.post("/v1/datasets/i/imports", json=request).headers["Location"]
        wait_for(lambda: one.get(place).json()["state"] == "publishing", 60)
        with events(one, "/ui/live") as seen, events(other, "/ui/live") as seen_by_other:
            for each in (seen, seen_by_other):
                first = next(each)
                assert first["said"].endswith("1 import under way.")
                assert "1 of 1 range, 10 rows" in first["html"]
                assert f"{tmp_path}/rows.jsonl" in first["html"]
            store.let(1)
            for each in (seen, seen_by_other):
                last = next(event for event in each if event["said"].endswith("0 imports under way."))
                assert '<span class="tag">done</span>' in last["html"]


def test_one_look_serves_all_who_ask_within_a_second(
    app: FastAPI, publishing: httpx.Client, store: SteppedStore
) -> None:
    publishing.get("/readyz").raise_for_status()
    services, now = app.state.services, [1000.0]
    activity = Activity(services.datasets, services.imports, services.import_runs, lambda: now[0])
    [first] = activity.look().publications
    assert (first.version, first.end) == ("1.0.0", "")
    store.let(1000)
    wait_for(lambda: not services.datasets.publications())
    now[0] += EVERY_S / 2
    assert activity.look().publications == [first]
    now[0] += EVERY_S / 2
    assert [each.end for each in activity.look().publications] == ["published"]
    now[0] += KEPT_S
    assert len(activity.look().publications) == 1
    now[0] += EVERY_S
    assert not activity.look().publications


def test_appends_are_counted_for_those_who_may_see_them(tmp_path: Path) -> None:
    with guarded(tmp_path) as client:
        with (
            events(client, "/ui/live", **as_("acme-4411")) as acme,
            events(client, "/ui/live", **as_("reading-5f0c")) as reader,
        ):
            for seen in (acme, reader):
                assert appends(next(seen)["html"]) == 0
            for dataset in ("globex-y", "acme-x"):
                url = f"/v1/datasets/{dataset}/records"
                client.post(url, json=ROWS, headers=as_("all-0b1c")).raise_for_status()
            assert next(count for event in acme if (count := appends(event["html"]))) == 1
            assert any(appends(event["html"]) == 2 for event in reader)
        assert client.get("/ui/live", headers=EVENTS).status_code == 401


def test_publications_of_others_are_not_seen(tmp_path: Path, store: SteppedStore) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(token_file(TOKENS))
    app = create_app_with(
        Settings(storage_url="memory://", tokens_file=tokens), store=store, publish_wait_s=0.01
    )
    with serving(app) as client:
        everything = as_("all-0b1c")
        client.post("/v1/datasets/acme-x/records", json=ROWS, headers=everything).raise_for_status()
        planned(client, "/v1/datasets/acme-x/versions", headers=everything)
        for token, number in (("acme-4411", 1), ("reading-5f0c", 1), ("globex-8e8e", 0)):
            shown = client.get("/ui/live", headers={**HTML, **as_(token)}).text
            assert ("acme-x" in shown) == bool(number), token
            assert f"{number} publication" in shown
        store.let(1000)
