"""Which rows a dataset takes, by its schema and theirs; others are refused, and what helps is said."""

from __future__ import annotations

from ....domain.evolution import quote_both, widen
from ....domain.schema import Message, Schema
from ....errors import SchemaConflict, UnprocessableInput


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
        if name not in schema.by_name or not schema.by_name[name].is_same_as(stored.by_name.get(name))
    )
    ours, theirs = quote_both(schema.by_name.get(name), stored.by_name.get(name))
    raise SchemaConflict(
        f"Feature {name!r} is {ours} in these rows and {theirs} in the dataset. Send rows that fit it. "
        f"{_evolution(schema, stored)}",
        feature=name,
        extra={"schema": stored.to_json()},
    )


def _evolution(schema: Schema, stored: Schema) -> str:
    """What `evolve=widen` would do."""
    try:
        widen(stored, schema)
    except SchemaConflict as error:
        return f"Not even evolve=widen would take them: {error.detail}"
    return "With evolve=widen the schema of the dataset is widened to take them."


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


def require_features(name: str, schema: Schema, num_records: int) -> None:
    """Refuse rows that give a dataset without a schema none either.

    Raises:
        UnprocessableInput: no rows, or none with a feature (`no_records`, `no_features`).
    """
    if schema.features:
        return  # declared, where there are no rows
    if num_records == 0:
        raise UnprocessableInput(
            f"Dataset {name!r} has no schema yet, and no records were sent to infer one from. Send at "
            f"least one, or declare a schema, with the rows or when creating the dataset.",
            code="no_records",
        )
    raise UnprocessableInput(
        f"Dataset {name!r} has no schema yet, and the rows sent have no feature with a value to infer one "
        f"from. Declare a schema, with the rows or when creating the dataset.",
        code="no_features",
    )
