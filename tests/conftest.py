"""Which tests a run takes, and with how many examples; and real stores, one of each for the whole run.

A test whose store is not installed is skipped, unless CI is set.
"""

import gc
import os
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.support.object_stores import running
from tests.support.object_stores.running import MissingTool, RunningStore

# No test is decided by how fast a machine is. All else is as hypothesis chose, which looks for CI.
settings.register_profile(
    "any machine",
    settings(),
    deadline=None,
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.too_slow],
)
settings.load_profile("any machine")

if TYPE_CHECKING:
    from app.transforms.images.processes import ImageProcesses

Start = Callable[[Path], AbstractContextManager[RunningStore]]

#: What makes a test slow, or ask for more than Python; pyproject.toml says what each marker means.
SLOW: Final = ("campaign", "exhaustive", "processes", "soak", "stores", "tensorflow", "tools", "waits")
#: Need what the quick tests do without to be imported at all: TensorFlow, and Playwright.
DIFFERENTIAL: Final = Path(__file__).with_name("differential")
BROWSER: Final = Path(__file__).with_name("e2e") / "ui"
#: The fixtures below.
STORES: Final = frozenset({"azurite", "ceph_rgw", "ceph_rgw_to_stop", "rclone_s3"})
LEFT_OUT: Final = pytest.StashKey[int]()
#: Of what a test draws, and of a table of cases that is `sampled`, quick tests take one in so many.
EXAMPLES_PER_QUICK_ONE: Final = 4
CASES_PER_QUICK_ONE: Final = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        choices=("all", "quick", "rest"),
        default="all",
        help="quick: what bin/test runs, without the slow tests; rest: these alone",
    )


def pytest_configure(config: pytest.Config) -> None:
    asked = (Path(argument.partition("::")[0]).resolve() for argument in config.args)
    if config.getoption("share") == "quick":
        for path in asked:
            if path.is_relative_to(DIFFERENTIAL):
                raise pytest.UsageError("tests/differential needs TensorFlow: add --all.")
            if path.is_relative_to(BROWSER):
                raise pytest.UsageError("tests/e2e/ui needs Playwright: add --all.")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing that needs TensorFlow or Playwright where only quick tests run."""
    is_left_out = config.getoption("share") == "quick" and collection_path in (DIFFERENTIAL, BROWSER)
    return True if is_left_out else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/differential/"):
            item.add_marker("tensorflow")
        if not STORES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("stores")
    _sample(items)
    share = config.getoption("share")
    if share == "all":
        return
    taken: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        is_slow = any(mark.name in SLOW for mark in item.iter_markers())
        is_drawn = is_hypothesis_test(getattr(item, "obj", None))
        if share == "quick" and is_drawn:
            draw_fewer(item.obj)  # type: ignore[attr-defined]  # a function's item has one
        is_taken = is_slow or is_drawn if share == "rest" else not is_slow
        (taken if is_taken else left).append(item)
    items[:] = taken
    config.hook.pytest_deselected(items=left)
    config.stash[LEFT_OUT] = len(left)


def _sample(items: list[pytest.Item]) -> None:
    """Mark most cases of each `sampled` test as exhaustive."""
    tables: dict[str, dict[str, pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            test, _, case = item.nodeid.partition("[")
            tables.setdefault(test, {})[case.removesuffix("]")] = item
    for table in tables.values():
        mark = next(iter(table.values())).get_closest_marker("sampled")
        for case in sample(list(table), **mark.kwargs if mark else {}):
            table[case].add_marker("exhaustive")


def sample(cases: list[str], keep: Collection[str] = ()) -> set[str]:
    """Those that only `bin/test --rest` runs: neither one of three, nor the last, nor one to keep."""
    quick = {*cases[::CASES_PER_QUICK_ONE], *cases[-1:], *keep}
    return set(cases) - quick


def draw_fewer(test: Any) -> None:
    """Let a property test draw fewer examples, once: a table has many items of one function.

    No profile of hypothesis does that where a test says how many it draws.
    """
    function = getattr(test, "__func__", test)
    if not hasattr(function, "draws_fewer"):
        function.draws_fewer = True
        full = function._hypothesis_internal_use_settings
        fewer = max(1, full.max_examples // EXAMPLES_PER_QUICK_ONE)
        function._hypothesis_internal_use_settings = settings(full, max_examples=fewer)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the tests out of garbage collection: with all of them one takes a second, and finds nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist tells how many it left out: all of them leave out the same."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """In the process that the workers report to."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("share") == "quick":
        slow = config.stash.get(LEFT_OUT, 0)
        terminalreporter.write_line(
            "Left out: tests/differential and tests/e2e/ui, which need TensorFlow and Playwright, "
            f"and {slow} slow tests. `bin/test --all` runs everything."
        )


@pytest.fixture(scope="session")
def images() -> "Iterator[ImageProcesses]":
    """What decodes images, in processes that the tests share."""
    from tests.support.image_processes import shared_images

    yield shared_images()
    shared_images().close()


def _start(start: Start, folders: pytest.TempPathFactory) -> Iterator[RunningStore]:
    try:
        with start(folders.mktemp(start.__name__)) as store:
            yield store
    except MissingTool as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{error}; .ci/run installs it")


@pytest.fixture(scope="session")
def ceph_rgw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    """A real S3 that honours conditional puts."""
    yield from _start(running.ceph_rgw, tmp_path_factory)


@pytest.fixture
def ceph_rgw_to_stop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    """The same, for one test, which may stop it."""
    yield from _start(running.ceph_rgw, tmp_path_factory)


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    """Microsoft's emulator of Azure Blob Storage."""
    yield from _start(running.azurite, tmp_path_factory)


@pytest.fixture(scope="session")
def rclone_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    """An S3 that ignores conditions."""
    yield from _start(running.rclone_s3, tmp_path_factory)
