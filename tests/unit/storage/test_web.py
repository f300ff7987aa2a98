"""Objects at URLs: read as they were listed, or not at all."""

import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.errors import InputError, SourceUnavailable
from app.storage import web
from app.storage.sources import open_source

DATA = bytes(range(200))

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    server: "Server"

    def do_HEAD(self) -> None:
        self.server.requests.append(f"HEAD {self.path}")
        self.say(200, {"Content-Length": str(len(DATA)), "ETag": '"1"'})

    def do_GET(self) -> None:
        self.server.requests.append(f"GET {self.path}")
        self.server.answer(self)

    def say(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


class Server(ThreadingHTTPServer):
    answer: Answer
    requests: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(web, "_FIRST_WAIT_S", 0.0)
    with Server(("127.0.0.1", 0), Handler) as found:
        found.requests = []
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def serve(begin: int, end: int, *, total: int = len(DATA), etag: str = '"1"', cut: int = 0) -> Answer:
    """Answers with these bytes, and promises `cut` more."""

    def answer(handler: Handler) -> None:
        headers = {
            "Content-Length": str(end - begin + cut),
            "ETag": etag,
            "Content-Range": f"bytes {begin}-{end + cut - 1}/{total}",
        }
        handler.say(206, headers, DATA[begin:end])

    return answer


def _read(server: Server, answer: Answer, offset: int = 50, length: int = 10) -> bytes:
    source = open_source(f"{server.url}/x.csv?signature=geheim")
    [item] = source.list()
    server.answer = answer
    return bytes(source.read(item, offset, length))


def test_a_range_is_read(server: Server) -> None:
    assert _read(server, serve(50, 60)) == DATA[50:60]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (serve(0, 10), "no_ranges"),
        (serve(51, 61), "no_ranges"),
        (serve(50, 59), "no_ranges"),
        (serve(50, 60, total=201), "source_changed"),
        (serve(50, 60, etag='"2"'), "source_changed"),
        (lambda handler: handler.say(200, {"ETag": '"1"', "Content-Length": "200"}, DATA), "no_ranges"),
        (lambda handler: handler.say(404, {}), "source_changed"),
        (lambda handler: handler.say(416, {}), "source_changed"),
        (lambda handler: handler.say(403, {}), "source_refused"),
        (lambda handler: handler.say(302, {"Location": "http://127.0.0.2/"}), "source_redirected"),
    ],
    ids=["begin", "later", "shorter", "longer", "etag", "whole", "gone", "short", "refused", "redirected"],
)
def test_another_range_or_object_is_an_error(server: Server, answer: Answer, code: str) -> None:
    with pytest.raises(InputError) as caught:
        _read(server, answer)
    assert caught.value.code == code
    assert "geheim" not in caught.value.detail


def test_an_answer_that_breaks_off_is_asked_for_again(server: Server) -> None:
    broken = [serve(50, 53, cut=7), serve(50, 50, cut=10)]

    def answer(handler: Handler) -> None:
        (broken.pop() if broken else serve(50, 60))(handler)

    assert _read(server, answer) == DATA[50:60]
    assert not broken


def test_connection_that_always_breaks_is_not_a_fault_of_the_object(server: Server) -> None:
    # Else `on_error=skip` would leave its rows out.
    with pytest.raises(SourceUnavailable) as caught:
        _read(server, serve(50, 53, cut=7))
    assert "geheim" not in str(caught.value)


def test_a_server_that_takes_too_long_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_LONGEST_ANSWER_S", 0.0)
    with pytest.raises(SourceUnavailable, match="too slow"):
        _read(server, serve(50, 60))


def _list(server: Server, text: str) -> list[str]:
    def answer(handler: Handler) -> None:
        handler.say(200, {"Content-Length": str(len(text.encode()))}, text.encode())

    server.answer = answer
    return [item.name for item in open_source(f"{server.url}/in/files.txt").list()]


def test_a_list_names_objects_of_its_server(server: Server) -> None:
    names = _list(server, "# ours\r\n\na b.csv\n/ä.csv?x=y\nsub/c.csv")
    assert names == [f"{server.url}/{name}" for name in ("in/a b.csv", "ä.csv?x=y", "in/sub/c.csv")]
    asked = {"HEAD /in/a%20b.csv", "HEAD /%C3%A4.csv?x=y", "HEAD /in/sub/c.csv"}
    assert (set(server.requests[1:]), len(server.requests)) == (asked, 4)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a.csv\nhttp://elsewhere/b.csv\n", "source_redirected"),
        ("a.csv\n../in/a.csv\n", "invalid_source"),
        ("".join(f"{i}\n" for i in range(100_001)), "too_many_ranges"),
        ("#" * (16 << 20) + "\n", "too_many_ranges"),
    ],
    ids=["elsewhere", "twice", "many", "long"],
)
def test_a_list_that_is_refused_asks_for_no_object(server: Server, text: str, code: str) -> None:
    with pytest.raises(InputError) as caught:
        _list(server, text)
    assert caught.value.code == code
    assert server.requests == ["GET /in/files.txt"]


def test_some_objects_of_a_list_are_asked_about_at_a_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question is answered only once several have come, and never are there more than eight."""
    names = [f"{k:02}.csv" for k in range(30)]
    lock, together, most, under_way = threading.Lock(), threading.Barrier(5), 0, 0

    def describe(handler: Handler) -> None:
        nonlocal most, under_way
        with lock:
            under_way += 1
            most = max(most, under_way)
        together.wait(120)
        with lock:
            under_way -= 1
        handler.say(200, {"Content-Length": str(len(DATA)), "ETag": '"1"'})

    monkeypatch.setattr(Handler, "do_HEAD", describe)
    body = "\n".join(names).encode()
    server.answer = lambda handler: handler.say(200, {"Content-Length": str(len(body))}, body)
    found = [item.name for item in open_source(f"{server.url}/all.txt").list()]
    assert found == [f"{server.url}/{name}" for name in names], "in their order"
    assert 5 <= most <= 8


def test_an_object_of_a_list_that_is_not_there_is_an_error(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe(handler: Handler) -> None:
        missing = handler.path.endswith("7.csv")
        handler.say(404 if missing else 200, {"Content-Length": "0" if missing else "200", "ETag": '"1"'})

    monkeypatch.setattr(Handler, "do_HEAD", describe)
    body = "\n".join(f"{k}.csv" for k in range(20)).encode()
    server.answer = lambda handler: handler.say(200, {"Content-Length": str(len(body))}, body)
    with pytest.raises(InputError) as caught:
        list(open_source(f"{server.url}/all.txt").list())
    assert caught.value.code == "source_not_found"
    assert "7.csv" in caught.value.detail


@pytest.mark.parametrize(
    "place", ["/private/x.csv", "/in/%2e%2e/private/x.csv", "../private/x.csv", "/in/..%2fprivate/x.csv"]
)
def test_nothing_is_asked_for_where_nothing_may_be_read(server: Server, place: str) -> None:
    """The server may serve more people than those who may read all of it."""
    allowed = [f"{server.url}/in"]
    server.answer = lambda handler: handler.say(302, {"Location": place})
    with pytest.raises(InputError) as caught:
        list(open_source(f"{server.url}/in/files.txt", allowed).list())
    assert caught.value.code == "source_not_allowed"
    server.answer = lambda handler: handler.say(200, {}, f"a.csv\n{place}\n".encode())
    with pytest.raises(InputError) as caught:
        list(open_source(f"{server.url}/in/files.txt", allowed).list())
    assert caught.value.code == "source_not_allowed"
    assert server.requests == ["GET /in/files.txt"] * 2


def test_a_redirection_to_what_may_be_read_is_followed(server: Server) -> None:
    source = open_source(f"{server.url}/in/x.csv", [f"{server.url}/in"])
    [item] = source.list()

    def answer(handler: Handler) -> None:
        moves = handler.path == "/in/x.csv"
        handler.say(302, {"Location": "deep/y.csv"}) if moves else serve(50, 60)(handler)

    server.answer = answer
    assert bytes(source.read(item, 50, 10)) == DATA[50:60]
    assert server.requests == ["HEAD /in/x.csv", "GET /in/x.csv", "GET /in/deep/y.csv"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Length": "200", "ETag": "x" * 60_000},
        {"Content-Length": "200", "ETag": "x" * 1025},
        {"Content-Length": "\u00b2", "ETag": "x"},
        {"Content-Length": "+200", "ETag": "x"},
        {"ETag": "x"},
    ],
    ids=["etag", "longer", "superscript", "sign", "none"],
)
def test_an_object_whose_size_or_etag_is_odd_is_the_fault_of_the_source(
    server: Server, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    monkeypatch.setattr(Handler, "do_HEAD", lambda handler: handler.say(200, headers))
    with pytest.raises(InputError) as caught:
        list(open_source(f"{server.url}/x.csv").list())
    assert caught.value.code == "no_ranges"


def test_more_headers_than_are_read_are_the_fault_of_the_source(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {f"X-{k}": "x" * 50_000 for k in range(101)}
    monkeypatch.setattr(Handler, "do_HEAD", lambda handler: handler.say(200, headers))
    with pytest.raises(SourceUnavailable) as caught:
        list(open_source(f"{server.url}/x.csv").list())
    assert caught.value.code == "source_unavailable"


@pytest.mark.tools
def test_a_server_is_trusted_by_the_certificates_that_are_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`SSL_CERT_FILE` names the authority of an in-house server; without it nothing is read."""
    monkeypatch.setattr(web, "_FIRST_WAIT_S", 0.0)
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    request += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(request, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Server(("127.0.0.1", 0), Handler) as found:
        found.requests = []
        found.socket = context.wrap_socket(found.socket, server_side=True)
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            url = f"https://localhost:{found.server_port}/x.csv"
            with pytest.raises(SourceUnavailable, match="certificate"):
                list(open_source(url).list())
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            source = open_source(url)
            [item] = source.list()
            found.answer = serve(50, 60)
            assert bytes(source.read(item, 50, 10)) == DATA[50:60]
        finally:
            found.shutdown()
            thread.join()
