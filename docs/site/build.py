"""Build the site: gather the pages, run MkDocs in strict mode, check that nothing comes from another host.

The menu has the links of docs/index.md under its headings, so that a page is added there alone. A page that
is not in the menu fails the build.

The standard library alone, since it also makes the environment that MkDocs runs in.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NoReturn

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
LOCK: Final = HERE / "requirements.lock"
BUILD: Final = ROOT / "build"
PAGES, SITE, VENV = BUILD / "pages", BUILD / "site", BUILD / "docs-venv"
#: What pages are made of, and what they link to.
SOURCES: Final = (
    "*.md", "docs/**/*", "examples/**/*.md", "benchmarks/**/*.md", "conformance/*.md",
    "openapi/openapi.yaml", "openapi/names.txt",
)  # fmt: skip
#: A link to a page as a whole: its title, and where it is.
LINKED: Final = re.compile(r"\[([^\]]+)\]\(([^)#:]+\.md)\)")
#: What a browser would fetch by itself when it shows a page.
FETCHED: Final = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^\"'> ]*", re.IGNORECASE
)
FETCHED_BY_STYLES: Final = re.compile(r"url\([\"']?(?:https?:)?//[^)]*")
NOT_FETCHED: Final = re.compile(r"<link\b[^>]*\brel=[\"']?(?:canonical|prev|next)", re.IGNORECASE)


def prepare() -> Path:
    """The interpreter of an environment that holds what the lock says."""
    python = VENV / "bin" / "python"
    stamp = VENV / "stamp"
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text("ascii") == digest and os.access(python, os.X_OK)):
        shutil.rmtree(VENV, ignore_errors=True)
        print("Installing docs/site/requirements.lock into build/docs-venv.", flush=True)
        run(sys.executable, "-I", "-m", "venv", str(VENV))
        install = [str(python), "-I", "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
        run(*install, "--require-hashes", "-r", str(LOCK))
        stamp.write_text(digest, "ascii")
    return python


def gather() -> None:
    """Copy the pages, and what they link to, so that links between them stay as they are."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for pattern in SOURCES:
        for path in ROOT.glob(pattern):
            relative = path.relative_to(ROOT)
            if path.is_file() and not {"node_modules", "build", HERE.name} & set(relative.parts):
                (PAGES / relative).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, PAGES / relative)
    shutil.copyfile(HERE / "iframe-worker.js", PAGES / "iframe-worker.js")


def menu(index: Path) -> list[object]:
    """Entries of MkDocs' `nav`: the pages that the lists of `index` link to, in a group for each heading."""
    entries: list[object] = []
    group = entries
    for line in index.read_text("utf-8").splitlines():
        if line.startswith("## "):
            group = []
            entries.append({line[3:]: group})
        for title, target in LINKED.findall(line) if line.startswith("- ") else ():
            page = (index.parent / target).resolve()
            name = page.relative_to(ROOT).as_posix()
            group.append({title: [name, *menu(page)] if page.name == "index.md" else name})
    return entries


def configure() -> Path:
    """Write MkDocs' configuration, with the menu, and return it."""
    nav = [{"Shardsmith": "README.md"}, {"All pages": "docs/index.md"}, *menu(ROOT / "docs" / "index.md")]
    inherited = {"INHERIT": str(HERE / "mkdocs.yml"), "docs_dir": str(PAGES), "site_dir": str(SITE)}
    configuration = BUILD / "mkdocs.yml"
    configuration.write_text(json.dumps({**inherited, "nav": nav}), "utf-8")  # which is YAML, too
    return configuration


def complaints() -> list[str]:
    """What is wrong with the site as it was built, one sentence each."""
    wrong = [
        f"{file.relative_to(SITE)} fetches from another host: {match[0][:200]}"
        for suffix, pattern in (("html", FETCHED), ("css", FETCHED_BY_STYLES))
        for file in sorted(SITE.rglob(f"*.{suffix}"))
        for match in pattern.finditer(file.read_text("utf-8"))
        if not NOT_FETCHED.match(match[0])
    ]
    # The plugin `offline` writes the index as a script, which a browser also loads from a folder.
    index = SITE / "search" / "search_index.js"
    if not index.exists() or "TFRecord" not in index.read_text("utf-8"):
        wrong.append("There is no index for searching without a server.")
    return wrong


def run(*command: str) -> None:
    """Run `command`, and show what it says if it fails. MkDocs with --quiet would miss its own warnings."""
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        fail(f"{ended.stdout}{ended.stderr}Failed: {' '.join(command)}")


def fail(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(1)


def main() -> None:
    python = prepare()
    gather()
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # a notice on each run that another program is to follow
    run(str(python), "-I", "-m", "mkdocs", "build", "--strict", "-f", str(configure()))
    if wrong := complaints():
        fail("\n".join(wrong))
    print(f"{SITE / 'index.html'}")


if __name__ == "__main__":
    main()
