"""How fast are transforms: resizing next to TensorFlow, numbers next to numpy, on one core?

Images of 256 x 256 x 3 bytes become 128 x 128: 16 of them in one call of TensorFlow, and one after the other
here. A million numbers are quantized, normalized and made one-hot, as a client would write it in numpy.
Run: python -m benchmarks.bench_transforms
"""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

import numpy as np
import tensorflow as tf

from app.codecs.columns import Batch, Column
from app.codecs.records.lease import Lease
from app.domain.dtypes import DTYPES
from app.domain.feature import Feature, FeatureShape
from app.runtime.budget import Budget
from app.transforms.images.processes import ImageProcesses
from app.transforms.images.resize import Method, resize
from app.transforms.parse import parse_steps
from app.transforms.step import Tools
from benchmarks.measure import Peer, Session, counted, main, pin_to_one_core

IMAGES = 16
SIZE, RESIZED = 256, 128
RESIZE_TARGET = 2.0
NUMBERS = 1_000_000
NUMBERS_TARGET = 0.9


def resize_here(images: np.ndarray[Any, Any], method: Method, antialias: bool) -> None:
    for image in images:
        resize(image, RESIZED, RESIZED, method, antialias=antialias)


def resize_in_tensorflow(images: tf.Tensor, method: Method, antialias: bool) -> None:
    tf.image.resize(images, [RESIZED, RESIZED], method=method, antialias=antialias).numpy()


def measure_resizing(session: Session) -> None:
    images = np.random.default_rng(0).integers(0, 256, (IMAGES, SIZE, SIZE, 3), dtype=np.uint8)
    tensors = tf.constant(images)
    for method in get_args(Method):
        for antialias in (False, True):
            if antialias and method in ("nearest", "area"):
                continue  # the same work
            case = f"{method}, antialiased" if antialias else method
            if session.wants(case):
                session.ask(
                    "Resize images",
                    case,
                    "images",
                    counted(partial(resize_here, images, method, antialias), IMAGES),
                    [
                        Peer(
                            "TensorFlow",
                            counted(partial(resize_in_tensorflow, tensors, method, antialias), IMAGES),
                            RESIZE_TARGET,
                        )
                    ],
                    num_bytes=images.nbytes,
                    repeats=4,
                    runs=9,
                )


def measure_step(
    session: Session, case: str, step: dict[str, Any], column: Column, shape: FeatureShape, peer: Any
) -> None:
    if not session.wants(case):
        return
    assert isinstance(column.values, np.ndarray)
    feature = Feature("x", DTYPES[column.values.dtype.name], shape)
    (parsed,) = parse_steps([step])
    budget, images = Budget(), ImageProcesses()
    batch = Batch(NUMBERS if not shape else NUMBERS // int(shape[0] or 1), (column,))

    def here() -> None:
        with Lease(budget) as lease:
            parsed.apply(column, feature, batch.num_rows, Tools(lease, images))

    session.ask(
        "Transform numbers",
        case,
        "values",
        counted(here, NUMBERS),
        [Peer("numpy", counted(peer, NUMBERS), NUMBERS_TARGET)],
        num_bytes=column.values.nbytes,
        repeats=4,
        runs=15,
    )
    images.close()


def measure_numbers(session: Session) -> None:
    random = np.random.default_rng(0)
    singles = random.normal(0, 1, NUMBERS).astype(np.float32)
    scale, zero = np.float32(0.03), np.float32(4)
    measure_step(
        session,
        "quantize to int8",
        {"step": "quantize", "dtype": "int8", "scale": 0.03, "zero_point": 4},
        Column(singles),
        (),
        lambda: np.clip(np.round(singles / scale) + zero, -128, 127).astype(np.int8),
    )
    measure_step(
        session,
        "normalize float32",
        {"step": "normalize", "mean": 0.5, "std": 0.25},
        Column(singles),
        (),
        lambda: (singles - np.float32(0.5)) / np.float32(0.25),
    )
    pixels = random.integers(0, 256, NUMBERS, dtype=np.uint8)
    measure_step(
        session,
        "normalize uint8 by channel",
        {"step": "normalize", "mean": [1, 2, 3, 4], "std": [5, 6, 7, 8]},
        Column(pixels, width=4),
        (4,),
        lambda: (pixels.reshape(-1, 4).astype(np.float32) - MEAN) / STD,
    )
    labels = random.integers(0, 10, NUMBERS)
    identity = np.eye(10, dtype=np.float32)
    measure_step(
        session,
        "one_hot of 10",
        {"step": "one_hot", "depth": 10},
        Column(labels),
        (),
        lambda: identity[labels],
    )


MEAN = np.array([1, 2, 3, 4], np.float32)
STD = np.array([5, 6, 7, 8], np.float32)


def measure(session: Session) -> None:
    measure_resizing(session)
    measure_numbers(session)


if __name__ == "__main__":
    pin_to_one_core()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    main(measure)
