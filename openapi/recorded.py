"""Reading and recording the examples: one request, what has to precede it, and the response to it."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import uvicorn
import yaml
from fastapi import FastAPI

from app.api.http1.limits import ConnectionLimits
from app.api.http1.protocol import hardened_protocol
from app.main import create_app_with
from app.settings import Settings

EXAMPLES = Path(__file__).parent / "examples"
_READY_WITHIN_S: Final = 400
#: A client would make its own, which takes longer than most requests, and the service speaks plain HTTP.
_SSL_CONTEXT: Final = httpx.create_ssl_context()

#: Times differ from run to run.
_TIME: Final = re.compile(r'(?<="time": ")[^"]*')
_ANY_TIME: Final = "2026-01-31T12:00:00.000+00:00"

#: Headers that say something about the contract; the rest is the server's own business.
TELLING_HEADERS = (
    "Content-Type",
    "Content-Length",
    "Content-Range",
    "Location",
    "Record-Count",
    "Repr-Digest",
    "ETag",
    "Tensor-Dtype",
    "Tensor-Shape",
    "Tensor-Byte-Order",
)


def load(operation_id: str) -> dict[str, Any]:
    """The example of an operation."""
    value: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{operation_id}.yaml").read_text("utf-8"))
    return value


def send(client: httpx.Client, request: dict[str, Any]) -> httpx.Response:
    """Send a request exactly as it is written down."""
    body = request.get("body", "").encode()
    return client.request(
        request["method"], request["path"], content=body, headers=request.get("headers", {})
    )


def play(client: httpx.Client, example: dict[str, Any]) -> httpx.Response:
    """Send what has to precede, then the request itself."""
    for request in example.get("given", []):
        send(client, request).raise_for_status()
    return send(client, example["request"])


def describe(response: httpx.Response) -> dict[str, Any]:
    """A response in the form in which it is written down: text as text, bytes in hexadecimal."""
    described: dict[str, Any] = {
        "status": response.status_code,
        "headers": {name: response.headers[name] for name in TELLING_HEADERS if name in response.headers},
    }
    media_type = response.headers.get("content-type", "")
    if not response.content:
        return described
    if media_type.startswith("text/") or media_type.endswith("json"):
        text = _TIME.sub(_ANY_TIME, response.text)
        if text != response.text:
            described["headers"].pop("Repr-Digest", None)
        return {**described, "body": text}
    return {**described, "body_hex": response.content.hex()}


@contextmanager
def fresh_service() -> Iterator[httpx.Client]:
    """A ready service with an empty store."""
    with serving(create_app_with(Settings(storage_url="memory://"))) as client:
        yield client


@contextmanager
def serving(app: FastAPI) -> Iterator[httpx.Client]:
    """The application, ready, on a loopback port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="error", http=hardened_protocol(ConnectionLimits()), ws="none")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            # As it is: the lengths and digests of examples are those of what they show.
            with httpx.Client(
                base_url=url, timeout=60, verify=_SSL_CONTEXT, headers={"Accept-Encoding": "identity"}
            ) as client:
                _wait_until_ready(client)
                yield client
        finally:
            server.should_exit = True
            thread.join(30)


def _wait_until_ready(client: httpx.Client) -> None:
    deadline = time.monotonic() + _READY_WITHIN_S
    while (answer := client.get("/readyz")).status_code != 200:
        if time.monotonic() > deadline:
            raise TimeoutError(answer.text)
        time.sleep(0.02)


def record(operation_id: str) -> None:
    """Write down the response that the example of an operation gets now, in place of any before."""
    example = load(operation_id)
    with fresh_service() as client:
        response = describe(play(client, example))
    kept = (EXAMPLES / f"{operation_id}.yaml").read_text("utf-8").partition("\nresponse:")[0].rstrip()
    added = yaml.safe_dump({"response": response}, sort_keys=False, allow_unicode=True, width=10_000)
    (EXAMPLES / f"{operation_id}.yaml").write_text(f"{kept}\n{added}", "utf-8")
