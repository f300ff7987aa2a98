"""What the schemas of others cannot say, in a place that they leave to people.

A feature that would be read back as another one from what a foreign form says of it (`text`, which is
bytes there; a shape of which only the count is left) is accompanied by a comment or a description,
`shardsmith: {"x": {...}}`: our own JSON. It counts only beside what we would have written for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final

from ...domain.schema import Feature
from ...errors import InputError, UnprocessableInput
from ...runtime.budget import Budget
from ..json.text import parse_json

__all__ = ["apply_notes", "by_name", "format_note", "is_note"]

_PREFIX: Final = "shardsmith: "


def format_note(feature: Feature) -> str:
    """The comment that gives `feature` back."""
    text = json.dumps({feature.name: feature.to_json()}, separators=(",", ":"), ensure_ascii=False)
    return _PREFIX + text


def is_note(comment: str) -> bool:
    """Whether a comment is one of ours."""
    return comment.startswith(_PREFIX)


def by_name(features: Iterable[Feature]) -> dict[str, Feature]:
    """The features of a foreign schema, by name.

    Raises:
        UnprocessableInput: two of one name (`duplicate_feature`).
    """
    found: dict[str, Feature] = {}
    for feature in features:
        if found.setdefault(feature.name, feature) is not feature:
            raise UnprocessableInput(
                f"The schema has two features {feature.name!r}.",
                code="duplicate_feature",
                feature=feature.name,
            )
    return found


def apply_notes(
    plain: Iterable[Feature], notes: Iterable[str], without_note: Callable[[Feature], Iterable[Feature]]
) -> tuple[Feature, ...]:
    """The features of a foreign schema, each as its note says.

    Args:
        plain: as they are read without the notes.
        notes: all of them.
        without_note: how a feature would be read, had we written it without its note.

    Raises:
        UnprocessableInput: a note that is none, or that stands beside what we would not have written for
            it: one of the two was changed by hand (`schema_note`).
    """
    rest = by_name(plain)
    places = {name: place for place, name in enumerate(rest)}
    noted: dict[int, Feature] = {}
    for note in notes:
        feature = _parse_note(note)
        covered = tuple(without_note(feature))
        if not covered or any(rest.pop(item.name, None) != item for item in covered):
            raise UnprocessableInput(
                f"Feature {feature.name!r} was changed, but the comment {note[:200]!r} beside it was not. "
                "Remove the comment, or make both say the same.",
                code="schema_note",
                feature=feature.name,
            )
        noted[min(places[item.name] for item in covered)] = feature
    found = {places[feature.name]: feature for feature in rest.values()} | noted
    return tuple(found[place] for place in sorted(found))


def _parse_note(note: str) -> Feature:
    try:
        value = parse_json(note.removeprefix(_PREFIX).encode("utf-8", "replace"), Budget()).value
        ((name, feature),) = value.items()
        return Feature.from_json(name, feature)
    except (InputError, AttributeError, ValueError) as error:
        reason = error.detail if isinstance(error, InputError) else "It describes one feature."
        raise UnprocessableInput(
            f"The comment {note[:200]!r} is not to be read: {reason} Remove it.", code="schema_note"
        ) from None
