from __future__ import annotations

from typing import Any

import pytest

from app.codecs.json.nesting import Nesting


def opened(cells: list[Any], axes: int) -> tuple[Nesting, list[Any]]:
    nesting, items = Nesting(), cells
    for _ in range(axes):
        items = nesting.open(items)
    return nesting, items


def test_every_axis_is_opened_in_turn() -> None:
    nesting, items = opened([[[1], [2, 3]], [], [[4]]], 2)
    assert items == [1, 2, 3, 4]
    assert [lengths.tolist() for lengths in nesting.lengths] == [[2, 0, 1], [1, 2, 1]]


def test_every_item_knows_its_cell() -> None:
    nesting, items = opened([[], [[1], [], [2, 3]], [], [[4]], []], 2)
    assert [nesting.cell_of(index) for index in range(len(items))] == [1, 1, 1, 3]
    assert [Nesting().cell_of(index) for index in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("cells", "axes", "uneven"),
    [
        ([1, 2], 0, None),
        ([[1], [2, 3], []], 1, None),
        ([[[1], [2]], [[3, 4]], []], 2, None),
        ([[[1]], [[1], [2, 3]], [[], [1]]], 2, 1),
        ([[[[1]], [[1, 2]]], [[[]], []]], 3, 0),
    ],
)
def test_the_first_cell_that_is_not_rectangular(cells: list[Any], axes: int, uneven: int | None) -> None:
    assert opened(cells, axes)[0].first_uneven() == uneven
