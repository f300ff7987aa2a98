"""What is taken of a limit, as other processes see it."""

from collections.abc import Iterator

from app.runtime.tally import Tally


class _Written(list[int]):
    """Numbers; which of them were written, and with what."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(numbers)
        self.written: list[tuple[int, int]] = []

    def __setitem__(self, place: object, number: object) -> None:
        assert isinstance(place, int)
        assert isinstance(number, int)
        self.written.append((place, number))
        super().__setitem__(place, number)


class _OtherTakes(_Written):
    """The same, and another process takes 4 bytes after they were added up for the first time."""

    def __iter__(self) -> Iterator[int]:
        yield from list(super().__iter__())
        if not any(place == 1 for place, _ in self.written):
            self[1] += 4


def test_refused_amount_is_never_visible() -> None:
    numbers = _Written(3, 5)
    assert not Tally(numbers).add(3, limit=10)
    assert numbers.written == []
    assert Tally(numbers).add(2, limit=10)
    assert numbers == [5, 5]


def test_of_two_that_take_the_last_bytes_at_once_not_both_get_them() -> None:
    numbers = _OtherTakes(0, 3)
    assert not Tally(numbers).add(4, limit=10)
    assert numbers == [0, 7]
