"""How the service is started: settings are checked, the port is taken, and one process or several serve."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from .domain.hosts import is_known
from .errors import CannotStart
from .logs import configure_logging
from .runtime.processes.board import Board, Worker, new_board
from .settings import Settings, ignored_port, read_settings, refuse_unknown
from .telemetry import metrics
from .telemetry.server import Collector, MetricsServer
from .telemetry.workers import MergedMetrics, WorkerMetrics
from .workers import Workers

logger = logging.getLogger(__name__)

#: Workers end 4 s after the grace by themselves; the chart's terminationGracePeriodSeconds adds 5 s to it.
_AFTER_GRACE_S: Final = 4.5

_TRY: Final = """
Shardsmith is listening. Try:

  curl -s '{url}/v1/tensors/serialize?to=b64' -H 'Content-Type: application/json' -d '[[1, 2], [3, 4]]'

"""


def run(**given: Any) -> None:
    """Serve as the environment says, until SIGTERM or SIGINT; the exit status is then 0.

    Args:
        given: settings that take precedence over the environment.
    """
    _end_at_signals()
    with _refusals():
        refuse_unknown(os.environ)
        settings = read_settings(**given)
        configure_logging(settings.log_level, settings.log_format)
        if (warning := ignored_port(os.environ)) is not None:
            logger.warning(warning)
        sockets = _bind(settings.host, settings.port)
        on_listen = partial(_say_what_to_try, settings.host, sockets[0].getsockname()[1])
        if settings.workers > 1:
            sys.exit(_supervise(settings, sockets, on_listen, given))
        if settings.metrics_port is not None:
            _serve_metrics(settings, settings.metrics_port, metrics.REGISTRY)
        from .main import serve  # takes seconds

        serve(settings, sockets, on_listen=on_listen)


def work(number: int, parent: int, board: int, listeners: list[int], metrics_folder: str | None) -> None:
    """Serve as one of several, in a process that `run` has started.

    Args:
        number: of this worker.
        parent: process that has started it, which may have ended by now.
        board: descriptor of what it shares with the others.
        listeners: descriptors of sockets that are bound.
        metrics_folder: in which the parent finds a socket of each worker, if there are metrics.
    """
    _end_at_signals()
    with _refusals():
        settings = read_settings()
        configure_logging(settings.log_level, settings.log_format)
        from .main import serve

        if metrics_folder is not None:
            _pass_on_metrics(Path(metrics_folder))
        worker = Worker(number, settings.workers, parent, Board(board, settings.workers))
        serve(settings, [socket.socket(fileno=listener) for listener in listeners], worker=worker)


def _end_at_signals() -> None:
    """End at SIGTERM and SIGINT until there is something to end in order.

    The first process of a container gets no signal that it has set up nothing for.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except CannotStart as error:
        sys.exit(f"Shardsmith does not start: {error}")


def _supervise(
    settings: Settings, sockets: list[socket.socket], on_listen: Callable[[], None], given: dict[str, Any]
) -> int:
    # Workers read their settings from the environment.
    os.environ.update({f"SHARDSMITH_{name.upper()}": str(value) for name, value in given.items()})
    board = new_board(settings.workers)
    folder = None if settings.metrics_port is None else _make_metrics_folder()
    listeners = [listener.fileno() for listener in sockets]
    for listener in sockets:
        listener.set_inheritable(True)

    def command(number: int) -> list[str]:
        # The same modules as here, and none from the folder that it is started in.
        call = f"import sys; sys.path[:] = {sys.path!r}; from {__package__}.launch import work; "
        return [
            sys.executable,
            "-P",
            "-c",
            f"{call}work({number}, {os.getpid()}, {board}, {listeners!r}, {folder!r})",
        ]

    def leave() -> None:
        # Connections that no worker takes any more are refused then, and do not wait for nobody.
        for listener in sockets:
            listener.close()

    workers = Workers(
        settings.workers,
        Board(board, settings.workers),
        command,
        on_listen=on_listen,
        on_leave=leave,
        ends_within_s=settings.shutdown_grace_s + _AFTER_GRACE_S,
    )
    try:
        if settings.metrics_port is not None and folder is not None:
            merged = MergedMetrics(
                Path(folder), lambda: workers.process_ids.values(), lambda: workers.num_restarts
            )
            _serve_metrics(settings, settings.metrics_port, merged)
        return workers.run()
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _make_metrics_folder() -> str:
    try:
        return tempfile.mkdtemp(prefix="shardsmith-metrics-")
    except OSError as error:
        raise CannotStart(
            f"No temporary folder can be made, by which workers pass on their metrics: {error.strerror}. "
            "Set TMPDIR to a folder that can be written to."
        ) from error


def _pass_on_metrics(folder: Path) -> None:
    try:
        WorkerMetrics(folder, metrics.REGISTRY, metrics.across_workers())
    except OSError as error:  # the name of a socket may have a hundred bytes
        raise CannotStart(
            f"Workers cannot pass on their metrics by sockets in {folder}: {error}. "
            "Set TMPDIR to another folder, with a short path."
        ) from error


def _serve_metrics(settings: Settings, port: int, source: Collector) -> None:
    """Have metrics answered on a port of their own until the process ends.

    Raises:
        CannotStart: the port is taken, or the address is none of this machine.
    """
    host = settings.metrics_host
    # As the port of requests: who listens for other machines is asked under names that are not known here.
    names = settings.hosts or ([] if is_known(host, ()) else ["*"])
    try:
        server = MetricsServer(host, port, source, names)
    except OSError as error:
        raise CannotStart(
            f"Metrics cannot be served on {host}, port {port}: {error.strerror}. Set SHARDSMITH_METRICS_HOST "
            "and SHARDSMITH_METRICS_PORT to an address of this machine and a free port."
        ) from error
    logger.info("metrics are at %s/metrics", _url(host, server.port))


def _bind(host: str, port: int) -> list[socket.socket]:
    """Sockets for all addresses of a host, like `asyncio.loop.create_server`.

    Raises:
        CannotStart: the port is taken, or the address is none of this machine.
    """
    bound: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            bound.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
    except OSError as error:
        for listener in bound:
            listener.close()
        raise CannotStart(
            f"It cannot listen on {host}, port {port}: {error.strerror}. Set SHARDSMITH_HOST and "
            "SHARDSMITH_PORT to an address of this machine and a free port."
        ) from error
    return bound


def _say_what_to_try(host: str, port: int) -> None:
    url = _url(host, port)
    logger.info("listening on %s", url)
    sys.stdout.write(_TRY.format(url=url))
    sys.stdout.flush()


def _url(host: str, port: int) -> str:
    """The address by which a client on this machine reaches a server that listens on `host`."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (read, not bound)
    return f"http://[{local}]:{port}" if ":" in local else f"http://{local}:{port}"
