"""A service that has converted has loaded neither TensorFlow nor a decoder of images.

That no module imports one is a contract of import-linter; that none is imported by name, a rule of ruff.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DECODERS: Final = {
    *(
        "PIL",
        "av",
        "cv2",
        "imageio",
        "imagecodecs",
        "matplotlib",
        "simplejpeg",
        "skimage",
        "torchvision",
        "turbojpeg",
    ),
    *("keras", "tensorflow", "tensorflow_datasets", "tensorflow_io"),
}


def test_no_module_is_imported_by_a_name_that_appears_at_run_time() -> None:
    """Of the ways to do that, rules of ruff find all but this."""
    texts = {path: path.read_text("utf-8") for path in (ROOT / "app").rglob("*.py")}
    assert [path for path, text in texts.items() if "__import__(" in text] == []


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
