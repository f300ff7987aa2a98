"""The examples in languages: what they need, how they are built, and what runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
DOCUMENT: Final = HERE.parent / "openapi" / "openapi.yaml"
EXAMPLES: Final = HERE.parent / "examples"
BUILD: Final = HERE / "build" / "examples"
#: What npm installs for this folder.
MODULES: Final = HERE / "node_modules"


@dataclass(frozen=True)
class Language:
    """A client in `examples/<name>/`."""

    name: str
    #: Programs that have to be there.
    tools: tuple[str, ...]
    #: What runs it, with the verb and its arguments behind.
    command: tuple[str | Path, ...]
    #: What makes it.
    build: tuple[str | Path, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    #: What runs it in as little memory as it can, where that differs.
    small: tuple[str | Path, ...] = ()
    #: Whether what it sends while it is made has a digest: behind it, where its HTTP has trailers.
    digests_streams: bool = False
    #: What succeeds where its libraries are.
    check: tuple[str, ...] = ()

    def is_there(self) -> bool:
        """Whether its tools and libraries are. Where CI is set they must be."""
        if os.environ.get("CI"):
            return True
        if not all(map(shutil.which, self.tools)):
            return False
        return not self.check or not subprocess.run(self.check, capture_output=True, check=False).returncode


_GO: Final = (("GO111MODULE", "off"), ("GOFLAGS", ""))
_JAVA_SMALL: Final = ("java", "-Xmx16m", "-Xss256k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                      "-XX:ReservedCodeCacheSize=8m", "-cp", BUILD, "Shardsmith")  # fmt: skip
#: R collects no garbage before there are 64 MiB of it, unless it is told that it has less.
_R_SMALL: Final = ("env", "R_DEFAULT_PACKAGES=NULL", "R_VSIZE=4M", "Rscript", "--vanilla",
                   EXAMPLES / "r" / "shardsmith.R")  # fmt: skip
#: Without code compiled while it runs: Node 24 has 14 MiB more by itself than Node 20, and would take 68.
_NODE_SMALL: Final = ("node", "--jitless")
_CPP: Final = ("g++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1")
_CPP_HEADERS: Final = (
    "-include",
    "curl/curl.h",
    "-include",
    "openssl/evp.h",
    "-include",
    "nlohmann/json.hpp",
)
#: Types of the document, then the client as strictly as can be.
_TYPESCRIPT: Final = """
mkdir -p "$4/typescript" && cd "$4/typescript" && cp "$2/typescript/shardsmith.mts" .
"$1/openapi-typescript" "$3" -o schema.d.ts
"$1/tsc" --strict --noUncheckedIndexedAccess --noUnusedLocals --target es2022 --module nodenext shardsmith.mts
"""
#: A copy, since cargo writes a lock beside what it builds.
_RUST: Final = """
rm -rf "$2/rust/src" "$2/rust/Cargo.lock" && mkdir -p "$2/rust"
cp -r "$1/rust/Cargo.toml" "$1/rust/src" "$2/rust" && cd "$2/rust" && cargo build --release --quiet
"""
_CRATES: Final = tuple(f"librust-{name}-dev" for name in ("base64", "serde-json", "sha2", "ureq", "uuid"))
#: Debian's compiler, whatever else is there, and Debian's crates, so that nothing is downloaded.
_CARGO: Final = (
    ("PATH", f"/usr/bin{os.pathsep}{os.environ['PATH']}"),
    ("CARGO_HOME", str(HERE / "cargo")),
    ("CARGO_TARGET_DIR", str(BUILD / "rust" / "target")),
    ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"),
    ("RUSTFLAGS", "-D warnings"),
)
_PYTHON: Final = """
import os, sys
from pathlib import Path
from app.client import Client
with Client(os.environ["SHARDSMITH_CLIENT_URL"]) as service:
    service.dataset(sys.argv[2]).append(Path(sys.argv[3]))
"""
_TSC: Final = MODULES / ".bin" / "tsc"

#: The Python client, which has tests of its own.
PYTHON: Final = Language("python", (sys.executable,), (sys.executable, "-c", _PYTHON))

LANGUAGES: Final = (
    Language(
        "browser",
        ("chromium",),
        (sys.executable, HERE / "browser.py"),
        digests_streams=True,
        check=(sys.executable, "-c", "import playwright.sync_api"),
    ),
    Language("shell", ("sh", "curl"), ("sh", EXAMPLES / "shell" / "shardsmith.sh")),
    Language(
        "go",
        ("go",),
        (BUILD / "go",),
        ("go", "build", "-o", BUILD / "go", *sorted((EXAMPLES / "go").glob("*.go"))),
        environment=_GO,
        digests_streams=True,
    ),
    Language(
        "java",
        ("java", "javac"),
        ("java", "-XX:TieredStopAtLevel=1", "-cp", BUILD, "Shardsmith"),
        ("javac", "--release", "11", "-Werror", "-d", BUILD, EXAMPLES / "java" / "Shardsmith.java"),
        small=_JAVA_SMALL,
    ),
    Language(
        "cpp",
        ("g++",),
        (BUILD / "cpp",),
        (*_CPP, "-o", BUILD / "cpp", EXAMPLES / "cpp" / "main.cpp", "-lcurl", "-lcrypto"),
        digests_streams=True,
        check=("g++", "-fsyntax-only", *_CPP_HEADERS, "-x", "c++", os.devnull),
    ),
    Language(
        "javascript",
        ("node",),
        ("node", EXAMPLES / "javascript" / "shardsmith.mjs"),
        small=(*_NODE_SMALL, EXAMPLES / "javascript" / "shardsmith.mjs"),
        digests_streams=True,
    ),
    Language(
        "php",
        ("php",),
        ("php", EXAMPLES / "php" / "shardsmith.php"),
        check=("php", "-r", "exit(extension_loaded('curl') ? 0 : 1);"),
    ),
    Language(
        "r",
        ("Rscript",),
        ("Rscript", EXAMPLES / "r" / "shardsmith.R"),
        small=_R_SMALL,
        check=("Rscript", "-e", "library(curl); library(jsonlite); library(openssl)"),
    ),
    Language("ruby", ("ruby",), ("ruby", EXAMPLES / "ruby" / "shardsmith.rb"), digests_streams=True),
    Language(
        "rust",
        ("/usr/bin/cargo", "/usr/bin/clippy-driver"),
        (BUILD / "rust" / "target" / "release" / "shardsmith",),
        ("sh", "-euc", _RUST, "sh", EXAMPLES, BUILD),
        environment=_CARGO,
        check=("dpkg", "-s", *_CRATES),
    ),
    Language(
        "typescript",
        ("node", str(_TSC)),
        ("node", BUILD / "typescript" / "shardsmith.mjs"),
        ("sh", "-euc", _TYPESCRIPT, "sh", _TSC.parent, EXAMPLES, DOCUMENT, BUILD),
        small=(*_NODE_SMALL, BUILD / "typescript" / "shardsmith.mjs"),
        digests_streams=True,
    ),
)
