"""The README and docs/ are true: every command and every program, run as printed, does what is printed."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from app.settings import Settings
from tests.deploy.manifests import HELM, KUBECTL
from tests.e2e.documentation import PAGES, Page, is_installed, matches, run_commands, run_program
from tests.e2e.test_commands import environment, make_checkout
from tests.support.service import ROOT, Service, needs_curl, ready

RUNNABLE: Final = [page for page in map(Page, PAGES) if page.commands() or any(True for _ in page.programs())]
#: With programs that append rows.
SENDING: Final = ("README.md", "docs/how-to/send.md")
#: The commands of the README are run by `bin/test`, those of all pages by `bin/test --all`.
MARKS: Final = {"README.md": ()}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(page, id=page.name, marks=MARKS.get(page.name, pytest.mark.exhaustive))
        for page in RUNNABLE
    ],
)
def page(request: pytest.FixtureRequest) -> Page:
    found: Page = request.param
    return found


@pytest.fixture(scope="module")
def folder(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp(page.path.stem)
    (made / "tests").symlink_to(ROOT / "tests")  # of the checkout, where programs read files
    return made


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    """A service for the page alone, with its datasets in `data`, on a port of its own."""
    with ready(folder) as started:
        yield started


@pytest.fixture(scope="module")
def outputs(page: Page, service: Service, folder: Path) -> list[tuple[str, str, str]]:
    return run_commands(page, service, folder)


@needs_curl
def test_every_command_gives_the_output_printed_below_it(outputs: list[tuple[str, str, str]]) -> None:
    for command, printed, given in outputs:
        if not matches(printed, given):
            assert given == printed, command


@needs_curl
@pytest.mark.usefixtures("outputs")
@pytest.mark.tools
def test_every_program_runs_on_what_the_commands_made(page: Page, service: Service, folder: Path) -> None:
    programs = list(page.programs())
    missing = {language for language, _ in programs if not is_installed(language)}
    for language, source in programs:
        if language in missing:
            continue
        printed = run_program(language, source, service, folder)
        if appends(source):
            assert printed.startswith("201 "), printed
        elif language == "go":  # has no service, and prints what stands below it
            assert [printed] == page.blocks("text")
        elif language == "python":  # reads the first row that the page has appended
            assert re.search(r"1\.5,? +0\.25", printed), printed
    if missing:
        pytest.skip(f"not installed here: {', '.join(sorted(missing))}; .ci/run installs them")


@pytest.mark.tools
def test_program_of_the_python_client_prints_the_output_of_its_page(tmp_path: Path) -> None:
    page = Page(ROOT / "docs" / "how-to" / "python.md")
    [printed] = page.blocks("text")
    with ready(tmp_path) as service:
        assert run_program("python", page.blocks("python")[0], service, tmp_path) == printed


def test_the_pages_have_the_commands_and_programs_that_this_test_is_for() -> None:
    readme, page = (Page(ROOT / name) for name in SENDING)
    assert {language for language, _ in readme.programs()} == {"go", "python"}
    assert {language for language, _ in page.programs()} == {"java", "js", "python"}
    assert sum(len(page.commands()) for page in RUNNABLE) >= 40


def test_each_page_has_datasets_of_its_own() -> None:
    """Their commands can be run one page after another, against one service."""
    used_by: dict[str, str] = {}
    for page in RUNNABLE:
        sources = [command for command, _ in page.commands()] + [source for _, source in page.programs()]
        for dataset in set(re.findall(r"(?:/v1/datasets/|--dataset )(\w+)", " ".join(sources))):
            assert dataset not in used_by, f"{page.name} and {used_by[dataset]} both use {dataset}"
            used_by[dataset] = page.name


# Blocks of `sh`, which show no output


def run_in_a_checkout(blocks: list[str], folder: Path) -> None:
    """Run each line of blocks that a person would run in a fresh checkout."""
    checkout = make_checkout(folder / "checkout")
    for line in "".join(blocks).splitlines():
        ran = run_shell(line, checkout, **environment())
        assert ran.returncode == 0, f"{line}\n{ran.stdout}{ran.stderr}"


def make_a_token_and_use_it(blocks: list[str], folder: Path) -> None:
    make, ask = blocks
    made = run_shell(f'{make}\necho "$TOKEN"', folder, **os.environ)
    digest, *_, token = made.stdout.split()
    tokens = Page(ROOT / "docs" / "auth.md").blocks("json")[0].replace("<64 hex digits>", digest, 1)
    path = folder / "tokens.json"
    path.write_text(tokens.replace("<64 hex digits>", "1" * 64), encoding="utf-8")
    with ready(folder, SHARDSMITH_TOKENS_FILE=str(path)) as service:
        command = ask.replace("https://shardsmith.example", service.url).replace("curl ", "curl -s ")
        asked = run_shell(command, folder, **{**os.environ, "TOKEN": token})
    assert json.loads(asked.stdout) == {"datasets": []}


def render_instead_of_installing(blocks: list[str], folder: Path) -> None:
    """Run what installs into a cluster as far as that goes without one; the image has tests of its own."""
    if HELM not in os.environ and "CI" not in os.environ:
        pytest.skip(f"{HELM} and {KUBECTL} name no programs; .ci/run installs them")
    helm, kubectl = os.environ[HELM], os.environ[KUBECTL]
    (folder / "deploy").symlink_to(ROOT / "deploy")
    (folder / "tokens.json").write_text('{"tokens": []}', encoding="utf-8")
    page = Page(ROOT / "docs" / "how-to" / "kubernetes.md")
    # What the page adds to the first values later stands under keys of its own.
    (folder / "my-values.yaml").write_text("".join(page.blocks("yaml")), encoding="utf-8")
    without_a_cluster = {
        "helm install": f"{helm} template",
        "kubectl apply --kustomize": f"{kubectl} kustomize",
        "kubectl create": f"{kubectl} create --dry-run=client --output=yaml",
        "kubectl --namespace shardsmith create": f"{kubectl} create --dry-run=client --output=yaml",
    }
    needs_a_cluster = ("docker ", "kubectl --namespace shardsmith rollout", *OF_A_CLUSTER)
    lines = [line for line in "".join(blocks).splitlines() if not line.startswith(needs_a_cluster)]
    for line in lines:
        [command] = [command for command in without_a_cluster if line.startswith(command)]
        ran = run_shell(line.replace(command, without_a_cluster[command]), folder, **os.environ)
        assert ran.returncode == 0, f"{line}\n{ran.stderr}"
        assert "kind: " in ran.stdout
    assert len(lines) == len(without_a_cluster)


#: Commands that ask a cluster, or what a tunnel to it leads to.
OF_A_CLUSTER: Final = (
    "kubectl --namespace shardsmith get pods",
    "kubectl --namespace shardsmith describe pod POD ",
    "kubectl --namespace shardsmith logs POD ",
    "kubectl --namespace shardsmith port-forward ",
    "curl ",
)


def parse_without_running(blocks: list[str], folder: Path) -> None:
    """Of the runbook: all of it asks a running cluster. The shell checks that it can be read."""
    for line in "".join(blocks).splitlines():
        assert line.startswith(OF_A_CLUSTER), line
    ran = subprocess.run(
        ["sh", "-n"], input="".join(blocks), cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def run_shell(command: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


#: What runs the blocks of each page.
def start_as_the_readme_does(blocks: list[str], _: Path) -> None:
    """Compare the command alone: it needs an engine, and tests/repository holds the composition."""
    [command] = blocks
    assert f"`{command.strip()}`" in (ROOT / "README.md").read_text("utf-8")


RUN_BLOCKS: Final[dict[str, Callable[[list[str], Path], None]]] = {
    "README.md": run_in_a_checkout,
    "docs/auth.md": make_a_token_and_use_it,
    "docs/how-to/docker.md": start_as_the_readme_does,
    "docs/how-to/kubernetes.md": render_instead_of_installing,
    "docs/how-to/runbook.md": parse_without_running,
}


@pytest.mark.tools
@needs_curl
@pytest.mark.parametrize(
    "page", [page for page in map(Page, PAGES) if page.blocks("sh")], ids=lambda page: page.name
)
def test_every_block_for_a_shell_runs(page: Page, tmp_path: Path) -> None:
    RUN_BLOCKS[page.name](page.blocks("sh"), tmp_path)


@needs_curl
@pytest.mark.tools
@pytest.mark.parametrize("name", SENDING)
def test_rows_that_programs_send_are_stored_once(name: str, tmp_path: Path) -> None:
    page = Page(ROOT / name)
    programs = [
        (language, source)
        for language, source in page.programs()
        if appends(source) and is_installed(language)
    ]
    with ready(tmp_path) as started:
        run_commands(page, started, tmp_path)
        for _ in range(2):  # a retry
            for language, source in programs:
                run_program(language, source, started, tmp_path)
        [listed] = httpx.get(f"{started.url}/v1/datasets").json()["datasets"]
        waiting = httpx.get(f"{started.url}/v1/datasets/{listed['dataset']}/appends").json()["appends"]
    assert len(waiting) == len(programs)


def appends(source: str) -> bool:
    """Whether a program sends rows."""
    return "Idempotency-Key" in source


def test_every_setting_is_listed_with_its_default() -> None:
    listed = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        row = f"| `SHARDSMITH_{name.upper()}` | {default} | {field.description} |"
        assert row in listed, name
