"""Which names are allowed: strict ASCII, so that a name is one path segment on every store.

Names come from URLs. What passes here contains no slash, dot-dot, backslash, percent sign, control
character or look-alike letter, and does not begin with an underscore: those are the service's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ..errors import MalformedInput, UnprocessableInput

#: TFDS 4.9.10 loads such names with `builder_from_directory`, hyphens and leading digits included.
_DATASET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
#: TFDS splits instructions at dots and brackets, so a split's name has none.
_SPLIT: Final = _DATASET
_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}", re.ASCII)
_APPEND_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_KEY: Final = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
_NUMBER: Final = r"(0|[1-9][0-9]{0,8})"
_VERSION: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """`x.y.z`: x counts the incarnations of a dataset, y its publications."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def check_dataset_name(name: str) -> str:
    """`name`, if it can name a dataset.

    Raises:
        MalformedInput: it cannot (`invalid_dataset_name`).
    """
    return _match(
        _DATASET,
        name,
        "invalid_dataset_name",
        "A dataset's name is 1 to 64 of A-Z a-z 0-9 _ -, beginning with a letter or digit",
    )


def check_split_name(name: str) -> str:
    """`name`, if it can name a split.

    Raises:
        MalformedInput: it cannot (`invalid_split_name`).
        UnprocessableInput: TFDS reads it as something else (`reserved_split_name`).
    """
    if name == "all":
        raise UnprocessableInput(
            "A split cannot be called 'all': TFDS reads that as every split together. Use another name.",
            code="reserved_split_name",
        )
    return _match(
        _SPLIT,
        name,
        "invalid_split_name",
        "A split's name is 1 to 64 of A-Z a-z 0-9 _ -, beginning with a letter or digit",
    )


def parse_version(text: str) -> Version:
    """The version that `x.y.z` stands for.

    Raises:
        MalformedInput: not of that form (`invalid_version`).
    """
    _match(_VERSION, text, "invalid_version", "A version is 'latest' or x.y.z, as in 1.0.0")
    return Version(*map(int, text.split(".")))


def check_file_name(name: str) -> str:
    """`name`, if it can name a file of a version.

    Raises:
        MalformedInput: it cannot (`invalid_file_name`).
    """
    return _match(_FILE, name, "invalid_file_name", "A file's name is 1 to 255 of A-Z a-z 0-9 . _ -")


def is_append_id(text: str) -> bool:
    """Whether `text` has the form of an append's id."""
    return _APPEND_ID.fullmatch(text) is not None


def check_append_id(text: str) -> str:
    """`text`, if it can be the id of an append.

    Raises:
        MalformedInput: it cannot (`invalid_append_id`).
    """
    return _match(_APPEND_ID, text, "invalid_append_id", "An append's id is 32 hexadecimal digits")


def check_idempotency_key(text: str) -> str:
    """An idempotency key, without the quotes that structured fields put around it.

    Raises:
        MalformedInput: it cannot be one (`invalid_idempotency_key`).
    """
    quoted = len(text) >= 2 and text[0] == text[-1] == '"'
    return _match(
        _KEY,
        text[1:-1] if quoted else text,
        "invalid_idempotency_key",
        "An idempotency key is 1 to 128 of A-Z a-z 0-9 . _ -",
    )


def _match(pattern: re.Pattern[str], text: str, code: str, rule: str) -> str:
    if pattern.fullmatch(text) is None:
        raise MalformedInput(f"{rule}; got {text[:80]!a}.", code=code)
    return text
