"""The image that docker/build-without-engine.sh makes, run as a container would be, but without an engine."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deploy.manifests import base_pod
from tests.support.control_groups import ControlGroup, limited_to
from tests.support.service import Service, free_port, start

#: Names the folder that docker/build-without-engine.sh has filled.
IMAGE = "SHARDSMITH_TEST_IMAGE"
#: In a mount namespace of its own: the root read-only but for the folders that the image writes to, and the
#: devices and processes that every engine provides.
READ_ONLY = """
set -e
root=$1 data=$2
shift 2
mkdir -p "$root/dev" "$root/proc"
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in full null random urandom zero; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir -m 1777 "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount --bind "$data" "$root/var/lib/shardsmith"
exec "$@"
"""
#: Rights to become the image's user in its root, and none after that.
RIGHTS = "--bounding-set=-all,+sys_chroot,+setuid,+setgid"


@dataclass(frozen=True)
class Image:
    """Its root file system and its configuration."""

    root: Path
    config: Mapping[str, Any]

    def command(self, data: Path, *command: str, **settings: str) -> Sequence[str]:
        """That command, or the image's own, in a container whose /var/lib/shardsmith is `data`."""
        environment = dict(entry.split("=", 1) for entry in self.config["Env"]) | settings
        for folder in (data, data / "data", data / "spool"):
            folder.mkdir(exist_ok=True)
            os.chown(folder, *map(int, self.config["User"].split(":")))
        return (
            *("unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(self.root), str(data)),
            *("env", "-i", *(f"{name}={value}" for name, value in environment.items())),
            *(_path("setpriv"), "--no-new-privs", RIGHTS),
            *(_path("chroot"), f"--userspec={self.config['User']}", str(self.root)),
            *self.config["Entrypoint"],
            *(command or self.config["Cmd"]),
        )

    def run(self, data: Path, *command: str, **settings: str) -> str:
        """What that command writes, once it has ended well."""
        ran = subprocess.run(
            self.command(data, *command, **settings), capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


@dataclass(frozen=True)
class Container:
    """The service in the image, and the control group that bounds its memory."""

    service: Service
    group: ControlGroup


@contextmanager
def running(image: Image, folder: Path, memory_bytes: int, **settings: str) -> Iterator[Container]:
    """The service in the image with so much memory; it may not be ready yet."""
    settings = {"SHARDSMITH_HOST": "127.0.0.1", "SHARDSMITH_PORT": str(free_port()), **settings}
    with limited_to(memory_bytes) as group:
        started = start(folder, run=group.within(image.command(folder / "data", **settings)))
        url = f"http://127.0.0.1:{settings['SHARDSMITH_PORT']}"
        service = Service(started.process, url, started.output, folder / "data" / "data")
        try:
            yield Container(service, group)
        finally:
            service.process.terminate()
            service.process.wait(60)


def memory_limit() -> int:
    """Bytes that the manifests give to a container."""
    [container] = base_pod()["containers"]
    memory: str = container["resources"]["limits"]["memory"]
    return int(memory.removesuffix("Gi")) * 1024**3


def _path(program: str) -> str:
    found = shutil.which(program)
    assert found, f"{program} is not installed"
    return found


def built(folder: Path) -> Image:
    return Image(folder / "root", json.loads((folder / "config.json").read_text("utf-8")))
