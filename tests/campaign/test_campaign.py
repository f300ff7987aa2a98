"""A short share of the campaign; `python -m tests.campaign.run` does the whole."""

import asyncio
from pathlib import Path

import pytest

from tests.campaign.campaign import S3, run_campaign
from tests.campaign.script import datasets_of, script
from tests.support.object_stores.running import RunningStore


def campaign(folder: Path, seed: int, appends: int, s3: S3 | None) -> None:
    report = asyncio.run(run_campaign(folder, seed=seed, appends=appends, replicas=2, s3=s3))
    assert report.violations == [], f"seed {seed}"
    assert report.counted["appends"]["acknowledged"] > appends * 0.8
    assert report.counted["kills"]


@pytest.mark.campaign
def test_kills_lose_and_repeat_nothing_on_a_local_store(tmp_path: Path) -> None:
    campaign(tmp_path, 1, 50, None)


@pytest.mark.campaign
def test_kills_and_faults_lose_and_repeat_nothing_on_s3(tmp_path: Path, ceph_rgw: RunningStore) -> None:
    campaign(tmp_path, 6, 160, S3(ceph_rgw.endpoint))


def test_a_seed_replays_its_script() -> None:
    datasets = datasets_of(300, frozenset())
    scripts = [list(script(seed, 300, 2, datasets)) for seed in (1, 1, 2)]
    assert scripts[0] == scripts[1] != scripts[2]


@pytest.mark.parametrize("options", [frozenset[str](), frozenset({"compression", "num_shards"})])
def test_datasets_use_what_the_release_can_do(options: frozenset[str]) -> None:
    assert ("zipped" in datasets_of(1, options)) is bool(options)
