"""What a route hands over to be done in a worker thread, and what that gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field

from ..runtime.budget import Budget
from ..runtime.streams import Buffer, ByteStream


@dataclass(slots=True)
class Answer:
    """What a conversion gives back: headers, and bytes that are drawn in the worker thread.

    Attributes:
        chunks: drawn once; the answer's way out may put others in their place, which draw these.
        late_headers: asked once all bytes are drawn; sent only with answers completed first.
        early_headers: asked once the first bytes are drawn; sent only with answers that begin before all are.
    """

    media_type: str
    chunks: Iterator[Buffer]
    headers: Mapping[str, str] = field(default_factory=dict)
    late_headers: Callable[[], Mapping[str, str]] = dict
    early_headers: Callable[[], Mapping[str, str]] = dict
    status: int = 200


#: Runs in a worker thread. What it puts on the stack is closed once the answer is drawn; or, where the answer
#: comes later, when it returns: then no thread waits, and the answer is drawn in the thread that brings it.
Work = Callable[[ByteStream, Budget, ExitStack], Answer | Future[Answer]]
