"""`/readyz` sees what requests would meet, and says it to whom it concerns."""

import json
import re
import shutil
from pathlib import Path

import httpx
import pytest

from tests.contract.tokens import TOKENS, as_, token_file
from tests.support.mounts import mounted, remount
from tests.support.service import ready, started
from tests.support.waiting import wait_for

ROWS = b'[{"x": 1}]'
JSON = {"Content-Type": "application/json"}
#: JSON of more than the 16 MiB that are held in memory: nested, it has to be whole.
LARGE = b"[" + b"[1]," * (5 << 20) + b"[1]]"


@pytest.mark.waits
def test_requests_are_answered_while_kernels_of_others_are_compiled(tmp_path: Path) -> None:
    with started(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "kernels")) as service:
        wait_for(lambda: service.answers("/livez"))
        conversion = f"{service.url}/v1/tensors/serialize?to=b64"
        answer = httpx.post(conversion, content=b"[1, 2]", headers=JSON, timeout=300)
        assert answer.text == '{"b64":"CAkSBBICCAIiEAEAAAAAAAAAAgAAAAAAAAA="}'
        # The kernel that takes longest to compile is the last.
        unready = httpx.get(f"{service.url}/readyz")
        assert (unready.status_code, unready.json()["code"]) == (503, "not_ready")
        detail = unready.json()["checks"]["kernels"]["detail"]
        assert re.fullmatch(r"\d+ of \d+ kernels are compiled, now \w+", detail)
        assert httpx.get(f"{service.url}/startupz").status_code == 503
        assert service.stop() == 0, service.log()
        assert "Traceback" not in service.log()


@pytest.mark.waits
def test_a_folder_that_becomes_read_only_makes_the_service_unready_until_it_is_writable(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with mounted(data, "size=64m"), ready(tmp_path) as service:
        append = f"{service.url}/v1/datasets/a/records"
        assert httpx.post(append, content=ROWS, headers=JSON).status_code == 201
        remount(data, "ro")
        refused = httpx.post(append, content=ROWS, headers=JSON, timeout=60)
        assert (refused.status_code, refused.json()["code"]) == (503, "storage_denied")
        wait_for(lambda: httpx.get(f"{service.url}/readyz").status_code == 503)
        checks = httpx.get(f"{service.url}/readyz").json()["checks"]
        assert (checks["storage"]["ok"], checks["storage"]["code"]) == (False, "storage_denied")
        assert "Read-only file system" in checks["storage"]["detail"]
        remount(data, "rw")
        wait_for(lambda: httpx.get(f"{service.url}/readyz").status_code == 200)
        assert httpx.post(append, content=ROWS, headers=JSON).status_code == 201


def put_file_in_place_of(folder: Path) -> None:
    """Root could write to a folder that forbids it."""
    shutil.rmtree(folder)
    folder.touch()


@pytest.mark.processes
def test_a_spool_that_cannot_be_written_is_named_by_the_answer_and_by_readyz(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with ready(tmp_path, SHARDSMITH_SPOOL_DIR=str(spool)) as service:
        put_file_in_place_of(spool)
        with httpx.Client(base_url=service.url, timeout=60) as client:
            wait_for(lambda: "spool_unavailable" in client.get("/readyz").text)
            assert client.get("/readyz").status_code == 503
            refused = client.post("/v1/tensors/serialize", content=LARGE, headers=JSON)
            assert (refused.status_code, refused.json()["code"]) == (503, "spool_unavailable")
            assert "The spool cannot be used: Not a directory." in refused.json()["detail"]
            assert "SHARDSMITH_SPOOL_DIR" in refused.json()["detail"]
            assert "store" not in refused.json()["detail"]
            spool.unlink()
            wait_for(lambda: client.get("/readyz").status_code == 200)
            assert client.post("/v1/tensors/serialize", content=LARGE, headers=JSON).status_code == 200


def test_details_of_readyz_need_a_token(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(token_file(TOKENS))
    spool = tmp_path / "spool"
    with ready(tmp_path, SHARDSMITH_TOKENS_FILE=str(tokens), SHARDSMITH_SPOOL_DIR=str(spool)) as service:
        put_file_in_place_of(spool)
        with httpx.Client(base_url=service.url, timeout=60) as client:

            def told(headers: dict[str, str]) -> dict[str, dict[str, object]]:
                checks: dict[str, dict[str, object]] = client.get("/readyz", headers=headers).json()["checks"]
                return checks

            wait_for(lambda: bool(told({})["kernels"]["ok"]))
            wait_for(lambda: bool(told({})["storage"]["ok"]))
            wait_for(lambda: "code" in told(as_("reading-5f0c"))["spool"])
            for headers in ({}, as_("guessed"), as_("old-2020")):
                assert told(headers) == {
                    "kernels": {"ok": True},
                    "storage": {"ok": True},
                    "spool": {"ok": False},
                    "tokens": {"ok": True},
                }
                said = client.get("/v2/health/ready", headers=headers).json()["detail"]
                assert said == "Not ready: spool."
            for token in ("reading-5f0c", "writing-91ab", "ruling-77de", "acme-4411"):
                detailed = told(as_(token))
                assert detailed["tokens"]["detail"] == f"{len(TOKENS)} in force"
                assert detailed["spool"]["code"] == "spool_unavailable"
            shown = client.get("/docs").text + client.get("/openapi.json").text
            for kept in (str(tmp_path), json.dumps(f"{len(TOKENS)} in force")):
                assert kept not in shown
