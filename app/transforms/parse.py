"""Steps from their JSON form, a list of objects: `[{"step": "resize", "size": [32, 32]}, ...]`."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from functools import lru_cache
from math import isfinite
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from ..domain.dtypes import DType, parse_dtype
from ..domain.feature import Feature
from ..errors import LimitExceeded, MalformedInput
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


def parse_steps(value: object, pointer: str = "") -> tuple[Step, ...]:
    """The steps of a feature from their JSON form.

    Args:
        pointer: where `value` stands in the body, for errors.

    Raises:
        MalformedInput: not of that form (`invalid_transform`, `unknown_dtype`).
        UnprocessableInput: arguments that contradict one another (`invalid_transform`).
        LimitExceeded: too many steps (`too_many_steps`).
    """
    if not isinstance(value, list):
        raise _malformed(
            'Transforms are a list of steps, such as {"step": "resize", "size": [32, 32]}.', pointer
        )
    if len(value) > MAX_STEPS:
        raise LimitExceeded(
            f"{len(value)} steps; a feature has at most {MAX_STEPS}.", code="too_many_steps", pointer=pointer
        )
    return tuple(_parse_step(item, f"{pointer}/{index}") for index, item in enumerate(value))


def resulting_feature(steps: tuple[Step, ...], feature: Feature) -> Feature:
    """What all steps make of a feature.

    Raises:
        UnprocessableInput: one that does not take what it would get (`invalid_transform`).
    """
    for step in steps:
        feature = step.result(feature)
    return feature


def steps_to_json(steps: tuple[Step, ...]) -> list[dict[str, Any]]:
    """The JSON form, with the arguments that differ from their defaults."""
    return [{"step": step.name} | _arguments(step) for step in steps]


def _arguments(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in _fields(type(step)):
        value = getattr(step, field.name)
        if field.default is MISSING or value != field.default:
            found[field.name] = _to_json(value)
    return found


def _to_json(value: Any) -> Any:
    if isinstance(value, DType):
        return value.name
    return list(value) if isinstance(value, tuple) else value


def _parse_step(value: object, pointer: str) -> Step:
    if not isinstance(value, dict) or not isinstance(value.get("step"), str):
        raise _malformed('A step is an object with its name as "step".', pointer)
    kind = STEPS.get(value["step"])
    if kind is None:
        raise _malformed(f"There is no step {value['step'][:64]!r}. Use one of: {', '.join(STEPS)}.", pointer)
    known = {field.name: field for field in _fields(kind)}
    arguments: dict[str, Any] = {}
    for name, argument in value.items():
        if name == "step":
            continue
        if name not in known:
            takes = ", ".join(known) or "no argument"
            raise _malformed(
                f"The step {kind.name!r} has no argument {name[:64]!r}; it takes {takes}.", pointer
            )
        try:
            arguments[name] = _converters(kind)[name](argument)
        except _Unfit as unfit:
            detail = f"The argument {name!r} of the step {kind.name!r} must be {unfit}."
            raise _malformed(detail, f"{pointer}/{name}") from None
    for name, field in known.items():
        if name not in arguments and field.default is MISSING:
            raise _malformed(f"The step {kind.name!r} needs the argument {name!r}.", pointer)
    return kind(**arguments)


def _malformed(detail: str, pointer: str) -> MalformedInput:
    return MalformedInput(detail, code="invalid_transform", pointer=pointer or None)


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
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        raise _Unfit("a finite number")
    return float(value)


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
