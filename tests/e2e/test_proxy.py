"""nginx as docs/how-to/proxy.md configures it, in front of a service: TLS, large bodies, names, addresses."""

import json
import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.documentation import Page
from tests.support.service import ROOT, Service, free_port, ready
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(
        shutil.which("nginx", path=f"{os.environ.get('PATH')}:/usr/sbin") is None
        and not os.environ.get("CI"),
        reason="nginx is not installed here; .ci/run installs it",
    ),
]
NAME = "shardsmith.example"
#: Of the client; the proxy is at 127.0.0.1.
ADDRESS = "127.0.0.2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proxy")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    """A service as the page has it: without authentication, it has to know its name."""
    with ready(
        folder,
        SHARDSMITH_ALLOWED_HOSTS=NAME,
        FORWARDED_ALLOW_IPS="127.0.0.1",
        SHARDSMITH_BODY_TIMEOUT_S="3",
        SHARDSMITH_LOG_FORMAT="json",
    ) as started:
        yield started


@pytest.fixture(scope="module")
def client(folder: Path, service: Service) -> Iterator[httpx.Client]:
    """A client of the proxy, which believes the proxy's certificate alone."""
    certificate, key = folder / "shardsmith.pem", folder / "shardsmith.key"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request, *names, *files], capture_output=True, check=True)
    port = free_port()
    [printed] = Page(ROOT / "docs" / "how-to" / "proxy.md").blocks("nginx")
    server = (
        printed.replace("127.0.0.1:8000", service.url.removeprefix("http://"))
        .replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
        .replace("/etc/nginx/tls/shardsmith.pem", str(certificate))
        .replace("/etc/nginx/tls/shardsmith.key", str(key))
    )
    paths = "".join(
        f"{module}_temp_path {folder}/{module};\n"
        for module in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log warn;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}{server}}}\n"
    )
    program = shutil.which("nginx", path=f"{os.environ.get('PATH')}:/usr/sbin")
    assert program is not None
    nginx = subprocess.Popen(
        [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(configuration)]
    )
    transport = httpx.HTTPTransport(
        verify=ssl.create_default_context(cafile=str(certificate)), local_address=ADDRESS
    )
    url = f"https://127.0.0.1:{port}"
    extensions = {"sni_hostname": NAME}
    try:
        with httpx.Client(base_url=url, transport=transport, headers={"Host": NAME}, timeout=60) as asking:
            asking.event_hooks["request"] = [lambda request: request.extensions.update(extensions)]
            wait_for(lambda: is_up(asking))
            yield asking
    finally:
        nginx.terminate()
        nginx.wait(10)


def is_up(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_a_body_larger_than_the_default_of_nginx_comes_back(client: httpx.Client) -> None:
    rows = b'{"x":1.5}\n' * 500_000
    answer = client.post(
        "/v1/records/serialize?to=ndjson", content=rows, headers={"Content-Type": "application/x-ndjson"}
    )
    assert answer.status_code == 200
    assert answer.content == rows


def test_neither_bodies_nor_answers_lie_on_the_disk_of_nginx(client: httpx.Client, folder: Path) -> None:
    body = (b'{"x":1.5}\n' * 10_000 for _ in range(400))
    answer = client.post(
        "/v1/records/serialize?to=ndjson", content=body, headers={"Content-Type": "application/x-ndjson"}
    )
    assert answer.content.count(b"\n") == 4_000_000
    assert "temporary file" not in (folder / "error.log").read_text()


def test_a_client_that_reads_nothing_is_noticed(client: httpx.Client, service: Service) -> None:
    """A proxy that buffers answers takes all of a long one, and the service believes that it was read."""
    row = {"x": "a" * (1 << 20)}
    rows = (json.dumps(row).encode() + b"\n" for _ in range(64))  # more than all sockets between them hold
    appended = client.post(
        "/v1/datasets/long/records?publish=true",
        content=rows,
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert appended.status_code == 201
    with client.stream("GET", "/v1/datasets/long/versions/1.0.0/tar") as answer:
        assert answer.status_code == 200
        wait_for(lambda: access_lines(service, "/v1/datasets/long/versions/1.0.0/tar") != [])
    [line] = access_lines(service, "/v1/datasets/long/versions/1.0.0/tar")
    assert line["ended"] == "answer_not_taken"


def test_errors_are_those_of_the_service(client: httpx.Client) -> None:
    answer = client.get(f"/v1/datasets?limit={'1' * 20_000}")
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_lines_that_load_a_version_name_the_proxy(client: httpx.Client) -> None:
    rows = [{"x": 1.5}]
    assert client.post("/v1/datasets/d/records?publish=true", json=rows).status_code == 201
    load = client.get("/v1/datasets/d/versions/latest").json()["load"]
    assert re.search(rf"https://{NAME}/v1/datasets/d/versions/1\.0\.0/tar", load["download"])


def test_the_log_names_the_client_that_the_proxy_forwarded(client: httpx.Client, service: Service) -> None:
    assert client.get("/v1/forms").status_code == 200
    wait_for(lambda: access_lines(service, "/v1/forms") != [])
    [line] = access_lines(service, "/v1/forms")
    assert line["client"] == ADDRESS


def access_lines(service: Service, path: str) -> list[dict[str, Any]]:
    """What the access log says of requests for `path`."""
    found = [json.loads(line) for line in service.log().splitlines() if line.startswith("{")]
    lines = [line for line in found if line["logger"] == "shardsmith.access"]
    return [line for line in lines if line.get("path", line.get("route")) == path]
