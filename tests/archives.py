"""Archives of files, as Python's own libraries write and read them."""

import io
import tarfile
import warnings
import zipfile
from typing import Any

import numpy as np

File = tuple[str, bytes]


def tar_of(*files: File, layout: int = tarfile.PAX_FORMAT, **members: Any) -> bytes:
    """A tar archive of the files; `members` are those of `tarfile.TarInfo`, of all of them."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=layout) as archive:
        for name, content in files:
            archive.addfile(info_of(name, content, **members), io.BytesIO(content))
    return out.getvalue()


def info_of(name: str, content: bytes = b"", **members: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for member, value in members.items():
        setattr(info, member, value)
    return info


def header_of(name: str, size: int = 0, **members: Any) -> bytes:
    """The header alone of a file that claims to have `size` bytes."""
    return info_of(name, **{"size": size, **members}).tobuf(tarfile.GNU_FORMAT)


def files_of(archive: bytes) -> list[File]:
    """The files of a tar archive, in order."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        found = [(info.name, opened.extractfile(info)) for info in opened]
        return [(name, content.read() if content else b"") for name, content in found]


def zip_of(*files: File, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A ZIP archive of the files."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        warnings.simplefilter("ignore")  # a name that stands twice
        for name, content in files:
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, method)
    return out.getvalue()


def npy_of(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, np.asarray(array))
    return out.getvalue()
