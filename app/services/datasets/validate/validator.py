"""Checking a published version: every byte of it, against all that is on record about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from ....codecs.schemas.features_json import serialize_features
from ....codecs.schemas.pbtxt import serialize_pbtxt
from ....domain.limits import MIB
from ....domain.manifest import Manifest
from ....errors import CorruptData
from ....runtime.budget import Budget
from ..objects.dataset import Dataset
from ..objects.dataset_info import dataset_info
from ..objects.fingerprint import FINGERPRINT
from ..objects.layout import DATASET_INFO, FEATURES, INDEX, PBTXT
from ..pieces.pieces import Piece, longest_record
from .problems import Problems, ValidationReport
from .range_stream import open_checked, require_checksum
from .shard_check import ShardCheck

#: Of a shard and of the index beside it, 4 ranges of 4 MiB each (`range_stream.py`); and blocks, decoded.
_BYTES: Final = 40 * MIB
#: A record that takes several pieces is held twice while it is read, and once more decoded.
_HELD: Final = 3


class Validator:
    """Checks the versions of one incarnation of a dataset, in streams, in bounded memory."""

    def __init__(self, dataset: Dataset) -> None:
        self._store = dataset.store
        self._log = dataset.log
        self._layout = dataset.layout
        self._description = dataset.options.description
        self._pool = dataset.pool

    def validate(self, n: int, manifest: Manifest, budget: Budget) -> ValidationReport:
        """Check version `n`.

        Raises:
            Overloaded: no memory for it; nothing was done.
            StorageError: the store failed, so that nothing can be said.
        """
        problems = Problems()
        index = self._index(n, manifest, problems)
        longest = max(map(longest_record, index.values()), default=0)
        budget.reserve(_BYTES + _HELD * longest)
        num_records = num_bytes = num_shards = 0
        for split in manifest.splits.values():
            for entry in split.shards:
                pieces = index.get(entry.file, ())
                check = ShardCheck(entry, pieces, manifest.schema, manifest.compression, problems)
                check.run(self._store, self._layout.folder(n), self._pool)
                num_records += check.num_records
                num_bytes += check.num_bytes
                num_shards += 1
        self._check_side_files(n, manifest, problems)
        return ValidationReport(manifest.version, num_records, num_bytes, num_shards, problems)

    def _index(self, n: int, manifest: Manifest, problems: Problems) -> Mapping[str, Sequence[Piece]]:
        """The pieces of each shard; none where the index cannot be read."""
        try:
            return self._log.index(n, manifest)
        except CorruptData as error:
            problems.add("unreadable_index", INDEX, error.detail)
            return {}

    def _check_side_files(self, n: int, manifest: Manifest, problems: Problems) -> None:
        """Those beside the shards: as on record, and saying what the manifest says."""
        for entry in manifest.files:
            stream = open_checked(self._store, self._layout.file(n, entry.file), entry, self._pool, problems)
            if stream is not None:
                require_checksum(stream, entry, problems)
        if not self._log.plan(n).fingerprint.startswith(FINGERPRINT):
            return  # another release wrote them, in its own form
        for name, data in self._derive_files(manifest).items():
            found = manifest.by_file.get(name)
            if found is not None and found.sha256 != sha256(data).hexdigest():
                problems.add("unexpected_content", name, "The file does not say what the manifest says.")

    def _derive_files(self, manifest: Manifest) -> dict[str, bytes]:
        files = {
            PBTXT: serialize_pbtxt(manifest.schema),
            DATASET_INFO: dataset_info(manifest, self._description),
        }
        if manifest.schema.message == "example":
            files[FEATURES] = serialize_features(manifest.schema)
        return files
