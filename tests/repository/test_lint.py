"""bin/lint runs every check and names those that fail."""

import sys

import pytest

from bin import lint

PASSES = [sys.executable, "-I", "-c", "print('fine')"]
FAILS = [sys.executable, "-I", "-c", "raise SystemExit('line 1 is wrong')"]


def run(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(lint, "CHECKS", {"style": FAILS, "types": PASSES, "locks": FAILS})
    monkeypatch.setattr(sys, "argv", ["lint.py", *names])
    lint.main()


def test_all_checks_run_where_some_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch)
    heading, *names = str(ended.value).replace(",", "").split()
    assert (heading, sorted(names)) == ("failed:", ["locks", "style"])
    printed = capsys.readouterr().out
    assert printed.count("line 1 is wrong") == 2
    assert "== types: passed" in printed


def test_named_check_runs_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run(monkeypatch, "types")
    assert capsys.readouterr().out == "== types: passed\nall checks passed\n"


def test_unknown_check_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"Unknown: spelling\. The checks are style, types, locks\."):
        run(monkeypatch, "spelling")
