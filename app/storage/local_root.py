"""The folder behind a local store, and whether a key stays inside it.

obstore's LocalStore follows symbolic links wherever they lead, so a link in the root could lead a reader out
of it. Each operation is checked. Someone who can write into the folder while an operation runs is trusted,
since they could replace the data itself.
"""

from __future__ import annotations

import contextlib
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Final

from ..errors import StorageError, StorageUnavailable

#: How obstore names a file that it is still writing; its list leaves out such names.
_UNFINISHED: Final = re.compile(r"#\d+$")


class LocalRoot:
    """The folder, created if it is missing.

    Raises:
        StorageUnavailable: it cannot be created.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
            self.path = path.resolve(strict=True)
        except OSError as error:
            raise StorageUnavailable(
                f"The storage folder {path} cannot be created: {error.strerror}."
            ) from error

    def contains(self, key: str) -> bool:
        """Whether `key`, with every symbolic link on its way resolved, lies in this folder."""
        resolved = os.path.realpath(self.path / key)
        return resolved == str(self.path) or resolved.startswith(f"{self.path}{os.sep}")

    def check(self, key: str) -> None:
        """Refuse a key that a symbolic link leads out of this folder.

        Raises:
            StorageError: it does (`outside_storage_root`).
        """
        if not self.contains(key):
            raise StorageError(
                f"{key} leads out of the storage folder by a symbolic link.", code="outside_storage_root"
            )

    def read_into(self, key: str, offset: int, target: memoryview) -> int:
        """Fill `target` from `offset` of the file `key`, and return how many bytes there were.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: the file cannot be read.
        """
        filled = 0
        try:
            with (self.path / key).open("rb", buffering=0) as file:
                file.seek(offset)
                while taken := file.readinto(target[filled:]):
                    filled += taken
        except (IsADirectoryError, NotADirectoryError) as error:
            raise FileNotFoundError(key) from error
        return filled

    def remove_unfinished(self, prefix: str, before: datetime) -> int:
        """Remove files below the folder `prefix` that a killed process was writing, and count them.

        One that was last written to since `before` may still be at work and stays. Symbolic links
        are neither followed nor removed.

        Raises:
            StorageError: `prefix` leads out of this folder (`outside_storage_root`).
        """
        self.check(prefix)
        removed = 0
        for folder, _, names in os.walk(self.path / prefix):
            for path in (Path(folder, name) for name in names if _UNFINISHED.search(name)):
                with contextlib.suppress(FileNotFoundError):  # finished, or removed by another process
                    if not path.is_symlink() and path.lstat().st_mtime < before.timestamp():
                        path.unlink()
                        removed += 1
        return removed
