"""Reading the features of any `features.json`.

Source: TFDS 4.9.10, `core/features/` (the classes) and `core/example_serializer.py` (the names and types
under which each is stored). A feature becomes what is in the records:

| there                                         | becomes                                               |
|-----------------------------------------------|-------------------------------------------------------|
| Scalar, Tensor, BBoxFeature                   | the dtype and shape; a string is bytes                |
| ... with encoding `bytes`                     | encoding `raw`                                        |
| ... with encoding `zlib`, or in a Sequence    | bytes, as stored                                      |
| ClassLabel                                    | int64                                                 |
| Text; Translation                             | text; one for each language                           |
| Image, LabeledImage                           | bytes: the encoded image; an Image has its shape      |
| FeaturesDict                                  | its features, as `outer/inner`                        |
| Sequence                                      | one more dimension; two or more in one another ragged |

`optional` is nullable. Every other class, and what TFDS itself does not read back, is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ...domain.feature import Feature, FeatureShape
from ...domain.tensor import MAX_DIM
from ...errors import InputError, MalformedInput, UnprocessableInput
from ...runtime.budget import Budget
from ..json.text import parse_json
from .note import is_note

_MAX_DEPTH: Final = 64
#: The member of `tensorflow_datasets.Feature` that holds each class.
_MEMBERS: Final = {
    "FeaturesDict": "featuresDict",
    "Tensor": "tensor",
    "Scalar": "tensor",
    "ClassLabel": "classLabel",
    "Text": "text",
    "Image": "image",
    "LabeledImage": "image",
    "BBoxFeature": "boundingBox",
    "Translation": "translation",
    "Sequence": "sequence",
}
#: What numpy and TFDS call strings.
_STRINGS: Final = frozenset({"string", "object", "str", "str_", "bytes"})


@dataclass(frozen=True, slots=True)
class _Stored:
    """One feature of a record: its name, the Sequences around it, and what stands in them."""

    name: str
    lengths: FeatureShape
    member: Mapping[str, Any]

    def nest(self, length: int | None) -> _Stored:
        return replace(self, lengths=(length, *self.lengths))

    def with_prefix(self, prefix: str) -> _Stored:
        return replace(self, name=f"{prefix}/{self.name}" if self.name else prefix)


def is_features(value: Mapping[str, Any]) -> bool:
    """Whether an object is a features.json, rather than a schema of ours."""
    return bool(value.keys() & {"type", "proto_cls", "pythonClassName", "python_class_name"})


def plain_features(value: Mapping[str, Any]) -> list[Feature]:
    """The features as they are read without notes, in the order of the file.

    Raises:
        MalformedInput: not of the form of a features.json (`invalid_schema`).
        UnprocessableInput: a feature that no row of ours can have, by name and class.
    """
    return [_feature(stored) for stored in _stored_features("", value, 0)]


def notes(value: Mapping[str, Any]) -> Iterator[str]:
    """The descriptions that are notes of ours; they stand at the features of the outermost FeaturesDict."""
    _, content = _open("", value)
    for feature in _features_of("", content).values():
        description = feature.get("description") if isinstance(feature, dict) else None
        if isinstance(description, str) and is_note(description):
            yield description


def _stored_features(name: str, value: object, depth: int) -> Iterator[_Stored]:
    """What a record holds for one feature of a features.json."""
    if depth > _MAX_DEPTH:
        raise _invalid(name, f"is nested more than {_MAX_DEPTH} deep")
    kind, content = _open(name, value)
    if kind == "FeaturesDict":
        for key, inner in _features_of(name, content).items():
            for stored in _stored_features(key, inner, depth + 1):
                yield stored.with_prefix(name) if name else stored
    elif kind == "Sequence":
        length = content.get("length", -1)
        length = None if length is None else _integer(name, length)
        for stored in _stored_features(name, content.get("feature"), depth + 1):
            yield stored.nest(None if length is None or length < 0 else length)
    elif kind == "Translation":
        if content.get("variableLanguagesPerExample") or content.get("variable_languages_per_example"):
            raise _inexpressible(name, "TranslationVariableLanguages")
        for language in content.get("languages", []):
            yield _Stored(f"{name}/{language}" if name else language, (), {"dtype": "text"})
    else:
        yield from _leaf(name, kind, content)


def _leaf(name: str, kind: str, content: Mapping[str, Any]) -> Iterator[_Stored]:
    nullable = content.get("optional") is True
    if kind == "ClassLabel":
        yield _Stored(name, (), {"dtype": "int64"})
    elif kind == "Text":
        yield _Stored(name, (), {"dtype": "text"})
    elif kind in ("Image", "LabeledImage"):
        yield _Stored(name, (), {"dtype": "bytes", **_image(name, kind, content)})
    elif kind == "BBoxFeature":
        yield _Stored(name, (), {"dtype": "float32", "shape": [4]})
    else:
        dtype, shape = _dtype(name, content), [] if kind == "Scalar" else _dimensions(name, content)
        encoding = str(content.get("encoding", "none")).lower() or "none"
        if encoding not in ("none", "bytes", "zlib"):
            raise _invalid(name, f"has the encoding {encoding[:40]!r}")
        value: dict[str, Any] = {"dtype": dtype, "shape": shape, "nullable": nullable, "encoding": "list"}
        if encoding != "none" and shape.count(None) > 1:
            # TFDS keeps the shape beside the bytes.
            yield _Stored(
                f"{name}/shape", (), {"dtype": "int32", "shape": [len(shape)], "nullable": nullable}
            )
            yield _Stored(f"{name}/value", (), {"dtype": "bytes", "nullable": nullable})
        elif encoding == "bytes":
            yield _Stored(name, (), {**value, "encoding": "raw"})
        elif encoding == "zlib":
            yield _Stored(name, (), {"dtype": "bytes", "nullable": nullable})
        else:
            yield _Stored(name, (), value)


def _image(name: str, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """The member `image` of an Image; none where an image is more than its pixels, or these are no bytes."""
    if kind != "Image" or content.get("dtype", "uint8") != "uint8":
        return {}
    shape = _dimensions(name, content) or [None, None, 3]
    form = content.get("encodingFormat", content.get("encoding_format")) or None
    if len(shape) != 3 or shape[2] not in (None, 1, 3, 4) or 0 in shape or form not in (None, "jpeg", "png"):
        return {}
    return {"image": {"format": form, "shape": shape}}


def _feature(stored: _Stored) -> Feature:
    """The feature, with the dimensions that Sequences add."""
    lengths, value = stored.lengths, stored.member
    if lengths and (value.get("encoding") == "raw" or "image" in value):
        value = {"dtype": "bytes"}  # one string an element
    own = value.get("shape", [])
    shape = [*lengths, *own]
    if len(lengths) < 2:
        kind = "dense"
        if shape.count(None) > 1 and value.get("encoding", "list") == "list":
            raise _inexpressible(stored.name, "Tensor of several unknown dimensions")
    else:
        # example_serializer.py: every Sequence but the outermost is a list of lengths.
        kind = "ragged"
        if None in own or lengths[-1] is not None or 0 in shape:
            raise _inexpressible(stored.name, "Sequence of Sequences that are all of one known length")
    try:
        return Feature.from_json(stored.name, {**value, "shape": shape, "kind": kind})
    except InputError as error:
        raise UnprocessableInput(
            f"Feature {stored.name!r} of the features.json: {error.detail}",
            code="inexpressible_feature",
            feature=stored.name[:64],
        ) from None


def _open(name: str, value: object) -> tuple[str, Mapping[str, Any]]:
    """The class of a feature, without its module, and what it holds: in any of the forms that TFDS reads."""
    if not isinstance(value, dict):
        raise _invalid(name, "is not an object")
    class_name = value.get("type") or value.get("pythonClassName") or value.get("python_class_name")
    if not isinstance(class_name, str):
        raise _invalid(name, "does not say its class")
    kind = class_name.rpartition(".")[2]
    if kind not in _MEMBERS:
        raise _inexpressible(name, kind)
    content: object
    if "type" in value:
        content = value.get("content", {})
        if isinstance(content, str):
            content = _parse_text(name, content)
        if kind == "FeaturesDict" and "proto_cls" not in value:
            content = {"features": content}
    else:
        member = _MEMBERS[kind]
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in member)
        content = value.get(member, value.get(snake, {}))
    if not isinstance(content, dict):
        raise _invalid(name, "holds no object")
    return kind, content


def _parse_text(name: str, text: str) -> object:
    """The JSON in a string, read strictly, because otherwise a repeated feature would be lost."""
    try:
        return parse_json(text.encode("utf-8", "replace"), Budget()).value
    except InputError as error:
        raise _invalid(name, f"holds a string that is no JSON: {error.detail.rstrip('.')}") from None


def _features_of(name: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
    features = content.get("features", {})
    if not isinstance(features, dict):
        raise _invalid(name, "holds no object of features")
    return features


def _dtype(name: str, content: Mapping[str, Any]) -> str:
    dtype = content.get("dtype")
    if not isinstance(dtype, str):
        raise _invalid(name, "has no dtype")
    return "bytes" if dtype in _STRINGS else dtype


def _dimensions(name: str, content: Mapping[str, Any]) -> list[int | None]:
    shape = content.get("shape", {})
    dims = shape.get("dimensions", []) if isinstance(shape, dict) else shape
    if not isinstance(dims, list):
        raise _invalid(name, "has a shape that is none")
    sizes = [-1 if dim is None else _integer(name, dim) for dim in dims]
    return [None if size < 0 else size for size in sizes]


def _integer(name: str, value: object) -> int:
    """An int64, which protobuf's JSON writes as a string."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if (
        len(text) <= 20
        and text.removeprefix("-").isdecimal()
        and text.isascii()
        and abs(int(text)) <= MAX_DIM
    ):
        return int(text)
    raise _invalid(name, f"has {str(value)[:40]!r} where a 64-bit integer belongs")


def _invalid(name: str, what: str) -> MalformedInput:
    where = f"Feature {name!r} of the features.json" if name else "The features.json"
    return MalformedInput(f"{where} {what}.", code="invalid_schema", feature=name[:64] or None)


def _inexpressible(name: str, kind: str) -> UnprocessableInput:
    return UnprocessableInput(
        f"Feature {name!r} of the features.json is a {kind[:80]}, which no feature here holds. Leave it "
        "out, or give the schema as JSON.",
        code="inexpressible_feature",
        feature=name[:64],
    )
