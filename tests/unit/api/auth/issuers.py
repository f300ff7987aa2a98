"""An OpenID Connect issuer on loopback, with keys of its own."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

AUDIENCE = "shardsmith"
CONFIGURATION = "/.well-known/openid-configuration"


@cache
def private_key(algorithm: str, which: int = 0) -> Any:
    """A key for that algorithm; `which` tells several apart."""
    if algorithm.startswith(("RS", "PS")):
        return rsa.generate_private_key(65537, 1024 if which == -1 else 2048)
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    curves: dict[str, Any] = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}
    return ec.generate_private_key(curves[algorithm]())


def public_jwk(algorithm: str, kid: str | None, which: int = 0, **members: Any) -> dict[str, Any]:
    """The public half, as it stands in a key set."""
    kind = jwt.get_algorithm_by_name(algorithm)
    described: Any = kind.to_jwk(private_key(algorithm, which).public_key(), as_dict=True)
    described.pop("key_ops", None)
    named = {} if kid is None else {"kid": kid}
    return {**described, "use": "sig", "alg": algorithm, **named, **members}


class Issuer:
    """What it answers with can be changed; `asked` has the paths of all requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: list[Any] = [public_jwk("RS256", "one")]
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[str] = []

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Good claims, with changes; None takes one away."""
        now = int(time.time())
        whole = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "robot",
            "iat": now,
            "exp": now + 3600,
            "scope": "openid read write",
            **changed,
        }
        return {name: value for name, value in whole.items() if value is not None}

    def token(
        self,
        algorithm: str = "RS256",
        kid: str | None = "one",
        which: int = 0,
        headers: Any = None,
        **changed: Any,
    ) -> str:
        """A token signed by a key of this module."""
        named = {**({} if kid is None else {"kid": kid}), **(headers or {})}
        return jwt.encode(self.claims(**changed), private_key(algorithm, which), algorithm, headers=named)

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        if path == CONFIGURATION:
            described = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
            return 200, {}, json.dumps(described).encode()
        return (200, {}, json.dumps({"keys": self.keys}).encode()) if path == "/keys" else (404, {}, b"")


@contextmanager
def issuing() -> Iterator[Issuer]:
    """An issuer that answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # http.server's name
            status, headers, body = issuer.answer(self.path)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = Issuer(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
