"""Reading a published version as TensorFlow does: with its reader, by the loader made from the schema."""

from __future__ import annotations

from typing import Final

from ....codecs.schemas.python_source import serialize_python
from ....domain.limits import MIB
from ....domain.manifest import Manifest
from ....runtime.budget import Budget
from ....transforms.tensorflow_reader import TensorFlowReader
from ..objects.dataset import Dataset
from .problems import Problems, ValidationReport
from .range_stream import open_checked

#: What TensorFlow's process takes; and of a shard, 4 ranges of 4 MiB each (`range_stream.py`), one copied.
_BYTES: Final = (700 + 20) * MIB


def check_with_tensorflow(dataset: Dataset, n: int, manifest: Manifest, budget: Budget) -> ValidationReport:
    """Have TensorFlow read and parse every record of version `n`.

    Raises:
        Overloaded: no memory for it, or TensorFlow reads another version.
        SpoolFull, SpoolUnavailable: no room for a shard on the local disk.
        StorageError: the store failed, so that nothing can be said.
        StreamInterrupted: the client has left.
        UnprocessableInput: TensorFlow is not installed, or does not come to an end.
    """
    problems = Problems()
    budget.reserve(_BYTES)
    num_records = num_bytes = num_shards = 0
    with TensorFlowReader(serialize_python(manifest.schema), manifest.compression, dataset.spool) as reader:
        for split in manifest.splits.values():
            for entry in split.shards:
                budget.require_not_given_up()
                num_shards += 1
                key = dataset.layout.file(n, entry.file)
                stream = open_checked(dataset.store, key, entry, dataset.pool, problems)
                if stream is None:
                    continue
                try:
                    reading = reader.read(stream, entry.file)
                finally:
                    stream.close()
                num_bytes += stream.size
                num_records += reading.num_records
                if reading.fault is not None:
                    problems.add("tensorflow_fault", entry.file, reading.fault, record=reading.num_records)
                elif reading.num_records != entry.num_records:
                    detail = f"TensorFlow reads {reading.num_records} records instead of {entry.num_records}."
                    problems.add("wrong_count", entry.file, detail)
    return ValidationReport(manifest.version, num_records, num_bytes, num_shards, problems)
