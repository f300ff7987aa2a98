"""`?redirect=signed` on a store that has signed URLs."""

import asyncio

import httpx

from app.main import create_app_with
from app.settings import Settings
from app.storage.obstore_store import open_store
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore


class SigningStore(FaultStore):
    """As a store in a cloud."""

    def sign(self, key: str, expires_s: int) -> str | None:
        return f"https://store/{key}?expires={expires_s}"


def test_a_client_is_sent_to_the_store_but_for_head_which_a_url_for_get_refuses() -> None:
    store = SigningStore(open_store("memory://"))
    client = Client(store)
    client.append([1, 2, 3])
    client.publish()
    app = create_app_with(Settings(storage_url="memory://"), store=store)

    async def ask(method: str, url: str) -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
            return await asking.request(method, url, params={"redirect": "signed"})

    base = "/v1/datasets/d/versions/1.0.0"
    answer = asyncio.run(ask("GET", f"{base}/files/features.json"))
    assert (answer.status_code, answer.content) == (307, b"")
    assert answer.headers["location"] == "https://store/d/1.0.0/features.json?expires=3600"
    assert answer.headers["cache-control"] == "no-store"
    described = asyncio.run(ask("HEAD", f"{base}/files/features.json"))
    assert (described.status_code, described.content) == (200, b"")
    assert "location" not in described.headers
    assert int(described.headers["content-length"]) > 0
    assert asyncio.run(ask("GET", f"{base}/files/none.json")).status_code == 404
