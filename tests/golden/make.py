"""Writes the golden files and their index: python -m tests.golden.make

What is in them, docs/reference/golden.md says. `tests/differential/test_golden.py` fails when the libraries
write something else.
"""

from __future__ import annotations

import shutil

from tests.golden.bad import bad
from tests.golden.entries import FILES, INDEX, index_bytes
from tests.golden.rows import rows
from tests.golden.schemas import schemas
from tests.golden.tensors import lacks, tensors


def make() -> dict[str, bytes]:
    """All files by their paths."""
    good, refused = [*tensors(), *rows(), *schemas()], list(bad())
    made = {file.path: file.content for file in good} | {file.path: file.content for file in refused}
    return made | {INDEX.name: index_bytes(good, refused, lacks(good))}


def main() -> None:
    made = make()
    shutil.rmtree(FILES)
    for name, content in made.items():
        path = FILES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


if __name__ == "__main__":
    main()
