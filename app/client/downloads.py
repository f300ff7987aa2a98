"""Files of a version into a folder: several at once, gone on with, verified, renamed once they are whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final

from .connection import Connection, Passing
from .errors import Damaged, Refused
from .transport import Task

_FLUSHED_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class File:
    """A file of a published version.

    Attributes:
        name: without a folder.
        sha256: of its bytes, 64 hex digits.
        split, num_records: of a shard; None for other files.
    """

    name: str
    num_bytes: int
    sha256: str
    split: str | None = None
    num_records: int | None = None


def files_of(manifest: Mapping[str, Any]) -> list[File]:
    """All files that the manifest of a version names: shards with their indexes, then what describes them."""
    files = list(_named(manifest))
    for file in files:
        if file.name != PurePath(file.name).name or file.name in ("", ".", ".."):
            raise Damaged(f"The manifest names a file {file.name!r}, which is no name of one.")
    return files


def _named(manifest: Mapping[str, Any]) -> Iterator[File]:
    for split, found in manifest["splits"].items():
        for shard in found["shards"]:
            yield File(shard["file"], shard["num_bytes"], shard["sha256"], split, shard["num_records"])
            if index := shard.get("index"):
                yield File(index["file"], index["num_bytes"], index["sha256"])
    for file in manifest["files"]:
        yield File(file["file"], file["num_bytes"], file["sha256"])


async def download_files(
    connection: Connection, dataset: str, version: str, files: list[File], folder: Path, at_once: int
) -> None:
    """Get the files that `folder` has not yet.

    Raises:
        Damaged: what came is not what the manifest says; nothing of it is left.
    """

    def task(file: File) -> Task:
        async def get() -> None:
            path = folder / file.name
            if not await connection.transport.aside(lambda: _is(path, file)):
                await _download(connection, dataset, version, file, path)

        return get

    await connection.transport.aside(lambda: folder.mkdir(parents=True, exist_ok=True))
    await connection.transport.gather([task(file) for file in files], at_once)


async def _download(connection: Connection, dataset: str, version: str, file: File, path: Path) -> None:
    part = path.with_name(f"{path.name}.part")
    if part.exists() and part.stat().st_size > file.num_bytes:
        part.unlink()

    async def get_rest() -> None:
        had = part.stat().st_size if part.exists() else 0
        if had == file.num_bytes and file.num_bytes:
            return
        headers = {"Range": f"bytes={had}-", "If-Range": f'"{file.sha256}"'} if had else {}
        segments = ("datasets", dataset, "versions", version, "files", file.name)
        answer = await connection.send("GET", *segments, headers=headers)
        try:
            # Without a range in the answer it is the whole file.
            with part.open("ab" if answer.status == 206 else "wb", buffering=_FLUSHED_BYTES) as written:
                while (piece := await answer.next_piece()) is not None:
                    written.write(piece)
                    if written.tell() > file.num_bytes:
                        break
        finally:
            await answer.close()
        if part.stat().st_size < file.num_bytes:
            raise Passing(f"The answer with {file.name} was cut short.")

    for is_last in (False, True):  # what another program left may not be the beginning of this file
        try:
            await connection.patiently(get_rest)
        except Refused as error:
            if error.status != 416 or is_last:
                raise
        if await connection.transport.aside(lambda: _is(part, file)):
            part.replace(path)
            return
        part.unlink(missing_ok=True)
    raise Damaged(f"{file.name} came twice with other bytes than the manifest says. Nothing of it was kept.")


def _is(path: Path, file: File) -> bool:
    """Whether a file is there, with the bytes that the manifest says."""
    if not path.exists() or path.stat().st_size != file.num_bytes:
        return False
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
