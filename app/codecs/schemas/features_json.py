"""TFDS's own description of a dataset: `features.json` and `dataset_info.json`.

With both beside the shards, `tfds.builder_from_directory(folder)` loads a version without code.
Checked with TFDS 4.9.10 (`core/features/feature.py`, `core/proto/dataset_info.proto`), which
refuses unknown members in dataset_info.json and reads missing shardLengths as no rows at all.

| feature                                     | becomes                                            |
|---------------------------------------------|----------------------------------------------------|
| `list`, scalar                              | Scalar                                             |
| `list`, any other shape                     | Tensor; an unknown dimension is -1                 |
| `raw`, always present, at most one unknown  | Tensor with encoding `bytes`                       |
| `tensor`, and any other `raw`               | a string Scalar that holds the bytes as stored     |

A feature that a row may lack is `optional`; TFDS fills it with the least value of its dtype. One of
unknown length needs no mark: absent, it is empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...domain.schema import Feature, FeatureShape, Schema

__all__ = ["serialize_dataset_info", "serialize_features"]

_FEATURES: Final = "tensorflow_datasets.core.features"

#: TFDS decodes `bytes` with `tf.io.decode_raw`, which has no uint32.
_NOT_RAW: Final = frozenset({"uint32"})
#: TFDS has no default for an optional bfloat16 and overflows on float64; a FloatList holds float32.
_OPTIONAL_AS_FLOAT32: Final = frozenset({"bfloat16", "float64"})


def serialize_features(schema: Schema) -> bytes:
    """`features.json`: how TFDS parses each record."""
    return _json(
        {
            "type": f"{_FEATURES}.features_dict.FeaturesDict",
            "proto_cls": "tensorflow_datasets.FeaturesDict",
            "content": {"features": {feature.name: _feature(feature) for feature in schema}},
        }
    )


def serialize_dataset_info(
    dataset: str,
    version: str,
    shard_lengths: Mapping[str, Sequence[int]],
    num_bytes: Mapping[str, int],
    description: str = "",
) -> bytes:
    """`dataset_info.json`: the splits and their shards.

    Args:
        shard_lengths: by split, the records in each shard; a split without records is left out,
            since TFDS fails on one.
        num_bytes: by split.
        description: free text.
    """
    splits = [
        {
            "name": split,
            "shardLengths": [str(length) for length in lengths],
            "numBytes": str(num_bytes[split]),
        }
        for split, lengths in shard_lengths.items()
        if sum(lengths) > 0
    ]
    return _json(
        {
            "name": dataset,
            "version": version,
            "description": description,
            "fileFormat": "tfrecord",
            "splits": splits,
        }
    )


def _feature(feature: Feature) -> dict[str, Any]:
    if feature.encoding == "list":
        return _listed(feature)
    if (
        feature.encoding == "raw"
        and not feature.nullable
        and feature.num_unknown <= 1
        and feature.dtype.name not in _NOT_RAW
    ):
        return _tensor(feature.shape, feature.dtype.name, encoding="bytes")
    return _scalar("string", optional=feature.nullable)


def _listed(feature: Feature) -> dict[str, Any]:
    dtype = "string" if feature.dtype.is_string else feature.dtype.name
    optional = feature.nullable and feature.num_unknown == 0
    if optional and dtype in _OPTIONAL_AS_FLOAT32:
        dtype = "float32"
    if feature.is_scalar:
        return _scalar(dtype, optional=optional)
    return _tensor(feature.shape, dtype, optional=optional)


def _scalar(dtype: str, *, optional: bool) -> dict[str, Any]:
    return {
        "pythonClassName": f"{_FEATURES}.scalar.Scalar",
        "tensor": {"shape": {}, "dtype": dtype, "encoding": "none", **_optional(optional)},
    }


def _tensor(
    shape: FeatureShape, dtype: str, *, encoding: str = "none", optional: bool = False
) -> dict[str, Any]:
    dimensions = ["-1" if dim is None else str(dim) for dim in shape]
    return {
        "pythonClassName": f"{_FEATURES}.tensor_feature.Tensor",
        "tensor": {
            "shape": {"dimensions": dimensions} if dimensions else {},
            "dtype": dtype,
            "encoding": encoding,
            **_optional(optional),
        },
    }


def _optional(optional: bool) -> dict[str, bool]:
    return {"optional": True} if optional else {}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
