"""Values as `tf.train.Feature` holds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from app.domain.dtypes import DType
from app.domain.feature import Feature
from app.domain.schema import Schema
from tests.support.feature_values import RaggedValue, array_of


def tensorflow_feature(feature: Feature, flat: list[Any], shape: tuple[int, ...]) -> Any:
    if feature.encoding == "tensor":
        if feature.dtype.is_string:
            tensor = tf.constant(np.array(flat, object).reshape(shape), tf.string, shape)
        elif not feature.dtype.has_kernel:
            return bytes_feature([content_proto(array_of(feature, flat), feature.dtype, shape)])
        else:
            tensor = tf.constant(array_of(feature, flat).reshape(shape))
        return bytes_feature([tf.io.serialize_tensor(tensor).numpy()])
    if feature.encoding == "raw":
        array = array_of(feature, flat)
        if feature.dtype.is_narrow and feature.dtype.kind == "int":
            array = array.astype(np.int8)
        return bytes_feature([array.tobytes()])
    if feature.dtype.is_string:
        return bytes_feature(flat)
    if feature.dtype.is_float:
        floats = array_of(feature, flat).astype(np.float32).tolist()
        return tf.train.Feature(float_list=tf.train.FloatList(value=floats))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value) for value in flat]))


def content_proto(array: NDArray[Any], dtype: DType, shape: tuple[int, ...]) -> bytes:
    """What a kernel would write if there was one, as TensorFlow reads it."""
    proto = tf.make_tensor_proto(np.zeros(shape, np.uint8))
    proto.dtype, proto.tensor_content = dtype.tf_enum, array.tobytes()
    proto.ClearField("int_val")
    message: bytes = proto.SerializeToString()
    assert tf.io.parse_tensor(message, tf.dtypes.as_dtype(dtype.tf_enum)).shape == shape
    return message


def bytes_feature(items: list[bytes]) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=items))


def components_of(feature: Feature, value: Any) -> dict[str, Any]:
    """The features of an Example that a row's value becomes, by name; a ragged or sparse one several."""
    if value is None:
        return {}
    if feature.kind == "dense":
        return {feature.name: tensorflow_feature(feature, *value)}
    flat = replace(feature, kind="dense", shape=(None,))
    name = feature.name
    if isinstance(value, RaggedValue):
        found = {f"{name}/ragged_flat_values": tensorflow_feature(flat, value.values, ())}
        for cut, lengths in enumerate(value.lengths):
            found[f"{name}/ragged_row_lengths_{cut}"] = int64_feature(lengths)
        return found
    found = {f"{name}/values": tensorflow_feature(flat, value.values, ())}
    for axis in range(len(feature.shape)):
        found[f"{name}/indices_{axis}"] = int64_feature([index[axis] for index in value.indices])
    return found


def int64_feature(items: list[int]) -> Any:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=items))


def context_of(schema: Schema, row: list[Any]) -> Any:
    """The `Features` of a row, without its sequences."""
    found: dict[str, Any] = {}
    for feature, value in zip(schema, row, strict=True):
        if feature.kind != "sequence":
            found |= components_of(feature, value)
    return tf.train.Features(feature=found)


def message_of(schema: Schema, row: list[Any]) -> bytes:
    """The row as the message that a Python program builds of it, with the parts that the schema has."""
    if schema.message == "example":
        message = tf.train.Example(features=context_of(schema, row))
    else:
        parts: dict[str, Any] = {}
        if any(feature.kind != "sequence" for feature in schema):
            parts["context"] = context_of(schema, row)
        if any(feature.kind == "sequence" for feature in schema):
            lists = {
                feature.name: tf.train.FeatureList(
                    feature=[tensorflow_feature(feature.step, *step) for step in value]
                )
                for feature, value in zip(schema, row, strict=True)
                if feature.kind == "sequence" and value is not None
            }
            parts["feature_lists"] = tf.train.FeatureLists(feature_list=lists)
        message = tf.train.SequenceExample(**parts)
    serialized: bytes = message.SerializeToString(deterministic=True)
    return serialized
