"""`inspect`, `convert`, `describe`, `validate` and `repair`: what they print, write and end with."""

import gzip
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner, Result

from app.cli.commands import main
from app.cli.conversion import Target
from app.cli.screen.terminal import printable, shorten, table, width_of
from tests.support.feature_values import field
from tests.support.images import encode
from tests.support.tfrecord_frames import frame

ROOT = Path(__file__).parents[3]
#: What a TFRecord does not say itself.
SCHEMA = json.dumps(
    {
        "features": {
            "id": {"dtype": "int64"},
            "name": {"dtype": "text", "nullable": True},
            "score": {"dtype": "float32"},
        }
    }
)
CSV = "id,name,score\n1,ann,0.5\n2,bob,1.5\n3,,2.5\n"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text(CSV, "utf-8")


def shardsmith(*arguments: str, given: bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=given)


def done(*arguments: str, given: bytes | None = None) -> Result:
    result = shardsmith(*arguments, given=given)
    assert result.exit_code == 0, result.output
    return result


def inspected(name: str, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shardsmith("inspect", name, "--json", *arguments).stdout)
    return found


def tfrecord() -> bytes:
    done("convert", "rows.csv", "rows.tfrecord")
    return Path("rows.tfrecord").read_bytes()


def example(name: str, value: int | str) -> bytes:
    Path("example.ndjson").write_text(json.dumps({name: value}) + "\n", "utf-8")
    done("convert", "example.ndjson", "example.tfrecord", "--force")
    return Path("example.tfrecord").read_bytes()[12:-4]


@pytest.mark.parametrize(
    "name",
    [
        "a.ndjson",
        "a.json",
        "a.parquet",
        "a.arrow",
        "a.arrows",
        "a.tfrecord",
        "a.tfrecord.gz",
        "a.csv.zst",
        "a.tsv",
    ],
)
def test_rows_survive_a_conversion_there_and_back(name: str) -> None:
    done("convert", "rows.csv", name)
    assert inspected(name)["num_records"] == 3
    done("convert", name, "back.csv", *(("--schema", SCHEMA) if "tfrecord" in name else ()))
    assert Path("back.csv").read_text("utf-8").splitlines() == CSV.splitlines()


def test_the_name_of_the_output_says_how_it_is_compressed() -> None:
    plain = tfrecord()
    done("convert", "rows.csv", "rows.tfrecord.gz")
    assert gzip.decompress(Path("rows.tfrecord.gz").read_bytes()) == plain
    done("convert", "rows.csv", "rows.ndjson.gz")
    assert len(gzip.decompress(Path("rows.ndjson.gz").read_bytes()).splitlines()) == 3


def test_standard_input_and_output_are_a_dash() -> None:
    result = done("convert", "-", "-", "--to", "ndjson", given=CSV.encode())
    assert json.loads(result.stdout.splitlines()[0]) == {"id": 1, "name": "ann", "score": 0.5}
    assert result.stderr.startswith("standard input (csv) -> ndjson: 3 rows")


def test_bytes_say_what_a_file_is_whatever_its_name_says() -> None:
    done("convert", "rows.csv", "rows.parquet")
    Path("rows.parquet").rename("rows.tfrecord")
    assert inspected("rows.tfrecord")["format"] == "parquet"


def test_arrays_are_not_guessed_to_be_rows() -> None:
    np.savez("a.npz", x=np.arange(6).reshape(3, 2))
    result = shardsmith("convert", "a.npz", "a.tfrecord")
    assert (result.exit_code, "--as rows or --as tensors" in result.output) == (2, True)
    done("convert", "a.npz", "a.tfrecord", "--as", "rows")
    assert inspected("a.tfrecord")["rows"][1] == {"x": [2, 3]}
    done("convert", "a.npz", "b.tfrecord", "--as", "tensors")
    assert inspected("b.tfrecord")["tensors"][0]["shape"] == [3, 2]


def test_an_output_that_cannot_be_completed_leaves_nothing() -> None:
    Path("old.ndjson").write_text("old", "utf-8")
    Path("bad.ndjson").write_text('{"x": 1}\n{"x": 2}\n{"x": [}\n', "utf-8")
    before = sorted(Path().iterdir())
    assert shardsmith("convert", "bad.ndjson", "new.ndjson").exit_code == 3
    assert shardsmith("convert", "bad.ndjson", "old.ndjson", "--force").exit_code == 3
    assert sorted(Path().iterdir()) == before
    assert Path("old.ndjson").read_text("utf-8") == "old"


def test_a_file_that_is_there_stays_unless_it_is_forced() -> None:
    Path("out.json").write_text("kept", "utf-8")
    assert shardsmith("convert", "rows.csv", "out.json").exit_code == 5
    assert Path("out.json").read_text("utf-8") == "kept"
    done("convert", "rows.csv", "out.json", "--force")
    assert len(json.loads(Path("out.json").read_text("utf-8"))) == 3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("rows.csv", "out.json", "--byte-order", "big"), "--byte-order"),
        (("rows.csv", "out.parquet", "--int64", "string"), "--int64"),
        (("rows.csv", "out"), "--to"),
        (("rows.csv", "out.zip"), "read, and not written"),
        (("rows.csv", "out.json", "--from", "cvs"), "cvs"),
        (("rows.csv", "out.npy"), "rows"),
    ],
    ids=["raw option", "json option", "no format", "read alone", "no such format", "rows as an array"],
)  # fmt: skip
def test_option_without_effect_is_refused(arguments: tuple[str, ...], named: str) -> None:
    result = shardsmith("convert", *arguments)
    assert result.exit_code in (2, 3)
    assert named in result.stderr
    assert list(Path().iterdir()) == [Path("rows.csv")]


def test_an_error_is_one_line_with_its_code_and_place() -> None:
    Path("bad.ndjson").write_text('{"x": 1}\n{"x": "\\u001b[2Jno"}\n', "utf-8")
    result = shardsmith("convert", "bad.ndjson", "out.parquet")
    assert result.exit_code == 3
    assert result.stderr.startswith("shardsmith: ")
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr
    document = json.loads(shardsmith("convert", "bad.ndjson", "out.parquet", "--json").stderr)["error"]
    assert document["row"] == 1
    assert f"[{document['code']}, row 1" in result.stderr


def test_options_in_errors_are_those_of_the_command_line() -> None:
    tfrecord()
    result = shardsmith("convert", "rows.tfrecord", "out.csv")
    assert result.exit_code == 3
    assert " --infer=all" in result.stderr
    done("convert", "rows.tfrecord", "out.csv", "--infer=all")


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("inspect", "nowhere"), 4),
        (("inspect", "."), 1),
        (("inspect", "gopher://x/y"), 2),
        (("convert", "rows.csv"), 2),
    ],
    ids=["no file", "a folder", "no address", "no output"],
)
def test_a_failure_has_a_status_of_its_kind(arguments: tuple[str, ...], status: int) -> None:
    result = shardsmith(*arguments)
    assert result.exit_code == status
    assert "Traceback" not in result.output


def test_inspect_shows_schema_rows_statistics_and_checks() -> None:
    tfrecord()
    lines = done("inspect", "rows.tfrecord").stdout.splitlines()
    assert lines[0].startswith("rows.tfrecord: tfrecord, ")
    assert "Schema: 3 features" in lines
    assert "First rows" in lines
    assert "All of it: 3 rows" in lines
    assert lines[-1] == "Checks: all of it can be read, every checksum holds."
    assert "First rows" not in done("inspect", "rows.tfrecord", "--rows", "0").stdout
    assert "All of it" not in done("inspect", "rows.tfrecord", "--head").stdout


def test_statistics_are_exact() -> None:
    values = np.arange(1000, dtype=np.int64) * 7 - 350
    np.savez("a.npz", x=values)
    found = inspected("a.npz", "--as", "rows")["features"]["x"]
    assert (found["min"], found["max"], found["mean"]) == (-350, 6643, float(values.mean()))
    found = inspected("a.npz")["tensors"][0]
    assert (found["min"], found["max"], found["mean"]) == (-350, 6643, float(values.mean()))


def test_a_large_array_is_looked_at_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(1 << 20, dtype=np.float32)
    np.save("a.npy", values)
    expected = inspected("a.npy")
    monkeypatch.setattr("app.services.convert.inspect._MOST_READ", 0)
    monkeypatch.setenv("SHARDSMITH_MAX_DECODED_BYTES", "1000000")
    assert inspected("a.npy") == expected
    assert expected["tensors"][0]["max"] == float(values[-1])


def test_damage_is_reported_with_its_offset_and_the_rest_is_repaired() -> None:
    whole = tfrecord()
    size = 12 + int.from_bytes(whole[:8], "little") + 4
    damaged = bytearray(whole)
    damaged[size + 14] ^= 1
    Path("bad.tfrecord").write_bytes(damaged)

    result = shardsmith("inspect", "bad.tfrecord")
    assert result.exit_code == 3
    assert "All of it: 2 rows" in result.stdout
    (lost,) = inspected("bad.tfrecord")["lost"]["ranges"]
    assert (lost["offset"], lost["reason"]) == (size, "bad_payload")

    result = shardsmith("validate", "rows.tfrecord", "bad.tfrecord")
    assert result.exit_code == 3
    assert "rows.tfrecord: good (tfrecord, 3 rows)" in result.stdout
    assert "bad.tfrecord: damaged (tfrecord, 2 rows)" in result.stdout

    report = json.loads(done("repair", "bad.tfrecord", "good.tfrecord", "--json").stderr)
    assert (report["num_records"], report["lost"]["num_ranges"]) == (2, 1)
    assert Path("good.tfrecord").read_bytes() == whole[:size] + whole[size + lost["num_bytes"] :]
    done("validate", "good.tfrecord")
    assert shardsmith("convert", "bad.tfrecord", "x.json").exit_code == 3
    done("convert", "bad.tfrecord", "x.json", "--damaged", "skip")


def test_file_without_a_good_record_is_not_repaired() -> None:
    result = shardsmith("repair", "rows.csv", "saved.tfrecord")
    assert (result.exit_code, "no good record" in result.stderr) == (3, True)
    assert not Path("saved.tfrecord").exists()
    Path("empty.tfrecord").touch()
    done("repair", "empty.tfrecord", "saved.tfrecord")


@pytest.mark.parametrize("command", ["inspect", "validate"])
def test_other_record_among_examples_is_damage(command: str) -> None:
    """In the first batch as well as behind it, where the others are shown as bytes."""
    Path("mixed.tfrecord").write_bytes(tfrecord() + frame(b"hello\x1b[31m\xff"))
    result = shardsmith(command, "mixed.tfrecord")
    assert (result.exit_code, "\x1b" in result.output) == (3, False)
    assert "Record 3 is not a valid tf.train.Example" in result.stdout
    hostile = frame(example("a\x1b[31m", 1)) + frame(example("a\x1b[31m", "x"))
    Path("mixed.tfrecord").write_bytes(hostile)
    assert "\x1b" not in shardsmith(command, "mixed.tfrecord").output


@pytest.mark.parametrize("container", ["gzip", "zlib"])
def test_a_compressed_tfrecord_is_said_to_be_one(container: str) -> None:
    done("convert", "rows.csv", "any", "--to", "tfrecord", "--compression", container)
    assert done("inspect", "any").stdout.startswith(f"any: tfrecord in {container}, ")
    assert inspected("any")["container"] == container
    assert json.loads(done("describe", "any").stdout)["container"] == container
    source = done("describe", "any", "--to", "python").stdout
    assert f'def load(pattern, batch_size=None, compression_type="{container.upper()}"):' in source
    assert "container" not in json.loads(done("describe", "rows.csv").stdout)
    tfrecord()
    assert 'compression_type=""' in done("describe", "rows.tfrecord", "--to", "python").stdout


@pytest.mark.parametrize("size", [0, 70_000])
def test_a_file_of_other_messages_is_sound_and_has_rows_of_bytes(size: int) -> None:
    """Also where the first record is longer than what tells the format of a file."""
    record = b"\x0a\x00\x12\x02hi" + field(0x1A, b"x" * size)
    Path("other.tfrecord").write_bytes(frame(record) + frame(b"\x0a\x00"))
    result = done("inspect", "other.tfrecord")
    assert "all of it can be read, every checksum holds" in result.stdout
    assert "its records are not Examples" in result.stdout
    found = inspected("other.tfrecord")
    assert (found["message"], found["num_records"], found["fault"]) == ("bytes", 2, None)
    assert found["schema"]["features"]["value"]["dtype"] == "bytes"
    assert done("validate", "other.tfrecord").stdout == "other.tfrecord: good (tfrecord, 2 rows of bytes)\n"
    assert json.loads(done("validate", "--json", "other.tfrecord").stdout)["message"] == "bytes"


@pytest.mark.parametrize("name", ["row", "row.pb"])
def test_a_bare_example_is_said_to_be_one(name: str) -> None:
    data = example("a", 1)
    Path(name).write_bytes(data)
    result = shardsmith("inspect", name)
    assert (result.exit_code, "one serialized tf.train.Example" in result.stderr) == (3, True)
    Path(name).write_bytes(b"\n\n\n\n of other things, and so on\n")
    assert "tf.train.Example" not in shardsmith("inspect", "row").stderr
    Path(name).write_bytes(b"")
    assert "tf.train.Example" not in shardsmith("inspect", name).stderr


def test_files_after_an_unreadable_one_are_validated() -> None:
    Path("rows.csv").write_text(CSV, "utf-8")
    Path("cut.ndjson").write_text('{"id": ', "utf-8")
    result = shardsmith("validate", "none.csv", "rows.csv", "cut.ndjson")
    assert result.exit_code == 4
    assert result.stderr.startswith("shardsmith: none.csv: ")
    assert [line.split(" ")[:2] for line in result.stdout.splitlines() if not line.startswith(" ")] == [
        ["rows.csv:", "good"],
        ["cut.ndjson:", "damaged"],
    ]
    Path("unknown").write_bytes(b"")
    assert "Set --from= to say it." in shardsmith("validate", "unknown").stdout
    result = shardsmith("validate", "--json", "rows.csv", "none.csv")
    assert result.exit_code == 4
    assert [found["input"] for found in json.loads(result.stdout)] == ["rows.csv"]


def test_an_output_is_on_the_disk_before_it_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """And then its folder, which has the name."""
    Path("rows.csv").write_text(CSV, "utf-8")
    synced: list[tuple[str, bool]] = []
    sync = os.fsync

    def watch(number: int) -> None:
        synced.append((str(Path(f"/proc/self/fd/{number}").readlink()), Path("rows.tfrecord").exists()))
        sync(number)

    monkeypatch.setattr(os, "fsync", watch)
    assert shardsmith("convert", "rows.csv", "rows.tfrecord").exit_code == 0
    (file, had_name), (folder, has_name) = synced
    assert (file.endswith(".part"), had_name) == (True, False)
    assert (folder, has_name) == (str(Path.cwd()), True)


def test_without_its_packages_it_says_what_to_install(tmp_path: Path) -> None:
    """Python alone, as `pip install shardsmith` leaves it."""
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from app.cli import main; main()"
    alone = [sys.executable, "-I", "-S", "-c", program, str(ROOT)]
    result = subprocess.run([*alone, "inspect", "x"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "pip install 'shardsmith[service]'" in result.stderr
    module = subprocess.run(
        [sys.executable, "-m", "app.cli", "--version"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (module.returncode, module.stdout.startswith("shardsmith")) == (0, True), module.stderr


def test_an_address_of_https_leads_to_none_of_http(monkeypatch: pytest.MonkeyPatch) -> None:
    class Moved:
        status = 302
        headers: ClassVar = {"Location": "http://example.com/rows.csv"}

    asked: list[str] = []

    def request(_: str, url: str, *__: object, **___: object) -> Moved:
        asked.append(url)
        return Moved()

    monkeypatch.setattr("app.cli.http_client.request", request)
    result = shardsmith("inspect", "https://example.com/rows.csv?key=secret")
    assert (result.exit_code, "leads to http://example.com" in result.stderr) == (4, True)
    assert "secret" not in result.stderr
    assert asked == ["https://example.com/rows.csv?key=secret"]


def test_a_file_may_be_named_by_its_url() -> None:
    Path("of all.csv").write_bytes(Path("rows.csv").read_bytes())
    assert inspected(Path("of all.csv").resolve().as_uri())["num_records"] == 3
    assert shardsmith("inspect", Path("none").resolve().as_uri() + "/rows.csv").exit_code == 4
    assert not Path("none").exists()


def test_a_wrong_use_is_a_document_for_programs_and_cannot_steer_the_terminal() -> None:
    result = shardsmith("convert", "rows.csv", "rows.xyz", "--json")
    assert (result.exit_code, json.loads(result.stderr)["error"]["code"]) == (2, "usage")
    result = CliRunner().invoke(main, ["inspect", "a\x1b[31m://b"], color=True)
    assert (result.exit_code, "\x1b" in result.stderr, "\\x1b[31m" in result.stderr) == (2, False, True)


@pytest.mark.parametrize("columns", ["1", "2", "30"])
def test_a_picture_of_16_bits_fits_a_terminal_of_any_width(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("COLORTERM", "truecolor")
    Path("dark.png").write_bytes(encode(np.full((8, 8, 1), 64 << 8, np.uint16), "PNG"))
    result = CliRunner().invoke(main, ["inspect", "--images", "dark.png", "--dtype", "uint16"], color=True)
    assert (result.exit_code, "38;2;64;64;64" in result.stdout) == (0, True), result.output


def test_a_file_that_is_made_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Target._copy

    def make_it_first(self: Target, chunks: Iterator[Any], file: Any) -> None:
        copy(self, chunks, file)
        Path("out.ndjson").write_text("of another", "utf-8")

    monkeypatch.setattr(Target, "_copy", make_it_first)
    assert shardsmith("convert", "rows.csv", "out.ndjson").exit_code == 5
    assert Path("out.ndjson").read_text("utf-8") == "of another"
    done("convert", "rows.csv", "out.ndjson", "--force")
    assert Path("out.ndjson").read_bytes() != b"of another"
    result = shardsmith("convert", "rows.csv", "none/out.ndjson")
    assert (result.exit_code, "none: There is no such folder" in result.stderr) == (4, True)


def test_a_file_of_rows_that_is_cut_off_is_shown_up_to_there() -> None:
    lines = "".join(f'{{"x": {n}}}\n' for n in range(20_000))
    Path("cut.ndjson").write_text(lines + '{"x": ', "utf-8")
    found = inspected("cut.ndjson")
    assert found["num_records"] > 0
    assert (found["fault"]["row"], found["is_whole"]) == (20_000, False)
    assert shardsmith("validate", "cut.ndjson").exit_code == 3


def test_records_of_bytes_are_inspected() -> None:
    Path("a.ndjson").write_text('{"value": {"b64": "/wD/"}}\n', "utf-8")
    done("convert", "a.ndjson", "a.tfrecord", "--message", "bytes")
    found = inspected("a.tfrecord")
    assert (found["schema"]["features"]["value"]["dtype"], found["num_records"]) == ("bytes", 1)


@pytest.mark.parametrize("to", ["json", "schema", "pbtxt", "features", "python"])
def test_describe_writes_what_the_service_answers(to: str) -> None:
    tfrecord()
    described = done("describe", "rows.tfrecord", "--to", to).stdout
    assert "score" in described
    if to == "python":
        compile(described, "loader", "exec")


def test_nothing_of_a_hostile_file_steers_the_terminal() -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
    Path("h.json").write_text(json.dumps([{f"name {hostile}": hostile, "x" * 5000: 1}]), "utf-8")
    for arguments in (
        ("inspect", "h.json"),
        ("describe", "h.json", "--to", "schema"),
        ("validate", "h.json"),
    ):
        result = shardsmith(*arguments)
        shown = result.stdout.replace("\n", "")
        if arguments[0] != "describe":  # a document for programs, which goes through `SafeText` on a terminal
            assert shown.isprintable(), shown
            assert max(map(len, result.stdout.splitlines())) < 200


def test_ten_thousand_features_are_a_screen_or_three() -> None:
    row = {f"feature-{n:05}": n for n in range(10_000)}
    Path("wide.json").write_text(json.dumps([row]), "utf-8")
    lines = done("inspect", "wide.json").stdout.splitlines()
    assert len(lines) < 500
    assert max(map(width_of, lines)) <= 100


def run_on_a_terminal(*arguments: str) -> tuple[int, str]:
    """The exit status, and what a terminal of its own is sent."""
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "LINES": "24", "COLORTERM": "truecolor", "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    code = "from app.cli.commands import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=slave, stdout=slave, stderr=slave, env={**environment, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(slave)
    sent = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not piece:
            break
        sent += piece
    os.close(master)
    return process.wait(), sent.decode()


def test_a_terminal_gets_pictures_and_no_binary() -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:, :4] = (255, 0, 0)
    Path("i.png").write_bytes(encode(pixels, "png"))
    status, sent = run_on_a_terminal("inspect", "i.png")
    assert status == 0
    assert sent.count("\x1b[38;2;255;0;0;48;2;255;0;0m▀") == 16
    assert sent.count("\x1b[38;2;0;0;0;48;2;0;0;0m▀") == 16

    status, sent = run_on_a_terminal("convert", "rows.csv", "-", "--to", "parquet")
    assert (status, "A terminal cannot show" in sent) == (2, True)

    Path("h.csv").write_text("x\n\x1b[2Jboo\n", "utf-8")
    status, sent = run_on_a_terminal("convert", "h.csv", "-", "--to", "csv")
    assert status == 0
    assert ("\x1b" in sent, "\\x1b[2Jboo" in sent) == (False, True)


def test_a_command_imports_nothing_heavy_to_say_what_it_takes() -> None:
    code = (
        "import sys; from app.cli.commands import main\n"
        "try: main(['convert', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'pyarrow', 'pydantic', 'numba', 'fastapi'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_a_table_fits_and_tells_what_it_leaves_out() -> None:
    lines = list(table(["a", "b" * 60, *"cdefghijklmnop"], [["x" * 300] * 16], width=80))
    assert max(map(width_of, lines)) <= 80
    assert all(line.endswith("…") for line in lines)
    assert list(table(["a", "b"], [["1", "日本"]], width=80)) == ["a  b", "1  日本"]


def test_wide_characters_count_twice() -> None:
    assert width_of("日本a") == 5
    assert shorten("日本語", 4) == "日…"
    assert printable("a\tb\u2028c\x9b") == "a\\tb\\u2028c\\x9b"
