"""Nothing below `app/api` names a query parameter, a header or a URL of the service."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from app.api.problems import problem

APP = Path(__file__).parents[2] / "app"
#: Not `storage`, which speaks HTTP to stores.
BELOW = ("codecs", "domain", "runtime", "services", "transforms")
WORDS = re.compile(
    r"\?[a-z_]+=|/v1/|\b(?:Accept-[A-Z][a-z]+|Authorization|Content-[A-Z][a-z]+|Idempotency-Key|If-[A-Z][\w-]+|"
    r"Inference-Header-[\w-]+|Retry-After|Transfer-Encoding|WWW-Authenticate|X-[A-Z][\w-]+)\b"
)
#: An option in a sentence that says what to set or leave out.
ADVICE = re.compile(r"\b(?:[Ss]et|[Oo]ut|[Ww]ith|or|and|it:|format:) \(?([a-z_]+)=(?![A-Z])")


@cache
def strings(*folders: str) -> list[tuple[str, str]]:
    """All string literals and docstrings, each with its place. Strings side by side are one literal."""
    return list(_strings(*folders))


def _strings(*folders: str) -> Iterator[tuple[str, str]]:
    files = [path for folder in folders for path in (APP / folder).rglob("*.py")]
    for path in [*files, *([APP / "errors.py"] if folders == BELOW else [])]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.relative_to(APP)}:{node.lineno}", node.value


def test_no_string_below_the_api_names_what_is_of_http() -> None:
    found = [(place, match[0]) for place, text in strings(*BELOW) for match in WORDS.finditer(text)]
    assert found == []


def test_the_api_names_such_things() -> None:
    assert {"Idempotency-Key", "/v1/"} <= {
        match[0] for _, text in strings("api") for match in WORDS.finditer(text)
    }


def test_options_that_an_error_names_are_shown_as_query_parameters() -> None:
    named = {match[1]: text for _, text in strings(*BELOW) for match in ADVICE.finditer(text)}
    assert {"infer", "evolve", "undeclared", "lossy"} <= set(named)
    for name in named:
        assert problem(400, "code", f"Set {name}=x.")["detail"] == f"Set ?{name}=x."


@pytest.mark.parametrize(
    ("below", "shown"),
    [
        ("infer=all", "?infer=all"),
        ("Set dtype= (and shape= for more).", "Set ?dtype= (and ?shape= for more)."),
        ("The feature 'infer=all' is unknown.", "The feature 'infer=all' is unknown."),
        ("It is max_shape=3.", "It is max_shape=3."),
        ("'my shape=3' is unknown. Set infer=all.", "'my shape=3' is unknown. Set ?infer=all."),
        ("The row's feature lacks dtype=int64.", "The row's feature lacks ?dtype=int64."),
    ],
)
def test_an_option_in_an_error(below: str, shown: str) -> None:
    document = problem(422, "code", below)
    assert (document["detail"], document["error"]) == (shown, shown)


@pytest.mark.parametrize(
    ("code", "header"),
    [("missing_json_length", "Inference-Header-Content-Length"), ("late_field", "Content-Length")],
)
def test_a_length_is_asked_for_by_its_header(code: str, header: str) -> None:
    assert f" {header}" in problem(400, code, "Not given.")["detail"]
