"""Rows through steps: values, rows that lack the feature, rows that fail, and memory."""

import io
import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.codecs.columns import Batch, Records
from app.domain.feature import FeatureShape
from app.domain.limits import Limits
from app.domain.schema import Schema
from app.errors import (
    LimitExceeded,
    Overloaded,
    ShardsmithError,
    StreamInterrupted,
    UnprocessableInput,
)
from app.runtime.amplification import Amplification
from app.runtime.budget import Budget
from app.transforms.apply import PIECE_BYTES, SkippedRows, apply_transforms
from app.transforms.images.processes import ImageProcesses
from app.transforms.parse import parse_steps, with_transforms
from tests.support.transforms import applied, column_of, results, transform


def jpeg(seed: int, size: int = 16, orientation: int = 1) -> bytes:
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 256, (size, size + 2, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", exif=exif)
    return file.getvalue()


BOX = {"offset_height": 0, "offset_width": 0, "target_height": 8, "target_width": 8}
Case = tuple[dict[str, Any], list[Any], FeatureShape, str, list[Any]]
CASES: list[Case] = [
    ({"step": "cast", "dtype": "int8"}, [1.9, None, -1.9], (), "float32", [1, None, -1]),
    ({"step": "cast", "dtype": "uint8", "unfit": "saturate"}, [300.0, -1e30], (), "float32", [255, 0]),
    (
        {"step": "cast", "dtype": "int64", "unfit": "saturate"},
        [1e30, -1e30],
        (),
        "float64",
        [2**63 - 1, -(2**63)],
    ),
    ({"step": "cast", "dtype": "uint64", "unfit": "saturate"}, [-1, 5], (), "int64", [0, 5]),
    ({"step": "cast", "dtype": "float16", "unfit": "saturate"}, [1e6, -1e6], (), "float32", [65504, -65504]),
    ({"step": "cast", "dtype": "bool"}, [0, 3], (), "int8", [False, True]),
    ({"step": "clip", "min": -1, "max": 1}, [[-3, 0], [0.5, 7]], (2,), "float32", [[-1, 0], [0.5, 1]]),
    # The range of 0 to 1 is 255 steps: 0 is -128, 1 is 127, and what lies beyond goes to the ends.
    (
        {"step": "quantize", "dtype": "int8", "min": 0, "max": 1},
        [0.0, 1.0, 2.0, -9.0],
        (),
        "float32",
        [-128, 127, 127, -128],
    ),
    ({"step": "quantize", "dtype": "uint8", "scale": 1}, [0.5, 1.5, 2.4], (), "float32", [1, 2, 2]),
    ({"step": "quantize", "dtype": "int8", "scale": 1}, [-0.5, -1.5], (), "float32", [-1, -2]),
    # Just below a half: half itself, added in float32, would make 1 of it.
    ({"step": "quantize", "dtype": "int8", "scale": 1}, [0.49999997, -0.49999997], (), "float32", [0, 0]),
    (
        {"step": "quantize", "dtype": "int16", "scale": [1, 0.5], "zero_point": [0, 3]},
        [[2, 2], [-1, 0]],
        (2,),
        "float32",
        [[2, 7], [-1, 3]],
    ),
    ({"step": "dequantize", "scale": 0.5, "zero_point": 3}, [3, 4, 255], (), "uint8", [0, 0.5, 126]),
    (
        {"step": "one_hot", "depth": 3, "on_value": 5, "off_value": 1},
        [2, None, 0],
        (),
        "int64",
        [[1, 1, 5], None, [5, 1, 1]],
    ),
    ({"step": "one_hot", "depth": 2}, [[0, 1], [1]], (None,), "int32", [[[1, 0], [0, 1]], [[0, 1]]]),
    ({"step": "fill_missing", "value": 7}, [None, [1, 2], None], (2,), "int32", [[7, 7], [1, 2], [7, 7]]),
    ({"step": "fill_missing", "value": "?"}, [None, b"a"], (), "text", [b"?", b"a"]),
    (
        {"step": "reshape", "shape": [-1, 2]},
        [[1, 2], [1, 2, 3, 4]],
        (None,),
        "int32",
        [[[1, 2]], [[1, 2], [3, 4]]],
    ),
    (
        {"step": "resize", "size": [1, 2], "method": "nearest"},
        [[[[0], [1], [2], [3], [4]]]],
        (1, 5, 1),
        "uint8",
        [[[[1], [3]]]],
    ),
    ({"step": "resize", "size": [1, 4]}, [[[[0], [8]]]], (1, 2, 1), "float32", [[[[0], [2], [6], [8]]]]),
    ({"step": "flatten"}, [[[1, 2]], [[3], [4]]], (None, None), "int32", [[1, 2], [3, 4]]),
    ({"step": "transpose"}, [[[1, 2]], [[3], [4]]], (None, None), "int32", [[[1], [2]], [[3, 4]]]),
    (
        {"step": "pad_to", "shape": [3], "value": 9},
        [[1], [], [1, 2, 3]],
        (None,),
        "int32",
        [[1, 9, 9], [9, 9, 9], [1, 2, 3]],
    ),
    ({"step": "bucketize", "boundaries": [0, 10]}, [-1.0, 0.0, 10.0], (), "float32", [0, 1, 2]),
    ({"step": "decode", "charset": "latin-1"}, [b"\xe9", None], (), "bytes", ["é".encode(), None]),
    ({"step": "normalize_utf8"}, ["ﬁ①".encode()], (), "text", [b"fi1"]),
    ({"step": "decode_base64", "alphabet": "standard"}, [b"+/8=", b"+/8"], (), "text", [b"\xfb\xff"] * 2),
    ({"step": "lookup", "vocabulary": ["b", "a"]}, [b"a", b"b"], (), "text", [1, 0]),
]


@pytest.mark.parametrize(("step", "rows", "shape", "dtype", "expected"), CASES)
def test_steps_transform_rows(
    step: dict[str, Any],
    rows: list[Any],
    shape: FeatureShape,
    dtype: str,
    expected: list[Any],
    images: ImageProcesses,
) -> None:
    found = transform([step], rows, shape, dtype, images)
    assert [item.tolist() if isinstance(item, np.ndarray) else item for item in found] == expected


@pytest.mark.parametrize("dtype", ["int64", "uint8", "int32"])
def test_many_numbers_become_one_hot(dtype: str, images: ImageProcesses) -> None:
    rows = np.random.default_rng(0).integers(0, 5, 40_000)
    for on, off in ((1, 0), (0, 1), (2, -0.0), (-3, 7)):
        step = {"step": "one_hot", "depth": 5, "on_value": on, "off_value": off}
        found = np.stack(transform([step], list(rows), (), dtype, images))
        expected = np.where(np.arange(5) == rows[:, None], np.float32(on), np.float32(off))
        assert found.tobytes() == expected.tobytes()
    rows[33_333] = 5
    with pytest.raises(UnprocessableInput) as caught:
        transform([{"step": "one_hot", "depth": 5}], list(rows), (), dtype, images)
    assert caught.value.location.row == 33_333


@pytest.mark.parametrize(("height", "width"), [(2, 2), (1, 3), (3, 1), (270, 270)])
def test_the_area_of_whole_pixels_is_their_mean(height: int, width: int, images: ImageProcesses) -> None:
    image = np.random.default_rng(0).integers(200, 256, (2 * height, 3 * width, 3), dtype=np.uint8)
    (found,) = transform(
        [{"step": "resize", "size": [2, 3], "method": "area"}], [image], (None, None, 3), "uint8", images
    )
    sums = image.reshape(2, height, 3, width, 3).sum((1, 3), dtype=np.int64)
    if sums.max() < 1 << 24:
        expected = sums.astype(np.float32) * (np.float32(1) / np.float32(height * width))
        np.testing.assert_array_equal(found, expected)
    else:  # rounded on the way
        np.testing.assert_allclose(found, sums / (height * width), rtol=1e-5)


def test_quantized_numbers_come_back_within_half_a_step(images: ImageProcesses) -> None:
    values = np.random.default_rng(0).uniform(-3, 5, 1000).astype(np.float32)
    step = {"step": "quantize", "dtype": "uint8", "min": -3, "max": 5}
    (quantize,) = parse_steps([step])
    scale, zero = quantize.affine  # type: ignore[attr-defined]  # it is a Quantize
    back = {"step": "dequantize", "scale": list(scale), "zero_point": list(zero)}
    restored = np.stack(transform([step, back], list(values), (), "float32", images))
    assert np.abs(restored - values).max() <= scale[0] / 2 * 1.001


REFUSED: list[tuple[dict[str, Any], list[Any], FeatureShape, str, str]] = [
    ({"step": "cast", "dtype": "uint8"}, [1, 256], (), "int64", "beyond the range of uint8"),
    ({"step": "cast", "dtype": "uint8"}, [1, -1], (), "int8", "beyond the range of uint8"),
    ({"step": "cast", "dtype": "int64"}, [1.0, 2.0**63], (), "float64", "beyond the range of int64"),
    (
        {"step": "cast", "dtype": "int8", "unfit": "saturate"},
        [1.0, float("nan")],
        (),
        "float32",
        "NaN is no int8",
    ),
    ({"step": "cast", "dtype": "float16"}, [1.0, 1e6], (), "float32", "beyond the range of float16"),
    (
        {"step": "quantize", "dtype": "int8", "scale": 1, "unfit": "error"},
        [1.0, 128.0],
        (),
        "float32",
        "beyond",
    ),
    ({"step": "quantize", "dtype": "int8", "scale": 1}, [1.0, float("nan")], (), "float32", "NaN cannot be"),
    ({"step": "bucketize", "boundaries": [0]}, [1.0, float("nan")], (), "float32", "NaN lies in no bucket"),
    ({"step": "one_hot", "depth": 2}, [[0, 1], [0, 2]], (2,), "int64", "not below the depth of 2"),
    ({"step": "one_hot", "depth": 2}, [0, -1], (), "int64", "not below the depth of 2"),
    (
        {"step": "reshape", "shape": [2]},
        [[1, 2], [1]],
        (None,),
        "int64",
        "1 values do not fill the shape [2]",
    ),
    ({"step": "pad_to", "shape": [1]}, [[1], [1, 2]], (None,), "int64", "is larger than [1]"),
    ({"step": "decode"}, [b"a", b"\xff"], (), "bytes", "it is not utf-8"),
    ({"step": "decode_base64"}, [b"YQ", b"+/8"], (), "text", "not base64 of the web_safe alphabet"),
    ({"step": "decode_base64"}, [b"YQ", b"YQ="], (), "text", "padding is not that of base64"),
    ({"step": "lookup", "vocabulary": ["a"]}, [b"a", b"b"], (), "text", "it is not in the vocabulary"),
    ({"step": "decode_image"}, [jpeg(0), b"hello"], (), "bytes", "none of JPEG, PNG"),
    (
        {"step": "decode_image"},
        [jpeg(0), jpeg(0)[:-200]],
        (),
        "bytes",
        "cannot be decoded: Premature end of JPEG",
    ),
    ({"step": "decode_image", "dtype": "uint16"}, [jpeg(0)], (), "bytes", "set the dtype uint8"),
    ({"step": "decode_image", "channels": 4}, [jpeg(0)], (), "bytes", "no alpha channel"),
    (
        {"step": "resize", "size": [2, 2]},
        [np.zeros((1, 1, 3)), np.zeros((0, 4, 3))],
        (None, None, 3),
        "uint8",
        "no pixels",
    ),
    (
        {"step": "rgb_to_grayscale"},
        [np.zeros((1, 1, 3)), np.zeros((1, 1, 4))],
        (1, 1, None),
        "uint8",
        "4 channels, not 3",
    ),
]


@pytest.mark.parametrize(("step", "rows", "shape", "dtype", "detail"), REFUSED)
def test_a_value_that_a_step_does_not_take_is_named_with_its_row_and_step(
    step: dict[str, Any],
    rows: list[Any],
    shape: FeatureShape,
    dtype: str,
    detail: str,
    images: ImageProcesses,
) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        transform([step], [None, *rows], shape, dtype, images)
    error = caught.value
    assert (error.code, error.location.row, error.location.feature) == ("transform_failed", len(rows), "x")
    assert f"Row {len(rows)} does not go through step 0 ({step['step']}) of feature 'x': " in error.detail
    assert detail in error.detail


def test_rows_that_fail_can_be_left_out_of_every_step(images: ImageProcesses) -> None:
    rows = [jpeg(0), b"hello", None, jpeg(1), jpeg(2)[:-200], jpeg(3, 4), jpeg(4)]
    steps = [
        {"step": "decode_image", "channels": 3},
        {"step": "crop_to_bounding_box", **BOX},
    ]
    skipped = SkippedRows()
    work = applied(steps, rows, (), "bytes", images, skipped=skipped)
    found = list(results(work))
    assert skipped.count == 3
    whole = transform(steps, [rows[0], None, rows[3], rows[6]], (), "bytes", images)
    for one, other in zip(found, whole, strict=True):
        assert (one is None and other is None) or np.array_equal(one, other)


def test_skipping_every_row_leaves_none(images: ImageProcesses) -> None:
    skipped = SkippedRows()
    work = applied([{"step": "decode_image"}], [b"a", b"b"], (), "bytes", images, skipped=skipped)
    assert list(results(work)) == []
    assert skipped.count == 2


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_jpeg_is_turned_as_its_camera_says(orientation: int, images: ImageProcesses) -> None:
    plain, turned = (
        transform(
            [{"step": "decode_image", "apply_exif_orientation": apply}],
            [jpeg(5, orientation=orientation)],
            (),
            "bytes",
            images,
        )[0]
        for apply in (False, True)
    )
    # By the table of EXIF: where row 0 and column 0 of the file are in what was seen.
    as_seen = {
        1: plain,
        2: np.flip(plain, 1),
        3: np.rot90(plain, 2),
        4: np.flip(plain, 0),
        5: np.transpose(plain, (1, 0, 2)),
        6: np.rot90(plain, -1),
        7: np.rot90(np.transpose(plain, (1, 0, 2)), 2),
        8: np.rot90(plain, 1),
    }
    np.testing.assert_array_equal(turned, as_seen[orientation])


def test_pieces_keep_the_number_of_a_row(images: ImageProcesses) -> None:
    """Rows are worked on in pieces; an error far behind the first piece names its row in the whole input."""
    rows = [np.zeros((600, 600, 3), np.uint8)] * 30
    rows[27] = np.zeros((5, 600, 3), np.uint8)
    box = {"offset_height": 0, "offset_width": 0, "target_height": 600, "target_width": 600}
    with pytest.raises(UnprocessableInput) as caught:
        transform([{"step": "crop_to_bounding_box", **box}], rows, (None, 600, 3), "uint8", images)
    assert caught.value.location.row == 27


def test_row_of_an_error_in_a_later_batch_is_that_in_the_input(images: ImageProcesses) -> None:
    feature, good = column_of([1.0, 2.0, 3.0], (), "float64")
    _, bad = column_of([4.0, float("nan")], (), "float64")
    schema = with_transforms(Schema((feature,)), {"x": json.dumps([{"step": "cast", "dtype": "int32"}])})
    work = apply_transforms(Records(schema, iter([Batch(3, (good,)), Batch(2, (bad,))])), images, Budget())
    with pytest.raises(UnprocessableInput) as caught:
        list(work.batches)
    assert (caught.value.code, caught.value.location.row) == ("transform_failed", 4)


def test_memory_is_charged_and_given_back(images: ImageProcesses) -> None:
    budget = Budget(Limits())
    bodies = [jpeg(seed, 700) for seed in range(40)]
    feature, column = column_of(bodies, (), "bytes")
    steps = [{"step": "decode_image"}, {"step": "resize", "size": [700, 700]}]
    schema = with_transforms(Schema((feature,)), {"x": json.dumps(steps)})
    work = apply_transforms(Records(schema, iter([Batch(40, (column,))])), images, budget)
    count = 0
    for batch in work.batches:
        count += batch.num_rows
        assert batch.num_rows < 40
        assert batch.nbytes <= budget.peak
    assert count == 40
    assert budget.remaining == Budget(Limits()).remaining
    assert budget.peak < 8 * PIECE_BYTES


RUN: list[dict[str, Any]] = [
    {"step": "decode_image", "channels": 3},
    {"step": "resize", "size": [200, 150]},
    {"step": "cast", "dtype": "uint8", "unfit": "saturate"},
    {"step": "flip_left_right"},
    {"step": "central_crop", "central_fraction": 0.5},
    {"step": "encode_png"},
]


def test_images_that_go_through_all_steps_at_once_are_those_of_one_step_after_the_other(
    images: ImageProcesses,
) -> None:
    rows: list[Any] = [jpeg(seed, 300 + seed % 3) for seed in range(60)]
    rows[7] = rows[41] = None
    at_once = transform(RUN, rows, (), "bytes", images)
    found = transform(RUN[:1], rows, (), "bytes", images)
    for step, shape, dtype in zip(
        RUN[1:],
        [(None, None, 3), *[(200, 150, 3)] * 3, (100, 76, 3)],
        ["uint8", "float32", *["uint8"] * 3],
        strict=True,
    ):
        found = transform([step], found, shape, dtype, images)
    assert at_once == found
    assert [index for index, one in enumerate(at_once) if one is None] == [7, 41]
    assert len(set(at_once)) == 59
    # What is decoded and only cut is a view of memory that the next images are decoded to.
    cut = transform([RUN[0], RUN[3], RUN[4]], rows, (), "bytes", images)
    whole = transform(RUN[:1], rows, (), "bytes", images)
    for one, other in zip(cut, whole, strict=True):
        if one is not None:
            top, left = (
                (there - here) // 2 for here, there in zip(one.shape[:2], other.shape[:2], strict=True)
            )
            expected = other[top : top + one.shape[0], ::-1][:, left : left + one.shape[1]]
            np.testing.assert_array_equal(one, expected)


def test_no_row_of_a_batch_need_have_an_image(images: ImageProcesses) -> None:
    feature, column = column_of([None, None, jpeg(0, 300)], (), "bytes")
    batch = Batch(3, (column,))
    schema = Schema((replace(feature, transforms=json.dumps(RUN)),))
    records = Records(schema, iter([batch.rows(0, 2), batch.rows(2, 3)]))
    found = list(results(apply_transforms(records, images, Budget())))
    assert found == [None, None, *transform(RUN, [jpeg(0, 300)], (), "bytes", images)]


def test_the_first_step_that_refuses_rows_is_named_and_in_it_the_first_row(images: ImageProcesses) -> None:
    rows = [jpeg(seed, 300) for seed in range(40)]
    rows[1] = jpeg(0, 100)  # too small to be cut
    rows[31] = rows[31][:-2000]
    steps = [
        RUN[0],
        {"step": "crop_to_bounding_box", **BOX, "target_height": 200, "target_width": 200},
        {"step": "encode_jpeg"},
    ]
    cases: list[tuple[dict[int, bytes], int, int]] = [
        ({}, 1, 1),
        ({2: b"no image"}, 2, 0),  # with row 1 in one piece
        ({2: rows[2][:-2000]}, 2, 0),
        ({0: b"no image", 39: b"no image"}, 0, 0),
        ({39: b"no image"}, 1, 1),
    ]
    for bad, row, step in cases:
        given = [bad.get(index, data) for index, data in enumerate(rows)]
        with pytest.raises(UnprocessableInput) as caught:
            transform(steps, given, (), "bytes", images)
        assert (caught.value.location.row, caught.value.extra) == (row, {"step": step})
        skipped = SkippedRows()
        found = list(results(applied(steps, given, (), "bytes", images, skipped=skipped)))
        assert (len(found), skipped.count) == (38 - len(bad), 2 + len(bad))
        kept = [data for index, data in enumerate(given) if index not in (1, 31, *bad)]
        assert found == transform(steps, kept, (), "bytes", images)


def test_images_that_nobody_waits_for_hold_nothing(
    images: ImageProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    def start(*arguments: Any) -> Any:
        started.append(ImageProcesses.start_decoding(images, *arguments))
        return started[-1]

    monkeypatch.setattr(images, "start_decoding", start)
    budget = Budget(Limits())
    feature, column = column_of([jpeg(seed, 300) for seed in range(60)], (), "bytes")
    schema = with_transforms(Schema((feature,)), {"x": json.dumps(RUN)})
    work = apply_transforms(Records(schema, iter([Batch(60, (column,))])), images, budget)
    next(iter(work.batches))
    assert budget.remaining < Budget(Limits()).remaining
    work.batches.close()  # type: ignore[attr-defined]  # it is a generator
    assert len(started) == 3
    assert all(one.done() for one in started)
    assert budget.remaining == Budget(Limits()).remaining
    assert len(transform(RUN, [jpeg(1, 300)] * 4, (), "bytes", images)) == 4


@pytest.mark.parametrize("error", [Overloaded("", short="memory"), StreamInterrupted("")])
def test_a_piece_that_cannot_begin_holds_nothing_afterwards(
    error: ShardsmithError, images: ImageProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    charges = itertools.count()

    def start(*arguments: Any) -> Any:
        started.append(ImageProcesses.start_decoding(images, *arguments))
        return started[-1]

    class Short(Budget):
        __slots__ = ()

        def charge(self, num_bytes: int, what: str, *, instead: str = "") -> None:
            if next(charges) == 1:  # the second feature of the first piece, of which the first has begun
                raise error
            super().charge(num_bytes, what, instead=instead)

    monkeypatch.setattr(images, "start_decoding", start)
    budget = Short()
    feature, column = column_of([jpeg(seed, 300) for seed in range(60)], (), "bytes")
    features = tuple(replace(feature, name=name, transforms=json.dumps(RUN)) for name in "ab")
    records = Records(Schema(features), iter([Batch(60, (column, column))]))
    batches = apply_transforms(records, images, budget).batches
    if isinstance(error, Overloaded):  # there is memory again
        assert sum(batch.num_rows for batch in batches) == 60
    else:
        with pytest.raises(StreamInterrupted):
            next(batches)
    assert all(one.done() for one in started)
    assert budget.remaining == Budget().remaining


def test_wasted_decoding_is_not_counted(images: ImageProcesses) -> None:
    rows = [jpeg(seed, 100) for seed in range(4)]
    features, columns = [], []
    for name, given in (("a", rows), ("b", [*rows[:3], b"no image"])):
        feature, column = column_of(given, (), "bytes")
        features.append(replace(feature, name=name, transforms=json.dumps(RUN)))
        columns.append(column)
    decoded = 4 * 100 * 102  # of one image
    most = (4 + 3 + 3) * decoded  # feature a, whose last row feature b then leaves out, and both without it
    for allowance in (most, most - 1):
        budget = Budget(amplification=Amplification(1, int, allowance=allowance))
        records = Records(Schema(tuple(features)), iter([Batch(4, tuple(columns))]))
        batches = apply_transforms(records, images, budget, SkippedRows()).batches
        if allowance == most:
            assert sum(batch.num_rows for batch in batches) == 3
        else:
            with pytest.raises(LimitExceeded) as caught:
                next(batches)
            assert caught.value.code == "amplification_exceeded"
        assert budget.remaining >= Budget().remaining - 8


def test_batches_overlap_only_with_plentiful_memory(images: ImageProcesses) -> None:
    rows = [jpeg(seed, 300) for seed in range(60)]
    expected = transform(RUN, rows, (), "bytes", images)
    peaks = []
    for limit in (8 * PIECE_BYTES, 64 * PIECE_BYTES):
        budget = Budget(Limits(max_decoded_bytes=limit))
        feature, column = column_of(rows, (), "bytes")
        schema = with_transforms(Schema((feature,)), {"x": json.dumps(RUN)})
        work = apply_transforms(Records(schema, iter([Batch(60, (column,))])), images, budget)
        assert list(results(work)) == expected
        peaks.append(budget.peak)
    assert peaks[0] < 8 * PIECE_BYTES < peaks[1] < 24 * PIECE_BYTES


def test_more_than_the_budget_is_refused_before_it_is_decoded(images: ImageProcesses) -> None:
    limits = Limits(max_decoded_bytes=1 << 20)
    with pytest.raises(LimitExceeded) as caught:
        list(results(applied([{"step": "decode_image"}], [jpeg(0, 700)], (), "bytes", images, limits=limits)))
    assert caught.value.code == "payload_too_large"


def test_rows_without_transforms_are_left_as_they_are(images: ImageProcesses) -> None:
    feature, column = column_of([1], (), "int64")
    records = Records(Schema((feature,)), iter([Batch(1, (column,))]))
    assert apply_transforms(records, images, Budget()) is records
