"""Classes of values that do not change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(*, eq: bool = True) -> Callable[[type[T]], type[T]]:
    """A dataclass with slots whose instances nobody changes; mypy says so where somebody does.

    Frozen dataclasses say it at run time, too, and take four times as long to make. A small request makes
    dozens.

    Args:
        eq: whether instances are equal where their fields are, and have a hash; not for fields of arrays.
    """
    return dataclass(slots=True, eq=eq, unsafe_hash=eq)
