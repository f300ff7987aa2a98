"""Notes: comments or descriptions in a foreign schema that say what it cannot say of a feature.

Some features would come back changed from a foreign form: `text` is bytes there, and of some shapes only the
number of values is left. Such a feature is written with a note, `shardsmith: {"x": {...}}`, which is our own
JSON. A note counts only beside what we would have written for its feature.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final

from ...domain.feature import Feature
from ...domain.limits import Limits
from ...domain.schema import Message, Schema, check_feature_names, check_stored_names
from ...errors import InputError, UnprocessableInput
from ...runtime.budget import Budget
from ..json.text import parse_json

_PREFIX: Final = "shardsmith: "


def format_note(feature: Feature) -> str:
    """The comment that gives `feature` back."""
    text = json.dumps({feature.name: feature.to_json()}, separators=(",", ":"), ensure_ascii=False)
    return _PREFIX + text


def comes_back(found: Iterable[Feature], feature: Feature) -> bool:
    """Whether what a foreign schema says of `feature` is all of it, so that no note is needed."""
    found = list(found)
    return found == [feature] and found[0].meaning == feature.meaning


def is_note(comment: str) -> bool:
    """Whether a comment is a note of ours."""
    return comment.startswith(_PREFIX)


def schema_with_notes(
    plain: Iterable[Feature],
    notes: Iterable[str],
    without_note: Callable[[Feature], Iterable[Feature]],
    limits: Limits,
    message: Message = "example",
) -> Schema:
    """The schema that a foreign one describes, each feature as its note says.

    Args:
        plain: the features as they are read without the notes.
        notes: all of them.
        without_note: how a feature would be read, had we written it without its note.

    Raises:
        UnprocessableInput: a note that cannot be read, or that stands beside what we would not have written
            for it: one of the two was changed by hand (`schema_note`); names that no schema can have.
        LimitExceeded: too many features.
    """
    features = _apply_notes(plain, notes, without_note)
    check_feature_names([feature.name for feature in features], limits)
    schema = Schema(features, message)
    check_stored_names(schema)
    return schema


def by_name(features: Iterable[Feature]) -> dict[str, Feature]:
    """The features of a foreign schema, by name.

    Raises:
        UnprocessableInput: two of one name (`duplicate_feature`).
    """
    found: dict[str, Feature] = {}
    for feature in features:
        if found.setdefault(feature.name, feature) is not feature:
            raise UnprocessableInput(
                f"The schema has two features {feature.name!r}. Rename one of them.",
                code="duplicate_feature",
                feature=feature.name,
            )
    return found


def _apply_notes(
    plain: Iterable[Feature], notes: Iterable[str], without_note: Callable[[Feature], Iterable[Feature]]
) -> tuple[Feature, ...]:
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
            f"The comment {note[:200]!r} cannot be read: {reason} Remove it.", code="schema_note"
        ) from None
