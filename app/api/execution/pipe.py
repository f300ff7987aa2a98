"""Between the event loop and the worker threads: a body in, an answer out, neither blocking the other.

A conversion is plain synchronous code in a worker thread. It pulls the body from a `RequestBody`,
which the event loop fills, and pushes its output into an `OutputPipe`, which the event loop sends.
Clients that write everything before they read are the rule: as long as the body is still arriving,
output that nobody takes goes to the spool, never into a wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from starlette.types import Receive

from ...domain.limits import KIB, MIB
from ...errors import LimitExceeded, ShardsmithError, StreamAltered, StreamInterrupted, StreamTimeout
from ...runtime.spool import Spool, SpoolFile
from ...runtime.streams import Buffer
from ...runtime.turns import offer_turn, waiting
from ..body.digests import Digests
from ..digests import digest_field
from ..patience import body_timed_out, in_time, wait_in_time

#: Body bytes held in memory before the socket is no longer read; until somebody reads them, and then.
BODY_HEAD: Final = 256 * KIB
BODY_WINDOW: Final = 2 * MIB
#: Bytes behind a fault that are still looked at, before the client is told of it.
_MOST_LOOKED_AT: Final = 16 * MIB
#: Output bytes held in memory before they go to the spool or the worker waits.
OUTPUT_WINDOW: Final = 4 * MIB
#: Output is queued and sent in pieces: the server copies each on the event loop, a gigabyte in a second.
_PIECE: Final = 1 * MIB
#: Shorter ones are put together: sending a piece takes the event loop some microseconds, however short it is.
_SHORT: Final = 4 * KIB


class RequestBody:
    """A `ByteStream` that the event loop fills and one worker thread reads.

    Args:
        max_bytes: of the body.
        timeout_s: how long it is waited for the next byte.
        require_open: asked before each read; raises where the request is to go no further.
        digests: that it has to have. A body that has others does not end, as one that is cut short does not.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        timeout_s: float,
        require_open: Callable[[], None] = lambda: None,
        digests: Digests | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._require_open = require_open
        self._digests = digests
        self._window = BODY_HEAD
        self._ready = threading.Condition()
        self._room = asyncio.Event()
        self._arrived = asyncio.Event()
        self._complete = asyncio.Event()
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._full = False
        self._received = 0
        self._ended = False
        self._wanted = True
        self._error: ShardsmithError | None = None

    @property
    def received(self) -> int:
        """Bytes that have arrived."""
        return self._received

    @property
    def ended(self) -> bool:
        """Whether the whole body has arrived (or never will)."""
        return self._ended

    @property
    def complete(self) -> bool:
        """Whether the client has sent all that it wants to send."""
        return self._complete.is_set()

    async def pump(self, receive: Receive, on_disconnect: Callable[[], None]) -> None:
        """Take the body from the connection until it ends, then wait for the client to leave."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self._end(StreamInterrupted("The connection closed before the body ended."))
                self._complete.set()
                on_disconnect()
                return
            if not self._ended:
                await self._accept(message.get("body", b""))
            if not message.get("more_body", False):
                self._complete.set()
                self._end(None)
            self._arrived.set()

    async def wait_for_head(self, num_bytes: int) -> None:
        """Wait until so much has arrived, or all of it: a body that never comes shall hold no worker.

        Raises:
            StreamTimeout: nothing came for too long.
        """
        while not self._ended and self._received < num_bytes:
            self._arrived.clear()
            try:
                await in_time(self._arrived.wait, self._timeout_s)
            except TimeoutError:
                raise self._timed_out() from None

    async def _accept(self, piece: bytes) -> None:
        self._received += len(piece)
        if self._received > self._max_bytes:
            self._end(
                LimitExceeded(
                    f"The body is larger than {self._max_bytes} bytes. Send it in pieces.",
                    code="payload_too_large",
                )
            )
            return
        if piece and self._wanted:
            with self._ready:
                self._pieces.append(piece)
                self._held += len(piece)
                self._ready.notify()
        self._arrived.set()
        while self._held > self._window and self._wanted:
            self._room.clear()
            self._full = True  # before the next look, so that no reader misses it
            if self._held > self._window:
                await self._room.wait()

    def _end(self, error: ShardsmithError | None) -> None:
        with self._ready:
            if not self._ended:
                self._ended, self._error = True, error
            self._ready.notify()
        self._arrived.set()

    def _timed_out(self) -> StreamTimeout:
        return body_timed_out(self._timeout_s)

    def read(self, n: int, /) -> bytes:
        """Between 1 and `n` bytes, or `b""` at the end.

        Raises:
            StreamInterrupted: the client went away.
            StreamTimeout: nothing came for too long.
            LimitExceeded: the body is larger than allowed, or the request has taken too long.
            StreamAltered: all of it has come, and is not what its digest says.
        """
        piece = self._next_piece(n)
        if self._digests is not None:
            self._digests.take(piece)
        return piece

    def require_unaltered(self) -> None:
        """Where something was found wrong in the body, see whether it is what its digest says at all.

        What is left is read for that, unless it is much.

        Raises:
            StreamAltered: it is not.
        """
        left = _MOST_LOOKED_AT if self._digests is not None else 0
        try:
            while left > 0 and (piece := self.read(left)):
                left -= len(piece)
        except StreamAltered:
            raise
        except (LimitExceeded, StreamInterrupted):
            pass  # then nobody can tell

    def _next_piece(self, n: int) -> bytes:
        self._require_open()
        offer_turn()
        self._window = BODY_WINDOW
        if not self._pieces and not self._ended:
            with waiting(), self._ready:  # in this order: the event loop takes the lock, too
                self._wait_for_piece()
        with self._ready:
            if not self._pieces:
                if self._error is not None:
                    raise self._error
                return b""
            piece = self._pieces.popleft()
            if len(piece) > n:
                self._pieces.appendleft(piece[n:])
                piece = piece[:n]
            self._held -= len(piece)
        if self._full and self._held <= BODY_WINDOW // 2:
            self._make_room()
        return piece

    def wait_readable(self, seconds: float) -> bool:
        """As `TimedStream`."""
        if not self._pieces and not self._ended:
            with waiting(), self._ready:
                if self._full:
                    self._make_room()
                self._ready.wait_for(lambda: self._pieces or self._ended, seconds)
        return bool(self._pieces) or self._ended

    def _wait_for_piece(self) -> None:
        if self._full:
            self._make_room()
        while not self._pieces and not self._ended:
            if not wait_in_time(self._ready, self._timeout_s) and not self._pieces and not self._ended:
                raise self._timed_out()

    def interrupt(self) -> None:
        """Nobody fills it any more: a reader that waits is let go, with StreamInterrupted."""
        self._end(StreamInterrupted("The request was given up before the body ended."))

    def discard(self) -> None:
        """The rest is not wanted: let it arrive and drop it."""
        with self._ready:
            self._wanted = False
            self._pieces.clear()
            self._held = 0
        self._make_room()

    def _make_room(self) -> None:
        """Have the event loop go on taking the body: it waits, or is about to."""
        self._full = False
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._room.set)


class OutputPipe:
    """Output in order: in memory while there is room, on the spool past that.

    Args:
        may_wait: asked when memory is full: true lets the worker wait for the client (the body has
            arrived, so the client is reading or gone), false sends the surplus to the spool.
        digest_limit: past so many bytes no digest is kept, since the headers will be gone by then;
            None keeps it to the end.
        timeout_s: how long the worker waits for a client that takes nothing.
        body_spooled: says how many bytes of the body lie on the spool, beside the output.
    """

    def __init__(
        self,
        spool: Spool,
        may_wait: Callable[[], bool],
        *,
        digest_limit: int | None,
        timeout_s: float,
        body_spooled: Callable[[], int] = int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._spool = spool
        self._may_wait = may_wait
        self._digest_limit = digest_limit
        self._timeout_s = timeout_s
        self._body_spooled = body_spooled
        self._changed = threading.Condition()
        self._data = asyncio.Event()
        self._queue: deque[memoryview | bytearray | tuple[int, int]] = deque()
        self._in_memory = 0
        self._file: SpoolFile | None = None
        self._digest = hashlib.sha256()
        self._finished = False
        self._abandoned = False
        self._error: BaseException | None = None
        #: Bytes written so far.
        self.size = 0

    # The worker's side.

    def write(self, data: Buffer) -> None:
        """Add `data`, which must stay as it is until it is sent.

        Raises:
            StreamInterrupted: nobody will read it any more.
            StreamTimeout: nobody read anything for too long.
            StorageFull: it had to go to the spool, which is full.
        """
        view = memoryview(data).cast("B")
        for begin in range(0, len(view), _PIECE):
            self._write(view[begin : begin + _PIECE])

    def _write(self, data: memoryview) -> None:
        length = len(data)
        if self._digest_limit is None:
            self._digest.update(data)
        offer_turn()
        if self._has_to_wait():
            with waiting(), self._changed:
                self._wait_for_room()
        if self._queued_in_memory(data, length):
            self._wake()
            return
        # Outside the lock, which the event loop takes too: disks are slow.
        with waiting():
            offset = self._spill(data)
        with self._changed:
            self._require_reader()
            self._queue_spooled(offset, length)
            self.size += length
        self._wake()

    def _queue_spooled(self, offset: int, length: int) -> None:
        """What lies side by side in the spool is read at once: each read is a call of a thread."""
        last = self._queue[-1] if self._queue else None
        if isinstance(last, tuple) and sum(last) == offset and last[1] + length <= _PIECE:
            self._queue[-1] = (last[0], last[1] + length)
        else:
            self._queue.append((offset, length))

    def _has_to_wait(self) -> bool:
        return self._in_memory >= OUTPUT_WINDOW and self._may_wait() and not self._abandoned

    def _wait_for_room(self) -> None:
        while self._has_to_wait():
            if not wait_in_time(self._changed, self._timeout_s) and self._has_to_wait():
                raise StreamTimeout(f"The client took no byte of the answer for {self._timeout_s:g} s.")

    def _queued_in_memory(self, data: memoryview, length: int) -> bool:
        with self._changed:
            self._require_reader()
            if self._in_memory >= OUTPUT_WINDOW:
                return False
            self._queue_short(data) if length < _SHORT else self._queue.append(data)
            self._in_memory += length
            self.size += length
            return True

    def _queue_short(self, data: memoryview) -> None:
        last = self._queue[-1] if self._queue else None
        if isinstance(last, bytearray) and len(last) < _PIECE:
            last += data
        else:
            self._queue.append(bytearray(data))

    def _require_reader(self) -> None:
        if self._abandoned:
            self._close_file()
            raise StreamInterrupted("The client is gone.")

    def _spill(self, data: memoryview) -> int:
        if self._file is None:
            self._file = self._spool.open_share(beside=self._body_spooled())
        try:
            return self._file.append(data)
        except ValueError:  # closed by `abandon` meanwhile
            raise StreamInterrupted("The client is gone.") from None

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()

    def finish(self, error: BaseException | None = None) -> None:
        """No more will come, because all is there or because of `error`."""
        if self._digest_limit is not None and self.size <= self._digest_limit:
            # All of it is still queued. What goes beyond the limit has not taken the time for a digest.
            for piece in self._queue:
                if not isinstance(piece, tuple):
                    self._digest.update(piece)
        with self._changed:
            self._finished, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._data.set)

    # The event loop's side.

    @property
    def is_spooled(self) -> bool:
        """Whether it holds room of the spool, until it is sent or abandoned."""
        return self._file is not None

    async def settle(self, limit: int | None) -> bool:
        """Wait until all output is there, or more than `limit` bytes; true if it is all there.

        Raises:
            BaseException: whatever ended the worker, while nothing has been sent.
        """
        while not self._settled(limit):
            self._data.clear()
            # Looked at again after clearing: the worker may have set it in between.
            if not self._settled(limit):
                await self._data.wait()
        if self._error is not None:
            raise self._error
        return limit is None or self.size <= limit

    def _settled(self, limit: int | None) -> bool:
        return self._finished or (limit is not None and self.size > limit)

    async def next_piece(self) -> bytes | bytearray | memoryview | None:
        """The next piece, or None at the end.

        Raises:
            BaseException: whatever ended the worker early.
        """
        while not self._queue:
            if self._error is not None:
                raise self._error
            if self._finished:
                return None
            self._data.clear()
            if not self._queue and not self._finished:
                await self._data.wait()
        with self._changed:
            item = self._queue.popleft()
            if not isinstance(item, tuple):
                self._in_memory -= len(item)
                self._changed.notify()
                return item
        if self._file is None:
            raise RuntimeError("a spooled piece without a spool file")
        try:
            return await asyncio.to_thread(self._file.read_at, *item)
        except ValueError:  # closed by `abandon` meanwhile
            raise StreamInterrupted("The client is gone.") from None

    def repr_digest(self) -> str:
        """`Repr-Digest` (RFC 9530) of all that was written; only within the digest's limit."""
        return digest_field(self._digest.digest())

    def abandon(self) -> None:
        """Nobody reads any more: the worker's next write raises, and the room is freed."""
        with self._changed:
            self._abandoned = True
            self._queue.clear()
            self._in_memory = 0
            self._changed.notify_all()
        if self._file is not None:
            # Freeing a large file takes its time, which the event loop does not have.
            self._loop.run_in_executor(None, self._file.close)
