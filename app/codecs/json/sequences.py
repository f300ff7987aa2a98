"""Rows of SequenceExamples, as parsed from JSON: `{"context": {...}, "feature_lists": {...}}`.

Either member may be missing or null. In columns every feature goes by its name alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from ...domain.schema import Schema
from ...errors import SchemaConflict, UnprocessableInput
from ..schema_inference import FoundCells

__all__ = ["ROW_MEMBERS", "SequenceBlock", "first_beside", "found_by_name", "have_few", "split_rows"]

#: What a row consists of.
ROW_MEMBERS: Final = frozenset({"context", "feature_lists"})
#: A row has few features where it has one of so many.
_FEW: Final = 4
_NOTHING: Final[dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class SequenceBlock:
    """Rows that came as objects of a context and feature lists; a `Block`.

    Attributes:
        contexts, feature_lists: one object a row.
    """

    contexts: list[dict[str, Any]]
    feature_lists: list[dict[str, Any]]
    num_bytes: int
    first_row: int = 0

    @property
    def num_rows(self) -> int:
        return len(self.contexts)

    def names(self, stop: int) -> Iterable[str]:
        return dict.fromkeys(chain(*self.contexts[:stop], *self.feature_lists[:stop]))

    def list_names(self, stop: int) -> Set[str]:
        """The names under which the rows before `stop` have feature lists."""
        return {
            name for lists in self.feature_lists[:stop] for name, steps in lists.items() if steps is not None
        }

    def cells(self, name: str, start: int, stop: int) -> list[Any]:
        pairs = zip(self.contexts[start:stop], self.feature_lists[start:stop], strict=True)
        return [lists.get(name) if (cell := context.get(name)) is None else cell for context, lists in pairs]

    def found_if_few(self, start: int, stop: int, num_features: int) -> Mapping[str, FoundCells] | None:
        contexts, lists = self.contexts[start:stop], self.feature_lists[start:stop]
        if not have_few([*contexts, *lists], num_features):
            return None
        return found_by_name(
            {**steps, **{name: cell for name, cell in context.items() if cell is not None}}
            for context, steps in zip(contexts, lists, strict=True)
        )

    def first_beside(self, known: Set[str]) -> tuple[int, str] | None:
        found = [first_beside(rows, known) for rows in (self.contexts, self.feature_lists)]
        return min((place for place in found if place is not None), default=None)

    def refuse_twice(self, lists: Set[str], stop: int) -> None:
        """Refuse a name in the context of a row before `stop` that is one of the feature lists, too.

        Raises:
            UnprocessableInput: `duplicate_feature`.
        """
        for row, context in enumerate(self.contexts[:stop], self.first_row):
            for name in context.keys() & lists:
                if context[name] is not None:
                    raise UnprocessableInput(
                        f"Row {row} has {name[:64]!r} in its context, and there is a feature list of that "
                        "name. Here a name stands for one feature: rename one of the two.",
                        code="duplicate_feature",
                        row=row,
                        feature=name,
                    )

    def refuse_misplaced(self, schema: Schema) -> None:
        """Refuse a feature list in a context, or the other way round.

        Raises:
            SchemaConflict: which.
        """
        lists = {feature.name for feature in schema if feature.kind == "sequence"}
        context = schema.by_name.keys() - lists
        for rows, others, hint in (
            (self.contexts, lists, "a sequence in the schema; send it in feature_lists"),
            (self.feature_lists, context, "no sequence in the schema; send it in context"),
        ):
            for index, row in enumerate(rows):
                if row.keys().isdisjoint(others):
                    continue
                for name in sorted(row.keys() & others):
                    if row[name] is not None:
                        number = self.first_row + index
                        raise SchemaConflict(
                            f"Feature {name!r}, row {number}: it is {hint}.", row=number, feature=name
                        )


def have_few(rows: Sequence[dict[str, Any]], num_features: int) -> bool:
    """Whether a row has a small part of so many features, so that it is worth looking for those it has."""
    return _FEW * sum(map(len, rows)) <= len(rows) * num_features


def found_by_name(rows: Iterable[dict[str, Any]]) -> Mapping[str, FoundCells]:
    """The cells that are there, by their keys; takes as long as there are keys in the rows."""
    found: dict[str, tuple[list[int], list[Any]]] = {}
    num_rows = 0
    for row, cells in enumerate(rows):
        num_rows += 1
        for name, cell in cells.items():
            if cell is not None:
                numbers, present = found.setdefault(name, ([], []))
                numbers.append(row)
                present.append(cell)
    return {name: FoundCells(*cells, num_rows) for name, cells in found.items()}


def first_beside(rows: list[dict[str, Any]], known: Set[str]) -> tuple[int, str] | None:
    """The first row with a value under a key other than `known`, and the key."""
    # Row by row: a look at every row for every key would be quadratic in what a client sends.
    for index, row in enumerate(rows):
        if not row.keys() <= known:
            for name, cell in row.items():
                if cell is not None and name not in known:
                    return index, name
    return None


def split_rows(rows: list[dict[str, Any]], num_bytes: int, first_row: int) -> SequenceBlock:
    """The contexts and the feature lists of the rows.

    Raises:
        UnprocessableInput: a row of another form (`invalid_sequence_example`).
    """
    contexts: list[dict[str, Any]] = []
    feature_lists: list[dict[str, Any]] = []
    for index, row in enumerate(rows, first_row):
        if unknown := row.keys() - ROW_MEMBERS:
            raise _invalid(index, f"has the member {min(unknown)[:64]!r}")
        for key, taken in (("context", contexts), ("feature_lists", feature_lists)):
            member = row.get(key)
            if member is not None and not isinstance(member, dict):
                raise _invalid(index, f'has a "{key}" that is no object')
            taken.append(_NOTHING if member is None else member)
    return SequenceBlock(contexts, feature_lists, num_bytes, first_row)


def _invalid(row: int, what: str) -> UnprocessableInput:
    return UnprocessableInput(
        f"Row {row} {what}. A SequenceExample is sent as "
        '{"context": {...}, "feature_lists": {"name": [step, ...]}}.',
        code="invalid_sequence_example",
        row=row,
    )
