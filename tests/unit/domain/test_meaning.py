"""What values mean, and how they were made, in a schema's JSON."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.evolution import widen
from app.domain.feature import Feature
from app.domain.meaning import PLAIN, Meaning, Quantized
from app.domain.schema import Schema
from app.errors import InputError, SchemaConflict

IMAGE = {"format": "jpeg", "shape": [None, 4, 3]}
LOWER = [{"step": "lower"}]
FROM_TEXT = {"from": {"dtype": "text"}, "steps": LOWER}


@pytest.mark.parametrize(
    "members",
    [
        {"dtype": "bytes", "image": IMAGE},
        {"dtype": "bytes", "nullable": True, "image": {"format": None, "shape": [None, None, None]}},
        {"dtype": "int64", "class_names": ["a", ""]},
        {"dtype": "uint8", "shape": [2], "class_names": ["a"]},
        {"dtype": "int8", "shape": [2], "quantized": {"scale": [0.5, 1.0], "zero_point": [-1, 2]}},
        {"dtype": "text", "transforms": LOWER},
        {"dtype": "text", "transformed": FROM_TEXT},
        {"dtype": "bytes", "image": IMAGE, "transforms": LOWER},
        {
            "dtype": "bytes",
            "transformed": {"from": {"dtype": "bytes", "image": IMAGE, "nullable": True}, "steps": LOWER},
        },
    ],
)
def test_members_come_back(members: dict[str, Any]) -> None:
    feature = Feature.from_json("x", members)
    found: dict[str, Any] = dict(feature.to_json())
    assert Feature.from_json("x", found) == feature
    assert Feature.from_json("x", found).meaning == feature.meaning
    assert Feature.from_json("x", feature.to_json(stored=True), stored=True) == feature
    for name, value in members.items():
        if name == "transformed":
            assert found[name]["steps"] == value["steps"]
            assert value["from"].items() <= found[name]["from"].items()
        else:
            assert found[name] == value


@pytest.mark.parametrize(
    "members",
    [
        {"dtype": "text", "image": IMAGE},
        {"dtype": "bytes", "shape": [2], "image": IMAGE},
        {"dtype": "bytes", "image": None},
        {"dtype": "bytes", "image": {"format": "tiff"}},
        {"dtype": "bytes", "image": {"size": 3}},
        {"dtype": "bytes", "image": {"shape": [4, 4]}},
        {"dtype": "bytes", "image": {"shape": [4, 0, 3]}},
        {"dtype": "bytes", "image": {"shape": [4, True, 3]}},
        {"dtype": "bytes", "image": {"shape": [4, 4, 5]}},
        {"dtype": "float32", "class_names": ["a"]},
        {"dtype": "int64", "class_names": []},
        {"dtype": "int64", "class_names": "ab"},
        {"dtype": "int64", "class_names": ["a", 1]},
        {"dtype": "int64", "class_names": ["a", "a"]},
        {"dtype": "float32", "quantized": {"scale": [1], "zero_point": [0]}},
        {"dtype": "int8", "quantized": {"scale": [1]}},
        {"dtype": "int8", "quantized": {"scale": [], "zero_point": []}},
        {"dtype": "int8", "quantized": {"scale": [0], "zero_point": [0]}},
        {"dtype": "int8", "quantized": {"scale": [True], "zero_point": [0]}},
        {"dtype": "int8", "quantized": {"scale": [10**400], "zero_point": [0]}},
        {"dtype": "int8", "quantized": {"scale": [1], "zero_point": [0, 1]}},
        {"dtype": "int8", "quantized": {"scale": [1], "zero_point": [0.5]}},
        {"dtype": "int8", "class_names": ["a"], "quantized": {"scale": [1], "zero_point": [0]}},
        {"dtype": "text", "transforms": "lower"},
        {"dtype": "text", "transformed": LOWER},
        {"dtype": "text", "transformed": {"from": {"dtype": "text"}}},
        {"dtype": "text", "transformed": {"from": "text", "steps": LOWER}},
        {"dtype": "text", "transformed": {"from": {"dtype": "text", "transforms": LOWER}, "steps": LOWER}},
        {"dtype": "text", "transformed": {"from": {"dtype": "text"}, "steps": "lower"}},
        {"dtype": "text", "transformed": FROM_TEXT, "transforms": LOWER},
    ],
)
def test_members_that_contradict_are_refused(members: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        Feature.from_json("x", members)
    assert caught.value.code in ("invalid_schema", "invalid_feature")
    assert caught.value.location.feature == "x"


def schema(**features: Any) -> Schema:
    return Schema.from_json({"features": features})


CATS = {"dtype": "int64", "class_names": ["cat", "dog"]}
DOGS = {"dtype": "int64", "class_names": ["dog", "cat"]}


def test_rows_agree_where_one_says_nothing_of_what_they_mean() -> None:
    plain, cats, dogs = schema(x={"dtype": "int64"}), schema(x=CATS), schema(x=DOGS)
    assert plain.same_features(cats)
    assert cats.same_features(plain)
    assert cats.same_features(schema(x=CATS))
    assert not cats.same_features(dogs)
    assert widen(plain, cats).features[0].meaning == cats.features[0].meaning
    assert widen(cats, plain) is cats
    with pytest.raises(SchemaConflict, match="what its values mean is fixed"):
        widen(cats, dogs)


def test_a_plain_feature_means_nothing_more() -> None:
    assert Feature.from_json("x", {"dtype": "int64"}).meaning is PLAIN
    quantized = Meaning(quantized=Quantized((0.5,), (1,)))
    assert not quantized.agrees_with(Meaning(quantized=Quantized((0.5,), (2,))))


def test_transforms_are_fixed_but_a_row_may_lack_the_feature() -> None:
    stored = schema(x={"dtype": "text", "transformed": FROM_TEXT})
    lacking = widen(stored, schema(y={"dtype": "int64"}))
    (x, y) = lacking.features
    assert (x.nullable, y.nullable) == (True, True)
    assert x.made_from is not None
    assert x.made_from.nullable
    assert widen(lacking, stored) is lacking
    assert widen(stored, stored) is stored
    other = {"dtype": "text", "transformed": {**FROM_TEXT, "steps": [{"step": "strip"}]}}
    for offered in ({"dtype": "text"}, other):
        with pytest.raises(SchemaConflict, match="its transforms are fixed"):
            widen(stored, schema(x=offered))


def test_rows_are_received_as_they_were_before() -> None:
    stored = schema(x={"dtype": "bytes", "transformed": FROM_TEXT}, y={"dtype": "int64"})
    received = stored.as_received()
    assert [feature.dtype.name for feature in received] == ["text", "int64"]
    assert received.has_transforms
    assert not received.is_transformed
    assert stored.as_received(("x", "y")) is stored
    assert received.names_without_transforms == ("y",)
    (x, _) = stored.features
    assert x.plain == replace(x, made_from=None)
    assert x != x.plain
