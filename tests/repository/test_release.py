"""The version has one source, and bin/release writes it wherever else it has to be."""

import re
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml

import app
from bin import release

ROOT = Path(__file__).parents[2]


def test_versions_agree() -> None:
    assert {name: found for name, found in release.versions().items() if found != {app.__version__}} == {}
    described = yaml.safe_load((ROOT / "openapi" / "openapi.yaml").read_text("utf-8"))
    assert described["info"]["version"] == app.__version__


def test_packages_read_the_version_from_the_code() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "version" in document["project"]["dynamic"]
    assert document["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "shardsmith.__version__"}


def test_release_writes_the_version_everywhere_and_dates_the_changelog(tmp_path: Path) -> None:
    for name in release.versions():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- Something.\n", "utf-8")

    release.write("31.4.15", tmp_path)

    assert release.versions(tmp_path) == {name: {"31.4.15"} for name in release.versions()}
    # Nothing else has changed.
    for name in release.versions():
        before, after = ((root / name).read_text("utf-8") for root in (ROOT, tmp_path))
        assert after.replace("31.4.15", app.__version__) == before
    changelog = (tmp_path / "CHANGELOG.md").read_text("utf-8")
    assert re.search(r"^## 31\.4\.15 \(\d{4}-\d\d-\d\d\)\n\n- Something", changelog, re.MULTILINE)


@pytest.mark.parametrize(
    ("version", "complaint"),
    [("1.2", "is not a version"), ("v1.2.3", "is not a version"), ("0.0.9", "is older than")],
)
def test_version_that_cannot_be_released_is_an_error(version: str, complaint: str) -> None:
    with pytest.raises(SystemExit, match=complaint):
        release.check(version)


def test_checkout_with_changes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = {"tag": "", "status": " M README.md\n"}
    monkeypatch.setattr(release, "run", lambda *command: printed[command[1]])
    with pytest.raises(SystemExit, match="The checkout has changes"):
        release.check("99.0.0")


def test_release_that_has_a_tag_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "run", lambda *_: "v99.0.0\n")
    with pytest.raises(SystemExit, match=r"The tag v99\.0\.0 exists"):
        release.check("99.0.0")
