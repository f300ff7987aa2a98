"""The objects of a source, and what can be wrong with them."""

from __future__ import annotations

from typing import Final

from ..domain.immutable import immutable
from ..domain.urls import hide_secrets
from ..errors import InputError, UnprocessableInput

#: Of one source.
MAX_OBJECTS: Final = 100_000


@immutable()
class SourceObject:
    """An object of a source as it was listed.

    Attributes:
        name: below the place that the source names, or the URL of an object of a list.
        size: in bytes.
        etag: changes when the object does.
    """

    name: str
    size: int
    etag: str

    @property
    def shown_name(self) -> str:
        """The name; of a URL without what may be a secret."""
        return hide_secrets(self.name) if "://" in self.name else self.name


def path_of(name: str) -> str:
    """The name of an object; of a URL without its query."""
    return name.partition("?")[0] if "://" in name else name


def source_changed(item: SourceObject) -> InputError:
    """An object is no longer what the plan of the import says."""
    return UnprocessableInput(
        f"The object {item.shown_name!r} of the source changed since the import was planned, or is gone. "
        "Put it back as it was, and go on.",
        code="source_changed",
    )


def nothing_at(url: str) -> InputError:
    """The source has no object."""
    return UnprocessableInput(f"There is nothing at {hide_secrets(url)!r}.", code="source_not_found")
