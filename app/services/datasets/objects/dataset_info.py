"""TFDS's dataset_info.json of a version: its bytes follow from the manifest and the dataset's description."""

from __future__ import annotations

from ....codecs.schemas.features_json import serialize_dataset_info
from ....domain.manifest import Manifest


def dataset_info(manifest: Manifest, description: str) -> bytes:
    """The file. Its own entry in the manifest, and those of other side files, do not count."""
    return serialize_dataset_info(
        manifest.dataset,
        manifest.version,
        {name: [shard.num_records for shard in split.shards] for name, split in manifest.splits.items()},
        {name: split.num_bytes for name, split in manifest.splits.items()},
        description,
    )
