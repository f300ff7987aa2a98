"""Requests to one service: tried again where that may help, answers read and checked.

The one place that knows which failures pass, how long to wait, and what a problem document is.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import json
import logging
import random
import re
import ssl
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx

from .errors import ClientError, Damaged, Refused, Unavailable, Unsendable, read_problem, refusal
from .transport import Reply, Transport

T = TypeVar("T")

#: Answers after which another try makes sense: too much to do, or a proxy without a replica.
_PASSING: Final = frozenset({408, 429, 502, 503, 504})
#: Another request with the same key is under way; its outcome will be that of this one.
_IN_PROGRESS: Final = "append_in_progress"
#: The other says that a body was damaged on its way.
_PASSING_CODES: Final = frozenset({_IN_PROGRESS, "digest_mismatch"})
FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 10.0
#: Of a problem document; a longer one is none.
_MOST_PROBLEM: Final = 1 << 16
_LOG: Final = logging.getLogger("shardsmith.client")
_SHA_256: Final = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]*):")

#: What httpx sends as a body.
Content = bytes | Iterable[bytes] | AsyncIterable[bytes]
Parameter = str | int | float | bool | None


class Passing(ClientError):
    """A failure after which another try makes sense.

    Attributes:
        wait_s: not before so many seconds.
        may_be_done: the service has perhaps done what was asked.
    """

    def __init__(self, detail: str, wait_s: float = 0.0, *, may_be_done: bool = True) -> None:
        super().__init__(detail)
        self.wait_s = wait_s
        self.may_be_done = may_be_done


@dataclass(frozen=True)
class Patience:
    """How long failures that pass are borne, and how long to wait between tries.

    Attributes:
        total_s: from the first failure on.
        first_s, longest_s: waits double from the first up to the longest, less up to half by chance.
    """

    total_s: float = 300.0
    first_s: float = FIRST_WAIT_S
    longest_s: float = LONGEST_WAIT_S


class Answer:
    """An answer that is a success, read as far as it is asked for."""

    def __init__(self, reply: Reply) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self._reply = reply
        self._rest = memoryview(b"")

    async def read(self, n: int) -> bytearray:
        """Exactly the next `n` bytes.

        Raises:
            Passing: the answer ends before.
        """
        if len(self._rest) >= n:
            taken, self._rest = self._rest[:n], self._rest[n:]
            return bytearray(taken)
        data = bytearray(self._rest)
        while len(data) < n:
            piece = await self.next_piece()
            if piece is None:
                raise Passing("The answer was cut short.")
            data += piece
        self._rest = memoryview(data)[n:].toreadonly()
        return data[:n] if len(self._rest) else data

    async def next_piece(self) -> bytes | None:
        """The next bytes, as many as came; None at the end."""
        try:
            return await self._reply.next_piece()
        except httpx.TransportError as error:
            raise Passing(_told(error)) from error

    async def content(self) -> bytes:
        """All of the body, which is then closed.

        Raises:
            Passing: it is cut short, or its digest is another one.
        """
        try:
            data = bytearray()
            while (piece := await self.next_piece()) is not None:
                data += piece
        finally:
            await self.close()
        content = bytes(data)
        # Nothing here asks for an encoding, so what is sent whole is the representation.
        for name in ("Content-Digest",) if self.status == 206 else ("Content-Digest", "Repr-Digest"):
            if not digest_fits(self.headers.get(name), lambda: hashlib.sha256(content).digest()):
                raise Passing(f"The answer does not have its {name}: it was damaged on the way.")
        return content

    async def json(self) -> Any:
        return read_json(await self.content())

    async def close(self) -> None:
        await self._reply.close()


def read_json(content: bytes) -> Any:
    """What a service has written as JSON.

    Raises:
        Damaged: it is none.
    """
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise _no_service() from None


def member(found: Any, name: str, kind: type[T]) -> T:
    """A member of an object that a service has written.

    Raises:
        Damaged: there is none, or one of another kind.
    """
    value = found.get(name) if isinstance(found, dict) else None
    if not isinstance(value, kind):
        raise _no_service()
    return value


def _no_service() -> Damaged:
    return Damaged("What answers there is not a Shardsmith service. Check the address.")


def digest_fits(digest: str | None, sha_256: Callable[[], bytes]) -> bool:
    """Whether a field of digests (RFC 9530) says nothing else."""
    found = _SHA_256.search(digest or "")
    return found is None or base64.b64decode(found[1]) == sha_256()


def digest_of(content: bytes) -> str:
    """The field of digests of some bytes."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


@dataclass
class Connection:
    """The way to one service.

    The token goes to this address alone: redirects are refused, since one could lead anywhere.

    Args:
        url: its root; what is asked for stands below `/v1`.
        headers: of each request.
    """

    transport: Transport
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    patience: Patience = Patience()
    timeout: httpx.Timeout = field(default_factory=lambda: httpx.Timeout(60.0))

    async def send(
        self,
        method: str,
        *segments: str,
        params: Mapping[str, Parameter] | None = None,
        headers: Mapping[str, str] | None = None,
        content: Content | None = None,
    ) -> Answer:
        """Send a request once; whoever takes the answer closes it.

        Args:
            segments: of the path behind `/v1`.
            params: of the query; those that are None are left out.

        Raises:
            Passing: another try may go better.
            Refused: it cannot.
            Unsendable: what HTTP does not allow.
            Unavailable: what answers does not speak TLS as it should.
        """
        given = {name: _text_of(value) for name, value in (params or {}).items() if value is not None}
        request = httpx.Request(
            method,
            "/".join([self.url, "v1", *(quote(segment, safe="") for segment in segments)]),
            params=given or None,
            headers={**self.headers, **(headers or {})},
            content=content,
            extensions={"timeout": self.timeout.as_dict()},
        )
        try:
            reply = await self.transport.send(request)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            if _is_of_tls(error):
                raise Unavailable(
                    f"{_told(error)} Check that {self.url} is the right address, and see verify for a "
                    f"certificate of your own."
                ) from error
            raise Passing(_told(error), may_be_done=False) from error
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol) as error:
            raise Unsendable(_told(error)) from error
        except httpx.TransportError as error:
            raise Passing(_told(error)) from error
        if 200 <= reply.status < 300:
            return Answer(reply)
        try:
            raise await _failure(reply)
        finally:
            await reply.close()

    async def ask(self, method: str, *segments: str, **options: Any) -> tuple[Answer, Any]:
        """Send a request until it is answered; the answer, and its body, which is JSON."""

        async def attempt() -> tuple[Answer, Any]:
            answer = await self.send(method, *segments, **options)
            return answer, await answer.json()

        return await self.patiently(attempt)

    async def patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """What `call` gives in the end, tried again after each failure that passes.

        Raises:
            Unavailable: they went on for too long.
        """
        began: float | None = None
        wait_s = self.patience.first_s
        while True:
            try:
                return await call()
            except Passing as error:
                now = self.transport.now()
                began = now if began is None else began
                # Spread out, so that clients that failed together do not come back together.
                pause_s = max(error.wait_s, wait_s * random.uniform(0.5, 1.0))  # noqa: S311  # not a secret
                if now - began + error.wait_s >= self.patience.total_s:
                    raise Unavailable(
                        f"The service has failed for {now - began:.0f} s: {error} Try again later, or with "
                        f"more patience."
                    ) from error
                _LOG.warning("%s Trying again in %.1f s.", error, pause_s)
            await self.transport.sleep(pause_s)
            wait_s = min(2 * wait_s, self.patience.longest_s)

    async def close(self) -> None:
        await self.transport.close()


def retry_after(headers: httpx.Headers) -> float:
    """How many seconds an answer asks to wait; 0 if it does not say."""
    text = headers.get("Retry-After", "")
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return 0.0


async def _failure(reply: Reply) -> Passing | Refused:
    """What an answer says that is no success."""
    text = bytearray()
    try:
        while len(text) < _MOST_PROBLEM and (piece := await reply.next_piece()) is not None:
            text += piece
    except httpx.TransportError:
        pass  # the status says enough
    problem = read_problem(bytes(text))
    if 300 <= reply.status < 400:
        where = reply.headers.get("Location", "elsewhere")
        detail = (
            f"The service sends requests on to {where}. Give the client that address, if it is the service's."
        )
        return refusal(reply.status, {"detail": detail})
    failure = refusal(reply.status, problem)
    if reply.status not in _PASSING and failure.code not in _PASSING_CODES:
        return failure
    # A proxy's own answer says nothing of what is behind it.
    is_known = failure.code not in ("", "outcome_unknown", _IN_PROGRESS)
    return Passing(f"{failure}.".replace("..", "."), retry_after(reply.headers), may_be_done=not is_known)


def _is_of_tls(error: BaseException) -> bool:
    """Whether the other side does not speak TLS, or has no certificate that is trusted."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _told(error: httpx.TransportError) -> str:
    return f"{str(error) or type(error).__name__}".rstrip(".") + "."


def _text_of(value: Parameter) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
