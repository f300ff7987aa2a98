"""One JSON text to a tape, or to the error that says what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...runtime.budget import Budget
from ...runtime.streams import Arriving, Buffer, WholeBody
from .tape import Tape
from .tape_reader import TapeReader, Unread, read_document
from .text import parse_json


def read_body(body: WholeBody, budget: Budget, *, bare: bool, names: Iterable[str] = ()) -> Tape:
    """The value of a body, read while it arrives where that is possible; as `read_text`.

    Raises:
        InputError: as `parse_json`, and what stops the body from arriving.
    """
    if isinstance(body, Arriving) and body.declared_size is not None:
        tape = TapeReader(names, budget, bare=bare).read_ahead(body.read_ahead(), body.declared_size)
        if tape is not None:
            return tape
    return read_text(body.view(), budget, bare=bare, names=names)


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
