"""An entry of the list: a behaviour, a patch for today's code that breaks it, and the tests that find that.

The behaviour stays: an issue that rebuilds the code writes a new patch under the same id.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Patch:
    """The fault in today's code: in `file`, `old` is there exactly once, and becomes `new`."""

    file: str
    old: str
    new: str

    def apply(self, text: str) -> str:
        """The text of the file with the fault.

        Raises:
            ValueError: `old` is not there exactly once.
        """
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.file} has {self.old!r} {count} times. Write the patch for today's code.")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutation:
    """A fault that the tests have to find.

    Attributes:
        id: stable, in kebab-case.
        where: the route, the command or the call.
        given: what is sent or done.
        right, wrong: the result, and the one with the fault.
        patch: the fault.
        tests: files or ids that find it, for pytest; in all they take 40 s at most.
        uncompiled: they are run with NUMBA_DISABLE_JIT=1, since the patch is in a kernel.
    """

    id: str
    where: str
    given: str
    right: str
    wrong: str
    patch: Patch
    tests: tuple[str, ...]
    uncompiled: bool = False
