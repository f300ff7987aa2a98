"""Faults of transforms: app/transforms, and the kernel of quantize."""

from __future__ import annotations

from typing import Final

from tests.mutations.entry import Mutation, Patch

MUTATIONS: Final = (
    Mutation(
        id="resize-to-the-nearest-pixel",
        where="POST /v1/records/serialize with the transform resize",
        given="an image of five pixels in a row, resized to two with method=nearest",
        right="pixels 1 and 3, as in TensorFlow",
        wrong="pixels 1 and 4",
        patch=Patch(
            "app/transforms/images/resize.py",
            "nearest: Ints = np.minimum(np.floor(centers)",
            "nearest: Ints = np.minimum(np.round(centers)",
        ),
        tests=("tests/unit/transforms/test_apply.py::test_steps_transform_rows",),
    ),
    Mutation(
        id="bucketize-on-a-boundary",
        where="POST /v1/records/serialize with the transform bucketize",
        given="a number that is one of the boundaries",
        right="the bucket that begins there, as in Keras",
        wrong="the bucket that ends there",
        patch=Patch(
            "app/transforms/numbers.py", 'values.astype(kind), "right")', 'values.astype(kind), "left")'
        ),
        tests=("tests/unit/transforms/test_apply.py::test_steps_transform_rows",),
    ),
    Mutation(
        id="transform-error-row-in-second-batch",
        where="POST /v1/records/serialize with a transform that refuses a value",
        given="the value is in a row after the first batch",
        right="422 with the number of that row in the body",
        wrong="422 with its number in the batch",
        patch=Patch("app/transforms/apply.py", "            begin += batch.num_rows\n", ""),
        tests=(
            "tests/unit/transforms/test_apply.py::test_row_of_an_error_in_a_later_batch_is_that_in_the_input",
        ),
    ),
    Mutation(
        id="quantize-just-below-a-half",
        where="POST /v1/records/serialize with the transform quantize",
        given="the greatest float32 below 0.5, with scale 1",
        right="0",
        wrong="1",
        patch=Patch(
            "app/codecs/kernels/quantize.py",
            "_HALF = np.nextafter(np.float32(0.5), np.float32(0))",
            "_HALF = np.float32(0.5)",
        ),
        tests=("tests/unit/transforms/test_apply.py::test_steps_transform_rows",),
        uncompiled=True,
    ),
)
