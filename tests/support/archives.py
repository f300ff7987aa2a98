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


def part_of(name: str, content: bytes, filename: bytes | None = None, headers: bytes = b"") -> bytes:
    """A part of a form whose boundary is `b`; `headers` are further ones, each with its line end."""
    of_file = b"" if filename is None else b'; filename="%s"' % filename
    disposition = b'Content-Disposition: form-data; name="%s"%s\r\n' % (name.encode(), of_file)
    return b"--b\r\n" + disposition + headers + b"\r\n" + content + b"\r\n"


def form_of(*parts: str | File | bytes) -> bytes:
    """A form whose boundary is `b`: labels, files, and parts as they are."""
    written = []
    for part in parts:
        if isinstance(part, bytes):
            written.append(part)
        elif isinstance(part, str):
            written.append(part_of("label", part.encode()))
        else:
            written.append(part_of("file", part[1], part[0].encode(), b"Content-Type: image/jpeg\r\n"))
    return b"".join(written) + b"--b--\r\n"
