from __future__ import annotations

from typing import Any, Literal

import pytest

from app.codecs.messages import example_index, framing
from app.codecs.messages.example_decode import parse_frames
from app.codecs.messages.framing import frame_footer, frame_header, iter_frames
from app.codecs.options import RecordsDecodeOptions
from app.domain.limits import Limits
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.arrow_rows import as_arrow

INT = b"\x1a\x03\x0a\x01\x07"
FLOAT = b"\x12\x06\x0a\x04\0\0\0\0"
BYTES = b"\x0a\x03\x0a\x01b"
ABSENT = b""


def field(tag: int, payload: bytes) -> bytes:
    size = len(payload)
    length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    return bytes([tag]) + length + payload


def example(*features: tuple[str, bytes]) -> bytes:
    entries = (field(0x0A, field(0x0A, key.encode()) + field(0x12, value)) for key, value in features)
    return field(0x0A, b"".join(entries))


def parse(
    messages: list[bytes], infer: Literal["head", "all"] = "head", limits: Limits | None = None
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    data = b"".join(frame_header(len(m)) + m + frame_footer(m) for m in messages)
    budget = Budget(limits)
    frames = iter_frames(MemoryStream(data), budget)
    records = parse_frames(frames, RecordsDecodeOptions(infer=infer), budget)
    rows = [row for batch in as_arrow(records) for row in batch.to_pylist()]
    assert budget.remaining == budget.limits.max_decoded_bytes
    assert all(feature.shape == (None,) and feature.nullable for feature in records.schema)
    return {feature.name: feature.dtype.name for feature in records.schema}, rows


def refusal(messages: list[bytes], **options: Any) -> tuple[str, int | None, str | None]:
    with pytest.raises(InputError) as caught:
        parse(messages, **options)
    return caught.value.code, caught.value.location.row, caught.value.location.feature


def test_the_schema_is_the_union_in_order_of_first_appearance() -> None:
    dtypes, rows = parse([example(("z", INT), ("b", FLOAT)), example(("a", BYTES), ("b", FLOAT))])
    assert list(dtypes.items()) == [("z", "int64"), ("b", "float32"), ("a", "bytes")]
    assert rows == [{"z": [7], "b": [0.0], "a": None}, {"z": None, "b": [0.0], "a": [b"b"]}]


def test_exactly_the_first_1000_records_count() -> None:
    head = [example(("x", INT))] * 999
    dtypes, rows = parse([*head, example(("x", INT), ("y", INT)), example(("y", INT))])
    assert list(dtypes) == ["x", "y"]
    assert len(rows) == 1001
    late = [*head, example(("x", INT)), example(("x", INT), ("y", INT))]
    assert refusal(late) == ("schema_conflict", 1000, "y")
    assert list(parse(late, infer="all")[0]) == ["x", "y"]


def test_the_head_is_the_same_however_the_blocks_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [example(("x", field(0x0A, field(0x0A, b"b" * 50))))] * 1000 + [
        example(("x", BYTES), ("y", INT))
    ]
    for size in (1024, 64 * 1024):
        monkeypatch.setattr(framing, "BLOCK_BYTES", size)
        assert refusal(messages) == ("schema_conflict", 1000, "y")
        assert len(parse(messages, infer="all")[1]) == 1001


@pytest.mark.parametrize("infer", ["head", "all"])
@pytest.mark.parametrize("row", [1, 999, 1000, 2500])
def test_a_changed_kind_is_refused(infer: str, row: int) -> None:
    messages = [example(("x", INT))] * row + [example(("x", FLOAT))] * 2
    assert refusal(messages, infer=infer) == ("schema_conflict", row, "x")


def test_a_feature_without_a_kind_says_nothing() -> None:
    dtypes, rows = parse([example(("x", ABSENT), ("y", INT)), example(("x", FLOAT))])
    assert dtypes == {"y": "int64", "x": "float32"}
    assert rows == [{"y": [7], "x": None}, {"y": None, "x": [0.0]}]
    assert parse([example(("x", ABSENT))])[0] == {}


def test_many_features_are_indexed_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_index, "MAX_CELLS", 64)
    names = [f"feature{number}" for number in range(20)]
    dtypes, rows = parse([example(*((name, INT) for name in names))] * 30 + [example(("more", INT))])
    assert list(dtypes) == [*names, "more"]
    assert len(rows) == 31
    changed = [example(*((name, INT) for name in names))] * 30 + [example((names[7], FLOAT))]
    assert refusal(changed) == ("schema_conflict", 30, names[7])


def test_too_many_features_are_refused() -> None:
    limits = Limits(max_features=10)
    assert len(parse([example(*((f"f{n}", INT) for n in range(10)))], limits=limits)[0]) == 10
    assert refusal([example(*((f"f{n}", INT) for n in range(11)))], limits=limits)[0] == "too_many_features"
    assert refusal([example((f"f{n}", INT)) for n in range(11)], limits=limits)[0] == "too_many_features"
    # One name, repeated beyond what is noted at a time.
    assert refusal([example(*[("x", INT)] * 12)], limits=limits)[0] == "too_many_features"


def test_a_broken_record_with_a_new_feature_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after as many looks at it as there are features."""
    num_looks = 0
    look = example_index.ExampleIndex.index

    def counted(self: example_index.ExampleIndex, block: framing.FrameBlock, first: int, last: int) -> int:
        nonlocal num_looks
        num_looks += 1
        return look(self, block, first, last)

    monkeypatch.setattr(example_index.ExampleIndex, "index", counted)
    full = example(*((f"f{index}", INT) for index in range(500)))
    broken = example(("new", INT)) + b"\x0a\xff\x01"
    # The index has no room for what is new in the second record, so it is made before the third.
    limits = Limits(max_features=600)
    assert refusal([full, full, broken], limits=limits) == ("malformed_example", 2, None)
    assert num_looks < 10


@pytest.mark.parametrize("name", ["", "x" * 5000])
def test_a_name_that_no_schema_takes_is_refused(name: str) -> None:
    assert refusal([example((name, INT))])[0] == "invalid_feature_name"


def test_looking_at_everything_is_bounded_by_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "BLOCK_BYTES", 1024)
    messages = [example(("x", field(0x0A, field(0x0A, b"b" * 500))))] * 100
    limits = Limits(max_decoded_bytes=40_000, max_features=10)
    assert refusal(messages, infer="all", limits=limits)[0] == "payload_too_large"


def test_no_records_have_no_features() -> None:
    assert parse([]) == ({}, [])
