"""Schema: which features a row has (`feature.py` says what a feature is).

The JSON form is that of the HTTP contract:
    {"features": {"x": {"dtype": "float32", "shape": [null, 3], "kind": "dense",
                        "encoding": "list", "nullable": true}}}

A schema with a `sequence` feature is that of SequenceExamples: such a feature is one of its feature lists,
the others are its context. So is one with `"message": "sequence_example"`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, NotRequired, get_args

from typing_extensions import TypedDict

from ..errors import LimitExceeded, MalformedInput, UnprocessableInput
from .feature import Feature, FeatureJson, stored_features
from .limits import Limits
from .meaning import PLAIN

#: The protobuf message that a row becomes.
Message = Literal["example", "sequence_example"]


class SchemaJson(TypedDict):
    """The features of a row, by name."""

    features: dict[str, FeatureJson]
    message: NotRequired[Message]


@dataclass(frozen=True)
class Schema:
    """The features of a row, in the order in which they were declared or first seen.

    Attributes:
        message: what a row becomes; `sequence_example` wherever a feature is a `sequence`.
    """

    features: tuple[Feature, ...]
    message: Message = "example"

    def __post_init__(self) -> None:
        if any(feature.kind == "sequence" for feature in self.features):
            object.__setattr__(self, "message", "sequence_example")

    def __iter__(self) -> Iterator[Feature]:
        return iter(self.features)

    def __len__(self) -> int:
        return len(self.features)

    @cached_property
    def by_name(self) -> Mapping[str, Feature]:
        return {feature.name: feature for feature in self.features}

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features)

    @property
    def needs_reencoding(self) -> bool:
        """Whether some stored records may have another encoding: see `Feature.was_int64`."""
        return any(feature.was_int64 for feature in self.features)

    @cached_property
    def meaningful(self) -> tuple[Feature, ...]:
        """The features whose values stand for something else."""
        return tuple([feature for feature in self.features if feature.meaning is not PLAIN])

    @cached_property
    def has_transforms(self) -> bool:
        """Whether values of some feature are still to go through steps."""
        # A list: asked of every small request, and twice as fast as a generator.
        return any([feature.transforms for feature in self.features])  # noqa: C419

    @cached_property
    def is_transformed(self) -> bool:
        """Whether values of some feature went through steps."""
        return any(feature.made_from is not None for feature in self.features)

    @property
    def names_without_transforms(self) -> tuple[str, ...]:
        """The features whose values come as they are declared to become."""
        return tuple(feature.name for feature in self.features if not feature.transforms)

    def as_received(self, done: Container[str] = ()) -> Schema:
        """The schema of rows that are to become rows of this one.

        Args:
            done: names of features whose values come as they are here.
        """
        features = (
            feature if feature.made_from is None or feature.name in done else feature.made_from
            for feature in self.features
        )
        return self._with(tuple(features))

    def nullable_as(self, other: Schema) -> Schema:
        """This schema, with the transformed features nullable that are so in `other`."""
        nullable = {feature.name for feature in other if feature.nullable and feature.made_from is not None}
        if not nullable:
            return self
        features = (
            replace(feature, nullable=feature.nullable or feature.name in nullable)
            for feature in self.features
        )
        return self._with(tuple(features))

    def same_features(self, other: Schema) -> bool:
        """Whether rows of one schema are rows of the other; the order of features does not matter."""
        if self.by_name != other.by_name or self.message != other.message:
            return False
        mine = self.by_name
        return all(mine[feature.name].meaning.agrees_with(feature.meaning) for feature in other.meaningful)

    def with_message(self, message: Message | None) -> Schema:
        """This schema for rows of that message; None leaves it as it is.

        Raises:
            UnprocessableInput: a `sequence` feature in an Example (`invalid_feature`).
        """
        if message in (None, self.message):
            return self
        schema = Schema(self.features, message)
        if schema.message != message:
            name = next(feature.name for feature in self.features if feature.kind == "sequence")
            raise UnprocessableInput(
                f"Feature {name!r} is a sequence, which an Example does not hold. Leave out "
                "message=example, or declare another kind.",
                code="invalid_feature",
                feature=name,
            )
        return schema

    def require_lossless(self) -> None:
        """Refuse features whose values an Example cannot hold; see `Feature.require_lossless`."""
        for feature in self.features:
            feature.require_lossless()

    def as_stored(self) -> Schema:
        """The schema of the Examples that the rows become; see `Feature.as_stored`."""
        return self._with(tuple(feature.as_stored for feature in self.features))

    def as_read(self, narrow: Container[str] = ()) -> Schema:
        """The schema for reading further rows; see `Feature.as_read`.

        Args:
            narrow: names of features that stay as they are, because the body has no wider values of them.
        """
        features = (feature if feature.name in narrow else feature.as_read for feature in self.features)
        return self._with(tuple(features))

    def _with(self, features: tuple[Feature, ...]) -> Schema:
        return self if features == self.features else Schema(features, self.message)

    def with_floats_inferred(self) -> Schema:
        """This schema with all floats marked as inferred, for a body that declares none."""
        if all(feature.inferred or not feature.dtype.is_float for feature in self.features):
            return self
        features = (
            replace(feature, inferred=True) if feature.dtype.is_float else feature
            for feature in self.features
        )
        return Schema(tuple(features), self.message)

    def with_doubles_inferred(self) -> Schema:
        """This schema with float64 in lists marked as inferred, since lists do not hold it."""
        features = (
            replace(feature, inferred=True) if feature.may_round else feature for feature in self.features
        )
        return Schema(tuple(features), self.message)

    def as_declared(self) -> Schema:
        """This schema with all features marked as declared."""
        features = (
            replace(feature, inferred=False, beyond_float32=False, was_int64=False)
            for feature in self.features
        )
        return Schema(tuple(features), self.message)

    def with_declarations_of(self, other: Schema) -> Schema:
        """This schema, with the features marked as declared that are not inferred in `other`."""
        names = {feature.name for feature in other if not feature.inferred}
        features = (
            replace(feature, inferred=feature.inferred and feature.name not in names)
            for feature in self.features
        )
        return Schema(tuple(features), self.message)

    def mark_beyond_float32(self, names: Set[str]) -> Schema:
        """This schema, with these features marked: float32 does not hold all their integers."""
        if not names:
            return self
        features = (
            replace(feature, beyond_float32=feature.beyond_float32 or feature.name in names)
            for feature in self.features
        )
        return Schema(tuple(features), self.message)

    def to_json(self, *, stored: bool = False) -> SchemaJson:
        """The JSON form; `stored` as for `Feature.to_json`."""
        features = {feature.name: feature.to_json(stored=stored) for feature in self.features}
        schema: SchemaJson = {"features": features}
        if self.message != "example":
            schema["message"] = self.message
        return schema

    @classmethod
    def from_json(cls, value: object, limits: Limits | None = None, *, stored: bool = False) -> Schema:
        """A schema from its JSON form.

        Args:
            stored: it is what `to_json(stored=True)` gave.

        Raises:
            MalformedInput: not of that form (`invalid_schema`, `unknown_dtype`).
            UnprocessableInput: a feature contradicts itself (`invalid_feature`), or two of them would be
                stored under one name (`duplicate_feature`).
        """
        limits = limits or Limits()
        if not isinstance(value, dict) or not isinstance(value.get("features"), dict):
            raise MalformedInput(
                'A schema is {"features": {name: {"dtype": ...}, ...}}.', code="invalid_schema"
            )
        if unknown := sorted(set(value) - {"features", "message"}):
            raise MalformedInput(
                f"A schema has no member {unknown[0]!r}; only 'features' and 'message'.",
                code="invalid_schema",
            )
        message = value.get("message")
        if message is not None and message not in get_args(Message):
            raise MalformedInput(
                f'"message" must be one of {list(get_args(Message))}.', code="invalid_schema"
            )
        features = value["features"]
        check_feature_names(features, limits)
        schema = cls(tuple(Feature.from_json(name, item, stored=stored) for name, item in features.items()))
        check_stored_names(schema)
        return schema.with_message(message)


#: The prefix of a feature list's name if the context has the same key.
LIST_PREFIX: Final = "feature_lists/"


def message_keys(features: Iterable[Feature]) -> dict[str, str]:
    """Name -> key in the message, of features that are stored as they are.

    They differ only for a feature list that has the key of a feature of the context: both are features of one
    schema, so the list's name is `feature_lists/` and the key.
    """
    features = tuple(features)
    keys = {feature.name: feature.name for feature in features}
    lists = [feature.name for feature in features if feature.kind == "sequence"]
    if not lists or len(lists) == len(features):
        return keys
    context = {
        stored.name
        for feature in features
        if feature.kind != "sequence"
        for stored in stored_features(feature)
    }
    for name in lists:
        key = name.removeprefix(LIST_PREFIX)
        if key != name and key in context:
            keys[name] = key
    return keys


def check_feature_names(names: Mapping[str, object] | list[str], limits: Limits) -> None:
    """Refuse too many features, and names that no Example can hold.

    Raises:
        LimitExceeded: `too_many_features`.
        UnprocessableInput: too long, empty, or not valid Unicode (`invalid_feature_name`).
    """
    if len(names) > limits.max_features:
        raise LimitExceeded(
            f"There are {len(names)} features; at most {limits.max_features} are allowed. "
            "Put several values into one feature.",
            code="too_many_features",
        )
    for name in names:
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            size = 0
        if not 0 < size <= limits.max_name_bytes:
            raise UnprocessableInput(
                f"A feature's name must be 1 to {limits.max_name_bytes} bytes of UTF-8.",
                code="invalid_feature_name",
                feature=name.encode("utf-8", "replace").decode()[:64],
            )


def check_stored_names(features: Iterable[Feature]) -> None:
    """Refuse features that would be stored under one name.

    Raises:
        UnprocessableInput: which (`duplicate_feature`).
    """
    owners: dict[str, Feature] = {}
    for feature in features:
        for stored in stored_features(feature):
            if (other := owners.setdefault(stored.name, feature)) is not feature:
                raise UnprocessableInput(
                    f"Features {other.name!r} and {feature.name!r} would both be stored as {stored.name!r}. "
                    "Rename one of them.",
                    code="duplicate_feature",
                    feature=feature.name,
                )
