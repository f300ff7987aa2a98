"""Results that come later, in whatever thread brings them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def completed(value: T) -> Future[T]:
    """A result that is there already."""
    future: Future[T] = Future()
    future.set_result(value)
    return future


def settle(future: Future[T], produce: Callable[[], T]) -> None:
    """Give `future` what `produce` returns or raises."""
    try:
        value = produce()
    except BaseException as error:  # carried to whoever waits
        future.set_exception(error)
    else:
        future.set_result(value)


def then(source: Future[T], function: Callable[[T], U]) -> Future[U]:
    """What `function` makes of the result of `source`, in the thread that brings it; errors pass through."""
    target: Future[U] = Future()
    source.add_done_callback(lambda done: settle(target, lambda: function(done.result())))
    return target
