"""Threads in which the work of a request goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class Threads(ThreadPoolExecutor):
    """A pool whose threads work in the context of the caller: what they log and trace names its request."""

    def submit(self, function: Callable[..., T], /, *args: Any, **named: Any) -> Future[T]:
        return super().submit(copy_context().run, function, *args, **named)
