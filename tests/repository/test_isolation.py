"""Nothing that a client sends reaches TensorFlow or a decoder of images in the process that serves.

What needs one runs in a limited process, whose program is left out of the list (`APART`).
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DECODERS: Final = {
    *("PIL", "av", "cv2", "imageio", "imagecodecs", "matplotlib", "skimage", "torchvision", "turbojpeg"),
    *("keras", "tensorflow", "tensorflow_datasets", "tensorflow_io"),
}
#: How a module is imported by a name that only appears when it runs, or bytes become code or objects.
BY_NAME: Final = {"__import__", "import_module", "eval", "exec", "compile_command", "run_module"}
OBJECTS: Final = {"dill", "joblib", "marshal", "pickle", "shelve"}


@cache
def tree_of(module: Path) -> ast.Module:
    return ast.parse(module.read_text("utf-8"))


def imports(tree: ast.AST) -> Iterator[str]:
    """The top-level packages that a module imports anywhere, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def called(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            yield function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


#: Programs that limited processes run; `app/runtime/processes/limited_main.py` sets the limits.
APART: Final = {
    ROOT / "app" / "transforms" / "tensorflow_process.py",
    ROOT / "app" / "transforms" / "images" / "program.py",
    # In programs of clients.
    ROOT / "app" / "client" / "adapters.py",
}
MODULES: Final = sorted({*(ROOT / "app").rglob("*.py")} - APART)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_request_reaches_tensorflow_or_a_decoder_of_images(module: Path) -> None:
    tree = tree_of(module)
    assert not set(imports(tree)) & (DECODERS | OBJECTS)
    assert not set(called(tree)) & BY_NAME


def test_what_runs_apart_is_imported_nowhere() -> None:
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {getattr(node, "module", ""), *(alias.name for alias in node.names)}
                assert not {path.stem for path in APART} & {str(name).rpartition(".")[2] for name in names}


def test_an_import_anywhere_is_seen() -> None:
    tree = ast.parse(
        "def f():\n    if x:\n        import tensorflow.io as io\n        from PIL.Image import open"
    )
    assert set(imports(tree)) == {"tensorflow", "PIL"}
    assert set(called(ast.parse("importlib.import_module(name)"))) == {"import_module"}


CONVERT: Final = """
import sys
from fastapi.testclient import TestClient
from app.main import create_app_with
from app.settings import Settings

with TestClient(create_app_with(Settings(storage_url="memory://")), base_url="http://127.0.0.1") as client:
    assert client.post("/v1/tensors/parse?from=json&to=npz", content=b"[1, 2]").status_code == 200
    assert client.post("/v1/records/serialize?from=ndjson", content=b'{"x": 1}').status_code == 200
print(*{name.partition(".")[0] for name in sys.modules})
"""


def test_a_service_that_has_converted_has_loaded_none_of_them() -> None:
    result = subprocess.run(
        [sys.executable, "-c", CONVERT], cwd=ROOT, capture_output=True, text=True, check=False, timeout=400
    )
    assert result.returncode == 0, result.stderr
    loaded = set(result.stdout.split())
    assert "pyarrow" in loaded
    assert not loaded & DECODERS
