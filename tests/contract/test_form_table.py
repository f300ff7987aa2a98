"""Every cell of the table of forms in docs/http.md: what it claims is converted, all else is refused by name.

The quick tests go from each form to JSON, from JSON to each form, and from each form to itself.

The cells come from the registry, which the table is written from; a form that is added there and not in
`tests/support/tensor_formats.py` or `tests/support/row_formats.py` fails here.
"""

import json
from itertools import product
from typing import Any

import httpx
import pytest

from app.codecs.forms import RECORDS_CODECS, TENSOR_CODECS
from app.services.convert.examples import ROW_FORMS
from tests.support import row_formats, tensor_formats

#: Why a kind does not go into or come out of a form.
NOT_HELD = {"unsupported_kind", "several_tensors", "missing_component", "not_expressible"}


CELL = ("source", "target", "kind", "claimed")


def cells(codecs: Any, all_kinds: Any) -> list[Any]:
    """(form in, form out, kind, whether the table claims it); a form that is read alone is no form out."""
    written = [form for form in codecs if codecs[form].kinds]
    return [
        pytest.param(
            *(source, target, kind, kind in codecs[source].kinds_in and kind in codecs[target].kinds),
            id=f"{source}-{target}-{kind}",
            marks=() if source == target or "json" in (source, target) else pytest.mark.exhaustive,
        )
        for source, target, kind in product(codecs, written, all_kinds)
    ]


@pytest.mark.parametrize(
    ("source", "target", "kind", "claimed"),
    cells(TENSOR_CODECS, tensor_formats.TENSORS),
)
def test_tensors(client: httpx.Client, source: str, target: str, kind: str, claimed: bool) -> None:
    parts = tensor_formats.sample(kind, source, target)
    request = tensor_formats.written(source, parts)
    declared = {} if kind == "dense" else {"kind": kind}
    params = {"from": source, "to": target, **declared, **request.pop("params", {})}
    answers = [
        client.post(f"/v1/tensors/{verb}", params=params, **request) for verb in ("serialize", "parse")
    ]
    assert answers[0].content == answers[1].content
    if not claimed:
        assert_refused(answers[0])
        return
    assert answers[0].status_code == 200, answers[0].text
    found = tensor_formats.read(target, kind, answers[0])
    for (name, array), (wanted_name, wanted) in zip(found, parts, strict=True):
        assert (name, array.dtype, array.tolist()) == (wanted_name, wanted.dtype, wanted.tolist())


@pytest.mark.parametrize(
    ("source", "target", "kind", "claimed"),
    cells(RECORDS_CODECS, row_formats.ROWS),
)
def test_records(client: httpx.Client, source: str, target: str, kind: str, claimed: bool) -> None:
    features, rows = row_formats.sample(kind, source, target)
    request = row_formats.written(source, kind, rows)
    declared = {"schema": json.dumps({"features": features})}
    params = {"from": source, "to": target, **declared, **request.pop("params", {})}
    answers = [
        client.post(f"/v1/records/{verb}", params=params, **request) for verb in ("serialize", "parse")
    ]
    assert answers[0].content == answers[1].content
    if not claimed:
        assert_refused(answers[0])
        return
    assert answers[0].status_code == 200, answers[0].text
    assert answers[0].headers["record-count"] == str(len(rows))
    assert row_formats.read(target, kind, answers[0]) == rows


@pytest.mark.parametrize(("source", "target", "kind"), list(product(ROW_FORMS, ROW_FORMS, row_formats.ROWS)))
def test_examples(client: httpx.Client, source: str, target: str, kind: str) -> None:
    features, (row, _) = row_formats.sample(kind)
    (message,) = row_formats.messages(kind, [row])
    bodies = {
        "json": json.dumps(row_formats.envelope(kind, row)).encode(),
        "example": message,
        "b64": tensor_formats.b64_of([message]),
    }
    assert bodies.keys() == ROW_FORMS.keys()
    params = {"from": source, "to": target, "schema": json.dumps({"features": features})}
    for verb in ("serialize", "parse"):
        answer = client.post(f"/v1/examples/{verb}", params=params, content=bodies[source])
        assert answer.status_code == 200, answer.text
        if target == "json":
            found = [row_formats.opened(kind, answer.json())]
        else:
            messages = [answer.content] if target == "example" else tensor_formats.messages_of(answer.json())
            found = row_formats.rows_of_messages(kind, messages)
        assert found == [row]


def assert_refused(answer: httpx.Response) -> None:
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["code"] in NOT_HELD) == (422, True), answer.text
