"""A service over a store that ignores create-only puts never becomes ready, and says why."""

import time
from pathlib import Path

import httpx

from tests.e2e.service import start
from tests.servers.running import RunningStore


def test_a_service_over_an_unsafe_store_is_never_ready(rclone_s3: RunningStore, tmp_path: Path) -> None:
    service = start(tmp_path, SHARDSMITH_STORAGE_URL=f"{rclone_s3.url}/data", **rclone_s3.environment)
    try:
        deadline = time.monotonic() + 400
        while "create-only" not in (said := service_says(service.url)) or "being compiled" in said:
            assert service.process.poll() is None, service.log()
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
        # It goes on looking, once a second, and goes on refusing.
        for _ in range(25):
            ready = httpx.get(f"{service.url}/readyz")
            assert ready.status_code == 503
            assert httpx.get(f"{service.url}/livez").status_code == 200
            time.sleep(0.1)
        assert "does not honour create-only puts (If-None-Match: *)" in ready.text
        assert rclone_s3.environment["AWS_SECRET_ACCESS_KEY"] not in ready.text + service.log()
        assert service.stop() == 0
    finally:
        service.kill()


def service_says(url: str) -> str:
    try:
        return httpx.get(f"{url}/readyz").text
    except httpx.TransportError:
        return ""
