"""Feature: one named column of rows, and how it is stored in a `tf.train.Example`.

| kind       | a row's value                   | shape                                           |
|------------|---------------------------------|-------------------------------------------------|
| `dense`    | one array                       | any; null: the dimension differs between rows   |
| `ragged`   | nested lists of varying lengths | rank >= 2, a null behind the first dimension    |
| `sparse`   | coordinates and values          | rank >= 1, all known                            |
| `sequence` | a list of steps                 | null, then the shape of one step                |

The dimensions of a ragged value after the last null are uniform.
"""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import Final, Literal, NotRequired, cast, get_args

from typing_extensions import TypedDict

from ..errors import LimitExceeded, LossyConversion, MalformedInput, UnprocessableInput
from .dtypes import BYTES, FLOAT32, FLOAT64, INT64, DType, DTypeName, parse_feature_dtype
from .immutable import immutable
from .limits import MIB
from .meaning import MEMBERS as MEANINGS
from .meaning import PLAIN, Meaning, MeaningJson, parse_meaning
from .tensor import check_shape, num_elements

FeatureKind = Literal["dense", "ragged", "sparse", "sequence"]
Encoding = Literal["list", "raw", "tensor"]
#: `None` is a dimension that differs from row to row.
FeatureShape = tuple[int | None, ...]


class PlainFeatureJson(MeaningJson):
    """One named column of rows. A dimension of null differs from row to row."""

    dtype: DTypeName
    shape: list[int | None]
    kind: FeatureKind
    encoding: Encoding
    nullable: bool


#: What the values were before, and the steps that made them what they are.
TransformedJson = TypedDict("TransformedJson", {"from": PlainFeatureJson, "steps": list[dict[str, object]]})


class FeatureJson(PlainFeatureJson):
    """A feature; `transforms` are steps to be done, `transformed` says what was done."""

    transforms: NotRequired[list[dict[str, object]]]
    transformed: NotRequired[TransformedJson]


#: dtypes whose values a FloatList (float32) or an Int64List (int64) cannot hold; by dtype, never by value.
_LOSSY_IN_LIST: Final = frozenset({"float64", "uint64"})
#: dtypes of numbers that a FloatList or an Int64List takes; the two above only if loss is allowed.
_LISTED: Final = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    | {"float16", "bfloat16", "float32", "float64"}
)
_PLAIN_MEMBERS: Final = frozenset({"dtype", "shape", "kind", "encoding", "nullable"}) | MEANINGS
_MEMBERS: Final = _PLAIN_MEMBERS | {"transforms", "transformed"}
#: Of the steps of one feature as JSON. A vocabulary takes thirty times its bytes while it is used.
MAX_STEPS_BYTES: Final = MIB
#: Members of the stored JSON only, each written only if it is true.
_STORED_MEMBERS: Final = ("inferred", "beyond_float32", "was_int64")


@immutable()
class Feature:
    """One named column of rows.

    Attributes:
        dtype: logical dtype; strings are `text` or `bytes`, never `string`.
        shape: of one row's value; `()` is a scalar, `None` an unknown dimension.
        encoding: `list` flat in the Example's typed list, `raw` the little-endian bytes,
            `tensor` a TensorProto; the last two as one value of a BytesList (of each step, where it is
            a `sequence`).
        nullable: a row may lack the feature.
        meaning: what its values stand for.
        transforms: the steps that its values are still to go through, as the text of a JSON array; "" for
            none. `app/transforms/` knows what they mean.
        made_from: what its values were before they went through the `transforms` of that feature.
        inferred: dtype and shape were guessed from values that say neither, such as those of JSON.
        beyond_float32: an inferred int64 of which rows may hold integers that float32 does not hold exactly.
        was_int64: a float32 that was an inferred int64; rows that were stored before have an Int64List.

    The last three occur only in the stored JSON. They and `meaning` are left out of comparisons.
    """

    name: str
    dtype: DType
    shape: FeatureShape = ()
    kind: FeatureKind = "dense"
    encoding: Encoding = "list"
    nullable: bool = False
    meaning: Meaning = field(default=PLAIN, compare=False)
    transforms: str = ""
    made_from: Feature | None = None
    inferred: bool = field(default=False, compare=False)
    beyond_float32: bool = field(default=False, compare=False)
    was_int64: bool = field(default=False, compare=False)

    @property
    def plain(self) -> Feature:
        """The feature without what was or will be done to its values."""
        if self.transforms or self.made_from is not None:
            return replace(self, transforms="", made_from=None)
        return self

    def is_same_as(self, other: Feature | None) -> bool:
        """Whether values of one are values of the other: they mean the same, or one says nothing of that."""
        return self == other and self.meaning.agrees_with(other.meaning)

    @property
    def is_scalar(self) -> bool:
        return not self.shape

    @property
    def num_unknown(self) -> int:
        """How many dimensions are unknown."""
        return self.shape.count(None)

    @property
    def num_values(self) -> int | None:
        """The number of values in one row, or None if a dimension is unknown."""
        return None if None in self.shape else self.known_values

    @property
    def known_values(self) -> int:
        """The product of the known dimensions."""
        return num_elements([dim for dim in self.shape if dim is not None]) if self.shape else 1

    @property
    def step(self) -> Feature:
        """One step of a `sequence`: a dense feature of the same name."""
        return replace(self, shape=self.shape[1:], kind="dense", nullable=False)

    @property
    def num_partitions(self) -> int:
        """The number of ragged dimensions of a `ragged` feature, besides the rows themselves."""
        return max(axis for axis, dim in enumerate(self.shape) if dim is None)

    @property
    def inner_shape(self) -> tuple[int, ...]:
        """The uniform dimensions of a `ragged` feature: those after the last unknown one."""
        return tuple(dim for dim in self.shape[self.num_partitions + 1 :] if dim is not None)

    @property
    def may_become_float32(self) -> bool:
        """Whether it is an inferred int64, and float32 holds all its stored values exactly."""
        return (
            self.inferred
            and not self.beyond_float32
            and self.dtype == INT64
            and self.encoding == "list"
            and self.kind in ("dense", "ragged")
        )

    def widen_to(self, dtype: DType, shape: FeatureShape) -> Feature:
        """This inferred feature, widened as far as allowed for values of that dtype and shape."""
        dims = self.shape
        if self.kind == "dense" and len(shape) == len(dims) and None not in shape[1:]:
            dims = tuple(old if old == new else None for old, new in zip(dims, shape, strict=True))
        to_float = self.may_become_float32 and dtype.is_float
        return replace(self, dtype=FLOAT32 if to_float else self.dtype, shape=dims)

    @property
    def may_round(self) -> bool:
        """Whether the Example stores its values with fewer bits than they have."""
        return self.encoding == "list" and self.dtype is FLOAT64

    @property
    def as_stored(self) -> Feature:
        """The feature of the Examples that the rows become: an inferred float64 is rounded."""
        return replace(self, dtype=FLOAT32) if self.inferred and self.may_round else self

    @property
    def as_read(self) -> Feature:
        """The feature of further rows: an inferred float32 is read as float64, and rounded later.

        So the encoder knows which values change.
        """
        rounds = self.inferred and self.encoding == "list" and self.dtype is FLOAT32
        return replace(self, dtype=FLOAT64) if rounds else self

    def require_lossless(self) -> None:
        """Refuse dtypes that the Example's lists cannot hold.

        Raises:
            LossyConversion: uint64 with encoding `list`, and float64 that somebody declared.
        """
        if self.inferred and self.may_round:
            return
        if self.encoding == "list" and self.dtype.name in _LOSSY_IN_LIST:
            holder = "a FloatList (float32)" if self.dtype.is_float else "an Int64List (int64)"
            listed = self.kind in ("ragged", "sparse")
            other = "another dtype" if listed else "another dtype or encoding 'raw' or 'tensor'"
            raise LossyConversion(
                f"Feature {self.name!r} is {self.dtype}, which {holder} does not hold. Declare "
                f"{other} in the schema, or set lossy=allow.",
                feature=self.name,
            )

    def to_json(self, *, stored: bool = False) -> FeatureJson:
        """The JSON form.

        Args:
            stored: also write the members that only the schema of a dataset has.
        """
        feature: FeatureJson = {
            "dtype": self.dtype.name,
            "shape": list(self.shape),
            "kind": self.kind,
            "encoding": self.encoding,
            "nullable": self.nullable,
        }
        if self.meaning is not PLAIN:
            feature.update(cast(FeatureJson, self.meaning.to_json()))
        if self.transforms:
            feature["transforms"] = json.loads(self.transforms)
        if self.made_from is not None:
            made_from = self.made_from.plain.to_json()
            steps = json.loads(self.made_from.transforms)
            feature["transformed"] = {"from": made_from, "steps": steps}
        marks = {name: True for name in _STORED_MEMBERS if stored and getattr(self, name)}
        return cast(FeatureJson, {**feature, **marks}) if marks else feature

    @classmethod
    def from_json(cls, name: str, value: object, *, stored: bool = False) -> Feature:
        """A feature from its JSON form.

        Args:
            stored: whether `to_json(stored=True)` wrote it.

        Raises:
            MalformedInput: not of that form (`invalid_schema`, `unknown_dtype`).
            UnprocessableInput: the members contradict one another.
        """
        if not isinstance(value, dict) or "dtype" not in value:
            raise _invalid(name, 'must be an object with a "dtype"')
        marks = {mark: value[mark] is True for mark in _STORED_MEMBERS if stored and mark in value}
        value = {member: value[member] for member in value if member not in marks}
        if unknown := sorted(set(value) - _MEMBERS):
            raise _invalid(name, f"has unknown members {unknown}; known are {sorted(_MEMBERS)}")
        if not isinstance(value["dtype"], str):
            raise _invalid(name, '"dtype" must be a string')
        try:
            dtype = parse_feature_dtype(value["dtype"])
        except MalformedInput as error:
            raise error.shift(feature=name) from None
        shape = _shape_from_json(name, value.get("shape", []))
        kind = value.get("kind", "dense")
        if kind not in get_args(FeatureKind):
            raise _invalid(name, f'"kind" must be one of {list(get_args(FeatureKind))}')
        encoding = value.get("encoding") or default_encoding(dtype, shape, kind)
        if encoding not in get_args(Encoding):
            raise _invalid(name, f'"encoding" must be one of {list(get_args(Encoding))}')
        nullable = value.get("nullable", False)
        if not isinstance(nullable, bool):
            raise _invalid(name, '"nullable" must be true or false')
        try:
            meaning = parse_meaning(value)
        except ValueError as error:
            raise _invalid(name, str(error)) from None
        steps = steps_text(name, "transforms", value.get("transforms", []))
        made_from = _made_from(name, value["transformed"]) if "transformed" in value else None
        if steps and made_from is not None:
            raise _invalid(name, 'has both "transforms" and "transformed": they are done already, or not yet')
        feature = cls(name, dtype, shape, kind, encoding, nullable, meaning, steps, made_from, **marks)
        feature.check()
        return feature

    def check(self) -> None:
        """Refuse a feature that contradicts itself.

        Raises:
            UnprocessableInput: why (`invalid_feature`).
        """
        if (reason := self.contradiction) is not None:
            raise UnprocessableInput(
                f"Feature {self.name!r}: {reason}.", code="invalid_feature", feature=self.name
            )

    @property
    def contradiction(self) -> str | None:
        """Why there is no such feature, or None."""
        item = self.step if self.kind == "sequence" else self
        return _kind_contradiction(self) or _encoding_contradiction(item) or _meaning_contradiction(self)


def _kind_contradiction(feature: Feature) -> str | None:
    """Why the kind cannot have this shape or encoding, or None."""
    kind, shape = feature.kind, feature.shape
    if kind in ("ragged", "sparse") and feature.encoding != "list":
        return f"kind {kind!r} has encoding 'list' alone"
    if kind == "ragged" and None not in shape[1:]:
        return "kind 'ragged' needs a null in its shape behind the first dimension; else it is 'dense'"
    if kind == "ragged" and 0 in shape:
        return "kind 'ragged' takes no dimension of 0"
    if kind == "sparse" and (not shape or None in shape):
        return "kind 'sparse' needs a shape of one or more known dimensions"
    if kind == "sequence" and (not shape or shape[0] is not None):
        return "kind 'sequence' needs a shape whose first dimension is null: the number of steps"
    return None


def _encoding_contradiction(feature: Feature) -> str | None:
    """Why the encoding cannot hold such values, or None."""
    dtype, encoding = feature.dtype, feature.encoding
    if encoding == "list" and dtype.name not in _LISTED and not dtype.is_string:
        return f"{dtype} has no list form; use encoding 'tensor' or 'raw'"
    if encoding == "raw" and dtype.is_string:
        return "strings have no raw form; use encoding 'list' or 'tensor'"
    if encoding == "tensor" or feature.kind != "dense":
        return None
    if feature.num_unknown > 1:
        return "more than one unknown dimension needs encoding 'tensor'"
    if feature.num_unknown == 1 and feature.known_values == 0:
        return "a zero beside an unknown dimension needs encoding 'tensor'"
    return None


def _meaning_contradiction(feature: Feature) -> str | None:
    """Why its values cannot mean what is said, or None."""
    meaning, dtype = feature.meaning, feature.dtype
    if meaning is PLAIN:
        return None
    if meaning.image is not None and (dtype is not BYTES or feature.kind != "dense" or feature.shape):
        return "an image is one value of bytes"
    if meaning.class_names and dtype.kind not in ("int", "uint"):
        return "class_names are those of integers"
    if meaning.quantized is not None and dtype.kind not in ("int", "uint"):
        return "what is quantized are integers"
    return None


def default_encoding(dtype: DType, shape: FeatureShape, kind: FeatureKind = "dense") -> Encoding:
    """How a feature is stored when the schema does not say (docs/http.md, the table of features)."""
    if kind in ("ragged", "sparse"):
        return "list"
    if kind == "sequence":
        shape = shape[1:]
    unknown = shape.count(None)
    listed = dtype.is_string or dtype.name in _LISTED
    return "tensor" if not listed or unknown > 1 or (unknown and 0 in shape) else "list"


def steps_text(name: str, member: str, value: object) -> str:
    """The text that steps in JSON are kept as.

    Raises:
        MalformedInput: not a list (`invalid_schema`).
        LimitExceeded: more than `MAX_STEPS_BYTES` (`payload_too_large`).
    """
    if not isinstance(value, list):
        raise _invalid(name, f'"{member}" must be a list of steps, such as [{{"step": "flatten"}}]')
    text = json.dumps(value, separators=(",", ":")) if value else ""
    if len(text) > MAX_STEPS_BYTES:
        raise LimitExceeded(
            f"The steps of feature {name!r} take {len(text)} bytes as JSON; at most {MAX_STEPS_BYTES} are "
            "taken. Choose a smaller vocabulary, or look its words up in training.",
            code="payload_too_large",
            feature=name,
        )
    return text


def _made_from(name: str, value: object) -> Feature:
    """What the member `transformed` says that a feature was before."""
    if not isinstance(value, dict) or set(value) != {"from", "steps"}:
        raise _invalid(name, '"transformed" must be {"from": {"dtype": ...}, "steps": [...]}')
    if not isinstance(value["from"], dict) or not _PLAIN_MEMBERS.issuperset(value["from"]):
        raise _invalid(name, f'"from" must be an object with {sorted(_PLAIN_MEMBERS)}')
    steps = steps_text(name, "steps", value["steps"])
    return replace(Feature.from_json(name, value["from"]), transforms=steps)


def _shape_from_json(name: str, value: object) -> FeatureShape:
    if not isinstance(value, list):
        raise _invalid(name, '"shape" must be an array of integers and nulls')
    try:
        check_shape([0 if dim is None else dim for dim in value])
    except (MalformedInput, UnprocessableInput) as error:
        raise error.shift(feature=name) from None
    return tuple(value)


def _invalid(name: str, what: str) -> MalformedInput:
    return MalformedInput(f"Schema: feature {name!r} {what}.", code="invalid_schema", feature=name)


def stored_features(feature: Feature) -> tuple[Feature, ...]:
    """The lists that an Example stores for `feature`, each as a dense feature under its own name.

    Ragged and sparse features have no form of their own in an Example. They are stored as several lists, by
    the names that TensorFlow Datasets gives a ragged feature (`example_serializer.py`), and that
    `tf.io.RaggedFeature` and `tf.io.SparseFeature` are told.

    ragged: `x/ragged_flat_values` (all values, row-major), then `x/ragged_row_lengths_0`, ... (of each
    cut, outermost first). sparse: `x/indices_0`, ... (one coordinate of each value), then `x/values`.
    """

    def lengths(name: str) -> Feature:
        return replace(values(name), dtype=INT64)

    def values(name: str) -> Feature:
        return replace(feature, name=f"{feature.name}/{name}", shape=(None,), kind="dense", encoding="list")

    if feature.kind == "ragged":
        cuts = range(feature.num_partitions)
        return (values("ragged_flat_values"), *(lengths(f"ragged_row_lengths_{cut}") for cut in cuts))
    if feature.kind == "sparse":
        axes = range(len(feature.shape))
        return (*(lengths(f"indices_{axis}") for axis in axes), values("values"))
    return (feature,)
