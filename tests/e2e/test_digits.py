"""The example a newcomer runs first, run as its README says: arrays up, shards down, a model trained."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.service import Service, needs_curl

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "digits"


def run(*command: str | Path) -> str:
    """The standard output of `command`; its whole output where it fails."""
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, f"{command}:\n{result.stdout}\n{result.stderr}"
    return result.stdout


@needs_curl
def test_digits_are_published_downloaded_and_learned(service: Service, tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    run(sys.executable, EXAMPLE / "make_digits.py", folder)

    uploaded = run("bash", EXAMPLE / "run.sh", service.url, folder)

    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["version"] == "1.0.0"
    assert {split: parts["num_records"] for split, parts in manifest["splits"].items()} == {
        "train": 1437,
        "test": 360,
    }
    names = [f"digits-{split}.tfrecord-{i:05}-of-00004" for split in ("test", "train") for i in range(4)]
    assert sorted(path.name for path in (folder / "shards").glob("digits-*")) == names
    assert len(re.findall(r"^digits-.*: OK$", uploaded, re.MULTILINE)) == len(names)

    trained = run(sys.executable, EXAMPLE / "train.py", folder / "shards")
    accuracy = re.search(r"^test accuracy: ([01]\.\d{4})$", trained, re.MULTILINE)
    assert accuracy is not None, trained
    assert float(accuracy[1]) >= 0.95


@needs_curl
def test_a_second_run_repeats_no_row(service: Service, tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    run(sys.executable, EXAMPLE / "make_digits.py", folder)
    run("bash", EXAMPLE / "run.sh", service.url, folder)
    first = (folder / "manifest.json").read_text(encoding="utf-8")

    run("bash", EXAMPLE / "run.sh", service.url, folder)

    second = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert second["splits"] == json.loads(first)["splits"]
