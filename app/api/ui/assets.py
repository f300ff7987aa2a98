"""What the pages load: styles, scripts and the icon. Their URLs have a hash, so that browsers keep them."""

from __future__ import annotations

import mimetypes
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from ...errors import NotFound
from ..operation import Handler, Operation

router = APIRouter(include_in_schema=False, route_class=Operation)

_FOLDER: Final = Path(__file__).parent / "assets"
_FOR_EVER: Final = "public, max-age=31536000, immutable"


@cache
def _read() -> dict[str, tuple[bytes, str]]:
    """The bytes and the tag of each file."""
    files = sorted(path for path in _FOLDER.iterdir() if path.is_file())
    contents = {path.name: path.read_bytes() for path in files}
    return {name: (data, sha256(data).hexdigest()[:16]) for name, data in contents.items()}


def asset_path(name: str) -> str:
    """Where the pages load a file from."""
    return f"/ui/assets/{_read()[name][1]}/{name}"


@router.get("/ui/assets/{tag}/{file}")
@router.head("/ui/assets/{tag}/{file}")
def asset(tag: str, file: str) -> Handler:
    """A file that the pages load. In place of one of another release comes that of this one, not to be kept.

    Raises:
        NotFound: there is no such file.
    """
    found = _read().get(file)
    if found is None:
        raise NotFound(f"The pages have no file {file[:64]!r}.")
    data, current = found
    media_type = mimetypes.guess_type(file)[0] or "application/octet-stream"
    caching = _FOR_EVER if tag == current else "no-cache"

    async def answer(_: Request) -> Response:
        return Response(data, media_type=media_type, headers={"Cache-Control": caching})

    return answer
