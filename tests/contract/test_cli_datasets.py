"""The commands that work on datasets, and `doctor`: on a store, and against a real service."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.commands import main
from app.cli.places import _Local
from app.cli.storing import _Download
from app.errors import StorageUnavailable
from tests.support.service import Service, ready

SCHEMA = json.dumps({"features": {"id": {"dtype": "int64"}, "name": {"dtype": "text"}}})

pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")


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
    assert shardsmith("rows", "flowers", "--to", "npy", *place).exit_code == 2
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


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("both", ()),
        ("both-declared", ("--schema", SCHEMA)),
        ("both-tests", ("--nonfinite", "null", "--split", "test")),
    ],
)
def test_a_file_is_stored_once_in_whichever_way_it_is_put(
    service: Service, name: str, options: tuple[str, ...]
) -> None:
    store = ["--data", str(service.datasets)]
    assert shardsmith("convert", "one.csv", "one.tsv.gz").exit_code == 0
    for file in ("one.csv", "one.tsv.gz"):
        stored = [
            done("put", file, "--dataset", name, *options, *place)[0]["append_id"]
            for place in (store, ["--url", service.url])
        ]
        assert stored[0] == stored[1]
    assert done("ls", name, *store)["waiting"]["num_records"] == 4


def test_a_file_that_was_stored_before_is_said_to_be(place: list[str]) -> None:
    arguments = ("put", "one.csv", "--dataset", "told", *place)
    assert [done(*arguments)[0]["replayed"] for _ in range(2)] == [False, True]
    assert "was stored before" in shardsmith(*arguments).stdout


def test_a_version_leaves_out_what_is_excluded_and_deals_out_the_rest(place: list[str]) -> None:
    left_out = done("put", "one.csv", "--dataset", "dealt", "--split", "raw", *place)[0]["append_id"]
    done("put", "two.ndjson", "--dataset", "dealt", "--split", "raw", *place)
    options = ("--exclude", left_out, "--fractions", "a:1", "--divide", "raw", "--no-index")
    manifest = done("publish", "dealt", *options, *place)
    counts = {name: of["num_records"] for name, of in manifest["splits"].items()}
    assert {name: count for name, count in counts.items() if count} == {"a": 1}
    done("get", "dealt", "-o", "there", *place)
    assert not list(Path("there").rglob("*.idx"))


def test_rows_come_shuffled_and_transformed(place: list[str]) -> None:
    Path("many.ndjson").write_text("".join(f'{{"x": {n}}}\n' for n in range(50)), "utf-8")
    done("put", "many.ndjson", "--dataset", "mixed", *place)
    done("publish", "mixed", *place)

    def values(*options: str) -> list[float]:
        result = shardsmith("rows", "mixed", *options, *place)
        assert result.exit_code == 0, result.stderr
        return [json.loads(line)["x"] for line in result.stdout.splitlines()]

    shuffled = values("--shuffle-buffer", "50", "--seed", "3")
    assert shuffled != list(range(50))
    assert sorted(shuffled) == list(range(50))
    assert shuffled == values("--shuffle-buffer", "50", "--seed", "3")
    assert shuffled != values("--shuffle-buffer", "50", "--seed", "3", "--epoch", "1")
    scaled = values("--length", "3", "--transforms", '{"x": [{"step": "clip", "min": 1, "max": 1}]}')
    assert scaled == [1, 1, 1]
    assert shardsmith("rows", "mixed", "--seed", "3", *place).exit_code == 2


def test_rows_that_a_transform_does_not_take_are_left_out_and_counted(place: list[str]) -> None:
    words = ("YQ==", "!", "Yg==")
    Path("words.ndjson").write_text("".join(f'{{"word": "{word}"}}\n' for word in words), "utf-8")
    done("put", "words.ndjson", "--dataset", "words", *place)
    done("publish", "words", *place)
    steps = '{"word": [{"step": "decode_base64"}]}'
    refused = shardsmith("rows", "words", "--transforms", steps, *place)
    assert refused.exit_code != 0
    assert "transform_failed" in refused.stderr
    kept = shardsmith("rows", "words", "--transforms", steps, "--on-error", "skip", *place)
    assert [json.loads(line) for line in kept.stdout.splitlines()] == [
        {"word": {"b64": "YQ=="}},
        {"word": {"b64": "Yg=="}},
    ]
    assert kept.stderr == "left out by transforms: 1 row\n"


def test_rows_are_put_that_change_the_schema_or_lack_those_that_its_transforms_do_not_take(
    place: list[str],
) -> None:
    Path("words.ndjson").write_text('{"word": "YQ=="}\n{"word": "!"}\n', "utf-8")
    steps = {"word": {"dtype": "text", "transforms": [{"step": "decode_base64"}]}}
    schema = ("--schema", json.dumps({"features": steps}))
    refused = shardsmith("put", "words.ndjson", "--dataset", "decoded", *schema, *place)
    assert "transform_failed" in refused.stderr
    put = ("put", "words.ndjson", "--dataset", "decoded", *schema, "--on-error", "skip", *place)
    assert "1 row stored" in (said := shardsmith(*put).stdout)
    assert said.endswith("; left out by transforms: 1 row\n")
    done("put", "one.csv", "--dataset", "widened", *place)
    assert shardsmith("put", "two.ndjson", "--dataset", "widened", *place).exit_code == 0
    Path("more.ndjson").write_text('{"id": 4, "name": "di", "age": 5}\n', "utf-8")
    more = ("put", "more.ndjson", "--dataset", "widened", *place)
    assert shardsmith(*more).exit_code != 0
    assert shardsmith(*more, "--evolve").exit_code == 0


@pytest.mark.parametrize(
    "command",
    [("ls",), ("ls", "x"), ("rows", "x"), ("get", "x"), ("publish", "x"), ("validate", "--dataset", "x")],
    ids=" ".join,
)
def test_a_mistyped_store_is_not_made(tmp_path: Path, command: tuple[str, ...]) -> None:
    result = shardsmith(*command, "--data", "typo")
    assert (result.exit_code, "There is no store at" in result.stderr) == (4, True), result.stderr
    assert not (tmp_path / "typo").exists()


def test_the_same_bytes_read_in_another_way_are_other_rows(place: list[str]) -> None:
    text = '{"id": 1, "name": "ann"}\n'
    Path("one.ndjson").write_text(text, "utf-8")
    Path("schema.json").write_text(SCHEMA, "utf-8")
    arguments = ("--dataset", "ways", "--schema", "schema.json", *place)
    (first,) = done("put", "one.ndjson", *arguments)
    (second,) = done("put", "one.ndjson", *arguments)
    assert second["append_id"] == first["append_id"]
    Path("schema.json").write_text(SCHEMA + " ", "utf-8")  # which might say something else
    (third,) = done("put", "one.ndjson", *arguments)
    assert third["append_id"] != first["append_id"]
    Path("rows.csv").write_text("1 1:2\n", "utf-8")  # a column without a row
    Path("rows.svm").write_text("1 1:2\n", "utf-8")
    assert done("put", "rows.svm", "--dataset", "kinds", *place)[0]["num_records"] == 1
    result = shardsmith("put", "rows.csv", "--dataset", "kinds", *place)
    assert (result.exit_code, "idempotency" in result.stderr) == (3, False)


def test_a_download_that_is_left_off_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file fails while another is in its middle: the other is gone on with later."""
    place = ["--data", str(tmp_path / "store")]
    shards = published(place, "stopped")["splits"]["train"]["shards"]
    first, second = (shard["file"] for shard in shards)
    read_file, has_begun, has_failed = _Local.read_file, threading.Event(), threading.Event()

    def read(self: _Local, name: str, version: str, file: str, offset: int) -> Iterator[bytes]:
        if file == first:
            data = b"".join(read_file(self, name, version, file, offset))
            yield data[:10]
            has_begun.set()
            assert has_failed.wait(60)
            yield data[10:]
        elif file == second:
            assert has_begun.wait(60)
            raise StorageUnavailable("The store is gone.")
        else:
            yield from read_file(self, name, version, file, offset)

    def stop(self: _Download) -> None:
        stop_for_good(self)
        has_failed.set()

    stop_for_good = _Download.stop
    folder = Path("there", "stopped", "1.0.0")
    folder.mkdir(parents=True)
    part = folder / f"{first}.part"
    stored = next(path for path in (tmp_path / "store").rglob(first) if path.stat().st_size)
    part.write_bytes(stored.read_bytes()[:5])  # of a time before
    with monkeypatch.context() as patched:
        patched.setattr(_Local, "read_file", read)
        patched.setattr(_Download, "stop", stop)
        assert shardsmith("get", "stopped", "-o", "there", *place).exit_code == 7
    assert part.read_bytes() == stored.read_bytes()[:15]
    done("get", "stopped", "-o", "there", *place)
    assert (folder / first).read_bytes() == stored.read_bytes()


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


def test_damaged_file_is_not_downloaded(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("url", "status"),
    [("http://127.0.0.1:none", 2), ("http://[", 2), ("http://127.0.0.1:99999", 2), ("localhost", 2)],
)
def test_malformed_url_is_refused(url: str, status: int) -> None:
    result = shardsmith("ls", "--url", url)
    assert (result.exit_code, "is no URL of HTTP" in result.stderr) == (status, True)
    assert shardsmith("inspect", f"{url}/a.csv").exit_code == status or url == "localhost"


@pytest.mark.parametrize(
    "body",
    [
        b"<html></html>",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"datasets": 5, "waiting": null, "versions": [null], "valid": true, "num_records": "x"}',
        b'{"datasets": ["x"], "waiting": [1], "versions": 5, "version": 5, "append_id": 5, "problems": [5]}',
        b'{"datasets": [null], "waiting": 5, "versions": null, "version": null, "problems": null}',
        b'{"datasets": [{"dataset": null}], "waiting": "x", "splits": 5, "valid": 5, "append_id": "x"}',
    ],
)
def test_other_server_is_not_a_service(body: bytes) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Skipped-Rows", "many")
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  # as http.server calls it

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            place = ("--url", f"http://127.0.0.1:{server.server_port}")
            result = shardsmith("ls", *place)
            rows = shardsmith("rows", "x", *place)
            others = [
                shardsmith(*command, *place)
                for command in (["ls", "x"], ["publish", "x"], ["validate", "--dataset", "x"], ["doctor"])
            ]
            named = shardsmith("inspect", f"http://127.0.0.1:{server.server_port}/ä b.csv?x=ü")
        finally:
            server.shutdown()
            thread.join()
    for found in (result, rows):
        assert (found.exit_code, "not a Shardsmith service" in found.stderr) == (7, True)
    assert [type(other.exception) for other in others] == [SystemExit] * 4
    assert named.exception is None or isinstance(named.exception, SystemExit)


@pytest.mark.processes
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
