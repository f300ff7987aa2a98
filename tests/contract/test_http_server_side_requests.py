"""A store is named by the server alone: nothing that a client sends makes the service call a URL."""

import socket
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest


@pytest.fixture
def bait() -> Iterator[socket.socket]:
    """A socket that listens and expects nobody."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        yield listening


@pytest.mark.parametrize("scheme", ["http", "s3", "file"])
def test_no_url_from_a_client_is_fetched(client: httpx.Client, bait: socket.socket, scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:{bait.getsockname()[1]}/bucket/data.npy"
    quoted = quote(url, safe="")
    headers = {"Referer": url, "X-Forwarded-Host": url, "Link": f"<{url}>"}
    refused = [
        client.put(f"/v1/datasets/{quoted}", json={}),
        client.post(f"/v1/datasets/{quoted}/records", json=[{"x": 1}]),
        client.put("/v1/datasets/bait", json={"storage_url": url}),
        client.put("/v1/datasets/bait", params={"storage_url": url}, json={}),
        client.post("/v1/datasets/bait/records", params={"url": url}, json=[{"x": 1}]),
        client.post("/v1/tensors/serialize", params={"to": url}, json=[1, 2]),
        client.post("/v1/records/parse", params={"schema": url}, content=b""),
        client.get(f"/v1/datasets/bait/versions/{quoted}"),
    ]
    assert [answer.status_code // 100 for answer in refused] == [4] * len(refused)
    taken = client.post("/v1/tensors/serialize", params={"to": "json"}, headers=headers, json=[url])
    assert taken.status_code == 200
    assert client.get("/v1/forms", headers={**headers, "Origin": url}).status_code == 200
    with pytest.raises(TimeoutError):
        bait.accept()
