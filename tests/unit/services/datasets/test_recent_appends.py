"""What was acknowledged lately: by whole seconds, of the datasets that are asked for, and no longer."""

from app.services.datasets.recent_appends import KEPT_S, Amount, RecentAppends

NOTHING = Amount()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_each_second_has_its_own() -> None:
    clock = Clock()
    recent = RecentAppends(clock)
    recent.add("a", Amount(1, 10))
    recent.add("b", Amount(1, 1))
    clock.now += 0.9
    recent.add("a", Amount(2, 20))
    clock.now += 2.1
    recent.add("a", Amount(1, 5))
    assert recent.datasets == {"a", "b"}
    assert recent.by_second(["a"])[-3:] == [Amount(3, 30), NOTHING, NOTHING]
    assert recent.by_second(["a", "b"])[-3:] == [Amount(4, 31), NOTHING, NOTHING]
    assert recent.by_second(["c"]) == [NOTHING] * KEPT_S
    clock.now += 1
    assert recent.by_second(["a"])[-2:] == [NOTHING, Amount(1, 5)]


def test_appends_are_forgotten_after_a_minute() -> None:
    clock = Clock()
    recent = RecentAppends(clock)
    recent.add("a", Amount(1, 1))
    clock.now += KEPT_S
    assert recent.by_second(["a"]) == [Amount(1, 1), *[NOTHING] * (KEPT_S - 1)]
    clock.now += 1
    assert recent.by_second(["a"]) == [NOTHING] * KEPT_S
    assert not recent.datasets
