"""TFDS's own description of a dataset: `features.json` and `dataset_info.json`.

With both beside the shards, `tfds.builder_from_directory(folder)` loads a version without code.
Checked with TFDS 4.9.10 (`core/features/feature.py`, `core/proto/dataset_info.proto`), which
refuses unknown members in dataset_info.json and reads missing shardLengths as no rows at all.

features_write.py and features_read.py say what becomes of each feature. With the notes (note.py), which stand
in the `description` of a feature, every schema of Examples comes back as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...domain.feature import Feature
from ...domain.limits import Limits
from ...domain.schema import Schema
from ...errors import UnprocessableInput
from .features_read import notes, plain_features
from .features_write import FEATURES, features_content, is_class_label
from .note import comes_back, format_note, schema_with_notes

#: Names of files that every store and every file system takes.
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_LINE_END: Final = re.compile(r"[\r\n]")


def serialize_features(schema: Schema) -> bytes:
    """`features.json`: how TFDS parses each record.

    Raises:
        UnprocessableInput: rows are SequenceExamples, which TFDS does not read (`inexpressible_schema`).
    """
    if schema.message != "example":
        raise UnprocessableInput(
            "TensorFlow Datasets reads no SequenceExamples, so there is no features.json for them. "
            "Ask for schema.pbtxt.",
            code="inexpressible_schema",
        )
    return _json(_features_dict({feature.name: _add_note(feature) for feature in schema}))


def parse_features(value: Mapping[str, Any], limits: Limits | None = None) -> Schema:
    """The schema that a `features.json`, parsed, describes.

    Raises:
        MalformedInput: not of its form (`invalid_schema`).
        UnprocessableInput: a feature that no row of ours can have, by name and class; a description of
            ours that does not fit the feature that it stands at (`schema_note`).
    """
    return schema_with_notes(plain_features(value), notes(value), _without_note, limits or Limits())


def _add_note(feature: Feature) -> dict[str, Any]:
    is_whole = comes_back(_without_note(feature), feature)
    return features_content(feature, None if is_whole else format_note(feature))


def _without_note(feature: Feature) -> list[Feature]:
    if feature.kind == "sequence":
        return []
    return plain_features(_features_dict({feature.name: features_content(feature, None)}))


def _features_dict(features: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": f"{FEATURES}.features_dict.FeaturesDict",
        "proto_cls": "tensorflow_datasets.FeaturesDict",
        "content": {"features": features},
    }


def class_files(schema: Schema) -> dict[str, bytes]:
    """The files in which TFDS keeps the names of classes, by name, for the features that are a ClassLabel.

    TFDS takes no names that are empty or have spaces around them: a feature with such ones has no file, and
    neither has one whose own name is no name of a file.
    """
    files: dict[str, bytes] = {}
    for feature in schema:
        names = feature.meaning.class_names
        file = f"{feature.name.replace('/', '.')}.labels.txt"
        is_listed = all(name and name == name.strip() and not _LINE_END.search(name) for name in names)
        if is_class_label(feature) and is_listed and _FILE_NAME.fullmatch(file):
            files.setdefault(file, "".join(f"{name}\n" for name in names).encode())
    return files


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


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
