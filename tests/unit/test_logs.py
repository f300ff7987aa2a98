"""A log record is one line, whatever stands in it."""

import json
import logging
import re
import subprocess
import sys
from contextvars import copy_context
from typing import Any

import pytest

from app.logs import REQUEST_ID, JsonFormatter, TextFormatter

FORGED = "name\r\n2026-01-01T00:00:00 INFO root all is well\x1b[2J\x85\u2028end"


def record(message: str, *args: Any, error: BaseException | None = None, **extra: Any) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("app.x", logging.WARNING, "x.py", 1, message, args, info)
    made.__dict__.update(extra)
    return made


def raised(message: str) -> ValueError:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


def test_json_lines_hold_everything_and_no_line_end() -> None:
    line = JsonFormatter().format(record("got %s", FORGED, error=raised(FORGED), fields={"dataset": FORGED}))
    assert line.isascii()
    assert re.search(r"[\x00-\x1f\x7f]", line) is None
    value = json.loads(line)
    assert (value["level"], value["logger"]) == ("WARNING", "app.x")
    assert value["message"] == f"got {FORGED}"
    assert value["dataset"] == FORGED
    assert "Traceback" in value["exception"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", value["time"])


def test_text_lines_show_control_characters() -> None:
    line = TextFormatter().format(record("got %s", FORGED, fields={"n": 1}))
    assert len(line.splitlines()) == 1
    assert "WARNING app.x got name\\x0d\\x0a2026" in line
    assert line.endswith('end {"n": 1}')


def test_lines_name_the_request_that_they_are_about() -> None:
    def lines() -> tuple[str, str]:
        REQUEST_ID.set("r-1")
        return JsonFormatter().format(record("done")), TextFormatter().format(record("done"))

    line, text = copy_context().run(lines)
    assert json.loads(line)["request_id"] == "r-1"
    assert text.endswith(" WARNING app.x [r-1] done")
    assert "request_id" not in JsonFormatter().format(record("done"))


def test_fields_that_the_message_tells_are_not_repeated_in_text() -> None:
    made = record("took 3 ms", fields={"ms": 3, "route": None}, told=True)
    assert TextFormatter().format(made).endswith(" app.x took 3 ms")
    assert json.loads(JsonFormatter().format(made)).items() >= {"ms": 3, "message": "took 3 ms"}.items()
    assert "route" not in JsonFormatter().format(made)


def test_text_sets_the_lines_of_a_traceback_off() -> None:
    first, *others = TextFormatter().format(record("failed", error=raised(FORGED))).splitlines()
    assert first.endswith("WARNING app.x failed")
    assert others
    assert all(line.startswith("  | ") for line in others)


def said(level: str, *calls: str) -> list[str]:
    """What a process writes to its log by these calls, `LOGGER.METHOD(MESSAGE)`."""
    code = f"import logging; from app.logs import configure_logging; configure_logging({level!r}, 'text');"
    for call in calls:
        logger, _, rest = call.rpartition("/")
        code += f"logging.getLogger({logger!r}).{rest};"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [line.rpartition(" ")[2] for line in ended.stderr.splitlines()]


def test_debugging_is_of_this_package_alone() -> None:
    calls = ("app.api/debug('ours')", "botocore.auth/debug('theirs')", "botocore/info('known')")
    assert said("debug", *calls) == ["ours", "known"]
    assert said("info", *calls) == ["known"]


def test_the_audit_log_is_written_at_any_level() -> None:
    assert said("error", "shardsmith.audit/info('audit')", "app.api/warning('no')") == ["audit"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_every_logger_writes_so(form: str) -> None:
    code = (
        "import logging, warnings; from app.logs import configure_logging; configure_logging('info', 'FORM');"
        "logging.getLogger('uvicorn.access').info('%s', 'a\\nb'); logging.getLogger('x').debug('no')"
    ).replace("FORM", form)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    [line] = ended.stderr.splitlines()
    assert ("a\\nb" if form == "json" else "a\\x0ab") in line
