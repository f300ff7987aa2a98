"""An import over HTTP outlives the replica that runs it."""

import json
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.service import ready
from tests.support.waiting import wait_for

pytestmark = pytest.mark.processes

#: A service that looks often for imports that others have left; with an argument, the store stops it at the
#: end of a range once so many ranges are done.
SERVICE = """
import sys, threading
from app.launch import run
from app.services.datasets.imports import runs
from app.storage.obstore_store import ObstoreStore

runs.EVERY_S, runs.SILENT_S = 0.1, 2.0
left = int(sys.argv[1])
sys.argv = sys.argv[:1]
put = ObstoreStore.put

def held(self, key, data):
    global left
    if ".done." in key:
        if not left:
            threading.Event().wait()
        left -= 1
    return put(self, key, data)

if left:
    ObstoreStore.put = held
run()
"""


def test_another_replica_goes_on_with_an_import_whose_replica_is_killed(tmp_path: Path) -> None:
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    for k in range(5):
        lines = (json.dumps({"id": 100 * k + i}) + "\n" for i in range(100))
        (incoming / f"{k}.ndjson").write_text("".join(lines), encoding="utf-8")
    settings = {
        "SHARDSMITH_IMPORT_SOURCES": incoming.as_uri(),
        "SHARDSMITH_STORAGE_URL": (tmp_path / "data").as_uri(),
    }
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    body = {"source": incoming.as_uri(), "range_bytes": 200, "publish": {"num_shards": 2}}
    with ready(folders[1], run=(sys.executable, "-c", SERVICE, "0"), **settings) as second:
        with ready(folders[0], run=(sys.executable, "-c", SERVICE, "7"), **settings) as first:
            begun = httpx.post(f"{first.url}/v1/datasets/a/imports", json=body, timeout=60)
            place = f"{second.url}{begun.headers['Location']}"
            wait_for(lambda: httpx.get(place, timeout=60).json()["ranges_done"] == 7)
            first.kill()
        wait_for(lambda: httpx.get(place, timeout=60).json()["state"] == "done")
        told = httpx.get(place, timeout=60).json()
        assert (told["rows"], told["ranges_done"], told["version"]) == (500, told["ranges"], "1.0.0")
        rows = httpx.get(f"{second.url}/v1/datasets/a/versions/latest/records?to=json", timeout=60).json()
        assert [row["id"] for row in rows] == list(range(500))
        assert not list((tmp_path / "data" / "_imports").rglob("*/*"))
