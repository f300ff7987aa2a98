"""Binds the gauges to the state that they show, which is read whenever metrics are asked for."""

from __future__ import annotations

from functools import partial

from . import __version__
from .api.admission import Load
from .api.execution.events import Listeners
from .api.execution.runner import Runner
from .api.http1.connections import Connections
from .api.state import Services
from .runtime.memory import MemoryPool
from .runtime.turns import Turns
from .services.readiness import Readiness
from .telemetry import metrics
from .transforms.images.processes import ImageProcesses


def show_state(
    services: Services,
    *,
    load: Load,
    max_requests: int,
    memory: MemoryPool,
    turns: Turns,
    runner: Runner,
    listeners: Listeners,
    images: ImageProcesses,
) -> None:
    """Show the state of this application; another one that is shown later takes its place.

    Args:
        services: what requests are served with.
        load: of the event loop.
        max_requests: how many may be under way.
        memory: that requests hold.
        turns: at computing.
        runner: has the threads.
        listeners: are sent events.
        images: decodes images.
    """
    readiness, spool, datasets = services.readiness, services.spool, services.datasets
    metrics.BUILD_INFO.labels(__version__).set(1)
    metrics.WORKERS.labels("answering").set(1)
    metrics.WORKERS.labels("silent").set(0)
    metrics.READY.set_function(lambda: _is_ready(readiness))
    for name in readiness.checks():
        metrics.CHECK_OK.labels(name).set_function(partial(_is_met, readiness, name))

    metrics.HTTP_REQUESTS_IN_PROGRESS.set_function(lambda: load.under_way)
    metrics.HTTP_REQUESTS_LIMIT.set(max_requests)
    metrics.HTTP_LISTENERS.set_function(lambda: listeners.num_listening)
    metrics.HTTP_ADMITTED.set_function(lambda: load.let_in)

    for lane in runner.lanes:
        metrics.THREADS_IN_USE.labels(lane.name).set_function(partial(getattr, lane, "num_taken"))
        metrics.THREADS_LIMIT.labels(lane.name).set(lane.num_threads)
        metrics.THREAD_QUEUE.labels(lane.name).set_function(partial(getattr, lane, "num_waiting"))
    metrics.TURNS_IN_USE.set_function(lambda: turns.in_use)
    metrics.TURNS_LIMIT.set(turns.count)
    metrics.TURNS_WAITING.set_function(lambda: turns.num_waiting)

    metrics.MEMORY_USED.set_function(lambda: memory.used)
    metrics.MEMORY_LIMIT.set(memory.max_bytes)
    metrics.MEMORY_WAITING.set_function(lambda: memory.num_waiting)
    metrics.SPOOL_USED.set_function(lambda: spool.used)
    metrics.SPOOL_LIMIT.set(spool.max_bytes)

    metrics.IMAGE_PROCESSES.labels("busy").set_function(lambda: len(images.process_ids) - images.num_idle)
    metrics.IMAGE_PROCESSES.labels("idle").set_function(lambda: images.num_idle)
    metrics.PUBLICATIONS_IN_PROGRESS.set_function(lambda: datasets.num_publications)
    metrics.OLDEST_UNPUBLISHED_APPEND.set_function(lambda: datasets.oldest_unpublished_s)


def show_connections(connections: Connections) -> None:
    """Show the connections of the server."""
    metrics.HTTP_CONNECTIONS.set_function(lambda: connections.num_open)
    metrics.HTTP_CONNECTIONS_LIMIT.set(connections.limit)


def _is_met(readiness: Readiness, name: str) -> bool:
    return readiness.checks()[name].ok


def _is_ready(readiness: Readiness) -> bool:
    return all(check.ok for check in readiness.checks().values())
