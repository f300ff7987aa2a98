"""What is shown of values: bounded, however large they are."""

import math
import tracemalloc
from zlib import crc32

import numpy as np
import pytest

from app.api.ui.cells import ALONE, IN_TABLE, Cell, Extent, show_rows
from app.api.ui.pictures import Painter
from app.codecs.columns import Batch, Column, Strings
from app.domain.feature import Feature
from app.domain.limits import Limits
from app.domain.meaning import Meaning
from app.runtime.budget import Budget
from tests.support.image_processes import shared_images
from tests.unit.api.ui.columns import feature


def shown(of: Feature, column: Column, extent: Extent = IN_TABLE) -> Cell:
    painter = Painter(shared_images(), Budget(Limits()), extent.width, extent.height)
    [[cell]] = show_rows([of], [Batch(1, (column,))], painter, extent)
    return cell


def test_an_absent_value() -> None:
    column = Column(np.zeros(0, np.int64), present=np.array([False]))
    assert shown(feature("x", "int64"), column).kind == "absent"


@pytest.mark.parametrize(
    ("dtype", "value", "text", "exact"),
    [
        ("int64", 2**63 - 1, "9223372036854775807", "9223372036854775807"),
        ("float32", 0.1, "0.1", "0.1"),
        ("float64", 1 / 3, "0.333333", "0.3333333333333333"),
        ("float32", np.nan, "nan", "nan"),
        ("bool", True, "true", "true"),
    ],
)
def test_a_number(dtype: str, value: float, text: str, exact: str) -> None:
    of = feature("x", dtype)
    column = Column(np.array([value], of.dtype.numpy))
    assert shown(of, column) == Cell("number", text)
    assert shown(of, column, ALONE) == Cell("number", exact)


def test_a_label_has_its_name() -> None:
    of = feature("x", "int64", meaning=Meaning(class_names=("cat", "dog")))
    assert shown(of, Column(np.array([1]))).text == "dog (1)"
    assert shown(of, Column(np.array([-1]))).text == "-1"
    assert shown(of, Column(np.array([2]))).text == "2"


def test_a_name_of_a_class_is_cut_and_cannot_steer() -> None:
    of = feature("x", "int64", (8,), meaning=Meaning(class_names=("\u202e\x1b[2J" + "n" * 100_000,)))
    text = shown(of, Column(np.zeros(8, np.int64), width=8), ALONE).text
    assert len(text) < 1_200
    assert text.isprintable()


@pytest.mark.parametrize("size", [2, 100, 513, 100_000])
def test_a_signal_is_a_wave_of_few_points_within_its_box(size: int) -> None:
    values = np.sin(np.arange(size)).astype(np.float32)
    values[size // 2] = np.nan
    cell = shown(feature("x", "float32", (None,)), Column(values, (np.array([0, size]),)))
    assert cell.kind == ("list" if size == 2 else "wave")
    points = [tuple(map(float, point.split(","))) for point in cell.points.split()]
    assert len(points) <= 512
    assert all(0 <= x <= 160 and 0 <= y <= 36 for x, y in points)
    if size > 2:
        assert f"{size:,}".replace(",", "") in cell.note
        assert "1 not finite" in cell.note


def test_nothing_finite_is_said() -> None:
    column = Column(np.full(20, np.inf, np.float32))
    assert shown(feature("x", "float32", (20,)), column).note == "nothing finite"


@pytest.mark.parametrize(
    ("dtype", "shape", "words"),
    [
        ("float32", (12, 16), "heat map"),
        ("uint8", (8, 8, 3), "pixels"),
        ("float32", (8, 8, 3), "pixels"),
        ("int64", (8, 8, 3), "heat map"),
        ("float32", (2, 8, 8, 5), "heat map"),
        ("bool", (4, 4), "heat map"),
        ("complex64", (4, 4), "heat map"),
        ("bfloat16", (4, 4), "heat map"),
    ],
)
def test_a_tensor_is_a_picture(dtype: str, shape: tuple[int, ...], words: str) -> None:
    of = feature("x", dtype, shape)
    cell = shown(of, Column(np.ones(int(np.prod(shape)), of.dtype.numpy), width=int(np.prod(shape))))
    assert cell.kind == "picture"
    assert [picture.words for picture in cell.pictures] == [words]


@pytest.mark.parametrize("dtype", ["uint8", "float16", "int64"])
@pytest.mark.parametrize(
    "shape",
    [(1 << 23,), (2048, 4096), (4, 1 << 21), (1 << 21, 4), (2048, 4096, 1), (2048, 4096, 3), (2, 1 << 22, 3)],
)
def test_a_large_tensor_is_shown_in_little_memory(dtype: str, shape: tuple[int, ...]) -> None:
    """As float64, each takes at least 64 MB."""
    of = feature("x", dtype, shape)
    values = np.zeros(math.prod(shape), of.dtype.numpy)
    values[-1] = 1
    painter = Painter(shared_images(), Budget(Limits()), IN_TABLE.width, IN_TABLE.height)
    rows = [Batch(1, (Column(values, width=values.size),))]
    tracemalloc.start()
    try:
        [[cell]] = show_rows([of], rows, painter, IN_TABLE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cell.note == "0 to 1"
    assert peak < 20_000_000


@pytest.mark.parametrize("shape", [(0, 4), (4, 0, 3)])
def test_a_tensor_without_elements_is_a_list(shape: tuple[int, ...]) -> None:
    column = Column(np.zeros(0, np.float32), width=0)
    assert shown(feature("x", "float32", shape), column) == Cell("list", "[]")


def test_ragged_and_sparse_values_are_shown_as_such() -> None:
    ragged = feature("x", "int64", (None, None), kind="ragged")
    splits = (np.array([0, 3]), np.array([0, 2, 2, 3]))
    assert shown(ragged, Column(np.array([1, 2, 3]), splits)) == Cell("list", "[[1, 2], [], [3]]", "ragged")
    sparse = feature("x", "float32", (10, 10), kind="sparse")
    values = np.array([0.5], np.float32)
    column = Column(values, (np.array([0, 1]),), coordinates=np.array([[2, 3]]))
    assert shown(sparse, column) == Cell("list", "{(2, 3): 0.5}", "1 of 100, sparse")


def test_a_long_ragged_value_is_cut() -> None:
    ragged = feature("x", "int64", (None, None), kind="ragged")
    count = 100_000
    splits = (np.array([0, count]), np.arange(count + 1))
    cell = shown(ragged, Column(np.arange(count), splits))
    assert len(cell.text) < 500
    assert "…" in cell.text


def test_long_text_is_folded_and_longer_text_is_cut() -> None:
    of = feature("x", "text")
    assert shown(of, Column(Strings.pack([b"short"]))) == Cell("text", "short")
    cell = shown(of, Column(Strings.pack(["ä".encode() * 500])))
    assert (cell.kind, cell.text + cell.folded, len(cell.text)) == ("text", "ä" * 500, 120)
    cell = shown(of, Column(Strings.pack([b"x" * 10**6])))
    assert len(cell.text + cell.folded) == 2_000
    assert cell.note == "976.6 KiB of text"


@pytest.mark.parametrize("extent", [IN_TABLE, ALONE])
def test_of_many_long_texts_some_are_shown(extent: Extent) -> None:
    texts = Strings.pack([b"\xf0\x9f\x8c\xb7" * 100_000] * 300)
    cell = shown(feature("x", "text", (300,)), Column(texts, width=300), extent)
    assert extent.text < len(cell.text) < extent.folded + extent.text + 1_000
    assert cell.text.endswith("…]")


def test_shown_cells_are_charged() -> None:
    of, budget = feature("x", "text"), Budget(Limits())
    painter = Painter(shared_images(), budget, 128, 96)
    rows = [Batch(1, (Column(Strings.pack([b"long " * 1_000])),))] * 50
    [[first], *_] = show_rows([of], rows, painter, IN_TABLE)
    assert budget.peak >= 50 * (len(first.text) + len(first.folded)) > 50_000


def test_control_characters_are_shown_and_bytes_are_digits() -> None:
    assert shown(feature("x", "text"), Column(Strings.pack([b"a\x1b[0m\x00"]))).text == "a␛[0m␀"
    cell = shown(feature("x", "bytes"), Column(Strings.pack([bytes(range(128, 148))])))
    assert cell == Cell("bytes", "80 81 82 83 84 85 86 87 88 89 8a 8b …", "20 B")


def test_undecodable_image_says_why() -> None:
    content = b"IHDR" + (50_000).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
    end = b"\0\0\0\0IEND" + crc32(b"IEND").to_bytes(4, "big")
    header = b"\x89PNG\r\n\x1a\n\0\0\0\x0d" + content + crc32(content).to_bytes(4, "big") + end
    cell = shown(feature("x", "bytes"), Column(Strings.pack([header])))
    assert cell.kind == "picture"
    assert "pixels" in cell.pictures[0].why
    assert not cell.pictures[0].url
