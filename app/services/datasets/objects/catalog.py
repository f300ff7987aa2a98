"""Which datasets there are: their incarnations, options and schemas.

A dataset that was deleted and created again is a new incarnation under a new number; nothing of
the old one shows through. Incarnations never change, so they are kept once read. The schema of one only
widens, in steps that are numbered without gaps: the newest is found from any that is known.
"""

from __future__ import annotations

from collections.abc import Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from ....domain.evolution import widen
from ....domain.limits import MIB
from ....domain.names import check_dataset_name
from ....domain.schema import Schema
from ....errors import Conflict, CorruptData, MalformedInput, NotFound
from ....storage.create_once import create_once, new_nonce
from ....storage.object_store import ObjectNotFound, ObjectStore, exists
from ..pieces.run_ahead import map_in
from .incarnation import DatasetOptions, Destination, Incarnation, parse_schema
from .kept import Kept
from .layout import Layout
from .same_schema import require_same_schema
from .stored_json import open_json, read_again, seal_json

#: Datasets of which the newest incarnation is kept in memory, as long as they are small.
_KEPT: Final = 10_000
_KEPT_BYTES: Final = 64 * MIB
#: What a dataset takes beside its description and its schema.
_ENTRY_BYTES: Final = _KEPT_BYTES // _KEPT


class Outdated(Conflict):
    """The dataset is no longer what it was when the rows were read for it; nothing is stored."""

    code = "dataset_changed"


class Catalog:
    """Finds, creates and ends datasets. Safe to use from several threads."""

    def __init__(self, store: ObjectStore, pool: ThreadPoolExecutor) -> None:
        self._store = store
        self._pool = pool
        self._incarnations: Kept[Layout, Incarnation] = Kept(_KEPT_BYTES)
        self._schemas: Kept[Layout, tuple[int, Schema]] = Kept(_KEPT_BYTES)
        self._newest: Kept[str, int] = Kept(_KEPT)
        self._ended: Kept[Layout, bool] = Kept(_KEPT)

    def at(self, layout: Layout) -> Incarnation | None:
        """That incarnation, whether it lives or has ended; None where it never began."""
        return self._incarnation(layout)

    def find(self, name: str) -> Incarnation | None:
        """The dataset as it lives now."""
        return self._locate(name)[1]

    def destination(self, name: str) -> Destination:
        """Where rows for that name go now."""
        layout, found = self._locate(name)
        if found is None:
            return Destination(layout, None)
        step, schema = self._newest_schema(found)
        return Destination(layout, schema, step)

    def remembered(self, name: str) -> Destination | None:
        """Where rows for that name went when this replica last looked, if it had a schema then.

        Asks nothing of the store; `is_current` tells whether it still is so.
        """
        check_dataset_name(name)
        layout = Layout(name, self._newest.get(name) or 1)
        known = self._schemas.get(layout)
        if known is None or self.has_ended_here(layout):
            return None
        step, schema = known
        return Destination(layout, schema, step)

    def is_current(self, destination: Destination) -> bool:
        """Whether the dataset lives, with that schema."""
        layout = destination.layout
        return not (self._has_ended(layout) or exists(self._store, layout.schema(destination.step + 1)))

    def require_current(self, destination: Destination) -> None:
        """Refuse rows that were read for what is no more.

        Raises:
            Outdated: the dataset was deleted, or its schema was widened.
        """
        if not self.is_current(destination):
            raise Outdated(
                f"Dataset {destination.layout.dataset!r} was deleted or widened meanwhile; nothing is "
                f"stored. Send the rows again."
            )

    def has_ended_here(self, layout: Layout) -> bool:
        """Whether this replica has deleted the dataset, or seen that it was; asks nothing of the store."""
        return self._ended.get(layout) is not None

    def open(self, name: str) -> Incarnation:
        """The dataset as it lives now.

        Raises:
            NotFound: it does not (`dataset_not_found`).
        """
        found = self.find(name)
        if found is None:
            raise NotFound(f"There is no dataset {name!r}.", code="dataset_not_found")
        return found

    def reopen(self, layout: Layout) -> Incarnation:
        """The dataset that was found before.

        Raises:
            Conflict: it was deleted meanwhile (`dataset_deleted`).
        """
        found = self._incarnation(layout)
        if found is None or self._has_ended(layout):
            raise dataset_deleted(layout.dataset)
        return found

    def _locate(self, name: str) -> tuple[Layout, Incarnation | None]:
        """The dataset as it lives now, or where the next one of that name will."""
        check_dataset_name(name)
        generation = self._newest.get(name) or 1
        while True:
            layout = Layout(name, generation)
            found = self._incarnation(layout)
            if found is None:
                return layout, None
            self._newest.put(name, generation)
            if not self._has_ended(layout):
                return layout, found
            generation += 1

    def _has_ended(self, layout: Layout) -> bool:
        if not self.has_ended_here(layout) and exists(self._store, layout.end):
            self._ended.put(layout, True)
        return self.has_ended_here(layout)

    def candidates(self) -> list[str]:
        """The names of all datasets that live, and of the others of which something is left."""
        return [name for name in self._store.list_children("") if not name.startswith("_")]

    def names(self) -> list[str]:
        """All datasets that live, sorted; one that cannot be read is there all the same."""
        candidates = self.candidates()
        alive = map_in(self._pool, self._lives, candidates)
        return [name for name, lives in zip(candidates, alive, strict=True) if lives]

    def create(self, name: str, schema: Schema | None, options: DatasetOptions) -> tuple[Incarnation, bool]:
        """Create a dataset, or find it with the same content; and whether it was created.

        Raises:
            Conflict: it exists with another schema or other options (`dataset_exists`).
        """
        layout, existing = self._locate(name)
        if existing is None:
            existing, created = self._create(layout, schema, options)
            if created:
                return existing, True
        same = _are_same(schema, existing.declared) or _are_same(schema, self.schema(existing))
        if options != existing.options or not same:
            raise Conflict(
                f"Dataset {name!r} exists with another schema or other options. Use it as it is, or "
                f"delete it first.",
                code="dataset_exists",
            )
        return existing, False

    def settle(
        self, layout: Layout, schema: Schema, *, evolve: bool = False, large: Set[str] = frozenset()
    ) -> None:
        """See to it that rows of that schema are rows of the dataset, creating it where it is not there.

        Args:
            evolve: widen the schema of the dataset where that takes it.
            large: the features of which the rows have integers that float32 does not hold exactly.

        Raises:
            SchemaConflict: it has got another one.
        """
        schema = schema.mark_beyond_float32(large)
        found = self._incarnation(layout)
        if found is None:
            found, created = self._create(layout, schema, DatasetOptions())
            if created:
                return
        while True:
            step, current = self._newest_schema(found)
            if current is None:
                target = schema
            else:
                if not evolve:
                    require_same_schema(schema, current)
                if (target := widen(current, schema)) is current:
                    return
            data = seal_json({"nonce": new_nonce(), "schema": target.to_json(stored=True)})
            if create_once(self._store, layout.schema(step + 1), data) is None:
                self._schemas.put(layout, (step + 1, target), _ENTRY_BYTES + len(data))
                return

    def schema(self, incarnation: Incarnation) -> Schema | None:
        """The schema of every record that is stored by now; None until the dataset has one."""
        return self._newest_schema(incarnation)[1]

    def _newest_schema(self, incarnation: Incarnation) -> tuple[int, Schema | None]:
        layout = incarnation.layout
        known = self._schemas.get(layout)
        size = _ENTRY_BYTES
        step, schema = known or (0, incarnation.declared)
        while True:
            key = layout.schema(step + 1)
            try:
                schema, size = read_again(partial(self._read_schema, key))
            except ObjectNotFound:
                break
            step += 1
        if schema is not None and (known is None or known[0] != step):
            self._schemas.put(layout, (step, schema), size)
        return step, schema

    def _read_schema(self, key: str) -> tuple[Schema, int]:
        data = self._store.get(key)
        return parse_schema(open_json(data, key), key), _ENTRY_BYTES + len(data)

    def end(self, name: str) -> None:
        """Delete a dataset.

        Raises:
            NotFound: there is none (`dataset_not_found`).
        """
        layout = self.open(name).layout
        create_once(self._store, layout.end, seal_json({"nonce": new_nonce()}))
        self._ended.put(layout, True)

    def _incarnation(self, layout: Layout) -> Incarnation | None:
        found = self._incarnations.get(layout)
        if found is None:
            try:
                parsed, size = read_again(partial(self._read_incarnation, layout))
            except ObjectNotFound:
                return None
            found = self._incarnations.put(layout, parsed, size)
        return found

    def _read_incarnation(self, layout: Layout) -> tuple[Incarnation, int]:
        data = self._store.get(layout.incarnation)
        return Incarnation.parse(layout, data), _ENTRY_BYTES + len(data)

    def _create(
        self, layout: Layout, schema: Schema | None, options: DatasetOptions
    ) -> tuple[Incarnation, bool]:
        ours = Incarnation(layout, schema, options)
        winner = create_once(self._store, layout.incarnation, ours.serialize(new_nonce()))
        return (ours, True) if winner is None else (Incarnation.parse(layout, winner), False)

    def _lives(self, name: str) -> bool:
        try:
            return self.find(name) is not None
        except MalformedInput:
            return False  # a folder that is none of ours
        except CorruptData:
            return True


def dataset_deleted(name: str) -> Conflict:
    """Rows that were on their way to a dataset when it was deleted."""
    return Conflict(
        f"Dataset {name!r} was deleted meanwhile, and these rows are in no other one. Send them again.",
        code="dataset_deleted",
    )


def _are_same(one: Schema | None, other: Schema | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.same_features(other)
