"""The page with the statistics of a version: what stands there, next to what, and in which order."""

import html
import re
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

BROWSER = {"Accept": "text/html"}
HOSTILE = "</title><script>alert(1)</script>"
PAGE = "/ui/datasets/stat-page/1.0.0/statistics"


@pytest.fixture(scope="module", autouse=True)
def stored(client: httpx.Client) -> None:
    """Versions 1.0.0 with two splits, and 1.1.0, whose rows are more and have a feature more."""
    features = {
        "n": {"dtype": "int64", "shape": []},
        "label": {"dtype": "int64", "shape": [], "class_names": ["cat", "<b>dog</b>"]},
        "note": {"dtype": "text", "shape": [], "nullable": True},
        "tags": {"dtype": "int64", "shape": [None]},
    }
    client.put("/v1/datasets/stat-page", json={"schema": {"features": features}}).raise_for_status()

    def append(rows: list[dict[str, Any]], **query: str) -> None:
        client.post("/v1/datasets/stat-page/records", params=query, json=rows).raise_for_status()

    def row(k: int, **further: Any) -> dict[str, Any]:
        return {"n": k, "label": int(k % 4 == 0), "tags": list(range(k % 3)), **further}

    append([row(k, **({"note": f"note {k % 2}"} if k % 5 else {})) for k in range(40)], split="train")
    append([row(k + 1000, note=HOSTILE) for k in range(20)], split="test", publish="true")
    more = [row(k + 40, note="note 0", extra=0.5, n=70_000 + k) for k in range(60)]
    append(more, split="train", evolve="widen", publish="true")


def features_of(page: httpx.Response) -> dict[str, str]:
    """The part of the page for each feature, in their order."""
    page.raise_for_status()
    parts = re.findall(r'<article class="panel feature".*?</article>', page.text, re.DOTALL)
    return {html.unescape(re.findall(r"<h3[^>]*><bdi>(.*?)</bdi>", part)[0]): part for part in parts}


def figures(part: str, title: str) -> list[str]:
    """The figures of a line of a feature."""
    [line] = re.findall(rf'<th scope="row">{title}</th>(.*?)</tr>', part)
    return [html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", line)]


def test_each_feature_has_its_figures(client: httpx.Client) -> None:
    parts = features_of(client.get(f"{PAGE}?split=train", headers=BROWSER))
    assert list(parts) == ["n", "label", "note", "tags"]
    assert figures(parts["n"], "Rows with it") == ["40"]
    assert [figures(parts["n"], title)[0] for title in ("Min", "5 %", "Median", "95 %", "Max", "Mean")] == [
        "0",
        "1",
        "19",
        "37",
        "39",
        "19.5",
    ]
    assert figures(parts["note"], "Missing") == ["8 (20.0 %)"]
    assert figures(parts["note"], "Min") == ["6"]
    assert figures(parts["tags"], "Values of a row") == ["0 \N{EN DASH} 2"]
    assert "Number of values of a row" in parts["tags"]
    assert "Every value is there once." in parts["n"]


def test_values_are_listed_by_their_names_and_lead_to_their_rows(client: httpx.Client) -> None:
    page = client.get(f"{PAGE}?split=train", headers=BROWSER)
    part = features_of(page)["label"]
    listed = re.findall(r'<bdi><a href="([^"]+)">(.*?)</a>', part)
    assert [html.unescape(text) for _, text in listed] == ["cat (0)", "<b>dog</b> (1)"]
    rows = client.get(urljoin(str(page.url), html.unescape(listed[1][0])), headers=BROWSER)
    assert "10 rows found in rows 0 to 39 of 40" in rows.text


def test_two_splits_are_compared_by_drift(client: httpx.Client) -> None:
    answer = client.get("/v1/datasets/stat-page/versions/1.0.0/statistics?split=train&against_split=test")
    drift = answer.json()["drift"]
    parts = features_of(client.get(f"{PAGE}?split=train&against_split=test", headers=BROWSER))
    assert list(parts) == sorted(drift, key=lambda name: -drift[name])
    for name, part in parts.items():
        assert f"Drift</span> {drift[name]:.3f}" in part
    assert figures(parts["n"], "Max") == ["39", "1,019"]
    assert figures(parts["note"], "Missing") == ["8 (20.0 %)", "0"]
    titles = re.findall(r"<rect class=\"mark\".*?<title>(.*?)</title>", parts["tags"])
    assert titles[:2] == ["0: train 66.7%, test 66.7%", "1: train 33.3%, test 33.3%"]
    assert re.findall(r"\d+\.\d %", parts["label"]) == ["75.0 %", "75.0 %", "25.0 %", "25.0 %"]
    assert "histogram" not in parts["label"]
    assert 'class="other-line"' in parts["n"]


def test_two_versions_say_what_was_added(client: httpx.Client) -> None:
    newer = "/ui/datasets/stat-page/1.1.0/statistics?split=train"
    page = client.get(f"{newer}&against_version=1.0.0&order=schema", headers=BROWSER)
    parts = features_of(page)
    assert "+60" in page.text
    assert "Only in 1.1.0</dt>" in page.text
    assert "only in 1.1.0" in parts["extra"]
    assert figures(parts["extra"], "Rows with it") == ["60", "\N{EN DASH}"]
    assert "Drift" not in parts["extra"]
    older = client.get(f"{PAGE}?split=train&against_version=1.1.0", headers=BROWSER)
    assert list(features_of(older))[-1] == "extra"
    assert "-60" in older.text


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("schema", ["n", "label", "note", "tags"]),
        ("name", ["label", "n", "note", "tags"]),
        ("missing", ["note", "n", "label", "tags"]),
    ],
)
def test_the_order_is_a_link(client: httpx.Client, order: str, names: list[str]) -> None:
    page = client.get(PAGE, headers=BROWSER)
    [link] = re.findall(rf'href="([^"]*order={order}[^"]*)"', page.text)
    assert list(features_of(client.get(html.unescape(link), headers=BROWSER))) == names


def test_a_side_that_is_the_same_is_none(client: httpx.Client) -> None:
    page = client.get(f"{PAGE}?split=test&against_split=test&against_version=1.0.0", headers=BROWSER)
    assert "Drift" not in page.text


def test_untrusted_text_is_escaped(client: httpx.Client) -> None:
    row = {
        HOSTILE: HOSTILE,
        "a" * 500: "\N{RIGHT-TO-LEFT OVERRIDE}x",
        "b": {"b64": "/wAB"},
        "c": {"b64": "AAECAwQF"},
    }
    features: dict[str, Any] = {
        name: {"dtype": "bytes" if name in "bc" else "text", "shape": []} for name in row
    }
    client.put("/v1/datasets/stat-odd", json={"schema": {"features": features}}).raise_for_status()
    client.post("/v1/datasets/stat-odd/records?publish=true", json=[row] * 3).raise_for_status()
    page = client.get("/ui/datasets/stat-odd/latest/statistics", headers=BROWSER)
    parts = features_of(page)
    assert "<script>" not in page.text.replace('<script src="', "")
    assert html.escape(HOSTILE) in parts[HOSTILE]
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in page.text
    assert len(page.content) < 100_000
    assert "ff 00 01" in parts["b"]
    assert "00 01 02 03 04 05" in parts["c"]
    assert 'aria-label="Compare"' not in page.text  # there is nothing else
    assert "style=" not in page.text


def test_of_many_features_some_are_shown_at_a_time(client: httpx.Client) -> None:
    row = {f"feature-{k:04}": k for k in range(50)}
    client.post("/v1/datasets/stat-wide/records?publish=true", json=[row]).raise_for_status()
    seen, path = [], "/ui/datasets/stat-wide/1.0.0/statistics"
    while path:
        page = client.get(path, headers=BROWSER)
        seen += list(features_of(page))
        path = html.unescape(next(iter(re.findall(r'href="([^"]+)">Next', page.text)), ""))
    assert seen == list(row)
    found = client.get("/ui/datasets/stat-wide/1.0.0/statistics?q=E-001", headers=BROWSER)
    assert list(features_of(found)) == [f"feature-{k:04}" for k in range(10, 20)]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("split=other", 404, "split_not_found"),
        ("against_split=other", 404, "split_not_found"),
        ("against_version=9.0.0", 404, "version_not_found"),
        ("order=size", 400, "invalid_parameter"),
    ],
)
def test_unknown_version_or_split_is_a_problem(
    client: httpx.Client, query: str, status: int, code: str
) -> None:
    answer = client.get(f"{PAGE}?{query}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
