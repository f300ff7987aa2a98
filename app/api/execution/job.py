"""What a route hands over to be done for a request, what that is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

from fastapi import Request

from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream
from ...runtime.workspace import Workspace
from ...tracing import WholeConversion
from ..auth.principal import caller_of
from ..state import Services


@dataclass(slots=True)
class Answer:
    """What work gives back: headers, and bytes that are drawn where the work was done.

    Attributes:
        chunks: drawn once; the answer's way out may put others in their place, which draw these.
        late_headers: asked once all bytes are drawn; sent only with answers completed first.
        early_headers: asked once the first bytes are drawn; sent only with answers that begin before all are.
        whole: the conversion that gives it, if that is to be counted once all bytes are drawn.
    """

    media_type: str
    chunks: Iterator[Buffer]
    headers: Mapping[str, str] = field(default_factory=dict)
    late_headers: Callable[[], Mapping[str, str]] = dict
    early_headers: Callable[[], Mapping[str, str]] = dict
    status: int = 200
    whole: WholeConversion | None = None


class Job(Workspace):
    """What work is given for one request. What it puts on this stack is closed at the end.

    The end is when the answer is drawn; or, where the answer comes later, when the work returns.

    Attributes:
        request: its head. The body is read from the stream that the work is given.
        services: what does the work.
        body_bytes: the length of the body, where that is known before it is read.
        is_on_loop: the event loop does the work, which must not wait.
    """

    def __init__(
        self,
        request: Request,
        services: Services,
        budget: Budget,
        body_bytes: int | None = None,
        *,
        is_on_loop: bool = False,
    ) -> None:
        super().__init__(budget, services.spool)
        self.request = request
        self.services = services
        self.body_bytes = body_bytes
        self.is_on_loop = is_on_loop

    @property
    def caller(self) -> str:
        """With whom the request is counted."""
        return caller_of(self.request.scope)


#: Done for one request, in a worker thread or on the event loop. An answer that comes later holds no thread:
#: it is drawn in the thread that brings it.
Work = Callable[[Job, ByteStream], Answer | Future[Answer]]

#: Where work waits for a thread: `metadata` is short and streams nothing; `store` is a conversion that may
#: wait for the object store; `append` is `metadata` where the body is small, so that clients that send large
#: ones slowly do not keep it waiting, and `store` where it is not.
LaneName = Literal["metadata", "conversion", "store", "append"]


class Declined(Exception):
    """Raised by work on the event loop that has done nothing, and would have to wait."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done for every request with the same path, query and negotiating headers.

    Attributes:
        work: what to do, in a thread.
        lane: where it waits for one.
        complete_first: whether the answer is completed before its first byte leaves.
        on_loop: what to do on the event loop with a small body that has come whole; it never waits. None
            where `work` may wait. Where it refuses, `work` is done, which then says what is wrong.
    """

    work: Work
    lane: LaneName
    complete_first: bool = False
    on_loop: Work | None = None
