"""A fault campaign on real processes.

    python -m tests.campaign.run --appends 10000 --replicas 3 --seed 7

starts a real S3 store (Ceph's; `--endpoint` names another) and puts a proxy before it that makes requests
fail; `--local` keeps everything in a local folder instead, with kills alone. Which appends, kills and
faults there are, and in which order, follows from the seed; when they meet does not, since these are real
processes. It ends with 1 where anything is wrong, and keeps its folder then.
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.campaign.campaign import S3, Report, run_campaign
from tests.support.object_stores.running import ceph_rgw

__all__: list[str] = []


def _print(report: Report, seconds: float) -> None:
    for name, value in report.counted.items():
        print(f"{name}:")
        if isinstance(value, Mapping):
            for key, count in sorted(value.items()):
                print(f"  {count:>8} {key}")
        else:
            print(f"  {json.dumps(value)}")
    print(f"took {seconds:.0f} s")
    for violation in report.violations[:50]:
        print(f"VIOLATION: {violation}")
    print(f"{len(report.violations)} violations" if report.violations else "no violation")


@contextlib.contextmanager
def _store(folder: Path, endpoint: str | None, *, is_local: bool) -> Iterator[S3 | None]:
    if is_local or endpoint is not None:
        yield None if is_local else S3(endpoint or "")
        return
    ceph = folder / "ceph"
    ceph.mkdir()
    with ceph_rgw(ceph) as store:
        yield S3(store.endpoint)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--appends", type=int, default=10_000)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--clients", type=int, default=16, help="how many work at a time")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--local", action="store_true", help="a local folder instead of an S3 store")
    parser.add_argument("--endpoint", help="of an S3 store that is there, instead of one of its own")
    parser.add_argument(
        "--folder", type=Path, help="for the journal and the logs; a temporary one by default"
    )
    parser.add_argument(
        "--tensorflow", action="store_true", help="have TensorFlow read the last versions, too"
    )
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    folder: Path = given.folder or Path(tempfile.mkdtemp(prefix="campaign-"))
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with _store(folder, given.endpoint, is_local=given.local) as s3:
        report = asyncio.run(
            run_campaign(
                folder,
                seed=given.seed,
                appends=given.appends,
                replicas=given.replicas,
                at_once=given.clients,
                s3=s3,
                tensorflow=given.tensorflow,
                progress=lambda line: print(line, flush=True),
            )
        )
    _print(report, time.monotonic() - started)
    if report.violations:
        print(f"seed {given.seed}; journal and logs are in {folder}")
        return 1
    if given.folder is None:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
