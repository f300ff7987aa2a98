"""Faults of values and rules without input or output: app/domain."""

from __future__ import annotations

from typing import Final

from tests.mutations.entry import Mutation, Patch

MUTATIONS: Final = (
    Mutation(
        id="shard-bounds-as-tfds-has-them",
        where="POST /v1/datasets/{dataset}/versions?num_shards=3",
        given="ten rows",
        right="shards of 3, 4 and 3 rows, as TFDS cuts them",
        wrong="shards of 3, 3 and 4 rows: other bytes under the same names",
        patch=Patch(
            "app/domain/sharding/shard_plan.py",
            "round(left * index / num_cut)",
            "(left * index // num_cut)",
        ),
        tests=("tests/unit/domain/sharding/test_shard_plan.py",),
    ),
    Mutation(
        id="widened-feature-stays-nullable",
        where="POST /v1/datasets/{dataset}/records?evolve=true",
        given="a dataset in which rows lack a feature, and rows that all have it, with a wider dtype",
        right="the feature is still nullable",
        wrong="the feature is required: rows that are stored cannot be read",
        patch=Patch(
            "app/domain/evolution.py",
            "nullable=feature.nullable or offered.nullable,",
            "nullable=offered.nullable,",
        ),
        tests=("tests/unit/domain/test_evolution.py",),
    ),
)
