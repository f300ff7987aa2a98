"""How far apart the values of a feature are in two sets of rows: the Jensen-Shannon divergence, from 0 to 1.

0: the same shares of the same values; 1: no value in common. It is symmetric, and finite where one of the two
has no value in a bin, as the population stability index is not.

Shares are those of each value if both have few different ones. Otherwise numbers are put into 20 bins, which
hold about as many values of both together, since bins of equal width would tell little where a single value
is far away; and of strings the larger of two figures counts, for their lengths and for the frequent ones.
Rows without the feature, NaN and infinite numbers have shares of their own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .distribution import DistributionJson, ValuesJson
from .statistics import DetailedStatisticsJson

_BINS: Final = 20
_DIGITS: Final = 6

Shares = Mapping[str, float]


def find_drift(one: DetailedStatisticsJson, other: DetailedStatisticsJson) -> float | None:
    """The divergence; None where there are no rows on one side, or only what has no order and no list."""
    if not _num_rows(one) or not _num_rows(other):
        return None
    if not _num_finite(one) or not _num_finite(other):
        pairs = [(_shares(one, {"": 1.0}), _shares(other, {"": 1.0}))]
    elif "values" not in one or "values" not in other:
        return None
    elif one["values"]["exact"] and other["values"]["exact"]:
        pairs = [(_shares(one, _listed(one["values"])), _shares(other, _listed(other["values"])))]
    else:
        pairs = []
        spreads = one.get("distribution"), other.get("distribution")
        if spreads[0] is not None and spreads[1] is not None:
            bins = _binned(spreads[0], spreads[1])
            pairs.append((_shares(one, bins[0]), _shares(other, bins[1])))
        if "num_empty" in one:
            frequent = (
                _frequent(one["values"], _num_finite(one)),
                _frequent(other["values"], _num_finite(other)),
            )
            pairs.append((_shares(one, frequent[0]), _shares(other, frequent[1])))
    if not pairs:
        return None
    return round(max(_diverge(left, right) for left, right in pairs), _DIGITS)


def _num_rows(found: DetailedStatisticsJson) -> int:
    return found["num_present"] + found["num_missing"]


def _num_finite(found: DetailedStatisticsJson) -> int:
    return found["num_values"] - found.get("num_nan", 0) - found.get("num_infinite", 0)


def _shares(found: DetailedStatisticsJson, finite: Shares) -> dict[str, float]:
    """Of all rows: what is missing, and what their values are. `finite` are the shares of the finite ones."""
    present = found["num_present"] / _num_rows(found)
    if not found["num_values"]:
        return {"missing": 1 - present, "empty": present}
    each = present / found["num_values"]
    num_finite = _num_finite(found)
    return {
        "missing": 1 - present,
        "nan": found.get("num_nan", 0) * each,
        "infinite": found.get("num_infinite", 0) * each,
        **{f"={name}": share * num_finite * each for name, share in finite.items()},
    }


def _listed(values: ValuesJson) -> dict[str, float]:
    total = sum(each["count"] for each in values["top"])
    return {json.dumps(each["value"]): each["count"] / total for each in values["top"]}


def _frequent(values: ValuesJson, total: int) -> dict[str, float]:
    """The share of each frequent value, and that of all others together."""
    shares = {json.dumps(each["value"]): min(1.0, each["count"] / total) for each in values["top"]}
    return {**shares, "others": max(0.0, 1 - sum(shares.values()))}


def _binned(one: DistributionJson, other: DistributionJson) -> tuple[dict[str, float], dict[str, float]]:
    pooled = np.sort(np.array([*one["quantiles"], *other["quantiles"]], np.float64))
    places = np.linspace(0, len(pooled) - 1, _BINS + 1).astype(np.intp)
    edges = np.unique(pooled[places])
    ends = [np.append(_cumulate(each["quantiles"], edges), 1.0) for each in (one, other)]
    first, second = (
        {str(bin_): share for bin_, share in enumerate(np.diff(each, prepend=0.0).tolist())} for each in ends
    )
    return first, second


def _cumulate(quantiles: Sequence[float], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Which share of the values is not above each of `at`; between two quantiles it grows evenly."""
    values, first, counts = np.unique(np.array(quantiles, np.float64), return_index=True, return_counts=True)
    steps = max(1, len(quantiles) - 1)
    below, up_to = first / steps, (first + counts - 1) / steps
    up_to[-1] = 1.0
    place = np.searchsorted(values, at, "right") - 1
    following = np.minimum(place + 1, len(values) - 1)
    # Half of each, because float64 may not hold how far they are apart.
    gap = values[following] / 2 - values[place] / 2
    part = np.divide(at / 2 - values[place] / 2, gap, out=np.zeros(len(at)), where=gap > 0)
    found = up_to[place] + part * np.maximum(0.0, below[following] - up_to[place])
    return np.where(place < 0, 0.0, np.where(following == place, 1.0, found))


def _diverge(one: Shares, other: Shares) -> float:
    """The Jensen-Shannon divergence to the base 2."""
    total = 0.0
    for name in one.keys() | other.keys():
        left, right = one.get(name, 0.0), other.get(name, 0.0)
        middle = (left + right) / 2
        total += sum(share * math.log2(share / middle) for share in (left, right) if share > 0 and middle > 0)
    return min(1.0, max(0.0, total / 2))
