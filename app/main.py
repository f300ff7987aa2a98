"""The application: `create_app()` reads the environment, `create_app_with()` wires, `serve()` runs it."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from types import FrameType
from typing import Final, NoReturn

import uvicorn
from fastapi import FastAPI

from . import __version__
from .allocator import return_large_blocks, return_unused
from .api.admission import Admission, Load
from .api.application import Application
from .api.auth.loopback import is_loopback, refusal_to_listen
from .api.auth.options import AuthConfigurationError, AuthOptions, Oidc
from .api.auth.wiring import Auth
from .api.cors import allow_origins
from .api.downloads.files import Downloads
from .api.execution.events import Listeners
from .api.execution.runner import Runner
from .api.http1.limits import ConnectionLimits
from .api.http1.protocol import hardened_protocol
from .api.openapi import build_openapi
from .api.routes import (
    care,
    datasets,
    examples,
    forms,
    health,
    imports,
    inference,
    records,
    tensors,
    versions,
)
from .api.state import Services
from .api.ui import assets, docs, file, live
from .api.ui import datasets as datasets_pages
from .api.ui import rows as rows_pages
from .api.ui import statistics as statistics_pages
from .api.ui import versions as version_pages
from .api.ui.guard import GuardedPages
from .codecs import kernels
from .errors import SpoolUnavailable, StorageError
from .garbage import collect_when_idle, keep_what_is_loaded
from .gauges import show_connections, show_state
from .resources import allow_open_files, available_processors, memory_for_requests
from .runtime.images import ImageCodecs
from .runtime.memory import MemoryPool
from .runtime.processes.board import Worker
from .runtime.spool import Spool
from .runtime.turns import Turns
from .services.activity import Activity
from .services.datasets.background import BackgroundCollection
from .services.datasets.datasets import PUBLISH_WAIT_S, Datasets
from .services.datasets.imports.imports import Imports
from .services.datasets.imports.runs import ImportRuns
from .services.readiness import Check, Readiness
from .settings import Settings, SettingsError, read_settings, refuse_unknown
from .shutdown import Server
from .storage.object_store import ObjectStore
from .storage.observed import ObservedStore
from .storage.obstore_store import open_store
from .telemetry import metrics
from .telemetry.stages import count_conversions
from .tracing import start_tracing, stop_tracing
from .transforms.images.processes import ImageProcesses

logger = logging.getLogger(__name__)

_SWITCH_INTERVAL_S: Final = 0.0005

#: Those of small requests first.
_ROUTES: Final = (tensors, examples, records, datasets, versions, imports, care, forms, inference, health)
_PAGES: Final = (docs, assets, live, file, datasets_pages, version_pages, rows_pages, statistics_pages)

#: The condition of readiness that all workers have in common.
WORKERS: Final = "workers"


def create_app() -> FastAPI:
    """The application as the environment configures it: `uvicorn app.main:create_app --factory`.

    Raises:
        AuthConfigurationError: the file of tokens cannot be used, or settings of authentication contradict.
        NotEnoughMemory: less memory than the service needs.
        SettingsError: a setting is invalid, or names no store.
    """
    refuse_unknown(os.environ)
    return create_app_with(read_settings())


def create_app_with(
    settings: Settings,
    *,
    store: ObjectStore | None = None,
    publish_wait_s: float = PUBLISH_WAIT_S,
    worker: Worker | None = None,
) -> FastAPI:
    """The application with these settings. Tests pass a store, and a shorter wait for publications.

    Args:
        settings: of this process.
        store: in place of that of the settings.
        publish_wait_s: how long a publication is waited for.
        worker: this process, if it is one of several.

    Raises:
        AuthConfigurationError: the file of tokens cannot be used, or settings of authentication contradict.
        NotEnoughMemory: less memory than the service needs.
        SettingsError: the storage URL names no store.
    """
    auth = Auth(_auth_options(settings))
    load = Load()
    store = ObservedStore(store if store is not None else _open_store(settings.storage_url))
    memory = MemoryPool(
        settings.memory_bytes or memory_for_requests(workers=settings.workers),
        return_unused,
        worker.memory if worker else None,
    )
    images = ImageProcesses(memory=memory)
    services = _wire(settings, store, memory, images, auth, publish_wait_s, worker)
    turns = Turns(
        settings.compute_threads or available_processors(),
        lambda: load.is_late,
        on_wait=metrics.TURN_WAIT_SECONDS.observe,
    )
    runner = Runner(
        services,
        memory=memory,
        turns=turns,
        conversions=settings.streams,
        body_timeout_s=settings.body_timeout_s,
        encodes_answers=settings.encode_answers,
    )
    listeners = Listeners(services, memory, load)
    collection = BackgroundCollection(services.datasets, settings.collect_interval_s)
    watch = services.datasets.unpublished_watch() if settings.metrics_port is not None else None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # The event loop queues for the interpreter's lock behind every busy worker, at 5 ms each by default.
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        load.start()
        start_tracing()
        if settings.metrics_port is not None:
            count_conversions()
        return_large_blocks()
        collect_when_idle()
        services.readiness.start()
        auth.start()
        collection.start()
        if settings.sources:
            services.import_runs.begin()
        if watch is not None:
            watch.start()
        try:
            yield
        finally:
            collection.stop()
            services.import_runs.stop()
            if watch is not None:
                watch.stop()
            auth.stop()
            services.readiness.stop()
            services.datasets.close()
            listeners.close()
            runner.close()
            images.close()
            stop_tracing()

    app = Application(
        title="Shardsmith",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # `api/ui/docs.py` has a version that needs no internet
        redoc_url=None,
        routes=[route for module in (*_ROUTES, *_PAGES) for route in module.router.routes],
    )
    app.state.services = services
    app.state.runner = runner
    app.state.downloads = Downloads(runner.go_on, memory)
    app.state.listeners = listeners
    # FastAPI's documented hook. Built once: anyone may ask for it.
    app.openapi = cache(lambda: build_openapi(app))  # type: ignore[method-assign]
    # The last is the outermost.
    auth.install(app)
    app.add_middleware(Admission, max_requests=settings.max_requests, load=load)
    app.add_middleware(GuardedPages)
    allow_origins(app, settings.origins)
    show_state(
        services,
        load=load,
        max_requests=settings.max_requests,
        memory=memory,
        turns=turns,
        runner=runner,
        listeners=listeners,
        images=images,
    )
    return app


def _settle() -> None:
    """Return memory that loading the kernels left behind, and exempt the rest from garbage collection."""
    keep_what_is_loaded()
    return_unused()


def _auth_options(settings: Settings) -> AuthOptions:
    oidc = None
    if settings.oidc_issuer is not None and settings.oidc_audience is not None:
        oidc = Oidc(
            settings.oidc_issuer,
            settings.oidc_audience,
            settings.oidc_scope_claim,
            settings.oidc_tenant_claim,
        )
    anyone = settings.allow_unauthenticated is not None
    return AuthOptions(
        settings.tokens_file, oidc, anyone=anyone, origins=settings.origins, hosts=settings.hosts
    )


def _wire(
    settings: Settings,
    store: ObjectStore,
    memory: MemoryPool,
    images: ImageCodecs,
    auth: Auth,
    publish_wait_s: float,
    worker: Worker | None,
) -> Services:
    spool = Spool(settings.spool_dir, settings.spool_max_bytes, worker.spool if worker else None)
    known = Datasets(
        store,
        limits=settings.limits,
        spool=spool,
        memory=memory,
        images=images,
        publish_wait_s=publish_wait_s,
    )
    importing = Imports(known, limits=settings.limits, spool=spool, memory=memory, allowed=settings.sources)
    import_runs = ImportRuns(importing, store)
    return Services(
        limits=settings.limits,
        spool=spool,
        datasets=known,
        imports=importing,
        import_runs=import_runs,
        activity=Activity(known, importing, import_runs),
        images=images,
        readiness=Readiness(
            store,
            spool,
            # Two workers that begin at either end compile together what no cache holds.
            warm=partial(kernels.compile_all, last_first=worker is not None and worker.number % 2 == 1),
            warmed=_settle,
            further={**auth.checks(), **({WORKERS: partial(_check_workers, worker)} if worker else {})},
        ),
    )


def _check_workers(worker: Worker) -> Check:
    ready = worker.board.num_ready
    return Check(ready == worker.count, f"{ready} of {worker.count} workers are ready")


def serve(
    settings: Settings,
    sockets: list[socket.socket],
    *,
    on_listen: Callable[[], None] = lambda: None,
    worker: Worker | None = None,
) -> None:
    """Serve from these sockets until SIGTERM or SIGINT; ends the process, with status 0 if all went well.

    Args:
        settings: of this process.
        sockets: bound; listened to once the application runs.
        on_listen: called then.
        worker: this process, if it is one of several.

    Raises:
        CannotStart: the settings cannot be used.
    """
    allow_open_files(settings.max_connections)
    app = _app_to_serve(settings, worker)
    # uvicorn ends gracefully and then raises the signal again, which would make the status a failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)
    protocol = hardened_protocol(_connection_limits(settings))
    show_connections(protocol.others)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        access_log=settings.access_log,
        log_config=None,  # so that its records go where all others go
        http=protocol,
        ws="none",
    )
    services: Services = app.state.services

    def leave() -> None:
        services.readiness.leave()
        protocol.others.leaving = True

    server = Server(
        config,
        on_start=on_listen,
        on_leave=leave,
        on_close=app.state.listeners.leave,
        on_beat=partial(_beat, worker, services.readiness) if worker else lambda: None,
        delay_s=settings.shutdown_delay_s,
        grace_s=settings.shutdown_grace_s,
    )
    try:
        server.run(sockets)
    except SystemExit as ended:
        if kernels.are_compiled():
            raise
        # LLVM aborts the process if it is torn down while a thread compiles.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(ended.code if isinstance(ended.code, int) else 1)


def _connection_limits(settings: Settings) -> ConnectionLimits:
    return ConnectionLimits(
        max_connections=settings.max_connections,
        max_target_bytes=settings.max_target_bytes,
        max_header_bytes=settings.max_header_bytes,
        max_headers=settings.max_headers,
        max_chunk_overhead=settings.max_chunk_overhead,
        header_timeout_s=settings.header_timeout_s,
        keep_alive_s=settings.keep_alive_s,
        min_rate=settings.min_rate,
        body_grace_s=settings.body_grace_s,
        stall_s=settings.body_timeout_s,
        linger_s=settings.linger_s,
        linger_stall_s=settings.linger_stall_s,
    )


def _beat(worker: Worker, readiness: Readiness) -> None:
    """Tell the others how this worker is; end with the process that has started it."""
    checks = readiness.checks()
    worker.board.beat(worker.number, ready=all(check.ok for name, check in checks.items() if name != WORKERS))
    if os.getppid() != worker.parent:
        signal.raise_signal(signal.SIGTERM)


def _app_to_serve(settings: Settings, worker: Worker | None = None) -> FastAPI:
    """The application.

    Raises:
        AuthConfigurationError: the service would listen to other machines without authentication.
        SettingsError: the storage URL names no store, or the spool cannot be written to.
    """
    options = _auth_options(settings)
    if not (options.on or options.anyone or is_loopback(settings.host)):
        raise AuthConfigurationError(refusal_to_listen(settings.host))
    app = create_app_with(settings, worker=worker)
    services: Services = app.state.services
    try:
        services.spool.check()
    except SpoolUnavailable as error:
        raise SettingsError(error.detail) from error
    return app


def _open_store(url: str) -> ObjectStore:
    try:
        return open_store(url)
    except StorageError as error:
        raise SettingsError(f"SHARDSMITH_STORAGE_URL: {error}") from error


def _exit(_: int, __: FrameType | None) -> NoReturn:
    # Without this, garbage collection at exit took up to 20 s on a busy machine.
    gc.freeze()
    sys.exit(0)
