"""What is consumed: one fate for each append, forgotten when it is old and gone."""

import pytest

from app.errors import CorruptData
from app.services.datasets.objects.seen import Consumed, Seen


def test_seen_both_ways() -> None:
    seen = Seen({"a1": Consumed(1, "0a1b2c3d", 1700000000), "b2": Consumed(3, "9", 7, True)}, {"key.1": 3})
    assert seen.serialize() == (b"a1 1 published 1700000000 0a1b2c3d\nb2 3 excluded 7 9\n=key.1 3\n")
    assert Seen.parse(seen.serialize(), "key") == seen
    assert Seen.parse(b"", "key") == Seen({}, {})


def test_lines_of_seen_may_say_more_one_day() -> None:
    data = b"a1 1 published 1700000000 0a and more\n=key.1 3 more still\n"
    assert Seen.parse(data, "key") == Seen({"a1": Consumed(1, "0a", 1700000000)}, {"key.1": 3})


def test_lines_of_seen_once_said_less() -> None:
    seen = Seen.parse(b"a1 1\n", "key")
    assert seen == Seen({"a1": Consumed(1)}, {})
    assert seen.appends["a1"].is_of("whatever")


def test_an_append_is_consumed_once_for_each_slot() -> None:
    fate = Consumed(1, "0a1b2c3d")
    assert fate.is_of("0a1b2c3d" + "0" * 24)
    assert not fate.is_of("f" * 32)


@pytest.mark.parametrize("data", [b"a\n", b"a b c\n", b"a x\n", b"\xff 1\n", b"a 1 published x 0\n"])
def test_anything_else_is_not_seen(data: bytes) -> None:
    with pytest.raises(CorruptData, match="key"):
        Seen.parse(data, "key")


def test_old_collected_appends_are_forgotten() -> None:
    seen = Seen({"a": Consumed(1), "b": Consumed(1), "c": Consumed(3)}, {"k1": 1, "k3": 3})
    assert seen.without(["a", "c"], 2) == Seen({"b": Consumed(1), "c": Consumed(3)}, {"k3": 3})
    assert seen.without([], 0) == seen


def test_a_slot_is_looked_at_where_its_time_is_another() -> None:
    seen = Seen({"a": Consumed(1, "0a", 1700), "old": Consumed(1)}, {})
    assert not seen.may_be_new("a", 1700)
    assert seen.may_be_new("a", 1701)
    assert seen.may_be_new("b", 1700)
    assert not seen.may_be_new("old", 1700)
