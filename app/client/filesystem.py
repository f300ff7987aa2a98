"""Published files as a file system of fsspec, to be read: `shardsmith://HOST/DATASET/VERSION/SPLIT/SHARD`.

    import fsspec

    with fsspec.open("shardsmith+http://127.0.0.1:8000/flowers/1.0.0/features.json") as file:
        print(file.read())

`shardsmith://` speaks HTTPS, `shardsmith+http://` plain HTTP. Beside the splits of a version lie the files
that describe it. fsspec has to be installed; it finds this module by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from .blocking import Client, Version
from .errors import NotFound

_SCHEMES: Final = {"shardsmith": "https", "shardsmith+http": "http"}

Entry = dict[str, Any]


class ShardsmithFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The published versions of a service. What `latest` is, is looked up once (`invalidate_cache`).

    Args:
        url: of the service; that of the path, where one is given.
        token: as that of `Client`, whose other arguments are taken, too.
    """

    protocol = tuple(_SCHEMES)

    def __init__(self, url: str, token: str | None = None, **options: Any) -> None:
        own = {name: options.pop(name) for name in ("timeout_s", "patience_s", "verify") if name in options}
        super().__init__(**options)
        self.url = url
        self._client = Client(url, token, **own)
        self._versions: dict[tuple[str, str], Version] = {}

    def invalidate_cache(self, path: str | None = None) -> None:
        """Look up anew what `latest` is."""
        self._versions.clear()
        super().invalidate_cache(path)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        scheme, is_url, rest = str(path).partition("://")
        inside = rest.partition("/")[2] if is_url and scheme in _SCHEMES else str(path)
        return inside.strip("/")

    def unstrip_protocol(self, name: str) -> str:
        scheme, _, host = self.url.partition("://")
        [protocol] = [ours for ours, theirs in _SCHEMES.items() if theirs == scheme]
        return f"{protocol}://{host}/{self._strip_protocol(name)}"

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        scheme, is_url, rest = path.partition("://")
        return {"url": f"{_SCHEMES[scheme]}://{rest.partition('/')[0]}"} if is_url else {}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Entry] | list[str]:
        """What is in a folder; of a file itself.

        Raises:
            FileNotFoundError: there is none.
        """
        path = self._strip_protocol(path)
        try:
            entries = self._list(path.split("/") if path else [])
        except NotFound as error:
            raise FileNotFoundError(path) from error
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: Any) -> Entry:
        """Name, type and size; of a file also `sha256`, of a shard `num_records`.

        Raises:
            FileNotFoundError: there is none.
        """
        path = self._strip_protocol(path)
        entries = self.ls(path)
        if len(entries) == 1 and isinstance(entries[0], dict) and entries[0]["name"] == path:
            return entries[0]
        return _folder(path)

    def created(self, path: str) -> Any:
        raise NotImplementedError("The service keeps no times of files.")

    modified = created

    def checksum(self, path: str) -> str:
        """The SHA-256 of a file, as hex digits."""
        digest: str = self.info(path)["sha256"]
        return digest

    def _list(self, parts: list[str]) -> list[Entry]:
        match parts:
            case []:
                return [_folder(name) for name in self._client.datasets()]
            case [dataset]:
                return [_folder(f"{dataset}/{name}") for name in self._client.dataset(dataset).versions()]
            case [dataset, version, *inside]:
                return list(self._list_version(dataset, version, inside))
        raise AssertionError  # all lists match

    def _list_version(self, dataset: str, version: str, inside: list[str]) -> Iterable[Entry]:
        found = self._version(dataset, version)
        splits = found.manifest["splits"]
        files = {}
        for file in found.files():
            folder = f"{file.split}/" if file.split is not None else ""
            files[folder + file.name] = {
                "name": f"{dataset}/{version}/{folder}{file.name}",
                "type": "file",
                "size": file.num_bytes,
                "sha256": file.sha256,
                "num_records": file.num_records,
            }
        where = "/".join(inside)
        if not inside:
            yield from (_folder(f"{dataset}/{version}/{split}") for split in splits)
            yield from (entry for name, entry in files.items() if "/" not in name)
        elif where in splits:
            yield from (entry for name, entry in files.items() if name.startswith(f"{where}/"))
        elif where in files:
            yield files[where]
        else:
            raise FileNotFoundError("/".join([dataset, version, where]))

    def _version(self, dataset: str, version: str) -> Version:
        if (dataset, version) not in self._versions:
            self._versions[dataset, version] = self._client.dataset(dataset).version(version)
        return self._versions[dataset, version]

    def _open(self, path: str, mode: str = "rb", **options: Any) -> _File:
        if mode != "rb":
            raise NotImplementedError("What is published never changes: open it to read.")
        return _File(self, path, *self._find(path), **options)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """The bytes of a file, or of a part of it; negative places count from its end."""
        version, info = self._find(path)
        begin, stop, _step = slice(start, end).indices(info["size"])
        return version.read_file(info["name"].rpartition("/")[2], begin, stop)

    def _find(self, path: str) -> tuple[Version, Entry]:
        """The version that a file belongs to, and what is known of the file."""
        info = self.info(path)
        if info["type"] != "file":
            raise FileNotFoundError(path)
        dataset, version, *_ = info["name"].split("/")
        return self._version(dataset, version), info


class _File(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    def __init__(
        self, fs: ShardsmithFileSystem, path: str, version: Version, info: Entry, **options: Any
    ) -> None:
        self._version = version
        super().__init__(fs, path, "rb", size=info["size"], **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._version.read_file(self.path.rpartition("/")[2], start, end)


def _folder(path: str) -> Entry:
    return {"name": path, "type": "directory", "size": 0}
