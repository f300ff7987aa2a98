"""Writing the features of a `features.json`.

Checked with TFDS 4.9.10 (`core/features/feature.py`, `core/example_parser.py`).

| feature                                     | becomes                                            |
|---------------------------------------------|----------------------------------------------------|
| an encoded image that TFDS decodes          | Image                                              |
| `list`, scalar, with names of classes       | ClassLabel                                         |
| `list`, any other scalar                    | Scalar                                             |
| `list`, any other shape                     | Tensor; an unknown dimension is -1                 |
| `raw`, always present, at most one unknown  | Tensor with encoding `bytes`                       |
| `tensor`, and any other `raw`               | a string Scalar that holds the bytes as stored     |
| ragged, several unknown                     | Sequences in one another                           |
| any other ragged, sparse                    | a FeaturesDict of the lists that it is stored as   |

A feature that a row may lack is `optional`; TFDS fills it with the least value of its dtype. One of
unknown length needs no mark: absent, it is empty.
"""

from __future__ import annotations

from typing import Any, Final

from ...domain.feature import Feature, FeatureShape, stored_features
from ...domain.meaning import ImageContent

FEATURES: Final = "tensorflow_datasets.core.features"

#: TFDS decodes `bytes` with `tf.io.decode_raw`, which has no uint32.
_NOT_RAW: Final = frozenset({"uint32"})
#: TFDS has no default for an optional bfloat16 and overflows on float64; a FloatList holds float32.
#: The formats of images that TFDS decodes to one frame, and those that it encodes; None is any.
_DECODED: Final = (None, "jpeg", "png", "bmp")
_ENCODED: Final = ("jpeg", "png")
_OPTIONAL_AS_FLOAT32: Final = frozenset({"bfloat16", "float64"})


def features_content(feature: Feature, note: str | None) -> dict[str, Any]:
    """How TFDS parses one feature: a `tensorflow_datasets.Feature` as JSON.

    Args:
        feature: not a `sequence`, which TFDS does not read.
        note: a description to go with it.
    """
    content = _feature(feature)
    return content if note is None else {**content, "description": note}


def _feature(feature: Feature) -> dict[str, Any]:
    if feature.kind == "ragged" and _is_nested_sequence(feature):
        return _nested_sequence(feature)
    if feature.kind != "dense":
        return _components(feature)
    if feature.encoding == "list":
        return _describe_list(feature)
    if (
        feature.encoding == "raw"
        and not feature.nullable
        and feature.num_unknown <= 1
        and feature.dtype.name not in _NOT_RAW
    ):
        return _tensor(feature.shape, feature.dtype.name, encoding="bytes")
    return _scalar("string", optional=feature.nullable)


def is_class_label(feature: Feature) -> bool:
    """Whether TFDS is told the names of its values."""
    is_one = feature.kind == "dense" and feature.is_scalar and feature.encoding == "list"
    return is_one and not feature.nullable and bool(feature.meaning.class_names)


def _image(image: ImageContent) -> dict[str, Any]:
    # Of unknown channels, TFDS takes no format.
    encoding = {} if image.format not in _ENCODED or not image.shape[2] else {"encodingFormat": image.format}
    dimensions = ["-1" if dim is None else str(dim) for dim in image.shape]
    return {
        "pythonClassName": f"{FEATURES}.image_feature.Image",
        "image": {"shape": {"dimensions": dimensions}, "dtype": "uint8", **encoding},
    }


def _class_label(num_classes: int) -> dict[str, Any]:
    return {
        "pythonClassName": f"{FEATURES}.class_label_feature.ClassLabel",
        "classLabel": {"numClasses": str(num_classes)},
    }


def _describe_list(feature: Feature) -> dict[str, Any]:
    image = feature.meaning.image
    if image is not None and not feature.nullable and image.format in _DECODED and image.shape[2] != 2:
        return _image(image)
    if is_class_label(feature):
        return _class_label(len(feature.meaning.class_names))
    dtype = "string" if feature.dtype.is_string else feature.dtype.name
    optional = feature.nullable and feature.num_unknown == 0
    if optional and dtype in _OPTIONAL_AS_FLOAT32:
        dtype = "float32"
    if feature.is_scalar:
        return _scalar(dtype, optional=optional)
    return _tensor(feature.shape, dtype, optional=optional)


def _is_nested_sequence(feature: Feature) -> bool:
    """Whether TFDS can read the components as nested Sequences: it takes one unknown dimension for none."""
    return feature.num_unknown > 1


def _nested_sequence(feature: Feature) -> dict[str, Any]:
    dtype = "string" if feature.dtype.is_string else feature.dtype.name
    nested = _tensor(feature.inner_shape, dtype) if feature.inner_shape else _scalar(dtype, optional=False)
    for dim in reversed(feature.shape[: feature.num_partitions + 1]):
        nested = {
            "pythonClassName": f"{FEATURES}.sequence_feature.Sequence",
            "sequence": {"feature": nested, "length": "-1" if dim is None else str(dim)},
        }
    return nested


def _components(feature: Feature) -> dict[str, Any]:
    """The lists that the feature is stored as, in a dictionary of its own."""
    prefix = f"{feature.name}/"
    return {
        "pythonClassName": f"{FEATURES}.features_dict.FeaturesDict",
        "featuresDict": {
            "features": {
                component.name.removeprefix(prefix): _describe_list(component)
                for component in stored_features(feature)
            }
        },
    }


def _scalar(dtype: str, *, optional: bool) -> dict[str, Any]:
    return {
        "pythonClassName": f"{FEATURES}.scalar.Scalar",
        "tensor": {"shape": {}, "dtype": dtype, "encoding": "none", **_optional(optional)},
    }


def _tensor(
    shape: FeatureShape, dtype: str, *, encoding: str = "none", optional: bool = False
) -> dict[str, Any]:
    dimensions = ["-1" if dim is None else str(dim) for dim in shape]
    return {
        "pythonClassName": f"{FEATURES}.tensor_feature.Tensor",
        "tensor": {
            "shape": {"dimensions": dimensions} if dimensions else {},
            "dtype": dtype,
            "encoding": encoding,
            **_optional(optional),
        },
    }


def _optional(optional: bool) -> dict[str, bool]:
    return {"optional": True} if optional else {}
