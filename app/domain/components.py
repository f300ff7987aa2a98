"""The features of an Example's map that one logical feature is stored as.

A dense feature is stored under its own name. A ragged or a sparse one has no form of its own in an
Example: it is stored as several lists, in the names that TensorFlow Datasets gives a ragged feature
(`example_serializer.py`), and that `tf.io.RaggedFeature` and `tf.io.SparseFeature` are told.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ..errors import UnprocessableInput
from .dtypes import INT64

if TYPE_CHECKING:  # schema.py calls `check_stored_names`
    from .schema import Feature, FeatureShape, Schema

__all__ = ["check_stored_names", "stored_features"]

_LIST: Final[FeatureShape] = (None,)


def stored_features(feature: Feature) -> tuple[Feature, ...]:
    """What is stored for `feature`, each a dense feature under its own name.

    ragged: `x/ragged_flat_values` (all values, row-major), then `x/ragged_row_lengths_0`, ... (of each
    cut, outermost first). sparse: `x/indices_0`, ... (one coordinate of each value), then `x/values`.
    """

    def lengths(name: str) -> Feature:
        return replace(values(name), dtype=INT64)

    def values(name: str) -> Feature:
        return replace(feature, name=f"{feature.name}/{name}", shape=_LIST, kind="dense", encoding="list")

    if feature.kind == "ragged":
        cuts = range(feature.num_partitions)
        return (values("ragged_flat_values"), *(lengths(f"ragged_row_lengths_{cut}") for cut in cuts))
    if feature.kind == "sparse":
        axes = range(len(feature.shape))
        return (*(lengths(f"indices_{axis}") for axis in axes), values("values"))
    return (feature,)


def check_stored_names(schema: Schema) -> None:
    """Refuse features that would be stored under one name.

    Raises:
        UnprocessableInput: which (`duplicate_feature`).
    """
    owners: dict[str, Feature] = {}
    for feature in schema:
        for stored in stored_features(feature):
            if (other := owners.setdefault(stored.name, feature)) is not feature:
                raise UnprocessableInput(
                    f"Features {other.name!r} and {feature.name!r} would both be stored as {stored.name!r}. "
                    "Rename one of them.",
                    code="duplicate_feature",
                    feature=feature.name,
                )
