"""Each thing is modelled once: which modules use the kernel or the library that it stands on.

Another user is a second model of the same thing, or belongs into the table.
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
#: A library, and who imports it.
LIBRARIES = {
    "google.protobuf": set[str](),
    "numpy.lib.format": set[str](),
    "pandas": {"client/tables.py"},
    "polars": {"client/tables.py"},
    "pyarrow.csv": {"codecs/csv/lines.py"},
    "pyarrow.dataset": set[str](),
    "pyarrow.json": set[str](),
    "pyarrow.parquet": {"codecs/arrow/parquet.py"},
    # Archives are read in one place; NPZ is written in another, and by the client, which is alone.
    "zipfile": {"codecs/archives/zip.py", "codecs/arrays/npz.py", "client/bodies.py"},
    # It writes numbers and never reads.
    "orjson": {"api/openapi.py", "codecs/json/write.py"},
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


@cache
def imported() -> dict[str, set[str]]:
    """What each module imports."""
    return {name: imports(tree) for name, tree in modules().items()}


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


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_has_one_importer(library: str) -> None:
    assert {name for name, found in imported().items() if library in found} == LIBRARIES[library]


def test_arrow_is_a_form_and_no_model_of_rows() -> None:
    importers = {
        name for name, found in imported().items() if any(m.split(".")[0] == "pyarrow" for m in found)
    }
    others = {name for name in importers if not name.startswith("codecs/arrow/")}
    # CSV is split by Arrow; the client takes and gives its tables.
    assert others == {"codecs/csv/lines.py", "client/tables.py"}


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
