"""Steps from their JSON form, a list of objects: `[{"step": "resize", "size": [32, 32]}, ...]`."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, replace
from functools import lru_cache
from math import isfinite
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from ..domain.dtypes import DType, parse_dtype
from ..domain.feature import Feature, default_encoding, steps_text
from ..domain.schema import Schema
from ..errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from . import numbers, shapes, texts
from .images import colours, decode, encode, geometry
from .step import Step

#: Of one feature.
MAX_STEPS: Final = 32

STEPS: Final[Mapping[str, type[Step]]] = {
    step.name: step
    for step in (
        decode.DecodeImage,
        geometry.Resize,
        geometry.ResizeWithPad,
        geometry.ResizeWithCropOrPad,
        geometry.CentralCrop,
        geometry.CropToBoundingBox,
        geometry.PadToBoundingBox,
        geometry.FlipLeftRight,
        geometry.FlipUpDown,
        geometry.Rot90,
        colours.RgbToGrayscale,
        colours.GrayscaleToRgb,
        colours.ConvertImageDtype,
        colours.PerImageStandardization,
        encode.EncodeJpeg,
        encode.EncodePng,
        numbers.Cast,
        numbers.Scale,
        numbers.Normalize,
        numbers.Clip,
        numbers.Quantize,
        numbers.Dequantize,
        numbers.Bucketize,
        shapes.OneHot,
        shapes.Reshape,
        shapes.Transpose,
        shapes.Flatten,
        shapes.PadTo,
        shapes.FillMissing,
        shapes.StoreAs,
        texts.Decode,
        texts.NormalizeText,
        texts.Lower,
        texts.Strip,
        texts.EncodeBase64,
        texts.DecodeBase64,
        texts.Lookup,
        texts.HashBuckets,
    )
}


def parse_steps(value: object) -> tuple[Step, ...]:
    """The steps of a feature from their JSON form. An error says which step is at fault, and its argument.

    Raises:
        MalformedInput: not of that form (`invalid_transform`, `unknown_dtype`).
        UnprocessableInput: arguments that contradict one another (`invalid_transform`).
        LimitExceeded: too many steps (`too_many_steps`).
    """
    if not isinstance(value, list):
        raise _malformed('Transforms are a list of steps, such as {"step": "resize", "size": [32, 32]}.')
    if len(value) > MAX_STEPS:
        raise LimitExceeded(f"{len(value)} steps; a feature has at most {MAX_STEPS}.", code="too_many_steps")
    steps = []
    for index, item in enumerate(value):
        try:
            steps.append(_parse_step(item))
        except InputError as error:
            error.extra["step"] = index
            raise
    return tuple(steps)


def steps_of(transforms: str) -> tuple[Step, ...]:
    """The steps of `Feature.transforms`, as `parse_steps`."""
    return (_steps_of if len(transforms) <= _SMALL_CHARS else _long_steps_of)(transforms)


def _parse_text(transforms: str) -> tuple[Step, ...]:
    return parse_steps(json.loads(transforms)) if transforms else ()


#: Remembered, since several ask for them in one request; of long vocabularies few, which take some 30 MiB.
_SMALL_CHARS: Final = 1 << 14
_steps_of = lru_cache(64)(_parse_text)
_long_steps_of = lru_cache(2)(_parse_text)


def check_transforms(schema: Schema) -> Schema:
    """The schema, its transforms checked and written out with all their arguments.

    Raises:
        InputError: as `parse_steps` and `resulting_feature`, with the feature.
    """
    if not (schema.has_transforms or schema.is_transformed):
        return schema
    features = []
    for feature in schema:
        try:
            features.append(_check_feature(feature))
        except InputError as error:
            raise error.shift(feature=feature.name) from None
    return Schema(tuple(features), schema.message)


def _check_feature(feature: Feature) -> Feature:
    if feature.transforms:
        text = steps_text(feature.name, "transforms", steps_to_json(steps_of(feature.transforms)))
        feature = replace(feature, transforms=text)
        resulting_feature(feature)
    elif feature.made_from is not None:
        made_from = _check_feature(feature.made_from)
        made = resulting_feature(made_from).plain
        if made != replace(feature.plain, nullable=made.nullable):
            raise UnprocessableInput(
                f'Feature {feature.name!r} was not made as its "transformed" says: the steps make '
                f"{json.dumps(made.to_json())} of what they are given.",
                code="invalid_transform",
            )
        feature = replace(feature, made_from=made_from)
    return feature


def with_transforms(schema: Schema, transforms: Mapping[str, str]) -> Schema:
    """The schema with further transforms, by feature, as texts of JSON.

    Raises:
        UnprocessableInput: of a feature that there is not (`unknown_feature`), or that has some already
            (`invalid_transform`).
    """
    for name in transforms:
        if name not in schema.by_name:
            raise UnprocessableInput(
                f"There is no feature {name[:64]!r} to be transformed.", code="unknown_feature", feature=name
            )
        if schema.by_name[name].transforms:
            raise UnprocessableInput(
                f"The transforms of feature {name!r} are given twice. Give them once.",
                code="invalid_transform",
                feature=name,
            )
    features = (
        replace(feature, transforms=transforms[feature.name], made_from=None)
        if feature.name in transforms
        else feature
        for feature in schema
    )
    return Schema(tuple(features), schema.message)


def resulting_schema(schema: Schema) -> Schema:
    """The schema of rows that went through all transforms of a checked one."""
    if not schema.has_transforms:
        return schema
    return Schema(tuple(resulting_feature(feature) for feature in schema), schema.message)


def resulting_feature(feature: Feature) -> Feature:
    """What the transforms of a feature make of it.

    Where no step says how it is stored, it is as the feature was declared to be, if that is not the default
    and can be; else it has the default encoding.

    Raises:
        InputError: as `parse_steps`; a step that does not take what it would get (`invalid_transform`).
        UnprocessableInput: what no feature can be (`invalid_feature`).
    """
    steps = steps_of(feature.transforms)
    if not steps:
        return feature
    result = feature
    for index, step in enumerate(steps):
        try:
            result = step.result(result)
        except InputError as error:
            error.extra["step"] = index
            raise
    result = replace(result, transforms="", made_from=replace(feature, made_from=None))
    is_default = feature.encoding == default_encoding(feature.dtype, feature.shape, feature.kind)
    if result.encoding == feature.encoding and (is_default or result.contradiction):
        result = replace(result, encoding=default_encoding(result.dtype, result.shape, result.kind))
    result.check()
    return result


def steps_to_json(steps: tuple[Step, ...]) -> list[dict[str, Any]]:
    """The JSON form, with all arguments: what is kept must not depend on defaults of a later release."""
    return [{"step": step.name} | _arguments(step) for step in steps]


def _arguments(step: Step) -> dict[str, Any]:
    return {field.name: _to_json(getattr(step, field.name)) for field in _fields(type(step))}


def _to_json(value: Any) -> Any:
    if isinstance(value, DType):
        return value.name
    return list(value) if isinstance(value, tuple) else value


def _parse_step(value: object) -> Step:
    if not isinstance(value, dict) or not isinstance(value.get("step"), str):
        raise _malformed('A step is an object with its name as "step".')
    kind = STEPS.get(value["step"])
    if kind is None:
        raise _malformed(f"There is no step {value['step'][:64]!r}. Use one of: {', '.join(STEPS)}.")
    known = {field.name: field for field in _fields(kind)}
    arguments: dict[str, Any] = {}
    for name, argument in value.items():
        if name == "step":
            continue
        if name not in known:
            takes = ", ".join(known) or "no argument"
            raise _malformed(f"The step {kind.name!r} has no argument {name[:64]!r}; it takes {takes}.")
        try:
            arguments[name] = _converters(kind)[name](argument)
        except _Unfit as unfit:
            raise _malformed(f"The argument {name!r} of the step {kind.name!r} must be {unfit}.") from None
    for name, field in known.items():
        if name not in arguments and field.default is MISSING:
            raise _malformed(f"The step {kind.name!r} needs the argument {name!r}.")
    return kind(**arguments)


def _malformed(detail: str) -> MalformedInput:
    return MalformedInput(detail, code="invalid_transform")


@lru_cache
def _fields(kind: type[Step]) -> tuple[Field[Any], ...]:
    return tuple(field for field in fields(kind) if field.init)  # type: ignore[arg-type]  # each is a dataclass


@lru_cache
def _converters(kind: type[Step]) -> dict[str, Callable[[object], Any]]:
    hints = get_type_hints(kind)
    return {field.name: _converter(hints[field.name]) for field in _fields(kind)}


class _Unfit(Exception):
    """What a value must be."""


def _converter(hint: Any) -> Callable[[object], Any]:
    """Checks a JSON value against the type of a field, and makes it of that type."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return lambda value: _choice(value, parts)
    if origin in (Union, types.UnionType):
        alternatives = [_converter(part) for part in parts if part is not type(None)]
        return lambda value: _either(value, alternatives, may_be_null=type(None) in parts)
    if origin is tuple:
        item = _converter(parts[0])
        length = None if parts[-1] is Ellipsis else len(parts)
        return lambda value: _items(value, item, length)
    return _SCALARS[hint]


def _choice(value: object, choices: tuple[Any, ...]) -> Any:
    if isinstance(value, bool) or value not in choices:
        raise _Unfit(f"one of {', '.join(map(repr, choices))}")
    return value


def _either(value: object, converters: list[Callable[[object], Any]], *, may_be_null: bool) -> Any:
    if value is None and may_be_null:
        return None
    reasons: list[str] = []
    for convert in converters:
        try:
            return convert(value)
        except _Unfit as unfit:
            reasons.append(str(unfit))
    raise _Unfit(" or ".join(reasons))


def _items(value: object, convert: Callable[[object], Any], length: int | None) -> tuple[Any, ...]:
    items = value if isinstance(value, list) else [value]
    if length is not None and (len(items) != length or not isinstance(value, list)):
        raise _Unfit(f"a list of {length}")
    return tuple(convert(item) for item in items)


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 63:
        raise _Unfit("an integer")
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _Unfit("a finite number")
    try:
        number = float(value)
    except OverflowError:
        raise _Unfit("a finite number") from None
    if not isfinite(number):
        raise _Unfit("a finite number")
    if number != value:
        raise _Unfit("a number that float64 holds exactly")
    return number


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Unfit("true or false")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Unfit("a string")
    return value


def _dtype(value: object) -> DType:
    return parse_dtype(_text(value))


_SCALARS: Final[dict[Any, Callable[[object], Any]]] = {
    int: _integer,
    float: _number,
    bool: _flag,
    str: _text,
    DType: _dtype,
}


class _Transforms:
    """`codecs.options.Transforms`."""

    def check(self, schema: Schema) -> Schema:
        return check_transforms(schema)

    def result(self, schema: Schema) -> Schema:
        return resulting_schema(schema)


TRANSFORMS: Final = _Transforms()
