"""Ten people who browse at once: rows with many pictures, statistics, large files, and events, read slowly.

What they look at is as heavy as a page may be: as many rows of it as there can be, each with pictures that
cannot be made smaller.
"""

import io
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from urllib.parse import urlsplit

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.images import encode, pixels
from tests.support.service import SSL_CONTEXT, Service

PEOPLE = 10
#: Shown; or more than there is while others hold what they do.
EXPECTED = {200, 503}
_ROWS = 100
_ROWS_OF_FILE = 200_000

_PAGES = (
    "/ui/datasets/grids/latest/rows?count=100",
    "/ui/datasets/photos/latest/rows?count=100",
    "/ui/datasets/grids/latest/row?split=train&row=7",
    "/ui/datasets/grids/latest/statistics",
    "/ui/datasets/photos/latest/rows?count=100&feature=id&op=between&value=0",
    "/ui/datasets/photos/latest",
)


def store_heavy_rows(service: Service) -> None:
    """`grids` has tensors that are shown as pictures; `photos` has images."""
    random = np.random.default_rng(16)
    for _ in range(_ROWS // 10):
        saved = io.BytesIO()
        grids = {f"grid {k}": random.integers(0, 256, (10, 192, 256), np.uint8) for k in range(8)}
        np.savez(saved, allow_pickle=False, **grids)
        _append(service, "grids", "npz", saved.getvalue())
    photos = [encode(pixels(480, 640, 3, seed), "jpeg", quality=90) for seed in range(8)]
    for first in range(0, _ROWS, 10):
        rows = range(first, first + 10)
        columns = {f"photo {k}": [photos[(row + k) % 8] for row in rows] for k in range(2)}
        _append(service, "photos", "parquet", _parquet({"id": list(rows), **columns}))
    for dataset in ("grids", "photos"):
        path = f"/v1/datasets/{dataset}/versions"
        httpx.post(service.url + path, timeout=300, verify=SSL_CONTEXT).raise_for_status()


def _append(service: Service, dataset: str, form: str, body: bytes) -> None:
    path = f"/v1/datasets/{dataset}/records?from={form}"
    answer = httpx.post(service.url + path, content=body, timeout=300, verify=SSL_CONTEXT)
    assert answer.status_code == 201, answer.text


def _parquet(columns: dict[str, object]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


@cache
def _files() -> list[tuple[str, bytes]]:
    random = np.random.default_rng(17)
    rows = b"".join(
        b'{"id":%d,"name":"n%d","score":%d.5}\n' % (k, k % 97, k % 31) for k in range(_ROWS_OF_FILE)
    )
    tensor = io.BytesIO()
    np.save(tensor, random.random((2000, 2000)))
    return [
        ("rows.ndjson", rows),
        ("tensor.npy", tensor.getvalue()),
        ("photo.jpeg", encode(pixels(1500, 2000, 3), "jpeg")),
    ]


@contextmanager
def following(service: Service, count: int) -> Iterator[None]:
    """So many who have the page of what goes on open."""
    with ExitStack() as open_, httpx.Client(timeout=60, verify=SSL_CONTEXT) as client:
        for _ in range(count):
            headers = {"Accept": "text/event-stream"}
            answer = open_.enter_context(client.stream("GET", f"{service.url}/ui/live", headers=headers))
            assert answer.status_code == 200
        yield


@contextmanager
def reading_slowly(service: Service, count: int) -> Iterator[None]:
    """So many who ask for the heaviest page, and take nothing of it."""
    parts = urlsplit(service.url)
    with ExitStack() as open_:
        for _ in range(count):
            connection = socket.create_connection((parts.hostname, parts.port), timeout=60)
            open_.enter_context(connection)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(f"GET {_PAGES[0]} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        yield


def look(service: Service, first: int = 0) -> dict[str, int]:
    """The status of each page and of that of each file, from one of them on."""
    asked: list[str | tuple[str, bytes]] = [*_PAGES, *_files()]
    with httpx.Client(base_url=service.url, timeout=300, verify=SSL_CONTEXT) as client:
        return dict(_ask(client, asked[(first + k) % len(asked)]) for k in range(len(asked)))


def _ask(client: httpx.Client, asked: str | tuple[str, bytes]) -> tuple[str, int]:
    if isinstance(asked, str):
        return asked, client.get(asked).status_code
    return asked[0], client.post("/ui/file", files={"file": asked}).status_code


def browse(service: Service) -> Counter[tuple[str, int]]:
    """How often each page was answered with which status, to ten people at a time."""
    with ThreadPoolExecutor(PEOPLE) as people:
        found = people.map(lambda person: look(service, person), range(PEOPLE))
        return Counter(each for statuses in found for each in statuses.items())
