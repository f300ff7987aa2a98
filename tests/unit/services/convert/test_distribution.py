"""How values are spread: exact while there are few different ones, within the bounds of a sample beyond."""

import base64
import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.columns import Column, Strings
from app.domain.dtypes import DTYPES
from app.domain.schema import Schema
from app.services.convert.distribution import Detail
from app.services.convert.statistics import FeatureStatistics
from tests.support.images import encode, pixels

FINE = Detail.of(num_features=1, num_values=0)
#: KLL's rank error and that of the sample, twice over: these tests are not to fail once in a hundred runs.
RANK = 0.04


def parts_of(feature: dict[str, Any], parts: list[Any], detail: Detail = FINE) -> dict[str, Any]:
    """The merged statistics of a scalar feature, each part of whose values comes from another shard."""
    (declared,) = Schema.from_json({"features": {"x": feature}})
    merged: FeatureStatistics | None = None
    for part in parts:
        values = Strings.pack(part) if declared.dtype.is_string else np.array(part, declared.dtype.numpy)
        found = FeatureStatistics(declared, detail)
        found.add(Column(values), len(values))
        if merged is None:
            merged = found
        else:
            merged.merge(found)
    assert merged is not None
    return dict(merged.to_json())


FEW = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30), min_size=1, max_size=4)


@settings(deadline=None, max_examples=100)
@given(FEW)
def test_few_integers_are_counted_exactly(parts: list[list[int]]) -> None:
    whole = [number for part in parts for number in part]
    found = parts_of({"dtype": "int64"}, parts)
    values = found["values"]
    assert (values["exact"], values["num_different"]) == (True, len(set(whole)))
    assert {each["value"]: each["count"] for each in values["top"]} == Counter(whole)
    assert [each["count"] for each in values["top"]] == sorted(Counter(whole).values(), reverse=True)
    if not whole:
        assert found["distribution"] is None
        return
    distribution = found["distribution"]
    ranks = np.arange(101) / 100
    ordered = sorted(whole)
    expected = [ordered[max(0, -(-step * len(whole) // 100) - 1)] for step in range(101)]
    assert distribution["quantiles"] == expected
    assert len(ranks) == len(expected)
    assert sum(distribution["counts"]) == len(whole)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), max_size=30), min_size=1, max_size=4))
def test_few_floats_have_the_quantiles_and_the_histogram_of_numpy(parts: list[list[float]]) -> None:
    whole = np.array([number for part in parts for number in part], np.float32).astype(np.float64)
    distribution = parts_of({"dtype": "float32"}, parts)["distribution"]
    if not len(whole):
        assert distribution is None
        return
    assert distribution["exact"]
    # All ranks are whole here, so that numpy does not round any.
    assert (
        distribution["quantiles"][::25]
        == np.quantile(whole, [0, 0.25, 0.5, 0.75, 1], method="inverted_cdf").tolist()
    )
    assert distribution["counts"] == np.histogram(whole, distribution["edges"])[0].tolist()


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("dtype", ["int64", "uint64", "float32", "float64"])
def test_many_numbers_are_within_the_bounds_of_the_sketch(dtype: str, stride: int) -> None:
    random = np.random.default_rng(1)
    whole = (random.lognormal(10, 2, 60_000) + 100).astype(DTYPES[dtype].numpy)
    whole[::4] = 7
    found = parts_of({"dtype": dtype}, np.array_split(whole, 5), Detail(1024, 100, 32, stride))
    distribution = found["distribution"]
    assert not distribution["exact"]
    ordered = np.sort(whole.astype(np.float64))
    for step, quantile in enumerate(distribution["quantiles"]):
        below = np.searchsorted(ordered, quantile, "left") / len(ordered)
        up_to = np.searchsorted(ordered, quantile, "right") / len(ordered)
        assert below - RANK <= step / 100 <= up_to + RANK
    assert (distribution["quantiles"][0], distribution["quantiles"][-1]) == (whole.min(), whole.max())
    exact = np.histogram(ordered, distribution["edges"])[0]
    assert sum(distribution["counts"]) == len(whole)
    assert np.abs(np.cumsum(distribution["counts"]) - np.cumsum(exact)).max() <= RANK * len(whole)
    top = found["values"]["top"][0]
    assert top["value"] == 7
    assert top["count"] == pytest.approx(15_000, rel=0.1)
    assert found["values"]["num_different"] == pytest.approx(len(np.unique(whole)), rel=0.15)


def test_strings_are_counted_exactly_while_they_are_few() -> None:
    parts = [[b"cat", b"dog", b"\xff\x00"], [b"cat", b""], [b"cat"]]
    found = parts_of({"dtype": "bytes"}, parts)
    assert found["values"] == {
        "exact": True,
        "num_different": 4,
        "top": [
            {"value": "cat", "count": 3},
            {"value": "", "count": 1},
            {"value": "dog", "count": 1},
            {"value": {"b64": base64.b64encode(b"\xff\x00").decode()}, "count": 1},
        ],
    }
    assert found["distribution"]["quantiles"][50] == 3
    assert "images" not in found


@pytest.mark.parametrize("stride", [1, 3])
def test_many_strings_show_the_frequent_ones(stride: int) -> None:
    whole = [b"often" if n % 5 == 0 else b"%d" % n for n in range(40_000)]
    found = parts_of(
        {"dtype": "text"}, [whole[:10], whole[10:30_000], whole[30_000:]], Detail(1024, 100, 32, stride)
    )
    values = found["values"]
    assert not values["exact"]
    assert [each["value"] for each in values["top"]] == ["often"]
    assert values["top"][0]["count"] == pytest.approx(8000, rel=0.1)
    assert values["num_different"] == pytest.approx(32_001, rel=0.15)


def test_nonfinite_values_are_counted_apart() -> None:
    found = parts_of({"dtype": "float32"}, [[np.nan, 1.0], [np.inf, 3.0]])
    assert (found["num_nan"], found["num_infinite"], found["num_values"]) == (1, 1, 4)
    assert sum(found["distribution"]["counts"]) == 2
    assert found["values"]["num_different"] == 2


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("int64", [-(2**63), 2**63 - 1]),
        ("uint64", [0, 2**64 - 1]),
        ("float64", [-1.7e308, 1.7e308]),
        ("float64", [5e-324, 0.0]),
        ("bool", [False, True]),
        ("int8", [-128, 127]),
        ("bfloat16", [-3.0, 3.0]),
    ],
    ids=["int64", "uint64", "widest-float64", "least-float64", "bool", "int8", "bfloat16"],
)
def test_the_widest_ranges(dtype: str, values: list[Any]) -> None:
    found = parts_of({"dtype": dtype}, [values])
    assert (found["distribution"]["quantiles"][0], found["distribution"]["quantiles"][-1]) == (
        min(values),
        max(values),
    )
    assert sum(found["distribution"]["counts"]) == 2


def test_many_features_are_looked_at_less_closely() -> None:
    few, many = Detail.of(10, 100), Detail.of(10_000, 100)
    assert (few.counted, few.steps, few.bins) == (1024, 100, 32)
    assert (many.counted, many.steps, many.bins) == (16, 20, 8)


def png(height: int, width: int) -> bytes:
    return encode(pixels(height, width, 3), "png")


def test_images_have_formats_and_sizes() -> None:
    found = parts_of({"dtype": "bytes"}, [[png(3, 5)] * 2, [png(7, 4), b"no image", b"GIF is a word", b""]])
    assert found["images"] == {
        "num_looked_at": 6,
        "num_other": 3,
        "formats": {"png": 3},
        "min_width": 4,
        "max_width": 5,
        "min_height": 3,
        "max_height": 7,
        "sizes": [{"width": 5, "height": 3, "count": 2}, {"width": 4, "height": 7, "count": 1}],
    }


def test_lists_say_how_long_they_are() -> None:
    (feature,) = Schema.from_json({"features": {"x": {"dtype": "int64", "shape": [None]}}})
    found = FeatureStatistics(feature, FINE)
    found.add(Column(np.array([1, 2, 3]), (np.array([0, 1, 3]),), np.array([True, False, True])), 3)
    described = found.to_json()
    assert (described["num_present"], described["num_missing"]) == (2, 1)
    assert (described["min_num_values"], described["max_num_values"]) == (1, 2)
    lengths = described["num_values_distribution"]
    assert lengths is not None
    assert lengths["quantiles"][::50] == [1, 1, 2]


def test_frequent_integers_keep_every_digit_beyond_the_table() -> None:
    whole = np.arange(40_000) + 2**60
    whole[::4] = 2**53 + 1
    found = parts_of({"dtype": "int64"}, np.array_split(whole, 3))
    assert not found["values"]["exact"]
    assert [each["value"] for each in found["values"]["top"]] == [2**53 + 1]


@pytest.mark.parametrize("num_others", [3, 5000], ids=["few", "many"])
def test_both_zeros_are_one_value(num_others: int) -> None:
    whole = np.concatenate((np.tile([-0.0, 0.0], num_others), np.arange(num_others) + 1.0))
    found = parts_of({"dtype": "float64"}, [whole[::-1], whole])
    assert found["num_zeros"] == 4 * num_others
    assert math.copysign(1, found["min"]) == math.copysign(1, found["distribution"]["quantiles"][20]) == 1
    top = found["values"]["top"][0]
    assert (str(top["value"]), top["count"]) == ("0.0", 4 * num_others)


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from(["int64", "uint64", "int32", "uint8", "float32", "float64"]),
    st.integers(2000, 60_000),
    st.integers(0, 2**32),
    st.integers(1, 4),
)
def test_exact_counts_equal_pyarrow_and_numpy(dtype: str, count: int, seed: int, parts: int) -> None:
    random = np.random.default_rng(seed)
    numpy = DTYPES[dtype].numpy
    if DTYPES[dtype].is_float:
        whole = np.exp(random.normal(0, 20, count)).astype(numpy) * random.choice([-1, 0, 1], count)
        whole = whole.astype(numpy)
        whole[random.random(count) < 0.1] = np.nan
        whole[random.random(count) < 0.1] = np.inf
    else:
        limits = np.iinfo(numpy)
        whole = random.integers(limits.min, limits.max, count, numpy, endpoint=True)
    found = parts_of({"dtype": dtype}, np.array_split(whole, parts))
    finite = whole[np.isfinite(whole)]
    array = pa.array(finite)
    assert (found["min"], found["max"]) == (pc.min(array).as_py(), pc.max(array).as_py())
    assert found["num_zeros"] == np.count_nonzero(whole == 0)
    assert found.get("num_nan", 0) == np.count_nonzero(np.isnan(whole))
    assert found.get("num_infinite", 0) == np.count_nonzero(np.isinf(whole))
    wide = finite.astype(np.float64)
    scale = float(np.abs(wide).max())
    assert found["mean"] == pytest.approx(wide.mean(), rel=1e-9, abs=1e-12 * scale)
    assert found["std"] == pytest.approx(wide.std(), rel=1e-9)
    ordered = np.sort(wide)
    for step, quantile in enumerate(found["distribution"]["quantiles"]):
        below, up_to = (np.searchsorted(ordered, quantile, side) / len(ordered) for side in ("left", "right"))
        assert below - RANK <= step / 100 <= up_to + RANK
    num_different = pc.count_distinct(array).as_py()
    if found["values"]["exact"]:
        assert found["values"]["num_different"] == num_different
    else:
        assert found["values"]["num_different"] == pytest.approx(num_different, rel=0.15)
