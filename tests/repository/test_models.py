"""Each thing is modelled once: which modules use the kernel that it stands on.

Another user is a second model of the same thing, or belongs into the table. Who imports a library is
said by the import contracts and the banned names in pyproject.toml.
"""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
APP = ROOT / "app"

#: A kernel, and who calls it.
KERNELS = {
    # JSON: rows and tensors on one tape, and where rows lie in a large text.
    "read_values": {"codecs/json/tape_reader.py"},
    "read_floats": {"codecs/json/items.py"},
    "find_objects": {"codecs/json/rows/objects.py"},
    # Examples and SequenceExamples.
    "read_messages": {"codecs/messages/examples/cells.py"},
    "encode_messages": {"codecs/messages/examples/write.py"},
    # Records of a TFRecord: those of a body, those that are known to be whole, those of a damaged one.
    "scan_frames": {"codecs/messages/frames.py", "codecs/messages/framing.py"},
    "find_header": {"codecs/messages/salvage.py"},
    # Numbers in text.
    "read_number_fields": {"codecs/csv/fields.py"},
}
#: What tests import of the codecs, beside `schemas/`; those in the folder of the kernels are free.
SEAMS = {
    "app.codecs.forms",
    "app.codecs.options",
    "app.codecs.sniff",
    # The models of rows and of arrays, which the forms read and write.
    "app.codecs.columns",
    "app.codecs.array",
    # Hostile images, which rows are decoded from, too.
    "app.codecs.images.decode",
    "app.codecs.images.header",
    # Loading all kernels, as whoever starts a process does; none of them.
    "app.codecs.kernels",
    # Their names: an image brings all of them compiled.
    "app.codecs.kernels.table",
}
#: Models of one thing beside one another, which `Array` took the place of.
GONE = {"ArrayColumn", "Arrival", "ChunkedArray", "FoundArray", "NamedTensor", "Tensor", "TensorStream"}


@cache
def modules() -> dict[str, ast.Module]:
    paths = (path for path in APP.rglob("*.py") if APP / "codecs/kernels" not in path.parents)
    return {path.relative_to(APP).as_posix(): ast.parse(path.read_text()) for path in paths}


@cache
def attributes() -> dict[str, set[str]]:
    """The modules that use an attribute of such a name."""
    found = defaultdict[str, set[str]](set)
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                found[node.attr].add(name)
    return found


def imports(tree: ast.Module) -> set[str]:
    """The modules that are imported; of `from a import b` both `a` and `a.b`, which may be one."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    return found


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_has_one_caller(kernel: str) -> None:
    assert attributes()[kernel] == KERNELS[kernel]


def test_models_that_are_gone_stay_gone() -> None:
    classes = {
        node.name for tree in modules().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    }
    assert {"Array", "Column"} <= classes
    assert classes & GONE == set()


def test_codecs_are_tested_where_they_are_used() -> None:
    """At the form table: a test of what lies behind it would have to go with each wall that is moved."""
    inside = {
        path.relative_to(ROOT).as_posix(): names_of_codecs(path) - SEAMS
        for path in (ROOT / "tests").rglob("*.py")
        if ROOT / "tests/unit/codecs/kernels" not in path.parents
    }
    assert {path: names for path, names in inside.items() if names} == {}


def names_of_codecs(path: Path) -> set[str]:
    """The modules of the codecs that a file imports or names in a string, without those of `schemas/`."""
    if "codecs" not in (source := path.read_text()):
        return set()
    tree = ast.parse(source)
    texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return {
        name
        for name in imports(tree) | {text for text in texts if re.fullmatch(r"\w+(\.\w+)+", text)}
        if name.startswith("app.codecs.") and is_module(name) and not name.startswith("app.codecs.schemas")
    }


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()
