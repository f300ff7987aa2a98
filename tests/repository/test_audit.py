"""What the gate makes of pip-audit's reports: a vulnerability fails, a database out of reach is said plainly.

No database can be had where most tests run: a program that writes such reports stands for pip-audit.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FINE = {"name": "fine", "version": "1.0", "vulns": []}
BROKEN = {
    "name": "broken",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["2.1"], "aliases": [], "description": ""}],
}
UNKNOWN = {"name": "unknown", "skip_reason": "Dependency not found and could not be audited: unknown (3.0)"}
UNREACHABLE = "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='database.example', port=443)"

#: Answers with the report of the service it is asked to look in; else ends with what is the report's error.
PIP_AUDIT = """\
#!{python}
import json, sys
given = dict(zip(sys.argv, sys.argv[1:]))
report = json.loads({reports!r})[given["--vulnerability-service"]]
if isinstance(report, str):
    sys.exit(report)
with open(given["--output"], "w") as file:
    json.dump({{"dependencies": report, "fixes": []}}, file)
sys.exit(any(package.get("vulns") for package in report))
"""


def audit(folder: Path, pypi: Any, osv: Any, locks: tuple[str, ...] = ("some.lock",)) -> tuple[int, str, str]:
    """Exit status and output, where the services report that."""
    program = folder / "pip-audit"
    reports = json.dumps({"pypi": pypi, "osv": osv})
    program.write_text(PIP_AUDIT.format(python=sys.executable, reports=reports), "utf-8")
    program.chmod(0o755)
    command: list[str | Path] = [sys.executable, ROOT / ".ci" / "audit.py", program, *locks]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize(
    "reports", [([FINE, BROKEN], "unasked"), (UNREACHABLE, [BROKEN]), ([UNKNOWN], [BROKEN])]
)
def test_a_vulnerability_fails_and_is_named(tmp_path: Path, reports: tuple[Any, Any]) -> None:
    status, out, _ = audit(tmp_path, *reports)
    assert status == 1
    assert "broken 2.0: PYSEC-2026-1, fixed in 2.1\n" in out


def test_without_vulnerabilities_it_says_how_much_was_looked_up(tmp_path: Path) -> None:
    status, out, _ = audit(tmp_path, [FINE, UNKNOWN], "unasked")
    assert (status, out) == (0, "some.lock: 0 of 1 packages have known vulnerabilities\n")


def test_each_lock_is_looked_up(tmp_path: Path) -> None:
    _, out, _ = audit(tmp_path, [FINE], "unasked", ("one.lock", "another.lock"))
    assert out.splitlines() == [
        "one.lock: 0 of 1 packages have known vulnerabilities",
        "another.lock: 0 of 1 packages have known vulnerabilities",
    ]


def test_gate_audits_every_lock() -> None:
    gate = (ROOT / ".ci" / "run").read_text("utf-8")
    asked = gate[gate.index(".ci/audit.py ") : gate.index("# --- the other tests")]
    looked_up = set(re.findall(r"[\w./-]+\.(?:lock|txt)", asked))
    # locks/bench.txt holds what the other locks of that folder hold.
    others = {
        path.relative_to(ROOT).as_posix()
        for path in [*ROOT.glob("[a-z]*/*.lock"), *ROOT.glob("docs/*/*.lock")]
    }
    assert looked_up == {"locks/bench.txt", *others}


@pytest.mark.parametrize(
    "reports", [(UNREACHABLE, UNREACHABLE), ([UNKNOWN], UNREACHABLE), ([UNKNOWN], [UNKNOWN])]
)
def test_where_no_database_answers_nothing_passes_for_looked_up(
    tmp_path: Path, reports: tuple[Any, Any]
) -> None:
    status, out, _ = audit(tmp_path, *reports)
    assert status == 0
    assert out.startswith("SKIPPED: ")


def test_a_failure_of_the_tool_itself_fails(tmp_path: Path) -> None:
    status, out, err = audit(tmp_path, "ERROR: invalid requirement", [FINE])
    assert (status, out) == (1, "")
    assert "invalid requirement" in err
