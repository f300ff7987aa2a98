"""Thousands of features, each in another row: read and written as any others, without a step a cell."""

import json
from typing import Any

import pytest

from app.codecs.forms import FormName
from app.domain.limits import Limits
from app.errors import LimitExceeded
from app.runtime.budget import Budget
from tests.support.arrow_rows import as_arrow
from tests.support.format_cases import decode, encode

NAMES = [f"f{number:04d}" for number in range(400)]
#: A feature a row, and some that are in many; integers in lists, as an Example has them.
ROWS: list[dict[str, Any]] = [
    {NAMES[row]: [row], **({"often": [1]} if row % 3 else {}), **({"text": ["é"]} if row == 7 else {})}
    for row in range(400)
]


def bodies() -> dict[FormName, bytes]:
    rows = json.dumps(ROWS).encode()
    lines = b"\n".join(json.dumps(row).encode() for row in ROWS)
    return {"json": rows, "ndjson": lines, "tfrecord": encode("tfrecord", decode("json", rows))}


@pytest.mark.parametrize("form", ["json", "ndjson", "tfrecord"])
def test_every_value_is_read_and_written_where_it_was(form: FormName) -> None:
    rows = json.loads(encode("json", decode(form, bodies()[form])))
    found = [{name: cell for name, cell in row.items() if cell is not None} for row in rows]
    if form == "tfrecord":  # an Example does not tell text from bytes
        assert found[7].pop("text") == [{"b64": "w6k="}]
        found[7]["text"] = ["é"]
    assert found == ROWS
    assert all(row.keys() == {*NAMES, "often", "text"} for row in rows)


def test_examples_are_the_same_bytes_together_and_alone() -> None:
    together = encode("tfrecord", decode("json", bodies()["json"]))
    alone = [encode("tfrecord", decode("json", json.dumps([row]).encode())) for row in ROWS]
    assert together == b"".join(alone)


@pytest.mark.parametrize("form", ["json", "ndjson", "tfrecord"])
def test_more_features_than_the_limit_are_refused(form: FormName) -> None:
    with pytest.raises(LimitExceeded) as caught:
        list(decode(form, bodies()[form], Budget(Limits(max_features=401))).batches)
    assert caught.value.code == "too_many_features"


def test_features_that_no_row_of_a_batch_has_share_their_memory() -> None:
    batches = list(as_arrow(decode("tfrecord", bodies()["tfrecord"])))
    for batch in batches:
        absent = [column for column in batch.columns if column.null_count == batch.num_rows]
        memory: list[Any] = [column.buffers()[1] for column in absent]
        assert len({buffer.address for buffer in memory}) <= 2  # integers, and bytes
