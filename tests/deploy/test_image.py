"""The image as built: what it holds, that nothing is missing from it, and that it runs with few rights."""

import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.codecs.kernels.table import Kernel, Kernels
from tests.deploy.image import Image
from tests.support.service import Service, free_port, ready

pytestmark = pytest.mark.tools

ROOT = Path(__file__).parents[2]
PYTHON = "/opt/shardsmith/bin/python"
MAX_BYTES = 450_000_000
NUM_KERNELS = sum(isinstance(member, Kernel) for member in vars(Kernels).values())

IMPORT_EVERY_EXTENSION = """
import importlib, sys, sysconfig
from pathlib import Path

packages = Path(sysconfig.get_path("platlib"))
names = [".".join(path.relative_to(packages).with_name(path.name.partition(".")[0]).parts)
         for path in packages.rglob("*.so") if ".abi3." in path.name or ".cpython-" in path.name]
for name in names:
    importlib.import_module(name)
print(len(names))
"""
CLIENTS_OF_AWS = """
import botocore.session
session = botocore.session.Session()
client = session.create_client("s3", region_name="eu-central-1")
client.get_paginator("list_multipart_uploads")
identity = session.create_client("sts", region_name="eu-central-1")
print(client.meta.service_model.api_version, identity.meta.endpoint_url)
"""
PICTURES = """
import io, numpy, PIL.Image, simplejpeg
pixels = numpy.arange(48, dtype=numpy.uint8).reshape(4, 4, 3)
for form in ("PNG", "WEBP"):
    picture = io.BytesIO()
    PIL.Image.fromarray(pixels).save(picture, form, lossless=True)
    print(form, (numpy.asarray(PIL.Image.open(picture, formats=[form])) == pixels).all())
decoded = simplejpeg.decode_jpeg(simplejpeg.encode_jpeg(pixels), "RGB", fastdct=True)
print("JPEG", decoded.shape == pixels.shape)
"""
COMPILE_KERNELS = "from shardsmith.codecs import kernels; kernels.compile_all()"
WRITE = """
import os, pathlib
refused = []
for folder in ("/", "/opt/shardsmith", "/etc", "/var", "/usr/lib"):
    try:
        pathlib.Path(folder, "x").touch()
    except OSError:
        refused.append(folder)
pathlib.Path("/tmp/x").touch()
pathlib.Path("/var/lib/shardsmith/x").touch()
print(os.getuid(), os.getgid(), *refused)
"""


def entries(image: Image) -> Iterator[tuple[str, os.stat_result]]:
    """(path inside the image, its state) of everything."""
    for path in image.root.rglob("*"):
        yield f"/{path.relative_to(image.root)}", path.lstat()


def test_image_size_is_within_its_bound(image: Image) -> None:
    assert sum(state.st_size for _, state in entries(image) if stat.S_ISREG(state.st_mode)) <= MAX_BYTES


def test_image_contains_only_python_and_the_service(image: Image) -> None:
    folders = [folder for folder in image.root.rglob("*bin") if folder.is_dir() and not folder.is_symlink()]
    programs = {path.name for folder in folders for path in folder.iterdir()}
    assert {name for name in programs if not re.fullmatch(r"python(3(\.\d+)?)?", name)} == {
        "entrypoint.py",
        "healthcheck.py",
        "shardsmith",
    }


def test_image_contains_no_build_or_test_tools(image: Image) -> None:
    unwanted = re.compile(
        r"\.(a|c|cpp|h|hpp|pxd|pyi|pyx)$|/(ensurepip|idlelib|pip|setuptools|tests?|wheel)$|/apt/|\.deb$"
    )
    assert [path for path, _ in entries(image) if unwanted.search(path)] == []


def test_nothing_gives_rights_and_the_user_may_change_nothing_but_its_folders(image: Image) -> None:
    regular = {path: state for path, state in entries(image) if not stat.S_ISLNK(state.st_mode)}
    assert [path for path, state in regular.items() if state.st_mode & (stat.S_ISUID | stat.S_ISGID)] == []
    owned = {path for path, state in regular.items() if state.st_uid or state.st_mode & stat.S_IWOTH}
    assert owned == {"/tmp", *(f"/var/lib/shardsmith{folder}" for folder in ("", "/data", "/spool"))}  # noqa: S108


def test_image_user_writes_only_to_its_folders(image: Image, tmp_path: Path) -> None:
    written = image.run(tmp_path / "data", PYTHON, "-c", WRITE)
    assert written.split() == ["10001", "10001", "/", "/opt/shardsmith", "/etc", "/var", "/usr/lib"]


def test_every_library_that_is_left_loads(image: Image, tmp_path: Path) -> None:
    assert int(image.run(tmp_path / "data", PYTHON, "-W", "ignore", "-c", IMPORT_EVERY_EXTENSION)) > 30


def test_collection_has_its_clients(image: Image, tmp_path: Path) -> None:
    asked = image.run(tmp_path / "data", PYTHON, "-c", CLIENTS_OF_AWS)
    assert asked.split() == ["2006-03-01", "https://sts.eu-central-1.amazonaws.com"]


def test_pictures_are_read_and_written(image: Image, tmp_path: Path) -> None:
    assert image.run(tmp_path / "data", PYTHON, "-c", PICTURES).splitlines() == [
        "PNG True",
        "WEBP True",
        "JPEG True",
    ]


def test_kernels_are_compiled_in_it(image: Image, tmp_path: Path) -> None:
    said = image.run(tmp_path / "data", PYTHON, "-c", COMPILE_KERNELS, NUMBA_DEBUG_CACHE="1")
    assert said.count("data loaded from") >= NUM_KERNELS
    assert "data saved to" not in said


def test_its_bill_of_materials_names_every_package(image: Image) -> None:
    bill = json.loads((image.root / "opt/shardsmith/sbom.cdx.json").read_text("utf-8"))
    assert bill["bomFormat"] == "CycloneDX"
    found = {(re.sub(r"[._]", "-", part["name"].lower()), part["version"]) for part in bill["components"]}
    lock = (ROOT / "locks/image.txt").read_text("utf-8")
    locked = set(re.findall(r"^([\w.-]+)==([^ \\]+)", lock, re.MULTILINE))
    assert {name for name, _ in locked - found} == {"setuptools", "wheel"}
    names = {part["name"] for part in bill["components"]}
    assert {"shardsmith", "python", "libc6", "libssl3", "tzdata"} <= names
    status = (image.root / "var/lib/dpkg/status").read_text("utf-8")
    assert set(re.findall(r"^Package: (.*)$", status, re.MULTILINE)) <= names


def test_its_own_probe_finds_it_alive(image: Image, container: Service, tmp_path: Path) -> None:
    [*_, script] = image.config["Healthcheck"]["Test"]
    image.run(tmp_path / "data", PYTHON, "-I", script, SHARDSMITH_PORT=container.url.rpartition(":")[2])


def test_its_kernels_run_on_the_oldest_processor_that_they_are_for(
    image: Image, client: httpx.Client, tmp_path: Path
) -> None:
    emulator = shutil.which("qemu-x86_64-static")
    if emulator is None or os.uname().machine != "x86_64":
        missing = "qemu-x86_64-static, which emulates an x86 processor of 2008, is not installed here"
        assert "CI" not in os.environ, missing
        pytest.skip(missing)
    (tmp_path / "data").mkdir()
    shutil.copy(emulator, tmp_path / "data" / "qemu")
    port = str(free_port())
    old = ("/var/lib/shardsmith/qemu", "-cpu", "Nehalem", PYTHON, "/opt/shardsmith/bin/shardsmith")
    settings = {"SHARDSMITH_HOST": "127.0.0.1", "SHARDSMITH_PORT": port, "NUMBA_DEBUG_CACHE": "1"}
    rows = [{"x": [number / 4, 1024.5], "text": "é" * 20, "n": number} for number in range(100)]
    with ready(tmp_path, run=image.command(tmp_path / "data", *old, **settings), port=port) as service:
        answers = [
            httpx.post(f"{url}/v1/records/serialize", params={"to": "tfrecord"}, json=rows, timeout=60)
            for url in (service.url, client.base_url)
        ]
        service.stop()
    assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
    assert answers[0].content == answers[1].content
    assert "data loaded from" in service.log()
    assert "data saved to" not in service.log()
