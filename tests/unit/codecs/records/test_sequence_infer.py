from __future__ import annotations

from typing import Any, Literal

import pytest

from app.codecs.messages import example_index, framing
from app.codecs.messages.framing import frame_footer, frame_header, iter_frames
from app.codecs.messages.sequence_decode import parse_sequences
from app.codecs.options import RecordsDecodeOptions
from app.domain.limits import Limits
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.streams import MemoryStream
from tests.arrow_rows import as_arrow
from tests.feature_values import field

INT = b"\x1a\x03\x0a\x01\x07"
FLOAT = b"\x12\x06\x0a\x04\0\0\0\0"
BYTES = b"\x0a\x03\x0a\x01b"


def context(*features: tuple[str, bytes]) -> bytes:
    entries = (field(0x0A, field(0x0A, key.encode()) + field(0x12, value)) for key, value in features)
    return field(0x0A, b"".join(entries))


def lists(*features: tuple[str, list[bytes]]) -> bytes:
    entries = (
        field(0x0A, field(0x0A, key.encode()) + field(0x12, b"".join(field(0x0A, step) for step in steps)))
        for key, steps in features
    )
    return field(0x12, b"".join(entries))


def parse(
    messages: list[bytes], infer: Literal["head", "all"] = "head", limits: Limits | None = None
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    data = b"".join(frame_header(len(m)) + m + frame_footer(m) for m in messages)
    budget = Budget(limits)
    frames = iter_frames(MemoryStream(data), budget)
    records = parse_sequences(frames, RecordsDecodeOptions(infer=infer), budget)
    rows = [row for batch in as_arrow(records) for row in batch.to_pylist()]
    assert budget.remaining == budget.limits.max_decoded_bytes
    assert records.schema.message == "sequence_example"
    assert all(feature.nullable for feature in records.schema)
    for feature in records.schema:
        assert feature.shape == ((None, None) if feature.kind == "sequence" else (None,))
    dtypes = {feature.name: f"{feature.kind} {feature.dtype}" for feature in records.schema}
    return dtypes, rows


def refusal(messages: list[bytes], **options: Any) -> tuple[str, int | None, str | None]:
    with pytest.raises(InputError) as caught:
        parse(messages, **options)
    return caught.value.code, caught.value.location.row, caught.value.location.feature


def test_the_context_comes_first_and_then_the_lists_in_order_of_first_appearance() -> None:
    first = lists(("z", [INT, INT]), ("b", [FLOAT])) + context(("c", BYTES))
    dtypes, rows = parse([first, context(("a", INT)) + lists(("y", [BYTES]))])
    assert list(dtypes.items()) == [
        ("c", "dense bytes"),
        ("a", "dense int64"),
        ("z", "sequence int64"),
        ("b", "sequence float32"),
        ("y", "sequence bytes"),
    ]
    assert rows == [
        {"c": [b"b"], "a": None, "z": [[7], [7]], "b": [[0.0]], "y": None},
        {"c": None, "a": [7], "z": None, "b": None, "y": [[b"b"]]},
    ]


def test_a_list_whose_steps_say_nothing_is_float32_until_one_does() -> None:
    dtypes, rows = parse([lists(("x", []), ("y", [b""])), lists(("x", [b"", INT]))])
    assert dtypes == {"x": "sequence int64", "y": "sequence float32"}
    assert rows == [{"x": [], "y": [[]]}, {"x": [[], [7]], "y": None}]


def test_exactly_the_first_1000_records_count() -> None:
    head = [lists(("x", [INT]))] * 999
    dtypes, rows = parse([*head, lists(("x", [INT]), ("y", [INT])), lists(("y", [INT]))])
    assert list(dtypes) == ["x", "y"]
    assert len(rows) == 1001
    late = [*head, lists(("x", [INT])), lists(("x", [INT]), ("y", [INT]))]
    assert refusal(late) == ("schema_conflict", 1000, "y")
    assert list(parse(late, infer="all")[0]) == ["x", "y"]
    late = [*head, lists(("x", [INT])), context(("c", INT))]
    assert refusal(late) == ("schema_conflict", 1000, "c")
    assert list(parse(late, infer="all")[0]) == ["c", "x"]


def test_the_head_is_the_same_however_the_blocks_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [context(("c", INT)) + lists(("x", [INT] * 5))] * 1000 + [lists(("y", [INT]))]
    for size in (1024, 64 * 1024):
        monkeypatch.setattr(framing, "BLOCK_BYTES", size)
        assert refusal(messages) == ("schema_conflict", 1000, "y")
        assert len(parse(messages, infer="all")[1]) == 1001


@pytest.mark.parametrize("infer", ["head", "all"])
@pytest.mark.parametrize("row", [1, 999, 1000, 2500])
def test_a_changed_kind_is_refused(infer: str, row: int) -> None:
    messages = [lists(("x", [INT]))] * row + [lists(("x", [FLOAT]))] * 2
    assert refusal(messages, infer=infer) == ("schema_conflict", row, "x")
    messages = [context(("x", INT))] * row + [context(("x", FLOAT))] * 2
    assert refusal(messages, infer=infer) == ("schema_conflict", row, "x")


def test_steps_of_two_kinds_are_refused() -> None:
    assert refusal([lists(("x", [INT])), lists(("x", [INT, FLOAT]))]) == ("schema_conflict", 1, "x")
    assert refusal([b"", lists(("x", [INT, FLOAT]))]) == ("schema_conflict", 1, "x")


def test_a_name_in_both_parts_is_refused() -> None:
    assert refusal([context(("x", INT)), lists(("x", [INT]))])[::2] == ("duplicate_feature", "x")


def test_many_lists_are_indexed_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example_index, "MAX_CELLS", 64)
    names = [f"feature{number}" for number in range(20)]
    messages = [lists(*((name, [INT]) for name in names))] * 30
    dtypes, rows = parse([*messages, lists(("more", [INT]))])
    assert list(dtypes) == [*names, "more"]
    assert len(rows) == 31
    assert refusal([*messages, lists((names[7], [FLOAT]))]) == ("schema_conflict", 30, names[7])


def test_too_many_features_are_refused() -> None:
    limits = Limits(max_features=10)
    assert len(parse([lists(*((f"f{n}", [INT]) for n in range(10)))], limits=limits)[0]) == 10
    many = [
        [lists(*((f"f{n}", [INT]) for n in range(11)))],
        [lists((f"f{n}", [INT])) for n in range(11)],
        [lists(*[("x", [INT])] * 12)],  # one name, repeated beyond what is noted at a time
        [context(("c", INT)) + lists(*((f"f{n}", [INT]) for n in range(10)))],
    ]
    for messages in many:
        assert refusal(messages, limits=limits)[0] == "too_many_features"


@pytest.mark.parametrize("name", ["", "x" * 5000])
def test_a_name_that_no_schema_takes_is_refused(name: str) -> None:
    assert refusal([lists((name, [INT]))])[0] == "invalid_feature_name"


def test_malformed_messages_are_named_with_row_and_offset() -> None:
    good = lists(("x", [INT]))
    for broken in (b"\x12\x05", context(("c", b"\x1a\x7f")), lists(("x", [b"\x1a\x7f"]))):
        with pytest.raises(InputError) as caught:
            parse([good, broken])
        assert (caught.value.code, caught.value.location.row) == ("malformed_example", 1)
        assert caught.value.location.offset is not None
        assert caught.value.location.offset > len(good) + 16


def test_no_records_have_no_features() -> None:
    assert parse([]) == ({}, [])
