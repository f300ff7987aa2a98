"""No request becomes out of proportion, in processor seconds, bytes out, stored, spooled or resident.

The bounds are those of docs/settings.md, "Amplification", and what is held beside: a pool of memory, a spool.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.service import Service, start
from tests.footprint import measured
from tests.hostile_requests import HOSTILE, MIB, Hostile

ALLOWANCE, RATIO = 64 * MIB, 1100
SPOOL = 256 * MIB
#: Blocks under way when the bound is reached: a block of records, parts of an append, a window of output.
SLACK = 24 * MIB
#: What decoders, encoders and windows hold at one time, beside what the bound lets them decode.
RESIDENT = 320 * MIB
#: For the allowance, and for each MiB sent; on one core of 2.5 GHz with others busy.
PROCESSOR_S, PROCESSOR_S_A_MIB = 8.0, 10.0
#: Not how fast probes are (benchmarks/bench_hostile.py says that), but that the event loop goes on.
PROBE_S = 5.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def hostile_service(folder: Path) -> Iterator[Service]:
    settings = {"SHARDSMITH_SPOOL_DIR": str(folder / "spool"), "SHARDSMITH_SPOOL_MAX_BYTES": str(SPOOL)}
    started = start(folder, **settings)
    try:
        started.wait_until_ready()
        yield started
    finally:
        started.stop()


@pytest.mark.parametrize("request_", HOSTILE, ids=lambda hostile: hostile.name)
def test_what_a_few_bytes_ask_for_is_bounded(
    hostile_service: Service, folder: Path, request_: Hostile
) -> None:
    dataset = f"d{HOSTILE.index(request_)}"
    found = measured(hostile_service, folder / "spool", folder / "data", request_, dataset)
    most = max(ALLOWANCE, RATIO * found.sent) + SLACK
    assert found.answer == request_.answer
    assert found.answered <= most
    assert found.stored <= most
    assert found.spooled <= SPOOL // 4 + MIB
    assert found.resident <= min(most, ALLOWANCE) + RESIDENT
    assert found.processor_s <= PROCESSOR_S + PROCESSOR_S_A_MIB * found.sent / MIB
    assert max(found.probes_s) <= PROBE_S
