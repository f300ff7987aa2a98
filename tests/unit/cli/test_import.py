"""`shardsmith import`: what it says and does; real processes, also such that are killed."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from app.cli.commands import main
from app.cli.importing import _key_of
from app.services.datasets.imports.request import ImportRequest
from app.services.datasets.objects.publish_options import PublishOptions
from tests.support.child_processes import descendants
from tests.support.waiting import wait_for

#: Ranges of some 2 KB.
SMALL = ("--range-mib", "0.002")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for k in range(4):
        rows = ({"id": 1000 * k + i, "x": [i / 4, k / 4]} for i in range(500))
        (folder / f"{k}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def command(source: Path, *arguments: str, data: str = "data") -> list[str]:
    program = str(Path(sys.executable).with_name("shardsmith"))
    where = ("--dataset", "d", "--data", str(source.parent / data), *SMALL)
    return [program, "import", str(source), *where, *arguments]


def call(source: Path, *arguments: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, command(source, *arguments)[1:])


def run(source: Path, *arguments: str, data: str = "data") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(source, *arguments, data=data), capture_output=True, text=True, check=False, timeout=300
    )


def shards(source: Path, data: str) -> dict[str, str]:
    files = sorted((source.parent / data / "d" / "1.0.0").glob("d-*"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_the_same_command_again_says_that_it_is_done(source: Path) -> None:
    for _ in range(2):
        result = call(source, "--processes", "1", "--json")
        assert (result.exit_code, result.stderr) == (0, "")
        told = json.loads(result.stdout)
        assert (told["state"], told["rows"], told["version"]) == ("done", 2000, "1.0.0")
        assert told["ranges"] == told["ranges_done"] > 30


@pytest.mark.campaign
def test_processes_and_every_nth_range_make_the_same_shards(source: Path) -> None:
    options = ("--shuffle", "--seed", "3", "--num-shards", "3")
    assert run(source, *options, "--processes", "2").returncode == 0
    for index in (1, 0):
        part = run(source, *options, "--index", str(index), "--of", "2", data="parts")
        assert part.returncode == 0
    assert "Version 1.0.0 is published." in part.stdout
    assert len(shards(source, "data")) == 3
    assert shards(source, "data") == shards(source, "parts")


@pytest.mark.campaign
def test_a_driver_that_is_killed_is_started_again(source: Path) -> None:
    """With `kill -9`, twice: its processes end by themselves, and every row is there once in the end."""
    notes = source.parent / "data" / "d" / "_g1" / "imports"

    def num_done() -> int:
        return len(list(notes.glob("*/ranges/*.done.*")))

    for _ in range(2):
        before = num_done()
        with subprocess.Popen(
            command(source, "--processes", "2"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as driver:
            wait_for(lambda before=before: num_done() > before + 2, within_s=120)  # type: ignore[misc]
            children = list(descendants(driver.pid))
            driver.send_signal(signal.SIGKILL)
        assert children
        wait_for(lambda children=children: not any(map(_runs, children)), within_s=60)  # type: ignore[misc]
    assert num_done() < 40
    result = run(source, "--json", "--processes", "1")
    told = json.loads(result.stdout)
    assert (told["state"], told["rows"]) == ("done", 2000)
    assert run(source, "--processes", "1", data="whole").returncode == 0
    assert shards(source, "data") == shards(source, "whole")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_range_that_cannot_be_read_is_named(source: Path) -> None:
    (source / "4.ndjson").write_text('{"id": 1, "x": [1, 2]}\n{"id": 1, "x": "a"}\n')
    result = call(source, "--processes", "1")
    assert result.exit_code == 3
    assert "of 4.ndjson: " in result.stdout
    assert "It stopped. The same command goes on" in result.stdout
    result = call(source, "--processes", "1", "--on-error", "skip", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["rows"], told["ranges_left_out"]) == (0, 2000, 1)


def test_a_later_release_knows_the_same_command_by_the_same_key() -> None:
    publish = PublishOptions(shuffle=True, fractions={"train": "0.5", "test": "0.5"})
    requests = [
        ImportRequest(source="s3://b/x"),
        ImportRequest(source="s3://b/x", split="a"),
        ImportRequest(source="s3://b/x", publish=publish),
    ]
    # What is stored under another key is stored twice: never change these.
    assert [_key_of(request) for request in requests] == [
        "c86bb886501316dc9e93fb92b1eb9130",
        "d366ffd78cb197054e319e6f28fe2f81",
        "696671c174def3c4688a52b3e0844e6e",
    ]
    assert _key_of(replace(requests[0], on_error="skip")) == _key_of(requests[0])
    assert _key_of(replace(requests[0], publish=None)) != _key_of(requests[0])


def test_a_source_that_is_not_there_is_not_found(source: Path) -> None:
    result = call(source / "none")
    assert (result.exit_code, "[source_not_found]" in result.stderr) == (4, True)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--index", "2", "--of", "2"), 2, "--index counts from 0"),
        (("--engine", "ray", "--index", "0", "--of", "2"), 2, "Ray deals out the ranges itself"),
        (("--engine", "ray", "--processes", "2"), 2, "Ray deals out the ranges itself"),
        (("--from", "xml"), 3, "is no format of rows"),
        (("--split", "all"), 3, "[reserved_split_name]"),
    ],
    ids=["index", "index of Ray", "processes of Ray", "format", "split"],
)
def test_impossible_import_is_one_line(
    source: Path, arguments: tuple[str, ...], status: int, said: str
) -> None:
    result = call(source, *arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert said in result.stderr


@pytest.mark.parametrize("options", [("--processes", "1"), ("--index", "0", "--of", "1")])
def test_options_go_before_the_engine_of_the_environment(
    source: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("SHARDSMITH_IMPORT_ENGINE", "ray")
    monkeypatch.setenv("SHARDSMITH_RAY_ADDRESS", "127.0.0.1:1")  # where there is none
    assert call(source, *options).exit_code == 0


@pytest.mark.campaign
def test_a_ray_cluster_makes_the_same_shards(source: Path) -> None:
    pytest.importorskip("ray")
    options = ("--shuffle", "--seed", "3", "--num-shards", "3")
    ran = run(source, *options, "--engine", "ray", data="cluster")
    assert (ran.returncode, "Version 1.0.0 is published." in ran.stdout) == (0, True), ran.stderr
    assert run(source, *options, "--processes", "1").returncode == 0
    assert shards(source, "cluster") == shards(source, "data")


def test_ray_is_imported_where_it_is_asked_for_alone(source: Path) -> None:
    call = command(source, "--processes", "1")[1:]
    program = f"import sys; from shardsmith.cli.commands import main; main({call!r}, standalone_mode=False)"
    check = "; sys.exit('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program + check], check=False, timeout=300)
    assert done.returncode == 0


def test_rounding_and_times_as_text_are_told_as_put_tells_them(source: Path) -> None:
    table = pa.table({"price": [1.1, 2.0], "at": pa.array([0, 1], pa.timestamp("s"))})
    pq.write_table(table, source / "rows.parquet")
    file = str(source / "rows.parquet")
    where = ("--dataset", "e", "--data", str(source.parent / "data"))
    stored = CliRunner().invoke(main, ["put", file, *where])
    assert "rounded to float32: price; times and decimals as text: at" in stored.stdout
    called = CliRunner().invoke(main, ["import", file, *where, "--processes", "1"])
    assert "Rounded to float32: price.\nTimes and decimals as text: at.\n" in called.stdout
    called = CliRunner().invoke(main, ["import", file, *where, "--processes", "1", "--json"])
    told = json.loads(called.stdout)
    assert (told["rounded"], told["as_text"]) == (["price"], ["at"])
