"""One life of a dataset: what it was created with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from ....domain.schema import Schema
from ....errors import CorruptData, InputError, MalformedInput
from .layout import Layout
from .stored_json import open_json, seal_json

#: The largest number of a version.
_MOST_VERSIONS: Final = 999_999_999


@dataclass(frozen=True, slots=True)
class DatasetOptions:
    """What a dataset is created with.

    Attributes:
        description: free text; TFDS shows it.
        keep_versions: how many of the newest versions collection leaves; None keeps all.
    """

    description: str = ""
    keep_versions: int | None = None

    def __post_init__(self) -> None:
        keep = self.keep_versions
        if keep is not None and (type(keep) is not int or not 1 <= keep <= _MOST_VERSIONS):
            raise MalformedInput(
                f'"keep_versions" must be an integer from 1 to {_MOST_VERSIONS}.', code="invalid_dataset"
            )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of a dataset. `declared` is the schema it began with, if any."""

    layout: Layout
    declared: Schema | None
    options: DatasetOptions

    def serialize(self, nonce: str) -> bytes:
        """The object that begins it; `nonce` tells its writer from others."""
        return seal_json(
            {
                "nonce": nonce,
                "dataset": self.layout.dataset,
                "generation": self.layout.generation,
                "schema": None if self.declared is None else self.declared.to_json(stored=True),
                "options": self.options.to_json(),
            }
        )

    @classmethod
    def parse(cls, layout: Layout, data: bytes) -> Incarnation:
        """What `serialize` wrote.

        Raises:
            CorruptData: not of that form.
        """
        value = open_json(data, layout.incarnation)
        schema = None if value.get("schema") is None else parse_schema(value, layout.incarnation)
        try:
            options = value["options"]
            return cls(
                layout, schema, DatasetOptions(str(options["description"]), options.get("keep_versions"))
            )
        except (AttributeError, InputError, KeyError, TypeError) as error:
            raise CorruptData(f"{layout.incarnation} is not of the known form.") from error


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the rows of a request go, found once: what becomes of the name meanwhile changes nothing.

    Attributes:
        layout: of the dataset as it lives, or of the next one of that name.
        schema: what the rows have to be; None while there is no dataset, or it has none.
        step: how often the schema was settled or widened until then.
    """

    layout: Layout
    schema: Schema | None
    step: int = 0


def parse_schema(value: dict[str, Any], key: str) -> Schema:
    """The schema in an object of a dataset.

    Raises:
        CorruptData: it is none.
    """
    try:
        return Schema.from_json(value.get("schema"), stored=True)
    except InputError as error:
        raise CorruptData(f"{key} holds no valid schema.") from error
