"""SequenceExamples, ragged and sparse features over a real connection, from JSON to messages and back."""

import json
from typing import Any

import httpx

SERIALIZE = "/v1/records/serialize"
PARSE = "/v1/records/parse"
FEATURES: dict[str, Any] = {
    "id": {"dtype": "int64"},
    "words": {"dtype": "text", "shape": [None, None], "kind": "ragged", "nullable": True},
    "hits": {"dtype": "float32", "shape": [4], "kind": "sparse"},
}
STEPS: dict[str, Any] = {
    "frame": {"dtype": "float32", "shape": [None, 2], "kind": "sequence"},
    "label": {"dtype": "int64", "shape": [None, None], "kind": "sequence", "nullable": True},
}
HITS = {"values": [0.5], "indices": [[3]], "dense_shape": [4]}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "words": [["a"], []], "hits": HITS},
    {"id": 2, "words": None, "hits": HITS},
]
LISTS: list[dict[str, Any]] = [
    {"frame": [[1.0, 2.0], [3.0, 4.0]], "label": [[1], [], [2, 3]]},
    {"frame": [], "label": None},
]


def query(**features: Any) -> dict[str, str]:
    return {"schema": json.dumps({"features": features})}


def test_ragged_and_sparse_rows_return(client: httpx.Client) -> None:
    written = client.post(SERIALIZE, json=ROWS, params=query(**FEATURES))
    assert written.status_code == 200, written.text
    assert b"words/ragged_row_lengths_0" in written.content
    again = client.post(PARSE, content=written.content, params=query(**FEATURES) | {"to": "json"})
    assert again.json() == ROWS


def test_sequence_examples_return(client: httpx.Client) -> None:
    rows = [{"context": row, "feature_lists": lists} for row, lists in zip(ROWS, LISTS, strict=True)]
    declared = query(**FEATURES, **STEPS)
    written = client.post(SERIALIZE, json=rows, params=declared)
    assert written.status_code == 200, written.text
    again = client.post(PARSE, content=written.content, params=declared | {"to": "json"})
    assert again.json() == rows


def test_one_row_is_one_bare_message(client: httpx.Client) -> None:
    row = {"context": {"id": 1}, "feature_lists": {"x": [[1], [2, 3]]}}
    asked = {"message": "sequence_example"}
    written = client.post("/v1/examples/serialize", json=row, params=asked)
    assert written.status_code == 200, written.text
    assert written.content == bytes.fromhex(
        "0a0d 0a0b 0a026964 1205 1a03 0a0101 1216 0a14 0a0178 120f 0a05 1a03 0a0101 0a06 1a04 0a020203"
    )
    parse = "/v1/examples/parse"
    again = client.post(parse, content=written.content, params=asked)
    assert again.json() == {"context": {"id": [1]}, "feature_lists": {"x": [[1], [2, 3]]}}
    refused = client.post(parse, content=written.content)
    assert (refused.status_code, refused.json()["code"]) == (422, "sequence_example")
