"""The commands that work on datasets, and `doctor`: on a store, and against a real service."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from tests.e2e.service import Service, ready

pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with ready(tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture(params=["store", "service"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The options that name the place."""
    if request.param == "store":
        return ["--data", str(tmp_path / "store")]
    served: Service = request.getfixturevalue("service")
    return ["--url", served.url]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.csv").write_text("id,name\n1,ann\n2,bob\n", "utf-8")
    Path("two.ndjson").write_text('{"id": 3, "name": "cy"}\n', "utf-8")


def shardsmith(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def done(*arguments: str) -> Any:
    """What a command prints with `--json`."""
    result = shardsmith(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()][
        0 if "put" not in arguments else slice(None)
    ]


def published(place: list[str], name: str) -> dict[str, Any]:
    done("put", "one.csv", "two.ndjson", "--dataset", name, *place)
    manifest: dict[str, Any] = done("publish", name, "--num-shards", "2", *place)
    return manifest


def test_rows_go_in_and_come_out(place: list[str]) -> None:
    stored = done("put", "one.csv", "two.ndjson", "--dataset", "flowers", *place)
    assert [told["num_records"] for told in stored] == [2, 1]
    assert "flowers" in done("ls", *place)
    assert done("ls", "flowers", *place)["waiting"]["num_records"] == 3
    manifest = done("publish", "flowers", "--num-shards", "2", *place)
    assert [shard["num_records"] for shard in manifest["splits"]["train"]["shards"]] == [2, 1]
    assert done("ls", "flowers", *place)["versions"] == [manifest["version"]]

    result = shardsmith("rows", "flowers", "--offset", "1", *place)
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"id": 2, "name": "bob"},
        {"id": 3, "name": "cy"},
    ]
    assert shardsmith("rows", "flowers", "-o", "out.csv", "--to", "csv", *place).exit_code == 0
    assert Path("out.csv").read_text("utf-8").splitlines() == ["id,name", "1,ann", "2,bob", "3,cy"]
    assert done("validate", "--dataset", "flowers", *place)["valid"]
    assert shardsmith("publish", "flowers", *place).exit_code == 5


def test_a_file_is_stored_once_however_often_it_is_put(place: list[str]) -> None:
    arguments = ("put", "one.csv", "--dataset", "once", *place)
    (first,) = done(*arguments)
    (second,) = done(*arguments)
    assert second["append_id"] == first["append_id"]
    assert done("ls", "once", *place)["waiting"]["num_records"] == 2
    done(*arguments, "--split", "test")
    done(*arguments, "--again")
    assert done("ls", "once", *place)["waiting"]["num_records"] == 6


def test_a_compressed_file_is_put_as_what_is_in_it(place: list[str]) -> None:
    assert shardsmith("convert", "one.csv", "one.ndjson.gz").exit_code == 0
    assert shardsmith("convert", "one.csv", "one.tsv.zst").exit_code == 0
    stored = done("put", "one.ndjson.gz", "one.tsv.zst", "--dataset", "packed", *place)
    assert [told["num_records"] for told in stored] == [2, 2]


def test_a_download_is_verified_and_goes_on_where_it_was_interrupted(place: list[str]) -> None:
    manifest = published(place, "fetched")
    found = done("get", "fetched", "-o", "there", *place)
    folder = Path(found["folder"])
    assert folder == Path("there", "fetched", manifest["version"])
    shards = manifest["splits"]["train"]["shards"]
    for shard in shards:
        assert hashlib.sha256((folder / shard["file"]).read_bytes()).hexdigest() == shard["sha256"]
    assert found["fetched"] == found["files"] == len(list(folder.iterdir()))
    assert done("get", "fetched", "-o", "there", *place)["fetched"] == 0

    first, second = (folder / shard["file"] for shard in shards)
    whole = first.read_bytes()
    first.unlink()
    first.with_name(first.name + ".part").write_bytes(whole[:50])  # as an interruption leaves it
    second.write_bytes(bytes(second.stat().st_size))  # as a failing disk leaves it
    assert done("get", "fetched", "-o", "there", *place)["fetched"] == 2
    assert first.read_bytes() == whole
    assert hashlib.sha256(second.read_bytes()).hexdigest() == shards[1]["sha256"]

    first.unlink()
    first.with_name(first.name + ".part").write_bytes(b"of something else")
    done("get", "fetched", "-o", "there", *place)
    assert first.read_bytes() == whole
    assert not list(folder.glob("*.part"))


def test_what_is_damaged_in_the_store_is_not_handed_out(tmp_path: Path) -> None:
    place = ["--data", str(tmp_path / "store")]
    manifest = published(place, "broken")
    shard = manifest["splits"]["train"]["shards"][0]
    file, size = shard["file"], shard["num_bytes"]
    (stored,) = (path for path in (tmp_path / "store").rglob(file) if path.stat().st_size == size)
    data = bytearray(stored.read_bytes())
    data[-1] ^= 1
    stored.chmod(0o644)
    stored.write_bytes(data)
    assert shardsmith("get", "broken", "-o", "there", *place).exit_code == 8
    assert not list(Path("there").rglob(f"{file}*"))
    result = shardsmith("validate", "--dataset", "broken", *place)
    assert (result.exit_code, file in result.stdout) == (8, True)


def test_a_failure_has_the_same_status_in_both_places(place: list[str]) -> None:
    assert shardsmith("rows", "nowhere", *place).exit_code == 4
    assert shardsmith("get", "nowhere", *place).exit_code == 4
    assert shardsmith("ls", "not/a/name", *place).exit_code in (3, 4)
    Path("bad.ndjson").write_text('{"id": 1}\n{"id": [}\n', "utf-8")
    result = shardsmith("put", "bad.ndjson", "--dataset", "refused", *place)
    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1
    assert "row 1" in result.stderr


def test_no_service_is_a_failure_to_try_again(tmp_path: Path) -> None:
    result = shardsmith("ls", "--url", "http://127.0.0.1:9")
    assert (result.exit_code, "does not answer" in result.stderr) == (7, True)
    assert shardsmith("ls", "--url", "http://127.0.0.1:9", "--data", str(tmp_path)).exit_code == 2


def test_a_token_goes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tmp_path / "tokens.json"
    digest = hashlib.sha256(b"secret").hexdigest()
    tokens.write_text(
        json.dumps({"tokens": [{"sha256": digest, "scopes": ["read"], "name": "reader"}]}), "utf-8"
    )
    with ready(tmp_path, SHARDSMITH_TOKENS_FILE=str(tokens)) as service:
        assert shardsmith("ls", "--url", service.url).exit_code == 6
        Path("token").write_text("secret\n", "utf-8")
        assert shardsmith("ls", "--url", service.url, "--token-file", "token").exit_code == 0
        monkeypatch.setenv("SHARDSMITH_CLIENT_TOKEN", "secret")
        assert shardsmith("ls", "--url", service.url).exit_code == 0
        assert shardsmith("put", "one.csv", "--dataset", "x", "--url", service.url).exit_code == 6


def test_doctor_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.codecs.kernels.compile_all", lambda: None)  # minutes where nothing is cached
    found = done("doctor", "--data", str(tmp_path / "store"))
    assert all(check["ok"] for check in found.values()), found
    assert set(found) == {"versions", "machine", "settings", "memory", "spool", "storage", "kernels"}
    (tmp_path / "file").write_text("", "utf-8")
    result = shardsmith("doctor", "--data", str(tmp_path / "file" / "store"))
    assert result.exit_code == 1
    assert "FAIL  storage: " in result.stdout
    monkeypatch.setenv("SHARDSMITH_MAX_ROW", "1")
    assert "SHARDSMITH_MAX_ROWS" in shardsmith("doctor", "--data", str(tmp_path / "store")).stdout


def test_a_service_can_be_looked_at(service: Service) -> None:
    found = done("doctor", "--url", service.url)
    assert found["service"]["ok"]
