"""What can be wrong with the source of an import."""

from __future__ import annotations

from ..domain.import_ranges import SourceObject
from ..domain.urls import hide_secrets
from ..errors import InputError, UnprocessableInput


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
