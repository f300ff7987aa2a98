"""One JSON text to a tape, or to the error that says what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...runtime.budget import Budget
from ...runtime.streams import Buffer
from .tape import Tape
from .tape_reader import Unread, read_document
from .text import parse_json


def read_text(text: Buffer, budget: Budget, *, bare: bool, names: Iterable[str] = ()) -> Tape:
    """The value of a JSON text; as `TapeReader.read`.

    Raises:
        InputError: as `parse_json`.
    """
    try:
        return read_document(np.frombuffer(text, np.uint8), budget, bare=bare, names=names)
    except Unread:
        parse_json(text, budget, bare_nonfinite=bare)
        raise AssertionError("the kernel reads what the parser does") from None  # pragma: no cover
