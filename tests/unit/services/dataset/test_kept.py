"""A bounded memory."""

from app.services.dataset.kept import Kept


def test_it_keeps_what_it_is_given() -> None:
    kept: Kept[str, int] = Kept(2)
    assert kept.get("a") is None
    assert kept.put("a", 1) == 1
    assert kept.get("a") == 1


def test_the_oldest_goes_first() -> None:
    kept: Kept[str, int] = Kept(2)
    for value, key in enumerate("abc"):
        kept.put(key, value)
    assert [kept.get(key) for key in "abc"] == [None, 1, 2]


def test_what_is_kept_already_takes_no_further_room() -> None:
    kept: Kept[str, int] = Kept(2)
    for value, key in enumerate("abb"):
        kept.put(key, value)
    assert [kept.get(key) for key in "ab"] == [0, 2]
