"""Ready lines that load a published version: a download, tf.data, TFDS, and Python without anything else.

Each piece of Python leaves the rows of one split in `rows`. Those for TensorFlow read what the download
made, from the folder in which it was run. Names of datasets, splits and files are plain ASCII without
quotes (`domain.names`), so that none can be code.
"""

from __future__ import annotations

from typing import Final

from ..codecs.schemas.python_source import serialize_python
from ..domain.compression import Compression
from ..domain.manifest import Manifest
from .dataset.layout import DATASET_INFO

__all__ = ["loader_lines"]

_DOWNLOAD: Final = "curl -fsS '{url}/tar' | tar x\n"
_TFDS: Final = """\
import tensorflow_datasets as tfds

rows = tfds.builder_from_directory("{folder}").as_dataset(split="{split}")
"""
_PYTHON: Final = '''\
import json
import urllib.request


def load(split):
    """The rows of a split, one after the other, as they come."""
    with urllib.request.urlopen(f"{url}/records?split={{split}}") as answer:
        yield from map(json.loads, answer)


rows = load("{split}")
'''
#: What `tf.data.TFRecordDataset` calls them.
_COMPRESSION_TYPES: Final[dict[Compression, str]] = {"gzip": "GZIP", "zlib": "ZLIB"}


def loader_lines(manifest: Manifest, base_url: str) -> dict[str, str]:
    """The lines, by what they are for; `tfds` is left out where TFDS cannot read the version.

    Args:
        base_url: of the service, `http://host:port`, without a quote or anything else that is not of a URL.
    """
    folder = f"{manifest.dataset}/{manifest.version}"
    names = {
        "url": f"{base_url}/v1/datasets/{manifest.dataset}/versions/{manifest.version}",
        "folder": folder,
        "split": "train" if "train" in manifest.splits else next(iter(manifest.splits)),
    }
    lines = {"download": _DOWNLOAD.format(**names), "tf.data": _tf_data(manifest, **names)}
    if DATASET_INFO in manifest.by_file:
        lines["tfds"] = _TFDS.format(**names)
    lines["python"] = _PYTHON.format(**names)
    return lines


def _tf_data(manifest: Manifest, *, folder: str, split: str, url: str) -> str:
    del url
    source = serialize_python(manifest.schema).decode()
    pattern = f"{folder}/{manifest.dataset}-{split}.tfrecord-*"
    compression = _COMPRESSION_TYPES.get(manifest.compression)
    options = "" if compression is None else f', compression_type="{compression}"'
    return f'{source}\n\nrows = load("{pattern}"{options})\n'
