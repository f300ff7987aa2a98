"""Templates become answers. What they are given is escaped; a name that they are not given is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.types import Scope

from ... import __version__
from ...domain.wording import count_text, printable, size_text
from ..auth.principal import principal_of
from ..execution.job import Answer, Job
from .assets import asset_path

HTML: Final = "text/html; charset=utf-8"
#: Control characters, and those that turn text or end its lines; what strangers wrote may have any of them.
_STEERING: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_TEMPLATES: Final = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the pages, as the navigation has it."""

    name: str
    title: str
    path: str


#: What the navigation offers, in order.
SECTIONS: Final = (
    Section("datasets", "Datasets", "/ui"),
    Section("live", "Live", "/ui/live"),
    Section("file", "Look at a file", "/ui/file"),
)


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {"size": size_text, "number": "{:,}".format, "count_of": count_text}
    return found


def render(template: str, scope: Scope, values: Mapping[str, Any]) -> bytes:
    """A page, for the request with this ASGI scope.

    `root` is the prefix that a proxy has put in front of all paths.
    """
    root = scope.get("root_path", "")
    principal = principal_of(scope)
    shell = {
        "root": root,
        "asset": lambda name: root + asset_path(name),
        "sections": SECTIONS,
        "section": "",
        "release": __version__,
        "caller": None if principal is None else principal.name,
    }
    text = _environment().get_template(template).render({**shell, **values})
    return _STEERING.sub(lambda found: printable(found[0]), text).encode("utf-8", "replace")


def page(template: str, job: Job, values: Mapping[str, Any]) -> Answer:
    """The answer that is a page. Not to be kept: it may be of somebody's token, and of a moment."""
    return Answer(HTML, iter([render(template, job.request.scope, values)]), {"Cache-Control": "no-store"})
