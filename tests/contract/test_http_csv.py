"""CSV as others write and name it."""

import httpx
import pytest

TSV = "text/tab-separated-values"
ROWS = [{"a": 1, "b": "x,y"}, {"a": None, "b": "z"}]


@pytest.mark.parametrize(
    ("params", "content_type", "body"),
    [
        ({}, "text/csv", b'a,b\n1,"x,y"\n,z\n'),
        ({}, "application/csv", b'a,b\n1,"x,y"\n,z\n'),
        ({"from": "application/csv"}, "text/plain", b'a,b\n1,"x,y"\n,z\n'),
        ({}, f"{TSV}; charset=utf-8", b"a\tb\n1\tx,y\n\tz\n"),
        ({"from": TSV}, "text/csv", b"a\tb\n1\tx,y\n\tz\n"),
        ({"delimiter": "tab"}, "text/csv", b"a\tb\n1\tx,y\n\tz\n"),
        ({"delimiter": ";", "null": "NA,-"}, "text/csv", b"a;b\n1;x,y\n-;z\n"),
        ({"delimiter": ","}, TSV, b'a,b\n1,"x,y"\n,z\n'),
        ({"null": "NA"}, "text/csv", b'a,b\n1,"x,y"\nNA,z\n'),
    ],
)
def test_csv_is_read(client: httpx.Client, params: dict[str, str], content_type: str, body: bytes) -> None:
    headers = {"Content-Type": content_type}
    answer = client.post("/v1/records/parse", params={**params, "to": "json"}, headers=headers, content=body)
    assert (answer.status_code, answer.json()) == (200, ROWS)


@pytest.mark.parametrize(("headers", "params"), [({"Accept": TSV}, {}), ({}, {"to": TSV})])
def test_tabs_go_out(client: httpx.Client, headers: dict[str, str], params: dict[str, str]) -> None:
    answer = client.post("/v1/records/parse", json=ROWS, headers=headers, params=params)
    assert answer.headers["content-type"].startswith(TSV)
    assert answer.content == b"a\tb\r\n1\tx,y\r\n\tz\r\n"


@pytest.mark.parametrize("name", ["application/ndjson", "application/x-jsonlines"])
def test_names_of_ndjson(client: httpx.Client, name: str) -> None:
    body = b'{"a":1}\n{"a":2}\n'
    for headers, params in (({"Content-Type": name}, {}), ({}, {"from": name})):
        answer = client.post(
            "/v1/records/parse", content=body, headers=headers, params={**params, "to": "json"}
        )
        assert answer.json() == [{"a": 1}, {"a": 2}], answer.text


def test_a_dialect_of_no_csv_is_refused(client: httpx.Client) -> None:
    answer = client.post("/v1/records/parse?delimiter=tab", json=ROWS)
    assert (answer.status_code, answer.json()["code"]) == (400, "inapplicable_parameter")


def test_an_append_of_tabs(client: httpx.Client) -> None:
    client.put(
        "/v1/datasets/tabs",
        json={"features": {"a": {"dtype": "int64", "nullable": True}, "b": {"dtype": "text"}}},
    )
    body = b"a\tb\n1\tx,y\nNA\tz\n"
    answer = client.post(
        "/v1/datasets/tabs/records", params={"null": "NA"}, headers={"Content-Type": TSV}, content=body
    )
    assert (answer.status_code, answer.json()["num_records"]) == (201, 2), answer.text
