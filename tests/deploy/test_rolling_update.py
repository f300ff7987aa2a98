"""Pods are replaced one by one under steady writes, and nobody notices."""

import os
import shutil
from pathlib import Path

import pytest

from tests.deploy.rolling_update import PATH, REPLICAS, update

ROUNDS = 2

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.tools,
    pytest.mark.skipif(
        shutil.which("haproxy", path=PATH) is None and not os.environ.get("CI"),
        reason="haproxy is not installed here; .ci/run installs it",
    ),
]


def test_a_rolling_update_fails_no_request_and_loses_no_row(tmp_path: Path) -> None:
    report = update(tmp_path, ROUNDS)
    assert report.failures == []
    assert set(report.answers) == {"201"}
    assert sorted(report.stored) == sorted(report.acknowledged)
    assert len(report.ended_s) == ROUNDS * REPLICAS
