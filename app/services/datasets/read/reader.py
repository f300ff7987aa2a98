"""Reading what was published: manifests, files, rows. Nothing here lists or writes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from hashlib import sha256

from ....domain.manifest import Manifest
from ....domain.names import check_file_name, check_split_name, parse_version
from ....errors import Conflict, CorruptData, NotFound
from ....storage.object_store import ObjectNotFound, exists
from ..objects.dataset import Dataset
from ..objects.dataset_info import dataset_info
from ..objects.layout import DATASET_INFO, MANIFEST, media_type
from ..objects.stored_json import dump_json, open_json, read_again
from ..pieces.pieces import SplitPieces
from ..pieces.run_ahead import map_in
from .stored_file import StoredFile
from .stored_split import StoredSplit
from .tar import VersionTar, tar_members


class Reader:
    """Reads the published versions of one incarnation of a dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self._store = dataset.store
        self._layout = dataset.layout
        self._description = dataset.options.description
        self._known_splits = dataset.decided.splits
        self._log = dataset.log
        self._pool = dataset.pool

    def latest(self) -> int:
        """The number of the last published version, 0 where there is none."""
        return self._log.newest_published(self._log.newest())

    def versions(self) -> list[str]:
        """Every published version, oldest first."""
        manifests = map_in(self._pool, self.read_published, range(1, self._log.newest() + 1))
        return [manifest.version for manifest in manifests if manifest is not None]

    def manifest(self, version: str) -> Manifest:
        """The manifest of `version`, which may be `latest`.

        Raises:
            NotFound: no such version is published (`version_not_found`).
        """
        return self.find(version)[1]

    def fate_of(self, append_id: str, nonce: str) -> tuple[str, bool] | None:
        """The version that consumed the append with this slot, and whether without its rows; or None."""
        fate = self._log.seen(self.latest()).appends.get(append_id)
        if fate is None or not fate.is_of(nonce):
            return None
        return str(self._layout.version(fate.n)), fate.excluded

    def newest_with(self, append_ids: Iterable[str]) -> str | None:
        """The last version that has published one of these appends; None where none is known to."""
        fates = self._log.seen(self.latest()).appends
        found = [fates[append_id] for append_id in append_ids if append_id in fates]
        numbers = [fate.n for fate in found if not fate.excluded]
        return str(self._layout.version(max(numbers))) if numbers else None

    def has_consumed(self, append_id: str) -> bool:
        """Whether a published version has consumed an append with this id."""
        return append_id in self._log.seen(self.latest()).appends

    def deletable(self, version: str) -> int:
        """The number of `version`, which is published and not the last.

        Raises:
            NotFound: no such version is published (`version_not_found`).
            Conflict: it is the last one (`version_is_latest`).
        """
        n, manifest = self.find(version)
        if n >= self.latest():
            raise Conflict(
                f"Version {manifest.version} is the latest of dataset {self._layout.dataset!r}. Publish "
                f"another before it is deleted, or delete the dataset.",
                code="version_is_latest",
            )
        return n

    def open_file(self, version: str, name: str) -> StoredFile:
        """A file that the manifest names.

        Raises:
            NotFound: it does not (`file_not_found`, `version_not_found`).
            CorruptData: the store does not have it as the manifest says.
        """
        check_file_name(name)
        n, manifest = self.find(version)
        entry = manifest.by_file.get(name)
        if entry is None:
            raise NotFound(f"Version {manifest.version} has no file {name!r}.", code="file_not_found")
        key = self._layout.file(n, name)
        try:
            size = self._store.head(key).size
        except ObjectNotFound as error:
            if name == DATASET_INFO:  # written last; its publisher may have died before
                raise NotFound(f"{name} is not written yet.", code="file_not_found") from error
            raise CorruptData(f"{key} is missing.") from error
        if size != entry.num_bytes:
            raise CorruptData(f"{key} has {size} bytes instead of the {entry.num_bytes} on record.")
        return StoredFile(entry.num_bytes, entry.sha256, media_type(name), self._store, key)

    def open_tar(self, version: str) -> VersionTar:
        """All files of a version as one tar.

        Raises:
            NotFound: no such version is published (`version_not_found`).
        """
        n, manifest = self.find(version)
        key = self._layout.manifest(n)
        stored = read_again(lambda: open_json(self._store.get(key), key))
        # Who published it is no part of the version: published again, it is the same tar.
        known = {MANIFEST: dump_json({name: value for name, value in stored.items() if name != "nonce"})}
        # Written last; its publisher may have died before.
        info = dataset_info(manifest, self._description)
        entry = manifest.by_file.get(DATASET_INFO)
        if entry is not None and entry.sha256 == sha256(info).hexdigest():
            known[DATASET_INFO] = info
        return VersionTar(self._store, tar_members(manifest, known))

    def open_split(self, version: str, split: str) -> StoredSplit:
        """The rows of a split.

        Raises:
            NotFound: no such version or split (`split_not_found`).
        """
        check_split_name(split)
        n, manifest = self.find(version)
        entry = manifest.splits.get(split)
        if entry is None:
            raise NotFound(f"Version {manifest.version} has no split {split!r}.", code="split_not_found")
        pieces = partial(self._pieces, n, manifest, split)
        return StoredSplit(manifest.schema, entry.num_records, pieces, self._store, self._pool)

    def _pieces(self, n: int, manifest: Manifest, split: str) -> SplitPieces:
        kept, name = self._known_splits, (self._layout.manifest(n), split)
        if (known := kept.get(name)) is not None:
            return known
        pieces = self._log.pieces(n, manifest, split)
        return kept.put(name, SplitPieces(pieces), len(pieces))

    def find(self, version: str) -> tuple[int, Manifest]:
        """The number and the manifest of `version`, which may be `latest`.

        Raises:
            NotFound: no such version is published (`version_not_found`).
        """
        n = self.latest() if version == "latest" else self._number(version)
        # The last published version is never deleted.
        manifest = self._log.verdict(n) if version == "latest" and n else self.read_published(n)
        if not isinstance(manifest, Manifest):
            raise NotFound(
                f"Dataset {self._layout.dataset!r} has no published version {version!r}.",
                code="version_not_found",
            )
        return n, manifest

    def _number(self, version: str) -> int:
        """The number of the plan that can have published `version`, 0 where none can."""
        return self._layout.number(parse_version(version))

    def read_published(self, n: int) -> Manifest | None:
        """The manifest of plan `n`; None where it did not become a version, or that was deleted."""
        verdict = self._log.verdict(n) if n else None
        if not isinstance(verdict, Manifest) or exists(self._store, self._layout.deleted(n)):
            return None
        return verdict
