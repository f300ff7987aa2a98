"""`shardsmith doctor`: whether everything is there that a service or a command needs."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import click

from .. import __version__
from ..codecs import kernels
from ..codecs.kernels import cache
from ..domain.limits import MIB
from ..domain.urls import hide_secrets
from ..errors import CannotStart, ShardsmithError
from ..local import url_of
from ..resources import available_memory, available_processors, memory_for_requests
from ..settings import Settings, read_settings, refuse_unknown
from ..storage.obstore_store import open_store
from ..storage.probe import probe_store
from .reading import Given
from .screen.terminal import printable, size_text
from .sources import Run

_PACKAGES: Final = (
    "numpy",
    "pyarrow",
    "numba",
    "obstore",
    "pillow",
    "simplejpeg",
    "pydantic",
    "fastapi",
    "uvicorn",
)
_EXTRAS: Final = ("botocore", "opentelemetry-sdk", "tensorflow")


def doctor(*, as_json: bool, given: Given) -> bool:
    """Look at everything, and say what was found; whether all of it is well."""
    checks: dict[str, tuple[bool, str]] = {}

    def check(name: str, look: Callable[[], str]) -> None:
        try:
            checks[name] = True, look()
        except (ShardsmithError, CannotStart, OSError, click.ClickException) as error:
            detail = (
                error.message
                if isinstance(error, click.ClickException)
                else getattr(error, "detail", str(error))
            )
            checks[name] = False, detail
        if not as_json:
            ok, said = checks[name]
            click.echo(printable(f"{'ok  ' if ok else 'FAIL'}  {name}: {said}"))

    check("versions", _versions)
    check("machine", _machine)
    check("settings", _settings)
    if given.get("url"):
        check("service", lambda: _service(given))
    else:
        check("memory", _memory)
        check("spool", _spool)
        check("storage", lambda: _storage(given))
    check("kernels", _kernels)
    if as_json:
        click.echo(json.dumps({name: {"ok": ok, "detail": said} for name, (ok, said) in checks.items()}))
    return all(ok for ok, _ in checks.values())


def _versions() -> str:
    found = [f"shardsmith {__version__}", f"Python {platform.python_version()}"]
    for name in (*_PACKAGES, *_EXTRAS):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            if name in _PACKAGES:
                raise CannotStart(f"The package {name} is not installed. Install shardsmith again.") from None
    return ", ".join(found)


def _machine() -> str:
    processors, memory = available_processors(), size_text(available_memory())
    return f"{sys.platform} {platform.machine()}, {processors} processors, {memory} of memory"


def _settings() -> str:
    refuse_unknown(os.environ)
    settings = read_settings()
    given = sorted(f"SHARDSMITH_{name.upper()}" for name in settings.model_fields_set)
    return f"{', '.join(given)} set, all others at their defaults" if given else "all at their defaults"


def _memory() -> str:
    settings = read_settings()
    return f"{size_text(settings.memory_bytes or memory_for_requests(workers=settings.workers))} for requests"


def _spool() -> str:
    run = Run()
    run.spool.check()
    folder = run.settings.spool_dir or "the system's folder for temporary files"
    return f"{folder} can be written, {size_text(run.spool.max_bytes)} at most"


def _storage(given: Given) -> str:
    url = _storage_url(read_settings(), given)
    shown = hide_secrets(url)
    if url.startswith("file://./") and not Path(url.removeprefix("file://")).exists():
        return f"{shown} is not there yet, and is made when it is first used"
    began = time.monotonic()
    probe_store(open_store(url))
    return f"{shown} takes writes and keeps creates apart ({time.monotonic() - began:.2f} s)"


def _storage_url(settings: Settings, given: Given) -> str:
    data: str | None = given.get("data")
    return settings.storage_url if data is None else url_of(data)


def _service(given: Given) -> str:
    from .http_client import Service

    with ExitStack() as resources:
        service = Service(given["url"], given.get("token_file"), resources)
        began = time.monotonic()
        answer = service.get_outside("/readyz")
        document = b"".join(answer.pieces())[:MIB].decode("utf-8", "replace").strip()
        if answer.status != 200:
            raise CannotStart(f"{hide_secrets(given['url'])} is not ready: {document}")
        names = service.dataset_names()
        took = time.monotonic() - began
        return f"{hide_secrets(given['url'])} is ready, and shows {len(names)} datasets ({took:.2f} s)"


def _kernels() -> str:
    folder = cache.writable_folder()
    began = time.monotonic()
    kernels.compile_all()
    return f"ready after {time.monotonic() - began:.1f} s, kept in {folder or 'memory alone'}"
