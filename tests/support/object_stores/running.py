"""Real stores for tests, each started on free ports of loopback in a folder of its own.

`with ceph_rgw(folder) as store:` yields once it answers and has a bucket; afterwards exactly the processes
that were started are ended. Each raises `MissingTool` where the server is not installed.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx
import obstore
from obstore.store import S3Store

from tests.support.object_stores.azurite_container import create_container

HERE = Path(__file__).parent
BUCKET = "shards"
#: Where azurite-blob and rclone are, if they are not those on the PATH.
AZURITE = "SHARDSMITH_TEST_AZURITE"
RCLONE = "SHARDSMITH_TEST_RCLONE"
_ANSWERS_WITHIN_S = 120
_STOPS_WITHIN_S = 30
_A_MINUTE = timedelta(minutes=1)
#: Ports that a Ceph takes, from its first.
_CEPH_PORTS = 40


class MissingTool(Exception):
    """A store's server is not installed."""


@dataclass(frozen=True)
class RunningStore:
    """A store that answers.

    Attributes:
        url: what SHARDSMITH_STORAGE_URL is to be, without a prefix.
        endpoint: where it is served.
        environment: the provider's variables; the names that a test must not inherit are empty.
        process_id: of the server.
    """

    url: str
    endpoint: str
    environment: Mapping[str, str] = field(repr=False)
    process_id: int


@contextlib.contextmanager
def ceph_rgw(folder: Path, gib: int = 4) -> Iterator[RunningStore]:
    """S3: Ceph's RADOS gateway, its data in memory, up to so many GiB."""
    _require("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin")
    port = _free_ports(_CEPH_PORTS)
    log = folder / "start.log"
    try:
        with log.open("wb") as output:
            subprocess.run(
                [HERE / "ceph-rgw.sh", folder, str(port), "memstore", str(gib)],
                stdout=output,
                stderr=output,
                check=True,
                timeout=_ANSWERS_WITHIN_S,
            )
        yield _s3(port, int((folder / "run" / "client.rgw.pid").read_text(encoding="ascii")))
    except subprocess.SubprocessError as error:
        raise AssertionError(f"Ceph did not start:\n{log.read_text(errors='replace')}") from error
    finally:
        # The gateway first: it waits for the others. Nothing is kept, so nothing needs to be flushed.
        for name in ("client.rgw", "osd.0", "mon.a"):
            _kill(folder / "run" / f"{name}.pid")


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[RunningStore]:
    """Azure Blob Storage: Microsoft's emulator, its data in memory."""
    program = os.environ.get(AZURITE) or shutil.which("azurite-blob")
    if program is None:
        raise MissingTool(f"azurite-blob is neither on the PATH nor named by {AZURITE}")
    _require("node")
    port = _free_ports(1)
    endpoint, account = f"http://127.0.0.1:{port}/testaccount", "testaccount"
    key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
    with _process([str(HERE / "azurite.sh"), program, str(port)], folder, port) as process_id:
        create_container(endpoint, account, key, BUCKET)
        yield RunningStore(
            f"az://{BUCKET}",
            endpoint,
            {
                "AZURE_STORAGE_ACCOUNT_NAME": account,
                "AZURE_STORAGE_ACCOUNT_KEY": key,
                "AZURE_ENDPOINT": endpoint,
                "AZURE_ALLOW_HTTP": "true",
            },
            process_id,
        )


@contextlib.contextmanager
def rclone_s3(folder: Path) -> Iterator[RunningStore]:
    """An S3 that ignores `If-None-Match`: what the probe must refuse. A bucket is a folder of `folder`."""
    program = os.environ.get(RCLONE) or "rclone"
    _require(program)
    # Debian's is from 2022 and serves no S3; 1.65 was the first that did.
    options = subprocess.run([program, "serve", "s3", "--help"], capture_output=True, check=False).stdout
    if b"--auth-key" not in options:
        raise MissingTool(f"{program} is older than 1.65")
    port = _free_ports(1)
    command = [program, "serve", "s3", "--auth-key", "testkey,testsecret", "--addr", f"127.0.0.1:{port}"]
    with _process([*command, str(folder)], folder, port) as process_id:
        yield _s3(port, process_id)


def _s3(port: int, process_id: int) -> RunningStore:
    endpoint = f"http://127.0.0.1:{port}"
    environment = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "testkey",
        "AWS_SECRET_ACCESS_KEY": "testsecret",
        "AWS_REGION": "us-east-1",
    }
    make_bucket(endpoint, BUCKET)
    return RunningStore(f"s3://{BUCKET}", endpoint, environment, process_id)


def make_bucket(endpoint: str, bucket: str) -> None:
    """Make a bucket by a signed PUT of it."""
    # obstore signs objects only: taken for a bucket's, the object's URL is the new bucket's.
    service = S3Store(
        bucket,
        endpoint=endpoint,
        region="us-east-1",
        access_key_id="testkey",
        secret_access_key="testsecret",  # noqa: S106  # of a server on loopback, for one test run
        virtual_hosted_style_request=True,
        client_options={"allow_http": True},
    )
    httpx.put(obstore.sign(service, "PUT", bucket, _A_MINUTE)).raise_for_status()


@contextlib.contextmanager
def _process(command: list[str], folder: Path, port: int) -> Iterator[int]:
    """The id of a server in the foreground that is ready once it listens on `port`."""
    log = folder.parent / f"{folder.name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + _ANSWERS_WITHIN_S
        while not _listens(port):
            said = log.read_text(encoding="utf-8", errors="replace")
            assert process.poll() is None, f"{command[0]} ended:\n{said}"
            assert time.monotonic() < deadline, f"{command[0]} does not listen:\n{said}"
            time.sleep(0.05)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _require(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise MissingTool(f"{program} is not installed here")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(count: int) -> int:
    """The first of so many free ports in a row, below those that outgoing connections get."""
    while True:
        first = random.randrange(20_000, 32_000 - count)
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in range(first, first + count):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def _kill(pid_file: Path) -> None:
    """End the process whose id is in the file, if it was ever started, and wait until it is gone."""
    if not pid_file.exists():
        return
    pid = int(pid_file.read_text(encoding="ascii"))
    deadline = time.monotonic() + _STOPS_WITHIN_S
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        # Not a child of this process, so it cannot be waited for; in a container it may stay a zombie.
        while not _is_gone(pid) and time.monotonic() < deadline:
            time.sleep(0.02)


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
