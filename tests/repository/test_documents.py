"""The documents name what is there: files, links, parameters, codes of errors."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import yaml
from pydantic import BaseModel

from app import resources
from app.api.query.datasets import AppendQuery, DownloadQuery, PublishVersionQuery, RowsQuery
from app.api.query.rows import RepairQuery
from app.api.routes.care import CollectQuery
from app.domain.limits import MIB
from app.services.datasets.publish.room import ROOM_BYTES
from openapi.error_index import read_statuses

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
HTTP: Final = (ROOT / "docs" / "http.md").read_text("utf-8")
FOLDERS: Final = (
    "app",
    "tests",
    "docs",
    "bin",
    "benchmarks",
    "openapi",
    "examples",
    "docker",
    "deploy",
    ".ci",
)

#: A caller's, not ours.
FOREIGN: Final = {"app.py"}
#: What no client is told: caught within, or found as `invalid_parameter` before.
INTERNAL: Final = set(yaml.safe_load((ROOT / "openapi" / "errors.yaml").read_text("utf-8"))["internal"])


@cache
def names() -> list[str]:
    """Every file, as a path from the root."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return [f"/{path.relative_to(ROOT).as_posix()}" for path in [*found, *ROOT.glob("*")]]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_source_file_that_is_named_exists(document: Path) -> None:
    known = names()
    for name in re.findall(r"`([\w./-]+\.(?:py|sh|yaml))`", document.read_text("utf-8")):
        assert name in FOREIGN or any(path.endswith(f"/{name}") for path in known), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_folder_that_is_named_exists(document: Path) -> None:
    for name in re.findall(r"`([\w.-]+/[\w./-]*)/`", document.read_text("utf-8")):
        assert name.partition("/")[0] not in FOLDERS or (ROOT / name).is_dir(), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", document.read_text("utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_memory_that_the_page_on_sizing_names_is_what_a_process_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = (ROOT / "docs" / "how-to" / "sizing.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) MiB \| (\d+) MiB \| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) == 4
    for limit, memory, publications in rows:
        monkeypatch.setattr(resources, "available_memory", lambda _, limit=limit: int(limit) * MIB)
        assert resources.memory_for_requests() == int(memory) * MIB
        # Beside others, publications have half of all memory together.
        assert max(1, int(memory) * MIB // 2 // ROOM_BYTES) == int(publications)


@pytest.mark.parametrize(
    "query", [AppendQuery, PublishVersionQuery, RowsQuery, DownloadQuery, CollectQuery, RepairQuery]
)
def test_every_parameter_of_datasets_is_described(query: type[BaseModel]) -> None:
    for name, field in query.model_fields.items():
        assert re.search(rf"[`?&]{field.alias or name}\b", HTTP), name


def test_every_code_of_datasets_is_listed() -> None:
    listed = set(re.findall(r"`([a-z_]+)`", HTTP[HTTP.index("### Codes of datasets") :]))
    assert set(codes_of_datasets()) - INTERNAL <= listed
    assert listed - set(codes()) <= {"precondition_failed", "range_not_satisfiable", "divide"}


def test_every_code_has_its_cause_and_its_remedy_in_the_index() -> None:
    index = (ROOT / "docs" / "reference" / "errors.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d, ]*) \| ([^|]+\.) \| ([^|]+\.) \|$", index, re.MULTILINE)
    assert {code for code, *_ in rows} == set(read_statuses())
    # Found in another way than by walking the syntax.
    told = {*codes(), *codes_of_http()}
    assert told - INTERNAL <= set(read_statuses())


def codes_of_http() -> set[str]:
    """Those that docs/http.md lists by status."""
    tables = HTTP[HTTP.index("### Codes of the transport") :]
    return set(re.findall(r"`([a-z]+_[a-z_]+)`", tables))


def codes_of_datasets() -> Iterator[str]:
    """Those raised where datasets are, or by the names, divisions and publications of them."""
    for path in (ROOT / "app" / "services").rglob("*.py"):
        if "datasets" in path.parts or path.name == "appending.py":
            yield from codes_in(path)
    for name in ("names.py", "sharding/division.py"):
        yield from codes_in(ROOT / "app" / "domain" / name)


def codes() -> Iterator[str]:
    for path in (ROOT / "app").rglob("*.py"):
        yield from codes_in(path)


def codes_in(path: Path) -> list[str]:
    source = path.read_text("utf-8")
    return re.findall(r'\bcode ?= ?"([a-z_]+)"', source) + re.findall(r'"(invalid_[a-z_]+)"', source)
