"""The connection is built on names inside uvicorn that it does not promise to keep.

So `pyproject.toml` caps uvicorn at the versions that were read. To raise the cap, read what changed in the
classes below, then run the tests of `tests/unit/api/http1` and `tests/contract`.
"""

import ast
import inspect
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import pytest
import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.api.http1.cycle import Cycle
from app.api.http1.flow import Flow
from app.api.http1.protocol import HardenedProtocol
from app.api.http1.receiving import ReceivingProtocol
from app.shutdown import Server

PROJECT = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text("utf-8"))["project"]

#: Class of uvicorn -> ours that build on it.
BUILT_ON: dict[type, tuple[type, ...]] = {
    HttpToolsProtocol: (ReceivingProtocol, HardenedProtocol),
    RequestResponseCycle: (Cycle,),
    FlowControl: (Flow,),
    uvicorn.Server: (Server,),
}
#: Class of uvicorn -> under which names ours have objects of it, beside themselves.
OBJECTS: dict[type, set[str]] = {
    HttpToolsProtocol: set(),
    RequestResponseCycle: {"cycle", "self.cycle", "self._active", "following"},
    FlowControl: {"self.flow"},
    uvicorn.Server: set(),
}
#: What ours read, set, call or replace of each.
INTERNALS: dict[type, set[str]] = {
    HttpToolsProtocol: {
        *("_start_asgi_task", "access_log", "app", "app_state", "asgi_version", "client"),
        *("connection_lost", "connection_made", "cycle", "data_received", "eof_received", "flow", "headers"),
        *("logger", "loop", "on_body", "on_header", "on_headers_complete", "on_message_begin"),
        *("on_message_complete", "on_response_complete", "parser", "pause_writing", "pipeline"),
        *("resume_writing", "root_path", "scheme", "scope", "server", "server_state", "shutdown"),
        *("transport", "url"),
    },
    RequestResponseCycle: {
        *("chunked_encoding", "default_headers", "disconnected", "expected_content_length", "flow"),
        *(
            "keep_alive",
            "logger",
            "message_event",
            "more_body",
            "on_response",
            "receive",
            "response_complete",
        ),
        *("response_started", "run_asgi", "scope", "send", "transport"),
        *("access_log", "waiting_for_100_continue"),
    },
    FlowControl: {"_transport", "drain", "pause_reading", "read_paused", "resume_reading", "write_paused"},
    uvicorn.Server: {
        "handle_exit",
        "on_tick",
        "server_state",
        "should_exit",
        "shutdown",
        "startup",
    },
}


def members(owner: type) -> set[str]:
    """Every name that a class defines, or sets on its instances."""
    stored = (node for node in attributes(owner, {"self"}) if isinstance(node.ctx, ast.Store))
    return {*vars(owner), *(node.attr for node in stored)}


def attributes(owner: type | Callable[..., object], of: set[str]) -> Iterator[ast.Attribute]:
    """Each `name.attribute` in the source of a class where `of` has the name."""
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(owner)))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in of:
            yield node


def test_the_version_installed_is_one_that_was_read() -> None:
    [requirement] = [
        found
        for found in map(Requirement, PROJECT["optional-dependencies"]["service"])
        if found.name == "uvicorn"
    ]
    assert requirement.specifier.contains(version("uvicorn"))
    major, minor, *_ = version("uvicorn").split(".")
    assert not requirement.specifier.contains(f"{major}.{int(minor) + 1}"), "only what was read is let in"


@pytest.mark.parametrize("owner", BUILT_ON, ids=lambda owner: owner.__name__)
def test_uvicorn_has_every_name_that_ours_build_on(owner: type) -> None:
    assert INTERNALS[owner] <= members(owner)


@pytest.mark.parametrize("owner", BUILT_ON, ids=lambda owner: owner.__name__)
def test_every_name_that_ours_build_on_is_listed(owner: type) -> None:
    named = {name for ours in BUILT_ON[owner] for name in vars(ours)}
    for ours in BUILT_ON[owner]:
        named |= {node.attr for node in attributes(ours, {"self", "super()"})}
    for ours in chain.from_iterable(BUILT_ON.values()):
        named |= {node.attr for node in attributes(ours, OBJECTS[owner])}
    assert {name for name in named & members(owner) if not name.startswith("__")} == INTERNALS[owner]


def test_a_request_has_what_the_connection_of_uvicorn_reads_of_it() -> None:
    """Ours sets its attributes itself, and replaces every method."""
    read: set[str] = set()
    for method in (
        HttpToolsProtocol._start_asgi_task,
        HttpToolsProtocol.connection_lost,
        HttpToolsProtocol.shutdown,
    ):
        read |= {node.attr for node in attributes(method, {"cycle", "self.cycle"})}
    assert read == {"disconnected", "keep_alive", "message_event", "response_complete", "run_asgi"}
    assert read <= members(Cycle)
    inherited = {name for name, member in vars(RequestResponseCycle).items() if callable(member)}
    assert inherited - set(vars(Cycle)) == {"send_500_response"}


def test_imported_names_of_uvicorn_are_unchanged() -> None:
    assert HIGH_WATER_LIMIT == 65536
    assert STATUS_LINE[404] == b"HTTP/1.1 404 Not Found\r\n"
    state = ServerState()
    assert (state.total_requests, state.tasks, state.default_headers) == (0, set(), [])
