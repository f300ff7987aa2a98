"""Faults of transforms: app/transforms, and the kernel of quantize."""

from __future__ import annotations

from typing import Final

from tests.mutations.entry import Mutation, Patch

MUTATIONS: Final = (
    Mutation(
        id="cast-of-2-63-to-int64",
        where="POST /v1/records/serialize with the transform cast",
        given="the float64 9223372036854775808.0, cast to int64",
        right="422: it is beyond the range of int64",
        wrong="200, and the value is -9223372036854775808",
        patch=Patch(
            "app/transforms/numbers.py", "wide >= float(limits.max + 1)", "wide > float(limits.max + 1)"
        ),
        tests=("tests/unit/transforms/test_apply.py",),
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
        tests=("tests/unit/transforms/test_apply.py",),
    ),
    Mutation(
        id="transform-error-row-in-second-batch",
        where="POST /v1/records/serialize with a transform that refuses a value",
        given="the value is in a row after the first batch",
        right="422 with the number of that row in the body",
        wrong="422 with its number in the batch",
        patch=Patch("app/transforms/apply.py", "            begin += batch.num_rows\n", ""),
        tests=("tests/unit/transforms/test_apply.py",),
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
        tests=("tests/unit/codecs/kernels/test_quantize.py",),
        uncompiled=True,
    ),
)
