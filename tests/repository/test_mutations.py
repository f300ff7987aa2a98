"""The list of mutations fits today's code and tests; `python -m tests.mutations.run` runs it."""

import ast
import re
from collections.abc import Iterator

from tests.mutations.entry import ROOT, Mutation
from tests.mutations.listed import MUTATIONS


def test_each_patch_applies_to_the_code_exactly_once() -> None:
    for mutation in MUTATIONS:
        patch = mutation.patch
        text = (ROOT / patch.file).read_text(encoding="utf-8")
        patched = patch.apply(text)
        assert patched != text, mutation.id
        ast.parse(patched)


def test_named_tests_exist() -> None:
    assert [(mutation.id, test) for mutation in MUTATIONS for test in missing_tests(mutation)] == []


def missing_tests(mutation: Mutation) -> Iterator[str]:
    assert mutation.tests, mutation.id
    for test in mutation.tests:
        file, _, function = test.partition("::")
        path = ROOT / file
        if not path.is_file() or f"def {function or 'test_'}" not in path.read_text(encoding="utf-8"):
            yield test


def test_ids_are_unique_and_in_kebab_case() -> None:
    assert len(MUTATIONS) == len({mutation.id for mutation in MUTATIONS}) == 60
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", mutation.id) for mutation in MUTATIONS)


def test_each_folder_of_the_code_has_mutations() -> None:
    found = {mutation.patch.file.split("/")[1] for mutation in MUTATIONS}
    folders = {path.parent.name for path in (ROOT / "app").glob("*/__init__.py")}
    assert folders <= found
    assert any(name.endswith(".py") for name in found), "none is in a module at the top of app"
