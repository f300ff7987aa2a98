"""The Python client with pandas, polars and fsspec, and without anything but httpx and numpy; its memory."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import uuid
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.client import Client, LibraryMissing
from tests.support.service import ROOT, SSL_CONTEXT, Service, ready

pytestmark = pytest.mark.tools


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with ready(tmp_path_factory.mktemp("client")) as started:
        yield started


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(service.url, verify=SSL_CONTEXT) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    return f"d-{uuid.uuid4().hex[:8]}"


COLUMNS: dict[str, Any] = {
    "x": [1.5, 2.0, -0.0],
    "n": ["a", "räum", ""],
    "id": [1, 2, 3],
    "ok": [True, False, True],
}


def test_frames_of_pandas_go_in_and_come_out(client: Client, name: str) -> None:
    import pandas as pd

    frame = pd.DataFrame(COLUMNS)
    dataset = client.dataset(name)
    dataset.append(frame)
    dataset.append(frame[frame.id > 1])  # its index says where the rows were; that is no feature
    dataset.append(frame[i : i + 1] for i in range(3))
    found = dataset.publish().to_pandas()
    assert list(found.columns) == list(COLUMNS)
    assert found.to_dict("list") == {k: [v[i] for i in (0, 1, 2, 1, 2, 0, 1, 2)] for k, v in COLUMNS.items()}


def test_an_index_with_a_name_is_a_feature(client: Client, name: str) -> None:
    import pandas as pd

    dataset = client.dataset(name)
    dataset.append(pd.DataFrame(COLUMNS).set_index("id"))
    assert dataset.publish().to_pandas()["id"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("has_pyarrow", [True, False])
def test_frames_of_polars_go_in_and_come_out(
    client: Client, name: str, monkeypatch: pytest.MonkeyPatch, has_pyarrow: bool
) -> None:
    import polars as pl

    if not has_pyarrow:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    frame = pl.DataFrame({**COLUMNS, "l": [[1, 2], [], [3]], "b": [b"\0", b"", b"\xff"]})
    dataset = client.dataset(name)
    dataset.append(frame)
    found = dataset.publish().to_polars()
    assert found.to_dicts() == frame.to_dicts()
    if not has_pyarrow:
        with pytest.raises(LibraryMissing, match="pip install pyarrow"):
            dataset.append([frame, frame])


def test_missing_library_is_named(client: Client, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    dataset = client.dataset(name)
    dataset.append(COLUMNS)
    version = dataset.publish()
    for library in ("pyarrow", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(LibraryMissing, match="DataFrame takes pyarrow: pip install pyarrow"):
        dataset.append(pd.DataFrame(COLUMNS))
    for read, what in (
        (version.to_arrow, "pyarrow"),
        (version.to_pandas, "pyarrow"),
        (version.to_polars, "polars"),
    ):
        with pytest.raises(LibraryMissing, match=f"pip install {what}"):
            read()
    assert dataset.info()["waiting"]["num_records"] == 0


def test_files_are_read_through_fsspec(service: Service, client: Client, name: str) -> None:
    import fsspec

    from app.client.filesystem import ShardsmithFileSystem

    dataset = client.dataset(name)
    dataset.append({"x": np.random.default_rng(0).random((50_000, 8), np.float32)})
    dataset.append([{"x": [1.0] * 8}], split="test")
    version = dataset.publish(num_shards=2)
    for protocol in ShardsmithFileSystem.protocol:
        fsspec.register_implementation(protocol, ShardsmithFileSystem, clobber=True)
    host = service.url.removeprefix("http://")
    files = fsspec.filesystem("shardsmith", url=service.url)
    assert name in files.ls("", detail=False)
    assert files.ls(name, detail=False) == [f"{name}/1.0.0"]
    folder = f"{name}/latest"
    assert set(files.ls(folder, detail=False)) >= {
        f"{folder}/train",
        f"{folder}/test",
        f"{folder}/features.json",
    }
    shards = version.shards("train")
    assert [file["sha256"] for file in files.ls(f"{folder}/train")] == [shard.sha256 for shard in shards]
    for shard in shards:
        path = f"{folder}/train/{shard.name}"
        with fsspec.open(f"shardsmith+http://{host}/{path}", block_size=100_000) as file:
            content = file.read()
            file.seek(-1000, 2)
            assert file.read() == content[-1000:]
            file.seek(123_456)
            assert file.read(77) == content[123_456 : 123_456 + 77]
        assert hashlib.sha256(content).hexdigest() == shard.sha256 == files.checksum(path)
        assert files.cat_file(path) == content
        assert files.cat_file(path, -10, -3) == content[-10:-3]
        assert files.info(path)["num_records"] == shard.num_records
        assert files.size(path) == len(content)
    assert json.loads(files.cat(f"{folder}/features.json"))
    assert files.glob(f"{folder}/*/*.tfrecord*") == [
        f"{folder}/{shard.split}/{shard.name}"
        for shard in sorted(version.shards(), key=lambda shard: str(shard.split))
    ]
    assert files.isdir(f"{folder}/train")
    assert not files.isdir(f"{folder}/features.json")
    assert files.unstrip_protocol(folder) == f"shardsmith+http://{host}/{folder}"
    for missing in ("none", f"{name}/7.0.0", f"{folder}/train/x", f"{folder}/dev", f"{folder}/train/x/y"):
        assert not files.exists(missing)
        with pytest.raises(FileNotFoundError):
            files.open(missing)
    with pytest.raises(NotImplementedError, match="never changes"):
        files.open(f"{folder}/x", "wb")


#: Appends a GiB out of a generator; the last line is how much more memory that took at most, in MiB.
LARGE = """
import resource, sys
from shardsmith.client import Client

def rows():
    text = "y" * 10_000
    for i in range(107_374):
        yield {"id": i, "text": text}

client = Client(sys.argv[1])
client.dataset("warm").append([{"id": 0}])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
stored = client.dataset("large").append(rows(), key="k")
assert stored["num_records"] == 107_374 and stored["num_bytes"] > 2**30, stored
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system counts in other units")
def test_a_gib_is_appended_within_64_mib(service: Service) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LARGE, service.url], capture_output=True, text=True, check=True
    )
    assert float(ran.stdout) < 64


#: With nothing installed but the extra `client`.
ALONE = """
import sys
import numpy as np
from shardsmith.client import AsyncClient, Client, LibraryMissing
from shardsmith.client.feed import Feed

client = Client(sys.argv[1])
alone = client.dataset("alone")
alone.append([{"x": [1.5, 2], "n": "a"}])
alone.append({"x": np.zeros((3, 2)), "n": ["b", "c", "d"]})
version = alone.publish()
assert [row["n"] for row in version.rows()] == version.to_numpy()["n"].tolist() == ["a", "b", "c", "d"]
assert [len(batch["x"]) for batch in Feed(sys.argv[1], "alone", global_batch=2)] == [2, 2]
version.download(sys.argv[2])
for read in (version.to_arrow, version.to_pandas, version.to_polars):
    try:
        read()
    except LibraryMissing:
        continue
    raise AssertionError(read)
print(*sorted({"fastapi", "fsspec", "pandas", "polars", "pyarrow"} & set(sys.modules)))
"""


def test_client_works_with_httpx_and_numpy_alone(service: Service, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"

    def run(*command: object) -> str:
        ran = subprocess.run(
            [str(part) for part in (python, *command)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "app", checkout / "app", ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / file, checkout)
    run("-m", "pip", "install", "--quiet", f"{checkout}[client]")
    installed = {package["name"] for package in json.loads(run("-m", "pip", "list", "--format=json"))}
    assert {"httpx", "numpy", "shardsmith"} < installed
    assert installed <= {
        "anyio", "certifi", "h11", "httpcore", "httpx", "idna", "numpy", "shardsmith", "typing_extensions",
        "pip", "setuptools",
    }  # fmt: skip
    assert run("-c", ALONE, service.url, tmp_path / "data") == "\n"
    run("-m", "pip", "install", "--quiet", "fsspec")
    path = service.url.replace("http://", "shardsmith+http://") + "/alone/latest/features.json"
    assert "shape" in run("-c", f"import fsspec; print(fsspec.open({path!r}).open().read().decode())")
