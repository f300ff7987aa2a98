"""Steps on numbers and text give what TensorFlow gives."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from app.transforms.images.processes import ImageProcesses
from tests.support.transforms import transform

Array = npt.NDArray[Any]
REALS = ("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "float16", "float32", "float64")


def numbers(dtype: str, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return random.normal(0, 40, (50, 6)).astype(dtype)
    return random.integers(0, 100, (50, 6)).astype(dtype)


def one(step: dict[str, Any], rows: Array, images: ImageProcesses) -> Array:
    """All rows after the step, as one array."""
    return np.stack(transform([step], list(rows), rows.shape[1:], rows.dtype.name, images))


def same(ours: Array, theirs: Array) -> None:
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("target", [*REALS, "bool"])
@pytest.mark.parametrize("source", REALS)
def test_casts_are_equal(source: str, target: str, images: ImageProcesses) -> None:
    rows = numbers(source)
    rows = np.abs(rows) if target.startswith("uint") else rows
    same(one({"step": "cast", "dtype": target}, rows, images), tf.cast(rows, target).numpy())


@pytest.mark.parametrize(
    ("source", "target"),
    [("float32", "uint8"), ("float64", "int32"), ("int64", "int8"), ("uint16", "int8"), ("int16", "uint16")],
)
def test_saturated_casts_are_equal(source: str, target: str, images: ImageProcesses) -> None:
    rows = (numbers(source) * 50).astype(source)
    rows = rows if source.startswith("u") else np.concatenate((rows, -rows))
    step = {"step": "cast", "dtype": target, "unfit": "saturate"}
    same(one(step, rows, images), tf.saturate_cast(rows, target).numpy())


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_scaling_and_normalizing_are_equal(dtype: str, images: ImageProcesses) -> None:
    rows = numbers(dtype)
    floats = tf.cast(rows, tf.float64 if dtype == "float64" else tf.float32)
    same(
        one({"step": "scale", "factor": 1 / 127.5, "offset": -1}, rows, images),
        (floats * (1 / 127.5) + -1.0).numpy(),
    )
    if dtype != "float64":
        rescaled = tf.keras.layers.Rescaling(0.1)(floats).numpy()
        same(one({"step": "scale", "factor": 0.1}, rows, images), rescaled)
    mean, std = [0.1, 2.0, 3.3, -4.0, 5.0, 6.0], [0.5, 1.0, 7.0, 0.25, 3.0, 1.1]
    same(one({"step": "normalize", "mean": mean, "std": std}, rows, images), ((floats - mean) / std).numpy())
    same(one({"step": "normalize", "mean": 0.3, "std": 0.7}, rows, images), ((floats - 0.3) / 0.7).numpy())


@pytest.mark.parametrize("dtype", REALS)
def test_clipping_is_equal(dtype: str, images: ImageProcesses) -> None:
    rows = numbers(dtype)
    ours = one({"step": "clip", "min": 3, "max": 20}, rows, images)
    same(ours, tf.clip_by_value(tf.constant(rows), 3, 20).numpy())


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_buckets_are_equal(dtype: str, images: ImageProcesses) -> None:
    rows = numbers(dtype)
    boundaries = [-10.0, 0.0, 1.5, 7.0, 50.0]
    theirs = tf.raw_ops.Bucketize(input=rows, boundaries=boundaries).numpy().astype(np.int64)
    same(one({"step": "bucketize", "boundaries": boundaries}, rows, images), theirs)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_one_hot_is_equal(dtype: str, images: ImageProcesses) -> None:
    rows = numbers("int32")
    theirs = (
        tf.one_hot(rows, 100, True, False, dtype=tf.bool)
        if dtype == "bool"
        else tf.one_hot(rows, 100, dtype=dtype)
    )
    same(one({"step": "one_hot", "depth": 100, "dtype": dtype}, rows, images), theirs.numpy())


QUANTIZED = {"int8": tf.qint8}


@pytest.mark.parametrize("dtype", list(QUANTIZED))
def test_quantized_numbers_are_equal(dtype: str, images: ImageProcesses) -> None:
    """Beside halves: TensorFlow's operation rounds them up, TensorFlow Lite's and ours away from zero."""
    rows = numbers("float32")
    limits = np.iinfo(dtype)
    scale, zero = np.float32(0.37), 5 if dtype == "int8" else 0
    is_half = np.abs(np.abs(rows / scale) % 1 - 0.5) < 1e-4
    theirs = tf.raw_ops.UniformQuantize(
        input=rows,
        scales=scale,
        zero_points=np.int32(zero),
        Tout=QUANTIZED[dtype],
        quantization_min_val=limits.min,
        quantization_max_val=limits.max,
    )
    step = {"step": "quantize", "dtype": dtype, "scale": float(scale), "zero_point": zero}
    ours = one(step, rows, images)
    plain = tf.bitcast(theirs, tf.int8 if dtype == "int8" else tf.int32).numpy()
    np.testing.assert_array_equal(ours[~is_half], plain[~is_half])
    back = {"step": "dequantize", "scale": float(scale), "zero_point": zero}
    restored = tf.raw_ops.UniformDequantize(
        input=tf.bitcast(ours, QUANTIZED[dtype]),
        scales=scale,
        zero_points=np.int32(zero),
        Tout=tf.float32,
        quantization_min_val=limits.min,
        quantization_max_val=limits.max,
    )
    same(one(back, ours, images), restored.numpy())


def test_shapes_are_changed_equally(images: ImageProcesses) -> None:
    rows = numbers("float32").reshape(50, 2, 3)
    same(one({"step": "reshape", "shape": [3, -1]}, rows, images), tf.reshape(rows, [50, 3, 2]).numpy())
    same(one({"step": "transpose"}, rows, images), tf.transpose(rows, [0, 2, 1]).numpy())
    padded = one({"step": "pad_to", "shape": [4, 5], "value": 7}, rows, images)
    same(padded, tf.pad(rows, [[0, 0], [0, 2], [0, 2]], constant_values=7).numpy())


WORDS = ["", "a", "Straße", "İstanbul", " \tpadded\n ", "ﬁne", "été", "e\u0301te", "z" * 300, "日本"]


@pytest.mark.parametrize(
    ("step", "theirs"),
    [
        ({"step": "lower"}, lambda words: tf.strings.lower(words, "utf-8")),
        ({"step": "strip"}, tf.strings.strip),
        ({"step": "encode_base64"}, tf.io.encode_base64),
        ({"step": "encode_base64", "pad": True}, lambda words: tf.io.encode_base64(words, pad=True)),
    ],
)
def test_text_is_changed_equally(step: dict[str, Any], theirs: Any, images: ImageProcesses) -> None:
    words = [word.encode() for word in WORDS]
    assert transform([step], words, (), "text", images) == theirs(words).numpy().tolist()


def test_base64_is_decoded_equally(images: ImageProcesses) -> None:
    random = np.random.default_rng(0)
    words = [random.bytes(size) for size in range(40)]
    for pad in (False, True):
        encoded = tf.io.encode_base64(words, pad=pad).numpy().tolist()
        assert transform([{"step": "decode_base64"}], encoded, (), "bytes", images) == words


def test_hash_buckets_are_equal(images: ImageProcesses) -> None:
    random = np.random.default_rng(0)
    words = [random.bytes(size) for size in [*range(300)] * 3]
    for buckets in (1, 7, 1000, 2**62 + 1):
        ours = transform(
            [{"step": "to_hash_bucket_fast", "num_buckets": buckets}], words, (), "bytes", images
        )
        same(np.stack(ours), tf.strings.to_hash_bucket_fast(words, buckets).numpy())


def test_positions_in_a_vocabulary_are_equal(images: ImageProcesses) -> None:
    vocabulary = ["red", "green", "blue"]
    words = [b"green", b"", b"red", b"mauve", b"ochre", b"blue", b"teal"]
    keys = tf.lookup.KeyValueTensorInitializer(vocabulary, tf.range(3, dtype=tf.int64))
    theirs = tf.lookup.StaticVocabularyTable(keys, 5)[tf.constant(words)].numpy()
    step = {"step": "lookup", "vocabulary": vocabulary, "oov_buckets": 5}
    same(np.stack(transform([step], words, (), "text", images)), theirs)
