"""A small import on a Ray cluster whose nodes, workers and driver are killed."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.campaign


def test_every_row_is_there_once_whoever_is_killed(tmp_path: Path) -> None:
    from tests.campaign import ray_import

    pytest.importorskip("ray")
    pytest.importorskip("tensorflow")

    report = ray_import.run(
        tmp_path, 400_000, "--range-mib", "4", "--num-shards", "8", "--shuffle", "--seed", "3"
    )
    assert report.problems == []
    assert report.told["ranges"] > 3
