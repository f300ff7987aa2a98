"""Ready lines that load a published version: a download, tf.data, TFDS, and Python without anything else.

Each piece of Python leaves the rows of one split in `rows`. Those for TensorFlow read what the download
made, from the folder in which it was run. None of them takes for whole what a broken connection cut
short: the download fails unless the last file of the tar is there, and Python counts rows, since
urllib ends without an error where an answer breaks off between two lines. Names of datasets, splits
and files are plain ASCII without quotes (`domain.names`), so that none can be code.
"""

from __future__ import annotations

import json
from typing import Final

from ...codecs.schemas.python_source import serialize_python
from ...codecs.schemas.torch_source import serialize_torch
from ...domain.compression import Compression
from ...domain.manifest import Manifest
from ...errors import InputError
from ...services.datasets.objects.layout import DATASET_INFO, MANIFEST

_DOWNLOAD: Final = "curl -fsS '{url}/tar' | tar x && test -e '{folder}/{last}'\n"
_TFDS: Final = """\
import tensorflow_datasets as tfds

rows = tfds.builder_from_directory("{folder}").as_dataset(split="{split}")
"""
_PYTHON: Final = '''\
import json
import urllib.request

num_records = {num_records}


def load(split):
    """The rows of a split, one after the other, as they come."""
    missing = num_records[split]
    with urllib.request.urlopen(f"{url}/records?split={{split}}") as answer:
        for line in answer:
            missing -= 1
            yield json.loads(line)
    if missing:
        raise EOFError(f"The connection broke: {{missing}} rows are missing.")


rows = load("{split}")
'''
#: What `tf.data.TFRecordDataset` calls them.
_COMPRESSION_TYPES: Final[dict[Compression, str]] = {"gzip": "GZIP", "zlib": "ZLIB"}


def loader_lines(manifest: Manifest, base_url: str) -> dict[str, str]:
    """The lines, by what they are for.

    `tfds` is left out where TFDS cannot read the version; of a version without records there is no more
    than the download.

    Args:
        base_url: of the service, `http://host:port`, without a quote or anything else that is not of a URL.
    """
    folder = f"{manifest.dataset}/{manifest.version}"
    url = f"{base_url}/v1/datasets/{manifest.dataset}/versions/{manifest.version}"
    lines = {"download": _DOWNLOAD.format(url=url, folder=folder, last=MANIFEST)}
    num_records = {name: split.num_records for name, split in manifest.splits.items()}
    filled = [name for name, count in num_records.items() if count]
    if not filled:
        return lines
    split = _split_to_read(filled)
    lines["tf.data"] = serialize_python(manifest.schema).decode() + _use(manifest, split)
    if DATASET_INFO in manifest.by_file:
        lines["tfds"] = _TFDS.format(folder=folder, split=split)
    lines["python"] = _PYTHON.format(url=url, split=split, num_records=json.dumps(num_records))
    return lines


def torch_lines(manifest: Manifest) -> str | None:
    """Those for PyTorch, which read what the download made; None where there are none.

    They are long, because they need no other library, and so they are no part of answers.
    """
    filled = [name for name, split in manifest.splits.items() if split.num_records]
    if not filled:
        return None
    try:
        source = serialize_torch(manifest.schema).decode()
    except InputError:
        return None
    return source + _use(manifest, _split_to_read(filled))


def _split_to_read(filled: list[str]) -> str:
    return "train" if "train" in filled else filled[0]


def _use(manifest: Manifest, split: str) -> str:
    """The line behind source that has a `load` for TFRecord files."""
    pattern = f"{manifest.dataset}/{manifest.version}/{manifest.dataset}-{split}.tfrecord-*"
    compression = _COMPRESSION_TYPES.get(manifest.compression)
    options = "" if compression is None else f', compression_type="{compression}"'
    return f'\n\nrows = load("{pattern}"{options})\n'
