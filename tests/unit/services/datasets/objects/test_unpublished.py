"""Which append has waited longest for a publication, as far as a process knows."""

import time

import pytest

from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.unpublished import Acknowledged, Unpublished

A, B = Layout("a", 1), Layout("b", 1)


@pytest.fixture
def unpublished() -> Unpublished:
    unpublished = Unpublished()
    unpublished.is_watched = True
    return unpublished


def test_nothing_is_noted_that_nobody_would_look_up() -> None:
    unpublished = Unpublished()
    unpublished.add(A, Acknowledged(1, "1"))
    assert unpublished.oldest() is None


def test_the_oldest_of_all_datasets_is_found_whatever_the_order(unpublished: Unpublished) -> None:
    assert unpublished.oldest() is None
    assert unpublished.age_s == 0
    now = time.time()
    unpublished.add(A, Acknowledged(now - 20, "2"))
    unpublished.add(A, Acknowledged(now - 30, "1"))
    unpublished.add(A, Acknowledged(now - 10, "3"))
    unpublished.add(B, Acknowledged(now - 25, "4"))
    assert unpublished.oldest() == (A, Acknowledged(now - 30, "1"), Acknowledged(now - 10, "3"))
    assert 30 <= unpublished.age_s < 3630


def test_published_appends_are_forgotten(unpublished: Unpublished) -> None:
    first, last = Acknowledged(1, "1"), Acknowledged(3, "3")
    for append in (first, Acknowledged(2, "2"), last):
        unpublished.add(A, append)
    unpublished.forget_until(A, first)
    assert unpublished.oldest() == (A, last, last)
    unpublished.forget_until(A, last)
    assert unpublished.oldest() is None
    unpublished.forget_until(A, last)  # once more, by another thread


def test_an_append_that_came_meanwhile_is_left(unpublished: Unpublished) -> None:
    first, later = Acknowledged(1, "1"), Acknowledged(2, "2")
    unpublished.add(A, first)
    unpublished.add(A, later)
    unpublished.forget_until(A, first)
    assert unpublished.oldest() == (A, later, later)
