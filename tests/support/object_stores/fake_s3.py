"""The protocol of S3 without S3."""

import threading
from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Method and path with query -> status, or status and body; None is a success without effect.
Answers = Callable[[str, str], int | tuple[int, bytes] | None]

_UPLOAD_BEGUN = (
    b"<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key><UploadId>u1</UploadId>"
    b"</InitiateMultipartUploadResult>"
)
_UPLOAD_COMPLETE = b'<CompleteMultipartUploadResult><ETag>"e"</ETag></CompleteMultipartUploadResult>'


class FakeS3:
    """A server on loopback that answers as told and remembers what it was asked.

    A stand-in, for faults that a real S3 does not have when asked to. It stores nothing.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str | None]] = []
        self.answers: Answers = lambda method, path: None
        self.on_headers: Callable[[Message], None] = lambda headers: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.requests.append((self.command, self.path, self.headers.get("If-None-Match")))
                outer.on_headers(self.headers)
                answer = outer.answers(self.command, self.path) or 200
                status, body = answer if isinstance(answer, tuple) else (answer, b"")
                if status == 200 and self.command == "POST":
                    body = _UPLOAD_BEGUN if "uploads" in self.path else _UPLOAD_COMPLETE
                self.send_response(status)
                self.send_header("ETag", '"e"')
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815  # http.server's names

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        #: With which a store finds it.
        self.environment = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def methods(self) -> list[str]:
        return [f"{method} {path.partition('=')[0]}" for method, path, _ in self.requests]
