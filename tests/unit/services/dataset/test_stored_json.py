"""Small JSON objects on the store."""

import pytest

from app.errors import CorruptData
from app.services.dataset.stored_json import dump_json, load_json


def test_the_form_is_compact_ascii_in_the_given_order() -> None:
    assert dump_json({"z": [1, None], "a": "é"}) == b'{"z":[1,null],"a":"\\u00e9"}'


def test_what_was_dumped_is_loaded() -> None:
    assert load_json(dump_json({"z": 2**63, "a": "é"}), "key") == {"z": 2**63, "a": "é"}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"1", b"\xff", b'{"a":1} x', b"[" * 100_000])
def test_anything_else_is_corrupt_and_named(data: bytes) -> None:
    with pytest.raises(CorruptData, match=r"d/_gen/1\.json"):
        load_json(data, "d/_gen/1.json")
