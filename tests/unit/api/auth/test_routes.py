"""The table of scopes has every route, and means by a path what the router means."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.routing import Match, Route

from app.api.auth.routes import ACCESS, access_table
from app.api.paths import routed_path
from app.main import create_app_with
from app.settings import Settings


def declared(app: FastAPI) -> Iterator[Route]:
    """Every route of the application, whether FastAPI keeps it in its router or by itself."""
    for route in app.routes:
        router = getattr(route, "original_router", None)
        for inner in [route] if router is None else router.routes:
            assert isinstance(inner, Route), "the table of scopes knows no mounts and no websockets"
            yield inner


ROUTES = list(declared(create_app_with(Settings(storage_url="memory://"))))
TABLE = access_table()


def test_every_route_of_the_application_is_in_the_table_and_no_other() -> None:
    found = {(route.path, method) for route in ROUTES for method in route.methods or ()}
    listed = {(path, method) for path, methods in ACCESS.items() for method in methods}
    assert found - {(path, "HEAD") for path, method in listed if method == "GET"} == listed


def test_no_parameter_reaches_over_a_slash() -> None:
    assert [route.path for route in ROUTES if ":" in route.path] == []


def test_delete_needs_admin_and_changes_need_write() -> None:
    for path, methods in ACCESS.items():
        assert methods.get("DELETE", "admin") == "admin"
        assert methods.get("PUT", "write") == "write"
        assert methods.get("GET", "read") in ("read", None)
        assert path.startswith(("/v1", "/v2/models", "/ui")) or set(methods.values()) == {None}


def meant_by_router(path: str) -> tuple[str, Any] | None:
    """The first route that the router would take, or refuse the method on."""
    for route in ROUTES:
        scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
        match, child = route.matches(scope)
        if match is not Match.NONE:
            return route.path, child["path_params"].get("dataset")
    return None


SEGMENTS = st.one_of(
    st.sampled_from(
        [
            "v1",
            "v2",
            "datasets",
            "versions",
            "records",
            "shards",
            "tar",
            "collect",
            "..",
            "",
            "livez",
            "%2F",
            "x\n",
        ]
    ),
    st.text("ab.%\\\n\x00 ~ä", max_size=3),
)
PATHS = st.one_of(
    st.lists(SEGMENTS, max_size=9).map(lambda segments: "/" + "/".join(segments)),
    st.sampled_from(sorted(ACCESS)).flatmap(
        lambda route: st.tuples(SEGMENTS, st.sampled_from(["", "/", "\n", "/x", "//", "\r"])).map(
            lambda filled: (
                route.replace("{dataset}", filled[0]).replace("{version}", "1.0.0").replace("{file}", "f")
                + filled[1]
            )
        )
    ),
)


@settings(max_examples=50, deadline=None)
@given(PATHS)
def test_the_table_and_the_router_mean_the_same_path(path: str) -> None:
    found, meant = TABLE.find(path), meant_by_router(path)
    if found is None and path.endswith("\n"):
        return  # the router takes one line end too many; without a line in the table it is not asked
    assert (None if found is None else (found[0].route, found[1].get("dataset"))) == meant


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/datasets", "/v1/datasets"),
        ("/v1/datasets/a", "/v1/datasets/{dataset}"),
        ("/v1/datasets/a/collect\n", "/v1/datasets/{dataset}/collect"),
        ("//v1/datasets", None),
        ("/v1//datasets", None),
        ("/v1/datasets/", None),
        ("/v1/datasets/a/../b", None),
        ("/v1/../livez", None),
        ("/V1/datasets", None),
        ("/livez/", None),
        ("/livez\n", None),
        ("livez", None),
        ("", None),
        ("*", None),
    ],
)
def test_paths_are_taken_literally(path: str, route: str | None) -> None:
    found = TABLE.find(path)
    assert (None if found is None else found[0].route) == route


@pytest.mark.parametrize(
    ("path", "root", "routed"),
    [
        ("/v1/datasets", "", "/v1/datasets"),
        ("/api/v1/datasets", "/api", "/v1/datasets"),
        ("/api", "/api", ""),
        ("/apiv1", "/api", "/apiv1"),
        ("/v1", "/api", "/v1"),
    ],
)
def test_the_prefix_of_a_proxy_is_left_out_as_by_the_router(path: str, root: str, routed: str) -> None:
    assert routed_path({"path": path, "root_path": root}) == routed
