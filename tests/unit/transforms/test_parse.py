"""Steps from JSON: every argument is checked, and each error says where and what to do."""

import json
from dataclasses import replace
from typing import Any

import pytest

from app.domain.dtypes import parse_feature_dtype
from app.domain.feature import MAX_STEPS_BYTES, Feature, FeatureShape
from app.errors import InputError, LimitExceeded
from app.transforms.parse import MAX_STEPS, STEPS, parse_steps, resulting_feature, steps_to_json


def box(*numbers: int) -> dict[str, int]:
    return dict(zip(("offset_height", "offset_width", "target_height", "target_width"), numbers, strict=True))


EVERY_STEP: list[dict[str, Any]] = [
    {"step": "decode_image", "channels": 3, "apply_exif_orientation": True},
    {"step": "resize", "size": [32, 48], "method": "lanczos3", "antialias": True},
    {"step": "resize_with_pad", "target_height": 3, "target_width": 4},
    {"step": "resize_with_crop_or_pad", "target_height": 3, "target_width": 4},
    {"step": "central_crop", "central_fraction": 0.5},
    {
        "step": "crop_to_bounding_box",
        "offset_height": 0,
        "offset_width": 1,
        "target_height": 3,
        "target_width": 4,
    },
    {
        "step": "pad_to_bounding_box",
        "offset_height": 0,
        "offset_width": 1,
        "target_height": 3,
        "target_width": 4,
    },
    {"step": "flip_left_right"},
    {"step": "flip_up_down"},
    {"step": "rot90", "k": 3},
    {"step": "rgb_to_grayscale"},
    {"step": "grayscale_to_rgb"},
    {"step": "convert_image_dtype", "dtype": "float32", "saturate": True},
    {"step": "per_image_standardization"},
    {"step": "encode_jpeg", "quality": 80},
    {"step": "encode_png", "compression": 9},
    {"step": "cast", "dtype": "uint8", "unfit": "saturate"},
    {"step": "scale", "factor": 2.0, "offset": -1.0},
    {"step": "normalize", "mean": [0.5], "std": [0.5]},
    {"step": "clip", "min": 0.0, "max": 1.0},
    {"step": "quantize", "dtype": "int8", "min": -1.0, "max": 1.0},
    {"step": "quantize", "dtype": "uint8", "scale": [0.5, 0.25], "zero_point": [1, 2], "unfit": "error"},
    {"step": "dequantize", "scale": [0.5]},
    {"step": "bucketize", "boundaries": [0.0, 1.0]},
    {"step": "one_hot", "depth": 10, "dtype": "uint8"},
    {"step": "reshape", "shape": [2, -1]},
    {"step": "transpose", "perm": [1, 0]},
    {"step": "flatten"},
    {"step": "pad_to", "shape": [3, 4], "value": 1.0},
    {"step": "store_as", "encoding": "raw"},
    {"step": "fill_missing", "value": "none"},
    {"step": "fill_missing", "value": 0.0},
    {"step": "decode", "charset": "latin-1"},
    {"step": "normalize_utf8", "normalization_form": "NFC"},
    {"step": "lower"},
    {"step": "strip"},
    {"step": "encode_base64", "alphabet": "standard", "pad": True},
    {"step": "decode_base64", "alphabet": "standard"},
    {"step": "lookup", "vocabulary": ["a", "b"], "oov_buckets": 1},
    {"step": "to_hash_bucket_fast", "num_buckets": 10},
]


@pytest.mark.parametrize("step", EVERY_STEP, ids=lambda step: step["step"])
def test_a_step_comes_back_from_its_json_form(step: dict[str, Any]) -> None:
    parsed = parse_steps([step])
    (written,) = steps_to_json(parsed)
    assert step.items() <= written.items()
    assert parse_steps(steps_to_json(parsed)) == parsed


def test_every_step_is_in_the_table_above() -> None:
    assert {step["step"] for step in EVERY_STEP} == set(STEPS)


def test_one_number_is_a_list_of_one() -> None:
    assert steps_to_json(parse_steps([{"step": "normalize", "mean": 1, "std": 2}])) == [
        {"step": "normalize", "mean": [1.0], "std": [2.0]}
    ]


MALFORMED: list[tuple[Any, int | None, str | None, str]] = [
    ({}, None, None, "Transforms are a list of steps"),
    (["resize"], 0, None, "A step is an object"),
    ([{"size": [1, 2]}], 0, None, "A step is an object"),
    ([{"step": "grow"}], 0, None, "There is no step 'grow'. Use one of: decode_image, resize,"),
    ([{"step": "flatten"}, {"step": "resize"}], 1, None, "needs the argument 'size'"),
    ([{"step": "flatten", "to": 1}], 0, None, "has no argument 'to'; it takes no argument"),
    ([{"step": "rot90", "times": 1}], 0, None, "has no argument 'times'; it takes k"),
    ([{"step": "rot90", "k": 1.0}], 0, "k", "must be an integer"),
    ([{"step": "rot90", "k": True}], 0, "k", "must be an integer"),
    ([{"step": "rot90", "k": 1 << 63}], 0, "k", "must be an integer"),
    ([{"step": "resize", "size": [1]}], 0, "size", "must be a list of 2"),
    ([{"step": "resize", "size": 1}], 0, "size", "must be a list of 2"),
    ([{"step": "resize", "size": [1, None]}], 0, "size", "must be an integer"),
    ([{"step": "resize", "size": [1, 1], "method": "cubic"}], 0, "method", "must be one of 'bilinear', 'n"),
    ([{"step": "resize", "size": [1, 1], "antialias": 1}], 0, "antialias", "must be true or false"),
    ([{"step": "scale", "factor": "2"}], 0, "factor", "must be a finite number"),
    ([{"step": "scale", "factor": float("nan")}], 0, "factor", "must be a finite number"),
    ([{"step": "scale", "factor": 10**400}], 0, "factor", "must be a finite number"),
    ([{"step": "pad_to", "shape": [2], "value": 2**53 + 1}], 0, "value", "that float64 holds exactly"),
    ([{"step": "fill_missing", "value": 2**53 + 1}], 0, "value", "that float64 holds exactly"),
    ([{"step": "decode_image", "channels": 2}], 0, "channels", "must be one of 0, 1, 3, 4"),
    ([{"step": "decode_image", "channels": True}], 0, "channels", "must be one of 0, 1, 3, 4"),
    ([{"step": "decode", "charset": 8}], 0, "charset", "must be a string"),
    ([{"step": "fill_missing", "value": None}], 0, "value", "must be a finite number or a string"),
]


@pytest.mark.parametrize(("value", "step", "argument", "detail"), MALFORMED)
def test_malformed_step_is_refused_with_its_place(
    value: Any, step: int | None, argument: str | None, detail: str
) -> None:
    with pytest.raises(InputError) as caught:
        parse_steps(value)
    assert caught.value.code == "invalid_transform"
    assert caught.value.extra.get("step") == step
    assert caught.value.detail.startswith(f"The argument {argument!r} of the step ") == (argument is not None)
    assert detail in caught.value.detail
    assert caught.value.location.pointer is None  # the steps do not know what they stand in


@pytest.mark.parametrize(
    "step",
    [
        {"step": "resize", "size": [0, 1]},
        {"step": "resize", "size": [1 << 20, 1 << 20]},
        {
            "step": "crop_to_bounding_box",
            "offset_height": -1,
            "offset_width": 0,
            "target_height": 1,
            "target_width": 1,
        },
        {"step": "central_crop", "central_fraction": 0},
        {"step": "central_crop", "central_fraction": 1.01},
        {"step": "encode_jpeg", "quality": 101},
        {"step": "encode_png", "compression": 10},
        {"step": "normalize", "mean": [1, 2], "std": [1]},
        {"step": "normalize", "mean": 1, "std": 0},
        {"step": "clip", "min": 1, "max": 0},
        {"step": "quantize", "dtype": "int8"},
        {"step": "quantize", "dtype": "int8", "min": 0},
        {"step": "quantize", "dtype": "int8", "min": 1, "max": 1},
        {"step": "quantize", "dtype": "int8", "min": 0, "max": 1, "scale": 1},
        {"step": "quantize", "dtype": "float32", "min": 0, "max": 1},
        {"step": "quantize", "dtype": "int8", "min": 0, "max": 1e-45},
        {"step": "quantize", "dtype": "int8", "min": -1e308, "max": 1e308},
        {"step": "quantize", "dtype": "int8", "scale": 0},
        {"step": "quantize", "dtype": "int8", "scale": 1e-60},
        {"step": "quantize", "dtype": "int8", "scale": 1e39},
        {"step": "dequantize", "scale": 1e39},
        {"step": "quantize", "dtype": "int8", "scale": 1, "zero_point": 128},
        {"step": "quantize", "dtype": "int8", "scale": [1, 2], "zero_point": [1]},
        {"step": "dequantize", "scale": []},
        {"step": "bucketize", "boundaries": [1, 1]},
        {"step": "one_hot", "depth": 0},
        {"step": "one_hot", "depth": 2, "dtype": "string"},
        {"step": "cast", "dtype": "complex64"},
        {"step": "cast", "dtype": "int4"},
        {"step": "convert_image_dtype", "dtype": "bool"},
        {"step": "decode_image", "dtype": "float32"},
        {"step": "reshape", "shape": [-1, -1]},
        {"step": "reshape", "shape": [1] * 65},
        {"step": "pad_to", "shape": [-1]},
        {"step": "decode", "charset": "base64"},
        {"step": "decode", "charset": "no such"},
        {"step": "lookup", "vocabulary": ["a", "a"]},
        {"step": "lookup", "vocabulary": [], "oov_buckets": -1},
        {"step": "lookup", "vocabulary": [], "oov_buckets": 1 << 62},
        {"step": "to_hash_bucket_fast", "num_buckets": 0},
    ],
)
def test_arguments_that_cannot_be_are_refused(step: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        parse_steps([{"step": "flatten"}, step])
    assert caught.value.code == "invalid_transform"
    assert caught.value.extra["step"] == 1


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(InputError) as caught:
        parse_steps([{"step": "cast", "dtype": "int33"}])
    assert caught.value.code == "unknown_dtype"


@pytest.mark.parametrize(
    ("dtype", "step"),
    [
        ("float32", {"step": "scale", "factor": 1e39}),
        ("int8", {"step": "scale", "factor": 1, "offset": -1e39}),
        ("float16", {"step": "normalize", "mean": 1e39, "std": 1}),
        ("float32", {"step": "normalize", "mean": 0, "std": 1e-60}),
        ("float32", {"step": "fill_missing", "value": 1e39}),
        ("float16", {"step": "fill_missing", "value": 65520}),
    ],
)
def test_an_argument_that_the_dtype_does_not_hold_is_refused(dtype: str, step: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        resulting_feature(Feature("x", parse_feature_dtype(dtype), transforms=json.dumps([step])))
    assert (caught.value.code, caught.value.extra["step"]) == ("invalid_transform", 0)
    resulting_feature(Feature("x", parse_feature_dtype("float64"), transforms=json.dumps([step])))


@pytest.mark.parametrize(
    "step",
    [
        {"step": "pad_to", "shape": [1 << 62, 1 << 62]},
        {"step": "pad_to", "shape": [1 << 62, 2, 0]},
        {"step": "pad_to", "shape": [1 << 62, 0]},
        {"step": "reshape", "shape": [1 << 62, 2]},
    ],
)
def test_more_values_than_an_array_has_are_refused(step: dict[str, Any]) -> None:
    with pytest.raises(LimitExceeded) as caught:
        parse_steps([step])
    assert caught.value.code == "shape_too_large"


def test_long_steps_are_refused() -> None:
    words = [str(number) for number in range(MAX_STEPS_BYTES // 4)]
    with pytest.raises(LimitExceeded) as caught:
        Feature.from_json("x", {"dtype": "text", "transforms": [{"step": "lookup", "vocabulary": words}]})
    assert (caught.value.code, caught.value.location.feature) == ("payload_too_large", "x")


def test_too_many_steps_are_refused() -> None:
    parse_steps([{"step": "flatten"}] * MAX_STEPS)
    with pytest.raises(LimitExceeded) as caught:
        parse_steps([{"step": "flatten"}] * (MAX_STEPS + 1))
    assert caught.value.code == "too_many_steps"


Typed = tuple[str, FeatureShape]
RESULTS: list[tuple[Typed, list[dict[str, Any]], Typed]] = [
    (("bytes", ()), [{"step": "decode_image"}], ("uint8", (None, None, None))),
    (("bytes", ()), [{"step": "decode_image", "channels": 3}], ("uint8", (None, None, 3))),
    (
        ("bytes", ()),
        [
            {"step": "decode_image", "channels": 3},
            {"step": "resize", "size": [8, 9]},
            {"step": "cast", "dtype": "uint8", "unfit": "saturate"},
            {"step": "encode_jpeg"},
        ],
        ("bytes", ()),
    ),
    (("uint8", (4, 6, 3)), [{"step": "resize", "size": [8, 9], "method": "nearest"}], ("uint8", (8, 9, 3))),
    (
        ("uint8", (4, 6, 3)),
        [{"step": "resize", "size": [8, 9], "preserve_aspect_ratio": True}],
        ("float32", (6, 9, 3)),
    ),
    (
        ("uint8", (None, 6, 3)),
        [{"step": "resize", "size": [8, 9], "preserve_aspect_ratio": True}],
        ("float32", (None, None, 3)),
    ),
    (("uint8", (5, None, 3)), [{"step": "rot90"}], ("uint8", (None, 5, 3))),
    (("uint8", (5, 4, 3)), [{"step": "rot90", "k": 2}], ("uint8", (5, 4, 3))),
    (("uint8", (8, 5, 3)), [{"step": "central_crop", "central_fraction": 0.5}], ("uint8", (4, 3, 3))),
    (("uint8", (8, 5, None)), [{"step": "rgb_to_grayscale"}], ("uint8", (8, 5, 1))),
    (("float64", (2,)), [{"step": "scale", "factor": 2}], ("float64", (2,))),
    (("int64", (2,)), [{"step": "scale", "factor": 2}], ("float32", (2,))),
    (("int64", (None,)), [{"step": "one_hot", "depth": 3}], ("float32", (None, 3))),
    (("float32", (2, 6)), [{"step": "reshape", "shape": [3, -1]}], ("float32", (3, 4))),
    (("float32", (None, 6)), [{"step": "flatten"}], ("float32", (None,))),
    (("float32", (None, 6)), [{"step": "transpose"}], ("float32", (6, None))),
    (("float32", (None, 6)), [{"step": "pad_to", "shape": [4, 6]}], ("float32", (4, 6))),
    (("bytes", ()), [{"step": "decode"}, {"step": "lower"}], ("text", ())),
    (("text", (None,)), [{"step": "lookup", "vocabulary": ["a"]}], ("int64", (None,))),
]


@pytest.mark.parametrize(("before", "steps", "after"), RESULTS)
def test_dtype_and_shape_are_known_before_data_flows(
    before: Typed, steps: list[dict[str, Any]], after: Typed
) -> None:
    feature = Feature("x", parse_feature_dtype(before[0]), before[1])
    result = resulting_feature(replace(feature, transforms=json.dumps(steps)))
    assert (result.dtype.name, result.shape) == after


@pytest.mark.parametrize(
    ("before", "step"),
    [
        (("text", ()), {"step": "decode_image"}),
        (("bytes", (2,)), {"step": "decode_image"}),
        (("uint8", (4, 6)), {"step": "resize", "size": [8, 9]}),
        (("bool", (4, 6, 1)), {"step": "flip_up_down"}),
        (("uint8", (4, 6, 1)), {"step": "rgb_to_grayscale"}),
        (("uint8", (4, 6, 3)), {"step": "grayscale_to_rgb"}),
        (("float32", (4, 6, 3)), {"step": "encode_jpeg"}),
        (("uint8", (4, 6, 4)), {"step": "encode_jpeg"}),
        (
            ("uint8", (4, 6, 3)),
            {
                "step": "crop_to_bounding_box",
                "offset_height": 1,
                "offset_width": 0,
                "target_height": 4,
                "target_width": 1,
            },
        ),
        (("text", ()), {"step": "scale", "factor": 2}),
        (("complex64", ()), {"step": "scale", "factor": 2}),
        (("float32", (2,)), {"step": "normalize", "mean": [1, 2, 3], "std": [1, 2, 3]}),
        (("int32", ()), {"step": "quantize", "dtype": "int8", "scale": 1}),
        (("int64", ()), {"step": "dequantize", "scale": 1}),
        (("uint8", ()), {"step": "clip", "min": -1, "max": 3}),
        (("uint8", ()), {"step": "clip", "min": 0.5, "max": 3}),
        (("float32", ()), {"step": "one_hot", "depth": 3}),
        (("float32", (5,)), {"step": "reshape", "shape": [2, -1]}),
        (("float32", (5,)), {"step": "reshape", "shape": [4]}),
        (("float32", (5,)), {"step": "transpose", "perm": [1, 0]}),
        (("float32", (5,)), {"step": "pad_to", "shape": [4]}),
        (("float32", (1,) * 65), {"step": "flatten"}),
        (("uint8", (5,)), {"step": "pad_to", "shape": [6], "value": 256}),
        (("uint8", (5,)), {"step": "fill_missing", "value": "x"}),
        (("text", ()), {"step": "fill_missing", "value": 1}),
        (("uint8", (None,)), {"step": "fill_missing", "value": 1}),
        (("bytes", ()), {"step": "lower"}),
        (("text", ()), {"step": "decode"}),
        (("int64", ()), {"step": "to_hash_bucket_fast", "num_buckets": 3}),
    ],
)
def test_a_step_that_does_not_take_the_feature_is_refused_before_data_flows(
    before: Typed, step: dict[str, Any]
) -> None:
    feature = Feature("x", parse_feature_dtype(before[0]), before[1])
    with pytest.raises(InputError) as caught:
        resulting_feature(replace(feature, transforms=json.dumps([step])))
    assert caught.value.code == "invalid_transform"
    assert caught.value.location.feature == "x"
    assert f"The step {step['step']!r} takes" in caught.value.detail
