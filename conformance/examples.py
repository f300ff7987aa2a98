"""The examples in languages, each against a live service behind a proxy that damages bodies and answers.

TensorFlow judges what was stored: every acknowledged row exactly once, every bad body refused, downloads
byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.service import Service, start

from .languages import BUILD, LANGUAGES, PYTHON, Language
from .proxy import LIES, Faults, faulty

#: Rows of each upload. The last ones come from standard input, which is sent once: this program repeats it.
FILES: Final = (1, 40, 3_000, 20_000, 2, 300)
STREAMS: Final = (50, 4_000)
#: Of each upload that goes on until the proxy has told every lie.
MORE: Final = 30
#: What a client may take, with all of its runtime, to upload a file of any size.
MOST_MIB: Final = 64
#: A hang takes longer.
TIMEOUT_S: Final = 300
_MOST_REPEATS: Final = 20


class Client:
    """An example, run as a command."""

    def __init__(self, language: Language, url: str, folder: Path) -> None:
        self._language = language
        self._url = url
        self._folder = folder

    def run(self, *arguments: str | Path, stdin: Path | None = None) -> subprocess.CompletedProcess[str]:
        with (stdin or Path(os.devnull)).open("rb") as body:
            return subprocess.run(
                list(map(str, (*self._language.command, *arguments))),
                cwd=self._folder,
                env={**os.environ, "SHARDSMITH_CLIENT_URL": self._url},
                stdin=body,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )

    def succeed(self, *arguments: str | Path) -> str:
        ran = self.run(*arguments)
        assert ran.returncode == 0, f"{self._language.name}: {arguments} failed:\n{ran.stderr[-2000:]}"
        return ran.stdout


@cache
def build(language: Language) -> None:
    """Compile it, if there is something to compile: once, for all that this process does with it."""
    if not language.build:
        return
    ran = subprocess.run(
        list(map(str, language.build)),
        env={**os.environ, **dict(language.environment)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"{language.name} does not compile:\n{ran.stdout}")


def write_rows(path: Path, first: int, number: int) -> None:
    lines = (json.dumps({"id": i, "text": f"row {i} ä"}) + "\n" for i in range(first, first + number))
    path.write_text("".join(lines), encoding="utf-8")


def judge(language: Language, service: Service, folder: Path, seed: int) -> str:
    """Put, publish, wait, rows and get behind the proxy; what it came through.

    Raises:
        AssertionError: a row was lost, stored twice or altered, or a bad body was stored.
    """
    folder.mkdir()
    dataset, first = f"from_{language.name}", 0
    with faulty(service.url, f"{seed} {language.name}") as (url, faults):
        client = Client(language, url, folder)
        for i, number in enumerate(sizes(faults)):
            body = folder / f"{i}.ndjson"
            write_rows(body, first, number)
            first += number
            if number in STREAMS:
                said = put_stream(client, dataset, body, f"key-{i}")
                assert not (faults.without_digest and language.digests_streams), "a stream without a digest"
            else:
                said = client.succeed("put", dataset, body, "application/x-ndjson", f"key-{i}")
                assert not faults.without_digest, "a file without a digest"
            assert said.split() == [str(number), "rows"], f"{language.name} said {said!r} of {number} rows"
        refuse_bad_bodies(client, Client(language, service.url, folder), dataset, folder)
        # Parameters: the rows of another split, and how many shards.
        other = folder / "other.ndjson"
        write_rows(other, first, MORE)
        client.succeed("put", dataset, other, "application/x-ndjson", "key-other", "split=test")
        version = client.succeed("publish", dataset, "key-version", "num_shards=2").strip()
        assert client.succeed("wait", dataset, "latest").strip() == version == "1.0.0", version
        check_rows(client.succeed("rows", dataset, "latest").splitlines(), range(first))
        check_rows(client.succeed("rows", dataset, "latest", "test").splitlines(), range(first, first + MORE))
        # In part there, and damaged; whole, and damaged.
        client.succeed("get", dataset, "latest", folder / "version")
        shard = folder / "version" / f"{dataset}-train.tfrecord-00001-of-00002"
        shard.write_bytes(shard.read_bytes()[:-1] + b"?")
        client.succeed("get", dataset, version, folder / "version")
    check_files(service, dataset, version, folder / "version", first + MORE)
    came = f"{faults.came.total()} faults of {len(faults.came)} kinds"
    return f"{first + MORE:,} rows of {i + 2} uploads once each, through {came}"


def sizes(faults: Faults) -> Iterator[int]:
    """Rows of each upload: files until each lie about a body was told, then streams."""
    yield from FILES
    while not faults.came.keys() >= LIES:
        yield MORE
    yield from STREAMS


def put_stream(client: Client, dataset: str, body: Path, key: str) -> str:
    for _ in range(_MOST_REPEATS):
        ran = client.run("put", dataset, "-", "application/x-ndjson", key, stdin=body)
        if ran.returncode == 0:
            return ran.stdout
    raise AssertionError(f"a stream was never taken: {ran.stderr}")


def refuse_bad_bodies(client: Client, direct: Client, dataset: str, folder: Path) -> None:
    bad = folder / "bad.ndjson"
    bad.write_text('{"id": 1, "text": "a"}\n{"id": 2, "other": "b"}\n', encoding="utf-8")
    assert client.run("put", dataset, bad).returncode == 1
    ran = direct.run("put", dataset, bad)
    assert ran.returncode == 1, ran
    assert "schema_conflict (422): " in ran.stderr, ran.stderr


def check_rows(lines: list[str], ids: range) -> None:
    found = sorted((row["id"], row["text"]) for row in map(json.loads, lines))
    assert found == [(i, f"row {i} ä") for i in ids], f"{len(found)} rows were read, not {len(ids)}"


def check_files(service: Service, dataset: str, version: str, folder: Path, number: int) -> None:
    """The files are those of the service, no others; and TensorFlow reads each row once."""
    url = f"{service.url}/v1/datasets/{dataset}/versions/{version}/SHA256SUMS"
    listed = {line[66:]: line[:64] for line in httpx.get(url).text.splitlines()}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert found == listed, f"other files than those of the service: {found.keys() ^ listed.keys()}"
    assert sorted(read_with_tensorflow(folder)) == [(i, f"row {i} ä") for i in range(number)]


def read_with_tensorflow(folder: Path) -> Iterator[tuple[int, str]]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    features = {"id": tf.io.FixedLenFeature([], tf.int64), "text": tf.io.FixedLenFeature([], tf.string)}
    shards = sorted(str(path) for path in folder.glob("*.tfrecord-*"))
    for batch in tf.data.TFRecordDataset(shards).batch(4096):
        rows: Any = tf.io.parse_example(batch, features)
        yield from zip(
            rows["id"].numpy().tolist(), [text.decode() for text in rows["text"].numpy()], strict=True
        )


def run_examples(names: list[str], seed: int) -> None:
    """Print a line for each language."""
    with tempfile.TemporaryDirectory() as scratch, serving(Path(scratch)) as service:
        languages = prepared(names)
        with ThreadPoolExecutor(2) as pool:
            judged = {
                language.name: pool.submit(judge, language, service, Path(scratch, language.name), seed)
                for language in languages
            }
            for name, result in judged.items():
                print(f"{name}: {result.result()}", flush=True)


def prepared(names: list[str], languages: Sequence[Language] = LANGUAGES) -> list[Language]:
    """The languages that are here, compiled; of the others it prints what they lack."""
    BUILD.mkdir(parents=True, exist_ok=True)
    found = []
    for language in languages:
        if names and language.name not in names:
            continue
        if language.is_there():
            build(language)
            found.append(language)
        else:
            print(f"{language.name}: left out, since {' or '.join(language.tools)} is not here, or a library")
    return found


@contextmanager
def serving(folder: Path) -> Iterator[Service]:
    # Pages of other origins, for the example in a browser.
    service = start(folder, SHARDSMITH_CORS_ORIGINS="*")
    try:
        service.wait_until_ready()
        yield service
    finally:
        service.stop()


def run_large(names: list[str], mib: int) -> None:
    """Print what each client takes in memory while it uploads a file of `mib` MiB, and how long.

    Raises:
        SystemExit: a client took `MOST_MIB` or more, and which.
    """
    too_large = []
    with tempfile.TemporaryDirectory() as scratch, serving(Path(scratch)) as service:
        body = Path(scratch, "large.ndjson")
        row = json.dumps({"text": "x" * (1 << 16)}) + "\n"
        with body.open("w", encoding="utf-8") as file:
            file.writelines([row] * (mib * 16))
        # A browser has the file in processes of its own, of hundreds of MiB each.
        for language in prepared(names, [PYTHON, *(it for it in LANGUAGES if it.name != "browser")]):
            seconds, peak = measure(language, service.url, body)
            httpx.delete(f"{service.url}/v1/datasets/large")
            print(f"{language.name}: {mib} MiB in {peak:.0f} MiB of memory, {seconds:.0f} s", flush=True)
            if peak >= MOST_MIB:
                too_large.append(language.name)
    if too_large:
        raise SystemExit(f"{MOST_MIB} MiB of memory or more: {', '.join(too_large)}")


def measure(language: Language, url: str, body: Path) -> tuple[float, float]:
    """Seconds, and MiB of memory at most, of an upload.

    Each has a parent of its own, which the system tells of its largest child alone.
    """
    command = [*(language.small or language.command), "put", "large", body, "application/x-ndjson"]
    program = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-c", program, *map(str, command)],
        env={**os.environ, "SHARDSMITH_CLIENT_URL": url},
        capture_output=True,
        text=True,
        check=True,
    )
    status, kib = ran.stdout.split()
    assert status == "0", f"{language.name}: {ran.stderr}"
    return time.monotonic() - began, int(kib) / 1024
