"""Let clients talk to a real service: those made of openapi/openapi.yaml, and the examples in languages.

`python -m conformance.run`, as README.md shows it; prints one line for each client.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Final

from tests.support.service import start

from .examples import run_examples, run_large
from .languages import DOCUMENT

HERE: Final = Path(__file__).parent
BUILD: Final = HERE / "build"
#: What `tf.io.serialize_tensor(tf.constant([1.5, 2.5]))` gives.
TENSOR: Final = "080112041202080222080000c03f00002040"
#: The languages of generated clients.
GENERATED: Final = ("go", "python", "typescript")
ROWS: Final = '[{"label": 1, "x": [1.5, 2.25]}, {"label": 2, "x": [0.5, 4.75]}]'


def run(*command: str | Path, cwd: Path = HERE, **environment: str) -> str:
    """The output of a command; it is shown where it fails."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}")
    return done.stdout


def generate(tools: Path, languages: Collection[str]) -> None:
    """Write these clients to `build/`, in place of older ones. Leave the examples, which may be in use."""
    for made in ("go", "python", "hey", "js"):
        shutil.rmtree(BUILD / made, ignore_errors=True)
    if "go" in languages:
        go = BUILD / "go"
        parts = "models,apis,supportingFiles,apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"
        options = "packageName=shardsmith,withGoMod=false"
        generator = tools / "openapi-generator-cli"
        run(generator, "generate", "-g", "go", "-i", DOCUMENT, "-o", go / "shardsmith",
            "--global-property", parts, "--additional-properties", options)  # fmt: skip
        shutil.copy(HERE / "client.go", go)
        (go / "go.mod").write_text("module conformance\n\ngo 1.19\n")
    if "python" in languages:
        config = HERE / "openapi-python-client.yaml"
        python = BUILD / "python" / "shardsmith_client"
        run(tools / "openapi-python-client", "generate", "--path", DOCUMENT, "--config", config,
            "--meta", "none", "--output-path", python)  # fmt: skip
    if "typescript" in languages:
        run(npm("openapi-typescript"), DOCUMENT, "-o", BUILD / "schema.ts")
        run(npm("openapi-ts"), "-i", DOCUMENT, "-o", BUILD / "hey")


def npm(tool: str) -> Path:
    return HERE / "node_modules" / ".bin" / tool


def compile_all(tools: Path, languages: Collection[str]) -> None:
    """Compile, or check, these clients as strictly as their languages can."""
    if "go" in languages:
        go = BUILD / "go"
        run("go", "vet", "./...", cwd=go, GOFLAGS="-mod=mod", GOPROXY="off")
        run("go", "build", "-o", go / "client", ".", cwd=go, GOFLAGS="-mod=mod", GOPROXY="off")
    if "python" in languages:
        run(sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--python-executable",
            tools / "python", "client.py", MYPYPATH=str(BUILD / "python"))  # fmt: skip
    if "typescript" in languages:
        run(npm("tsc"), "--project", HERE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "tools", nargs="?", type=Path, help="folder of generators, of which all clients are made"
    )
    parser.add_argument(
        "--clients", nargs="+", choices=GENERATED, default=GENERATED, help="which of the generated ones; all"
    )
    parser.add_argument(
        "--examples", nargs="*", metavar="LANGUAGE", help="behind a faulty proxy; all, or these"
    )
    parser.add_argument(
        "--large", nargs="*", metavar="LANGUAGE", help="what each takes in memory to upload a large file"
    )
    parser.add_argument("--mib", type=int, default=1024, help="of the large file; 1024")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    arguments = parser.parse_args()
    if arguments.tools is not None:
        run_generated(arguments.tools, arguments.clients)
    if arguments.examples is not None:
        run_examples(arguments.examples, arguments.seed)
    if arguments.large is not None:
        run_large(arguments.large, arguments.mib)


def run_generated(tools: Path, languages: Collection[str]) -> None:
    generate(tools, languages)
    compile_all(tools, languages)
    clients: dict[str, tuple[str, tuple[str | Path, ...]]] = {
        "openapi-generator (Go)": ("go", (BUILD / "go" / "client",)),
        "openapi-python-client": ("python", (tools / "python", HERE / "client.py")),
        "openapi-typescript": ("typescript", ("node", BUILD / "js" / "fetch.js")),
        "hey-api": ("typescript", ("node", BUILD / "js" / "hey.js")),
        "tritonclient": ("python", (tools / "python", HERE / "triton.py")),
    }
    with tempfile.TemporaryDirectory() as folder:
        service = start(Path(folder))
        try:
            service.wait_until_ready()
            for number, (name, (language, command)) in enumerate(clients.items()):
                if language not in languages:
                    continue
                arguments = (service.url, f"d{number}", TENSOR, ROWS)
                said = run(*command, *arguments, PYTHONPATH=str(BUILD / "python"))
                sys.stdout.write(f"{name}: {said}")
        finally:
            service.stop()


if __name__ == "__main__":
    main()
