"""The store as it is, without the service and without faults."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError

__all__ = ["Bucket", "Folder", "RawStore"]


class RawStore(Protocol):
    """What an oracle has to see."""

    def sizes(self) -> Mapping[str, int]:
        """Every object and its size."""
        ...

    def get(self, key: str) -> bytes: ...

    def uploads(self) -> list[str]:
        """Objects whose multipart upload was begun and neither completed nor aborted."""
        ...

    def remove(self) -> None:
        """Delete all there is."""
        ...


class Folder:
    """A local store. What a broken-off write left counts as an upload."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _files(self) -> Iterator[tuple[str, Path]]:
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = Path(folder, name)
                yield path.relative_to(self._root).as_posix(), path

    def sizes(self) -> Mapping[str, int]:
        return {key: path.stat().st_size for key, path in self._files() if "#" not in key}

    def get(self, key: str) -> bytes:
        return (self._root / key).read_bytes()

    def uploads(self) -> list[str]:
        return [key for key, _ in self._files() if "#" in key]

    def remove(self) -> None:
        """Whoever gave the folder removes it."""


class Bucket:
    """A bucket of its own on an S3 store, made here."""

    def __init__(self, endpoint: str, access: str, secret: str, name: str) -> None:
        self._name = name
        self._s3: Any = botocore.session.get_session().create_client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id=access,
            aws_secret_access_key=secret,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}),
        )
        with contextlib.suppress(self._s3.exceptions.BucketAlreadyOwnedByYou):
            self._s3.create_bucket(Bucket=name)

    def sizes(self) -> Mapping[str, int]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._name)
        return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", ())}

    def get(self, key: str) -> bytes:
        content: bytes = self._s3.get_object(Bucket=self._name, Key=key)["Body"].read()
        return content

    def _uploads(self) -> Iterator[Mapping[str, str]]:
        pages = self._s3.get_paginator("list_multipart_uploads").paginate(Bucket=self._name)
        for page in pages:
            yield from page.get("Uploads", ())

    def uploads(self) -> list[str]:
        return [upload["Key"] for upload in self._uploads()]

    def remove(self) -> None:
        for upload in list(self._uploads()):
            with contextlib.suppress(ClientError):
                self._s3.abort_multipart_upload(
                    Bucket=self._name, Key=upload["Key"], UploadId=upload["UploadId"]
                )
        for key in self.sizes():
            self._s3.delete_object(Bucket=self._name, Key=key)
        self._s3.delete_bucket(Bucket=self._name)
