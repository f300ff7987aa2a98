"""The log: one line for one record, whatever names, paths and messages of others hold."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, Literal

from . import tracing

#: Line ends, and what steers a terminal, become visible instead (C0, DEL, C1, and Unicode's line ends).
_CONTROLS: Final = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(32), *range(127, 160), 0x2028, 0x2029)
}


#: Made once: a line for each request is a tenth of what a small one costs.
_encode: Final = json.JSONEncoder(default=str).encode

#: The audit log, whose lines come whatever the level is.
AUDIT: Final = "shardsmith.audit"
#: The log of requests.
ACCESS: Final = "shardsmith.access"

#: The request for which this thread or task works; each line of the log shows it.
REQUEST_ID: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)


def configure_logging(level: str, form: Literal["text", "json"]) -> None:
    """Send every record of this process, uvicorn's too, to standard error.

    Debugging is of this package alone: what clients of object stores and of HTTP tell then are credentials.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level="INFO" if level == "debug" else level.upper(), handlers=[handler], force=True)
    logging.getLogger(__package__).setLevel(level.upper())
    logging.getLogger(AUDIT).setLevel(logging.INFO)
    # What no line shows need not be found out ("Optimization" in Python's Logging HOWTO).
    logging._srcfile = None  # noqa: SLF001
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


class JsonFormatter(logging.Formatter):
    """An object a line: time, level, logger, message, request and trace, `fields`, and any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (request_id := REQUEST_ID.get()) is not None:
            line["request_id"] = request_id
        if (ids := tracing.current_ids()) is not None:
            line["trace_id"], line["span_id"] = ids
        line |= _fields(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line)


class TextFormatter(logging.Formatter):
    """For people; the lines of a traceback are set off, so that none passes for a record."""

    def format(self, record: logging.LogRecord) -> str:
        request_id = REQUEST_ID.get()
        # A message that tells its fields itself has `told`.
        fields = {} if hasattr(record, "told") else _fields(record)
        name = record.name if request_id is None else f"{record.name} [{request_id}]"
        parts = [_time(record), record.levelname, name, record.getMessage().rstrip()]
        line = " ".join([*parts, _encode(fields)] if fields else parts)
        if not line.isprintable():
            line = line.translate(_CONTROLS)
        if record.exc_info:
            traceback = self.formatException(record.exc_info).split("\n")
            line = "\n".join([line, *(f"  | {below.translate(_CONTROLS)}" for below in traceback)])
        return line


def _time(record: logging.LogRecord) -> str:
    second, milliseconds = divmod(int(record.created * 1000), 1000)
    return f"{_second(second)}.{milliseconds:03}+00:00"


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return {name: value for name, value in fields.items() if value is not None}
