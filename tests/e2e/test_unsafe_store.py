"""A service over a store that ignores create-only puts never becomes ready, and says why."""

import time
from pathlib import Path

import httpx

from tests.support.object_stores.running import RunningStore
from tests.support.service import READY_WITHIN_S, started


def test_a_service_over_an_unsafe_store_is_never_ready(rclone_s3: RunningStore, tmp_path: Path) -> None:
    settings = {"SHARDSMITH_STORAGE_URL": f"{rclone_s3.url}/data", **rclone_s3.environment}
    with started(tmp_path, **settings) as service:
        deadline = time.monotonic() + READY_WITHIN_S
        while "create-only" not in (said := storage_check(service.url)):
            assert service.process.poll() is None, service.log()
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
        assert "does not honour create-only puts (If-None-Match: *)" in said
        # It looks again once a second, and refuses each time.
        for _ in range(25):
            assert "create-only" in storage_check(service.url)
            time.sleep(0.1)
        problem = httpx.get(f"{service.url}/readyz").json()
        assert (problem["code"], problem["checks"]["storage"]["code"]) == ("not_ready", "unsafe_store")
        assert not problem["detail"].endswith("..")
        assert httpx.get(f"{service.url}/startupz").status_code == 503
        assert httpx.get(f"{service.url}/livez").status_code == 200
        assert rclone_s3.environment["AWS_SECRET_ACCESS_KEY"] not in service.log()


def storage_check(url: str) -> str:
    """Why the service at `url` is not ready for want of a store; empty while it does not answer."""
    try:
        answer = httpx.get(f"{url}/readyz")
    except httpx.TransportError:
        return ""
    check = answer.json()["checks"]["storage"]
    assert (answer.status_code, check["ok"]) == (503, False)
    detail: str = check["detail"]
    return detail
