"""A bounded memory."""

from app.services.datasets.objects.kept import Kept


def test_value_is_kept() -> None:
    kept: Kept[str, int] = Kept(2)
    assert kept.get("a") is None
    assert kept.put("a", 1) == 1
    assert kept.get("a") == 1


def test_the_oldest_goes_first() -> None:
    kept: Kept[str, int] = Kept(2)
    for value, key in enumerate("abc"):
        kept.put(key, value)
    assert [kept.get(key) for key in "abc"] == [None, 1, 2]


def test_kept_value_takes_no_more_space() -> None:
    kept: Kept[str, int] = Kept(2)
    for value, key in enumerate("abb"):
        kept.put(key, value)
    assert [kept.get(key) for key in "ab"] == [0, 2]


def test_large_values_leave_room_for_few() -> None:
    kept: Kept[str, int] = Kept(10)
    for key, size in [("a", 4), ("b", 4), ("c", 4), ("c", 5)]:
        kept.put(key, 0, size)
    assert [kept.get(key) for key in "abc"] == [None, 0, 0]
    kept.put("b", 1, 7)
    assert [kept.get(key) for key in "abc"] == [None, 1, None]


def test_the_last_value_is_kept_however_large() -> None:
    kept: Kept[str, int] = Kept(10)
    kept.put("a", 0, 5)
    kept.put("b", 1, 50)
    assert [kept.get(key) for key in "ab"] == [None, 1]
    kept.put("c", 2, 1)
    assert [kept.get(key) for key in "bc"] == [None, 2]
