"""Features and columns for the tests of what is shown of them."""

from typing import Any

from app.domain.dtypes import parse_feature_dtype
from app.domain.feature import Feature


def feature(name: str, dtype: str, shape: tuple[int | None, ...] = (), **more: Any) -> Feature:
    return Feature(name, parse_feature_dtype(dtype), shape, **more)
