"""Bodies of named columns or arrays: whether their names and those of a schema go together."""

from __future__ import annotations

from collections.abc import Container, Iterable

from ...domain.schema import Schema, check_feature_names
from ...errors import SchemaConflict, UnprocessableInput
from ...runtime.budget import Budget


def check_columns(names: list[str], budget: Budget) -> None:
    """Refuse too many columns, names that no feature can have, and two columns of one name.

    Raises:
        LimitExceeded: `too_many_features`.
        UnprocessableInput: `invalid_feature_name`, `duplicate_feature`.
    """
    check_feature_names(names, budget.limits)
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UnprocessableInput(
                f"Two columns have the name {name[:64]!r}. Rename one of them.",
                code="duplicate_feature",
                feature=name,
            )
        seen.add(name)


def refuse_undeclared(names: Iterable[str], schema: Schema, what: str) -> None:
    """Refuse a column or an array that the schema does not have; `what` it is called.

    Raises:
        SchemaConflict: which.
    """
    for name in names:
        if name not in schema.by_name:
            raise SchemaConflict(
                f"The schema does not declare the {what} {name[:64]!r}. Add it there, leave it out, or set "
                "undeclared=drop.",
                feature=name,
            )


def require_present(names: Container[str], schema: Schema, what: str) -> None:
    """Refuse a body without the column or array of a feature that every row has to have.

    Raises:
        SchemaConflict: which.
    """
    for feature in schema:
        if feature.name not in names and not feature.nullable:
            raise SchemaConflict(
                f"The schema declares {feature.name!r}, but there is no such {what}. Add it, or declare the "
                "feature nullable.",
                feature=feature.name,
            )


def without_features(form: str) -> UnprocessableInput:
    """The error for rows without any feature, whose number a form made of columns would lose."""
    return UnprocessableInput(
        f"Rows without any feature do not go into {form}. Choose another output format.",
        code="not_expressible",
    )
