"""The README and the pages below docs/: their commands and programs, to be run as printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.service import READY_WITHIN_S, ROOT, Service

#: Where the service of the pages listens.
PRINTED_URL: Final = "http://127.0.0.1:8000"
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Page:
    """One page and its fenced blocks."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    def blocks(self, language: str) -> list[str]:
        text = self.path.read_text("utf-8")
        return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    def commands(self) -> list[tuple[str, str]]:
        """Each command of the console blocks with the output printed below it, in order."""
        found = []
        for block in self.blocks("console"):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                found.append((command, output))
        return found

    def programs(self) -> Iterator[tuple[str, str]]:
        """(language, source) of each program."""
        for language in RUNNERS:
            for source in self.blocks(language):
                yield language, source


def run_commands(
    page: Page, service: Service, folder: Path, *, timeout: float = READY_WITHIN_S, **variables: str
) -> list[tuple[str, str, str]]:
    """Each command, what is printed below it, and what it gives here.

    The installed command compiles kernels of its own where no earlier run left them, as a service does.
    `variables` are added to the environment.
    """
    found = []
    for command, printed in page.commands():
        ran = subprocess.run(
            ["sh", "-c", command.replace(PRINTED_URL, service.url)],
            cwd=folder,
            # The command line stands beside the interpreter.
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), f"{command}\n{ran.returncode}: {ran.stderr}"
        # A shell's next prompt would follow an answer without a last newline at once.
        given = ran.stdout.replace(service.url, PRINTED_URL).rstrip("\n")
        found.append((command, printed.rstrip("\n"), given))
    return found


def matches(printed: str, given: str) -> bool:
    """Whether `given` is what is printed, where `...` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in printed.split("..."))
    return re.fullmatch(pattern, given, re.DOTALL) is not None


def run_program(language: str, source: str, service: Service, folder: Path) -> str:
    """What a program prints that is run in `folder`, against `service`."""
    name, command, prepared = RUNNERS[language]
    file = folder / name
    file.write_text(prepared(source).replace(PRINTED_URL, service.url), encoding="utf-8")
    ran = subprocess.run(
        [*command, name],
        cwd=folder,
        env={**os.environ, "GOCACHE": str(folder / "go-cache"), "GO111MODULE": "off"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, f"{language}:\n{source}\n{ran.stderr[-2000:]}"
    return ran.stdout


def is_installed(language: str) -> bool:
    """Whether programs in `language` can be run here. Where CI is set they must be."""
    return bool(os.environ.get("CI")) or shutil.which(RUNNERS[language][1][0]) is not None


def _as_it_is(source: str) -> str:
    return source


def _in_a_class(source: str) -> str:
    """A Java fragment as a program; a whole program as it is."""
    if re.search(r"^(public )?class ", source, re.MULTILINE):
        return source
    return (
        "import java.nio.*;\n"
        f"class Fragment {{ public static void main(String[] arguments) {{\n{source}\n}} }}\n"
    )


#: Language of a block -> name of the file, command in front of it, how a block becomes a program.
RUNNERS: Final[dict[str, tuple[str, tuple[str, ...], Callable[[str], str]]]] = {
    "go": ("program.go", ("go", "run"), _as_it_is),
    "java": ("Program.java", ("java",), _in_a_class),
    "js": ("program.mjs", ("node",), _as_it_is),
    "python": ("program.py", (sys.executable,), _as_it_is),
}
