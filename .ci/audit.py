"""Look for known vulnerabilities of the packages in locks: `audit.py PIP_AUDIT LOCK...`.

Exits with status 1 if there are any, or if pip-audit fails. If no database can be reached, or it knows none
of the packages (mirrors of an index often lack such data), it says that nothing was looked up, and exits
with status 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: Where pip-audit asks.
SERVICES = ("pypi", "osv")
#: What its errors hold where the service cannot be reached.
UNREACHABLE = ("ConnectionError", "Could not connect", "Timeout")


def packages_known_to(service: str, pip_audit: str, lock: str) -> list[dict[str, Any]]:
    """The packages that the service knows, with their vulnerabilities; none where it cannot be reached."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "report.json")
        options = ["--disable-pip", "--require-hashes", "--requirement", lock]
        options += ["--vulnerability-service", service, "--progress-spinner", "off"]
        options += ["--format", "json", "--output", str(out)]
        ran = subprocess.run(  # noqa: S603 - the tool that the gate has installed
            [pip_audit, *options], check=False, capture_output=True, text=True, timeout=1200
        )
        if out.exists():
            listed: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))["dependencies"]
            return [package for package in listed if "skip_reason" not in package]
    if any(word in ran.stderr for word in UNREACHABLE):
        return []
    sys.exit(f"pip-audit failed:\n{ran.stderr}")


def main() -> int:
    """Audit each lock, and return the exit status."""
    pip_audit, *locks = sys.argv[1:]
    vulnerable = [audit(pip_audit, lock) for lock in locks]  # all of them, also after the first
    return int(any(vulnerable))


def audit(pip_audit: str, lock: str) -> bool:
    """Look up the packages of a lock and say what was found; whether any has a known vulnerability."""
    known: list[dict[str, Any]] = []
    for service in SERVICES:
        known = known or packages_known_to(service, pip_audit, lock)
    for package in known:
        for hole in package["vulns"]:
            fixed = ", ".join(hole["fix_versions"]) or "no version"
            say(f"{package['name']} {package['version']}: {hole['id']}, fixed in {fixed}")
    vulnerable = sum(bool(package["vulns"]) for package in known)
    if known:
        say(f"{lock}: {vulnerable} of {len(known)} packages have known vulnerabilities")
    else:
        say(f"SKIPPED: no database of vulnerabilities answers here, so nothing of {lock} was looked up")
    return vulnerable > 0


def say(line: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
