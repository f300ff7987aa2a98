"""Serialized messages as base64 in JSON: `{"b64": ...}` is one, `{"instances": [{"b64": ...}, ...]}` several.

The form in which TensorFlow Serving takes bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...errors import AmbiguousInput
from ...runtime.streams import Buffer
from ..json.forms import IGNORED_MEMBERS
from ..json.write import Alphabet, b64_text

__all__ = ["message_texts", "read_messages"]


def read_messages(body: Any) -> list[tuple[str, object]]:
    """The pointer to each message, and what stands there, not yet decoded.

    Raises:
        AmbiguousInput: neither of the two forms.
    """
    if isinstance(body, dict):
        if body.keys() == {"b64"}:
            return [("/b64", body["b64"])]
        instances = body.get("instances")
        if body.keys() - IGNORED_MEMBERS == {"instances"} and isinstance(instances, list):
            cells = [item for item in instances if isinstance(item, dict) and item.keys() == {"b64"}]
            if len(cells) == len(instances):
                return [(f"/instances/{index}/b64", cell["b64"]) for index, cell in enumerate(cells)]
    raise AmbiguousInput(
        'Serialized messages are sent as {"b64": "..."} or {"instances": [{"b64": "..."}, ...]}.'
    )


def message_texts(messages: Iterable[Iterable[Buffer]], alphabet: Alphabet = "standard") -> Iterator[str]:
    """The JSON text of `messages`, each a sequence of buffers; one alone needs no envelope."""
    iterator = iter(messages)
    first, second = next(iterator, None), next(iterator, None)
    several = first is None or second is not None
    yield '{"instances":[' if several else ""
    for index, message in enumerate(_chained(first, second, iterator)):
        yield ',{"b64":"' if index else '{"b64":"'
        yield from b64_text(message, alphabet)
        yield '"}'
    yield "]}" if several else ""


def _chained(
    first: Iterable[Buffer] | None, second: Iterable[Buffer] | None, rest: Iterator[Iterable[Buffer]]
) -> Iterator[Iterable[Buffer]]:
    yield from (message for message in (first, second) if message is not None)
    yield from rest
