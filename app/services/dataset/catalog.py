"""Which datasets there are: their incarnations, options and schemas.

A dataset that was deleted and created again is a new incarnation under a new number; nothing of
the old one shows through. Incarnations and schemas never change, so they are kept once read.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final

from ...domain.names import check_dataset_name
from ...domain.schema import Feature, Message, Schema
from ...errors import Conflict, CorruptData, InputError, MalformedInput, NotFound, SchemaConflict
from ...storage.create_once import create_once, new_nonce
from ...storage.object_store import ObjectNotFound, ObjectStore
from .kept import Kept
from .layout import Layout
from .stored_json import dump_json, load_json

__all__ = [
    "Catalog",
    "DatasetOptions",
    "Destination",
    "Incarnation",
    "exists",
    "require_same_message",
    "require_same_schema",
]

#: Datasets of which the newest incarnation is kept in memory.
_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """What a dataset is created with.

    Attributes:
        description: free text; TFDS shows it.
    """

    description: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of a dataset. `declared` is the schema it began with, if any."""

    layout: Layout
    declared: Schema | None
    options: DatasetOptions


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the rows of a request go, found once: what becomes of the name meanwhile changes nothing.

    Attributes:
        layout: of the dataset as it lives, or of the next one of that name.
        schema: what the rows have to be; None while there is no dataset, or it has none.
    """

    layout: Layout
    schema: Schema | None


class Catalog:
    """Finds, creates and ends datasets. Safe to use from several threads."""

    def __init__(self, store: ObjectStore, pool: ThreadPoolExecutor) -> None:
        self._store = store
        self._pool = pool
        self._incarnations: Kept[Layout, Incarnation] = Kept(_KEPT)
        self._schemas: Kept[Layout, Schema] = Kept(_KEPT)
        self._newest: Kept[str, int] = Kept(_KEPT)

    def find(self, name: str) -> Incarnation | None:
        """The dataset as it lives now."""
        return self._locate(name)[1]

    def destination(self, name: str) -> Destination:
        """Where rows for that name go now."""
        layout, found = self._locate(name)
        return Destination(layout, None if found is None else self.schema(found))

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
        if found is None or exists(self._store, layout.end):
            raise Conflict(
                f"Dataset {layout.dataset!r} was deleted meanwhile, and these rows are in no other one. "
                f"Send them again.",
                code="dataset_deleted",
            )
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
            if not exists(self._store, layout.end):
                return layout, found
            generation += 1

    def names(self) -> list[str]:
        """All datasets that live, sorted; one that cannot be read is there all the same."""
        candidates = [name for name in self._store.list_children("") if not name.startswith("_")]
        alive = self._pool.map(self._lives, candidates)
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

    def settle(self, layout: Layout, schema: Schema) -> None:
        """Give the dataset that very schema where it has none, creating it where it is not there.

        Raises:
            SchemaConflict: it has got another one.
        """
        found = self._incarnation(layout)
        if found is None:
            found, _ = self._create(layout, schema, DatasetOptions())
        current = self.schema(found)
        require_same_schema(schema, self._fix_schema(layout, schema) if current is None else current)

    def schema(self, incarnation: Incarnation) -> Schema | None:
        """The schema of every record of the dataset; None until it has one."""
        layout = incarnation.layout
        if incarnation.declared is not None:
            return incarnation.declared
        schema = self._schemas.get(layout)
        if schema is None:
            try:
                stored = load_json(self._store.get(layout.schema), layout.schema)
            except ObjectNotFound:
                return None
            schema = self._schemas.put(layout, _stored_schema(stored, layout.schema))
        return schema

    def end(self, name: str) -> None:
        """Delete a dataset.

        Raises:
            NotFound: there is none (`dataset_not_found`).
        """
        layout = self.open(name).layout
        create_once(self._store, layout.end, dump_json({"nonce": new_nonce()}))

    def _incarnation(self, layout: Layout) -> Incarnation | None:
        found = self._incarnations.get(layout)
        if found is None:
            try:
                data = self._store.get(layout.incarnation)
            except ObjectNotFound:
                return None
            found = self._incarnations.put(layout, _parse_incarnation(layout, data))
        return found

    def _create(
        self, layout: Layout, schema: Schema | None, options: DatasetOptions
    ) -> tuple[Incarnation, bool]:
        content = {
            "nonce": new_nonce(),
            "dataset": layout.dataset,
            "generation": layout.generation,
            "schema": None if schema is None else schema.to_json(),
            "options": options.to_json(),
        }
        data = dump_json(content)
        winner = create_once(self._store, layout.incarnation, data)
        return _parse_incarnation(layout, data if winner is None else winner), winner is None

    def _fix_schema(self, layout: Layout, schema: Schema) -> Schema:
        data = dump_json({"nonce": new_nonce(), "schema": schema.to_json()})
        winner = create_once(self._store, layout.schema, data)
        return schema if winner is None else _stored_schema(load_json(winner, layout.schema), layout.schema)

    def _lives(self, name: str) -> bool:
        try:
            return self.find(name) is not None
        except MalformedInput:
            return False  # a folder that is none of ours
        except CorruptData:
            return True


def exists(store: ObjectStore, key: str) -> bool:
    """Whether there is an object."""
    try:
        store.head(key)
    except ObjectNotFound:
        return False
    return True


def require_same_schema(schema: Schema, stored: Schema) -> None:
    """Refuse rows of another schema; the order of features does not matter, an Example has none.

    Raises:
        SchemaConflict: they differ, in their message or in a feature; the first that does is named.
    """
    if schema.same_features(stored):
        return
    require_same_message(schema.message, stored)
    name = next(
        name
        for name in (*schema.names, *stored.names)
        if schema.by_name.get(name) != stored.by_name.get(name)
    )
    ours, theirs = schema.by_name.get(name), stored.by_name.get(name)
    raise SchemaConflict(
        f"Feature {name!r} is {_described(ours)} in these rows and {_described(theirs)} in the "
        f"dataset, whose schema is fixed. Send rows that fit it.",
        feature=name,
        extra={"schema": stored.to_json()},
    )


def require_same_message(message: Message | None, stored: Schema) -> None:
    """Refuse rows of another message; None is that of the dataset.

    Raises:
        SchemaConflict: the messages differ.
    """
    if message not in (None, stored.message):
        raise SchemaConflict(
            f"These rows are {message}s, but those of the dataset are {stored.message}s, which is fixed.",
            extra={"schema": stored.to_json()},
        )


def _described(feature: Feature | None) -> str:
    return "absent" if feature is None else dump_json(feature.to_json()).decode()


def _parse_incarnation(layout: Layout, data: bytes) -> Incarnation:
    value = load_json(data, layout.incarnation)
    schema = None if value.get("schema") is None else _stored_schema(value, layout.incarnation)
    try:
        return Incarnation(layout, schema, DatasetOptions(str(value["options"]["description"])))
    except (KeyError, TypeError) as error:
        raise CorruptData(f"{layout.incarnation} is not of the known form.") from error


def _stored_schema(value: dict[str, Any], key: str) -> Schema:
    try:
        return Schema.from_json(value.get("schema"))
    except InputError as error:
        raise CorruptData(f"{key} holds no valid schema.") from error


def _are_same(one: Schema | None, other: Schema | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.same_features(other)
