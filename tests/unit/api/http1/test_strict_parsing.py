"""What is no HTTP/1.1 request, or could be taken for two of them, is refused with a problem document."""

from collections.abc import Iterator

import pytest

from app.api.http1.limits import ConnectionLimits
from tests.support.asgi_server import Served, echo, problem_of, read_to_end, served

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    # A connection that is left open ends soon, so that all that it answered can be read to the end.
    with served(echo, ConnectionLimits(keep_alive_s=0.05)) as running:
        yield running


REFUSED = {
    "both lengths": (POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "ambiguous_length"),
    "both lengths, reversed": (
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        "ambiguous_length",
    ),
    "a length twice": (POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "invalid_content_length"),
    "two lengths": (POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "invalid_content_length"),
    "a list of lengths": (POST + b"Content-Length: 3, 3\r\n\r\nabc", "invalid_content_length"),
    "a signed length": (POST + b"Content-Length: +3\r\n\r\nabc", "invalid_content_length"),
    "a negative length": (POST + b"Content-Length: -3\r\n\r\nabc", "invalid_content_length"),
    "an empty length": (POST + b"Content-Length:\r\n\r\nabc", "invalid_content_length"),
    "a hexadecimal length": (POST + b"Content-Length: 0x3\r\n\r\nabc", "invalid_content_length"),
    "a length in two words": (POST + b"Content-Length: 3 3\r\n\r\nabc", "invalid_content_length"),
    "a length past 64 bits": (
        POST + b"Content-Length: 99999999999999999999\r\n\r\n",
        "invalid_content_length",
    ),
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", "invalid_host"),
    "two Hosts": (GET + b"Host: y\r\n\r\n", "invalid_host"),
    "one Host twice": (GET + b"Host: x\r\n\r\n", "invalid_host"),
    "a Host with a path": (b"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", "invalid_host"),
    "a Host with a user": (b"GET / HTTP/1.1\r\nHost: a@x\r\n\r\n", "invalid_host"),
    "a Host with a blank": (b"GET / HTTP/1.1\r\nHost: x y\r\n\r\n", "invalid_host"),
    "line feeds alone": (b"GET / HTTP/1.1\nHost: x\n\n", "malformed_request"),
    "a line feed after a field": (b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", "invalid_header"),
    "a line feed at the end": (b"GET / HTTP/1.1\r\nHost: x\r\n\n", "invalid_header"),
    "a carriage return alone": (GET + b"A: b\rC: d\r\n\r\n", "invalid_header"),
    "a folded field": (GET + b"A: b\r\n c\r\n\r\n", "invalid_header"),
    "a field folded by a tab": (GET + b"A: b\r\n\tc\r\n\r\n", "invalid_header"),
    "a first line folded": (b"GET / HTTP/1.1\r\n Host: x\r\n\r\n", "invalid_header"),
    "a blank before a colon": (GET + b"A : b\r\n\r\n", "invalid_header"),
    "a blank in a name": (GET + b"A B: c\r\n\r\n", "invalid_header"),
    "a field without a name": (GET + b": b\r\n\r\n", "invalid_header"),
    "a field without a colon": (GET + b"A\r\n\r\n", "invalid_header"),
    "NUL in a value": (GET + b"A: b\x00c\r\n\r\n", "invalid_header"),
    "NUL in a name": (GET + b"A\x00: b\r\n\r\n", "invalid_header"),
    "a control character": (GET + b"A: b\x01c\r\n\r\n", "invalid_header"),
    "gzip as framing": (POST + b"Transfer-Encoding: gzip\r\n\r\n", "invalid_transfer_encoding"),
    "gzip and chunks": (
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + END,
        "invalid_transfer_encoding",
    ),
    "chunks and gzip": (
        POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + END,
        "invalid_transfer_encoding",
    ),
    "chunks twice": (
        POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + END,
        "invalid_transfer_encoding",
    ),
    "chunks in two fields": (
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + END,
        "invalid_transfer_encoding",
    ),
    "identity": (POST + b"Transfer-Encoding: identity\r\n\r\n", "invalid_transfer_encoding"),
    "an unknown coding": (POST + b"Transfer-Encoding: xchunked\r\n\r\n", "invalid_transfer_encoding"),
    "no coding": (POST + b"Transfer-Encoding:\r\n\r\n" + END, "invalid_transfer_encoding"),
    "chunks in HTTP/1.0": (
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + END,
        "invalid_transfer_encoding",
    ),
    "a chunk of no size": (CHUNKED + b"\r\nabc\r\n" + END, "invalid_chunk"),
    "a chunk of a word": (CHUNKED + b"xyz\r\n", "invalid_chunk"),
    "a chunk of 0x3": (CHUNKED + b"0x3\r\nabc\r\n" + END, "invalid_chunk"),
    "a chunk of -1": (CHUNKED + b"-1\r\nabc\r\n" + END, "invalid_chunk"),
    "a chunk of 2^64": (CHUNKED + b"10000000000000000\r\n", "invalid_chunk"),
    "a chunk with a blank": (CHUNKED + b"3 \r\nabc\r\n" + END, "invalid_chunk"),
    "a chunk with a line feed": (CHUNKED + b"3\nabc\r\n" + END, "invalid_chunk"),
    "a chunk that ends early": (CHUNKED + b"3\r\nab\r\n" + END, "invalid_chunk"),
    "a chunk that goes on": (CHUNKED + b"3\r\nabcd\r\n" + END, "invalid_chunk"),
    "an extension with a line feed": (CHUNKED + b"3;a\nabc\r\n" + END, "invalid_chunk"),
    "an endless extension": (CHUNKED + b"3;" + b"a" * 100_000, "invalid_chunk"),
    "many extensions": (CHUNKED + (b"1;" + b"a" * 200 + b"\r\nx\r\n") * 1000, "invalid_chunk"),
    "endless zeros before a size": (CHUNKED + b"0" * 100_000, "invalid_chunk"),
    "endless trailers": (CHUNKED + b"0\r\n" + b"A: b\r\n" * 100_000, "invalid_chunk"),
    "a length behind the body": (CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n", "ambiguous_length"),
    "HTTP/2.0": (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", "invalid_version"),
    "HTTP/1.2": (b"GET / HTTP/1.2\r\nHost: x\r\n\r\n", "invalid_version"),
    "HTTP/0.9": (b"GET / HTTP/0.9\r\nHost: x\r\n\r\n", "invalid_version"),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "invalid_version"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "invalid_method"),
    "an unknown method": (b"FOO / HTTP/1.1\r\nHost: x\r\n\r\n", "invalid_method"),
    "a method in lower case": (b"get / HTTP/1.1\r\nHost: x\r\n\r\n", "invalid_method"),
    "a request to a proxy": (b"CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n", "invalid_method"),
    "a relative target": (b"GET x HTTP/1.1\r\nHost: x\r\n\r\n", "invalid_target"),
    "a star": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "invalid_target"),
    "another scheme": (b"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n", "invalid_target"),
    "a user in the target": (b"GET http://a@x/ HTTP/1.1\r\nHost: x\r\n\r\n", "invalid_host"),
    "a fragment": (b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", "invalid_target"),
    "NUL in the target": (b"GET /a\x00b HTTP/1.1\r\nHost: x\r\n\r\n", "invalid_target"),
    "a byte past ASCII in the target": (b"GET /\x80 HTTP/1.1\r\nHost: x\r\n\r\n", "invalid_target"),
    "an unknown expectation": (POST + b"Expect: tea\r\nContent-Length: 3\r\n\r\n", "expectation_failed"),
}


@pytest.mark.parametrize("pieces", [False, True], ids=["whole", "in pieces"])
@pytest.mark.parametrize("what", REFUSED)
def test_ambiguous_request_is_refused(server: Served, what: str, *, pieces: bool) -> None:
    sent, code = REFUSED[what]
    with server.connect() as connection:
        for byte in sent[: 300 if pieces else 0]:
            connection.send(bytes([byte]))
        connection.sendall(sent[300:] if pieces else sent)
        answer = read_to_end(connection)
    assert answer.count(b"\r\n\r\n") == 1
    problem = problem_of(answer)
    assert (problem["status"], problem["code"]) == (417 if code == "expectation_failed" else 400, code)
    assert ". " in problem["detail"], "it says what to do, too"


ACCEPTED = {
    "leading zeros": (POST + b"Content-Length: 003\r\n\r\nabc", b"POST / x|abc"),
    "a blank behind the length": (POST + b"Content-Length: 3 \r\n\r\nabc", b"POST / x|abc"),
    "chunks in capitals": (
        POST + b"Transfer-Encoding: CHUNKED\r\n\r\n3\r\nabc\r\n" + END,
        b"POST / x|abc",
    ),
    "extensions": (CHUNKED + b'3;a="b;c";d\r\nabc\r\n0;e\r\n\r\n', b"POST / x|abc"),
    "trailers": (CHUNKED + b"3\r\nabc\r\n0\r\nHost: other\r\n\r\n", b"POST / x|abc"),
    "many small chunks": (CHUNKED + b"1\r\na\r\n" * 50_000 + END, b"POST / x|" + b"a" * 50_000),
    "an absolute target": (b"GET http://y:1/p?q HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /p y:1|"),
    "IPv6": (b"GET / HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n", b"GET / [::1]:8000|"),
    "an empty Host": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", b"GET / |"),
    "HTTP/1.0 without Host": (b"GET / HTTP/1.0\r\n\r\n", b"GET / -|"),
    "empty lines before": (b"\r\n\r\n" + GET + b"\r\n", b"GET / x|"),
    "an expectation in HTTP/1.0": (
        b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / -|abc",
    ),
}


@pytest.mark.parametrize("what", ACCEPTED)
def test_unusual_request_is_accepted(server: Served, what: str) -> None:
    sent, content = ACCEPTED[what]
    answer = server.exchange(sent)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.partition(b"\r\n\r\n")[2] == content


@pytest.mark.parametrize("offer", [b"h2c", b"websocket", b"TLS/1.0"])
def test_an_offer_to_upgrade_is_declined_and_the_body_is_kept(server: Served, offer: bytes) -> None:
    """Java's HttpClient offers h2c with its first request; uvicorn takes the body for the next one."""
    sent = (
        b"POST /a HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 3\r\nHost: x\r\n"
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: %b\r\n\r\nabc" % offer
    )
    answer = server.exchange(sent + GET + b"\r\n")
    assert [part.rpartition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 ")[1:]] == [
        b"POST /a x|abc",
        b"GET / x|",
    ]


LIMITS = ConnectionLimits(
    max_target_bytes=100, max_header_bytes=500, max_headers=10, keep_alive_s=0.05
)  # fmt: skip
TOO_LARGE = {
    "a target": (b"GET /" + b"a" * 100 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "target_too_long"),
    "an endless target": (b"GET /" + b"a" * 1000, 414, "target_too_long"),
    "a header": (GET + b"A: " + b"b" * 500 + b"\r\n\r\n", 431, "header_too_large"),
    "an endless header": (GET + b"A: " + b"b" * 5000, 431, "header_too_large"),
    "an endless name": (GET + b"A" * 5000, 431, "header_too_large"),
    "headers": (GET + b"A: b\r\n" * 100 + b"\r\n", 431, "header_too_large"),
    "endless headers": (GET + b"A: b\r\n" * 10_000, 431, "header_too_large"),
    "the number of headers": (GET + b"A: b\r\n" * 10 + b"\r\n", 431, "too_many_headers"),
    "endless empty lines": (b"\r\n" * 1000, 431, "header_too_large"),
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_too_large_a_head_is_refused(what: str) -> None:
    sent, status, code = TOO_LARGE[what]
    with served(echo, LIMITS) as server:
        problem = problem_of(server.exchange(sent))
    assert (problem["status"], problem["code"]) == (status, code)
    assert ". " in problem["detail"], "it says what to do, too"


@pytest.mark.parametrize("what", ["a target", "an endless target", "a header", "headers", "endless headers"])
def test_too_large_a_head_is_refused_after_the_answer_to_what_came_before_it(what: str) -> None:
    """What ends a chunked body is not known beforehand: the head behind it is parsed with it."""
    sent, status, code = TOO_LARGE[what]
    with served(echo, LIMITS) as server:
        answer = server.exchange(CHUNKED + END + sent)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    problem = problem_of(answer)
    assert (problem["status"], problem["code"]) == (status, code)


def test_a_head_as_large_as_allowed_is_taken() -> None:
    line, host = b"GET /" + b"a" * 99 + b" HTTP/1.1\r\n", b"Host: x\r\n"
    sent = line + host + b"A: " + b"b" * (500 - len(line) - len(host) - 7) + b"\r\n\r\n"
    assert len(sent) == 500
    with served(echo, LIMITS) as server:
        assert server.exchange(sent).startswith(b"HTTP/1.1 200")


def test_the_default_limits_take_a_schema_in_the_query(server: Served) -> None:
    sent = b"GET /?schema=" + b"%7B" * 8192 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    assert server.exchange(sent).startswith(b"HTTP/1.1 200")
