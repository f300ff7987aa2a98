"""Every metric of the service, declared in one place.

Counters, histograms and summaries are counted where something happens. `app/gauges.py` binds gauges to
functions that read the state of the service when metrics are asked for, so no state is kept twice. All
belong to the process. `docs/reference/metrics.md` lists them.

No label holds what a client chooses: routes are templates, and methods outside HTTP's usual ones are `other`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    Summary,
    disable_created_metrics,
)

#: How the values of several workers become one.
Across = Literal["sum", "max", "min"]


class Declared(NamedTuple):
    """What is said of a metric: its name as it is read, and how the values of several workers become one."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "summary"]
    meaning: str
    labels: tuple[str, ...]
    across: Across = "sum"


# They double the lines of every counter, and say no more than when the process started.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the function has no annotations

REGISTRY: Final = CollectorRegistry(auto_describe=True)
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

#: Gauges of prometheus-client that are not added up.
_OF_THE_PROCESS: Final[dict[str, Across]] = {
    "process_max_fds": "min",
    "process_start_time_seconds": "min",
    "python_info": "max",
}
#: Every metric of ours, by name.
DECLARED: Final[dict[str, Declared]] = {}


def declare(
    name: str,
    kind: Literal["counter", "gauge", "histogram", "summary"],
    meaning: str,
    labels: tuple[str, ...],
    across: Across = "sum",
) -> Declared:
    """Note a metric."""
    DECLARED[name] = declared = Declared(name, kind, meaning, labels, across)
    return declared


def across_workers() -> dict[str, Across]:
    """How the values of several workers become one, by the name of the metric."""
    return {**_OF_THE_PROCESS, **{name: declared.across for name, declared in DECLARED.items()}}


def _counter(name: str, meaning: str, *labels: str, values: Sequence[str] = ()) -> Counter:
    """A counter; it begins with these values of its only label, where they are known beforehand."""
    declare(name, "counter", meaning, labels)
    counter = Counter(name, meaning, labels, registry=REGISTRY)
    for value in values:
        counter.labels(value)
    return counter


def _gauge(name: str, meaning: str, *labels: str, across: Across = "sum") -> Gauge:
    declare(name, "gauge", meaning, labels, across)
    return Gauge(name, meaning, labels, registry=REGISTRY)


def _histogram(name: str, meaning: str, *labels: str, buckets: Sequence[float]) -> Histogram:
    declare(name, "histogram", meaning, labels)
    return Histogram(name, meaning, labels, buckets=buckets, registry=REGISTRY)


def _summary(name: str, meaning: str) -> Summary:
    declare(name, "summary", meaning, ())
    return Summary(name, meaning, registry=REGISTRY)


# The process.
BUILD_INFO = _gauge("shardsmith_build_info", "The release that runs; always 1.", "version", across="max")
READY = _gauge("shardsmith_ready", "Whether /readyz is answered 200.", across="min")
WORKERS = _gauge(
    "shardsmith_workers", "Processes that serve: answering, or silent when asked for metrics.", "state"
)
_counter(
    "shardsmith_worker_restarts_total",
    "Workers that ended, hung or could not be started, each followed by another (SHARDSMITH_WORKERS).",
)
CHECK_OK = _gauge(
    "shardsmith_check_ok",
    "Whether a condition of readiness was met when last checked.",
    "check",
    across="min",
)

# HTTP; requests themselves are in `requests.py`.
HTTP_PROBLEMS = _counter(
    "shardsmith_http_problems_total",
    "Problem documents answered. The cause is what was short, if the service was overloaded.",
    "code",
    "cause",
)
HTTP_REQUESTS_IN_PROGRESS = _gauge(
    "shardsmith_http_requests_in_progress", "Requests under way, without probes."
)
HTTP_REQUESTS_LIMIT = _gauge(
    "shardsmith_http_requests_limit", "The most requests under way at a time (SHARDSMITH_MAX_REQUESTS)."
)
HTTP_LISTENERS = _gauge(
    "shardsmith_http_listeners", "Clients that are sent events; none is a request under way."
)
HTTP_CONNECTIONS = _gauge("shardsmith_http_connections", "Open connections.")
HTTP_CONNECTIONS_LIMIT = _gauge(
    "shardsmith_http_connections_limit", "The most open connections (SHARDSMITH_MAX_CONNECTIONS)."
)
HTTP_ADMITTED = _gauge(
    "shardsmith_http_admitted_ratio",
    "The share of requests that is let in; below 1 while the event loop is late.",
    across="min",
)

# Threads, turns and memory.
EVENT_LOOP_DELAY = _histogram(
    "shardsmith_event_loop_delay_seconds",
    "How late the event loop came to a timer, every 10 ms.",
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5),
)
THREADS_IN_USE = _gauge("shardsmith_threads_in_use", "Threads that requests have taken.", "lane")
THREADS_LIMIT = _gauge("shardsmith_threads_limit", "Threads that requests can take.", "lane")
THREAD_QUEUE = _gauge("shardsmith_thread_queue_requests", "Requests that wait for a thread.", "lane")
TURNS_IN_USE = _gauge("shardsmith_turns_in_use", "Threads that have a turn to compute.")
TURNS_LIMIT = _gauge(
    "shardsmith_turns_limit", "Threads that can have a turn at a time (SHARDSMITH_COMPUTE_THREADS)."
)
TURNS_WAITING = _gauge("shardsmith_turns_waiting", "Threads that wait for a turn to compute.")
TURN_WAIT_SECONDS = _summary(
    "shardsmith_turn_wait_seconds", "Waits of threads for a turn to compute, where none was free at once."
)
MEMORY_USED = _gauge("shardsmith_memory_pool_used_bytes", "Memory that requests hold.")
MEMORY_LIMIT = _gauge(
    "shardsmith_memory_pool_limit_bytes",
    "The most memory that requests can hold (SHARDSMITH_MEMORY_BYTES).",
    across="max",
)
MEMORY_WAITING = _gauge("shardsmith_memory_pool_waiting", "Requests that wait for memory.")
SPOOL_USED = _gauge("shardsmith_spool_used_bytes", "Bytes of bodies and answers on the spool.")
SPOOL_LIMIT = _gauge(
    "shardsmith_spool_limit_bytes", "The most bytes on the spool (SHARDSMITH_SPOOL_MAX_BYTES).", across="max"
)
IMAGE_PROCESSES = _gauge(
    "shardsmith_image_processes", "Processes that decode and encode images: busy or idle.", "state"
)
IMAGE_PROCESS_ENDS = _counter(
    "shardsmith_image_process_restarts_total",
    "Processes for images that ended, or were killed, at work; the next image starts another.",
)

# The object store.
STORE_SECONDS = _histogram(
    "shardsmith_store_operation_duration_seconds",
    "Operations on the object store. The outcomes `not_found` and `exists` are answers, not failures.",
    "operation",
    "outcome",
    buckets=(0.005, 0.025, 0.1, 0.5, 2, 10, 60),
)
STORE_READ_BYTES = _counter("shardsmith_store_read_bytes_total", "Bytes read from the object store.")
STORE_WRITTEN_BYTES = _counter("shardsmith_store_written_bytes_total", "Bytes written to the object store.")
STORE_RETRIES = _counter(
    "shardsmith_store_retries_total",
    "Create-only writes that were repeated because their outcome was not known. "
    "Repetitions inside the store's client are not seen.",
)

# Datasets.
APPENDS = _counter(
    "shardsmith_appends_total",
    "Appends acknowledged: each by an object of its own, or grouped.",
    "way",
    values=("single", "grouped"),
)
APPENDED_ROWS = _counter("shardsmith_appended_rows_total", "Rows of acknowledged appends.")
APPENDED_BYTES = _counter(
    "shardsmith_appended_bytes_total", "Bytes of the framed records of acknowledged appends."
)
APPEND_GROUPS = _counter("shardsmith_append_groups_total", "Groups of small appends stored by one write.")
PUBLICATIONS = _counter(
    "shardsmith_publications_total",
    "Publications that ended: published, refused by the state of the dataset or the request, or failed. "
    "Those that the end of the process cut short do not count.",
    "outcome",
    values=("published", "refused", "failed"),
)
PUBLICATION_SECONDS = _histogram(
    "shardsmith_publication_duration_seconds",
    "Time that publications took that published a version.",
    buckets=(0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800),
)
PUBLICATIONS_IN_PROGRESS = _gauge("shardsmith_publications_in_progress", "Publications under way.")
OLDEST_UNPUBLISHED_APPEND = _gauge(
    "shardsmith_oldest_unpublished_append_age_seconds",
    "Age of the oldest acknowledged append that no version holds, as far as this process knows; 0 if none.",
    across="max",
)
COLLECTIONS = _counter(
    "shardsmith_collections_total",
    "Collections of a dataset that ended. A failed one left something to the next.",
    "outcome",
    values=("ok", "failed"),
)
COLLECTED_OBJECTS = _counter("shardsmith_collected_objects_total", "Objects that collection deleted.", "kind")
COLLECTED_BYTES = _counter("shardsmith_collected_bytes_total", "Bytes that collection deleted.", "kind")
