"""What the simulation has to find: the code under test, broken in one place each."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from typing import Any, Final
from unittest import mock

from app.errors import StorageUnavailable
from app.services.datasets.append import slots
from app.services.datasets.collect import collector, leftover_appends
from app.services.datasets.objects.layout import Layout
from app.services.datasets.objects.log import Aborted, PublishLog, Verdict
from app.services.datasets.objects.seen import Seen
from app.services.datasets.objects.slot import Commit
from app.services.datasets.objects.stored_json import load_json, open_json
from app.services.datasets.publish import executor, publisher
from app.services.datasets.publish.new_appends import NewAppends
from app.services.datasets.read.reader import Reader
from app.storage.create_once import new_nonce
from app.storage.object_store import AlreadyExists, ObjectInfo, ObjectNotFound, ObjectStore
from tests.simulation.cluster import Cluster
from tests.simulation.store import Connection

__all__ = ["MUTATIONS", "Mutation", "intact"]

#: Breaks the code, or the store of a run, for as long as it lasts.
Mutation = Callable[[], AbstractContextManager[Callable[[Cluster], None] | None]]


@contextmanager
def intact() -> Iterator[None]:
    """Nothing is broken."""
    yield


def _plain_puts(pattern: str) -> Mutation:
    """Creates of some objects overwrite what is there."""

    @contextmanager
    def mutation() -> Iterator[Callable[[Cluster], None]]:
        def prepare(cluster: Cluster) -> None:
            cluster.ledger.objects.overwriting = re.compile(pattern)

        yield prepare

    return mutation


def _patched(target: object, name: str, value: object) -> Mutation:
    @contextmanager
    def mutation() -> Iterator[None]:
        with mock.patch.object(target, name, value):
            yield

    return mutation


def _create_taking_errors_for_refusals(store: ObjectStore, key: str, data: bytes) -> bytes | None:
    """An error says that nothing is stored, and so does an absence."""
    try:
        store.create(key, data)
    except AlreadyExists:
        stored = store.get(key)
        return None if stored == data else stored
    except StorageUnavailable:
        try:
            stored = store.get(key)
        except ObjectNotFound:
            raise StorageUnavailable("It is not there.") from None
        return None if stored == data else stored
    return None


def _create_without_comparing(store: ObjectStore, key: str, data: bytes) -> bytes | None:
    """What exists is taken for another's."""
    try:
        store.create(key, data)
    except AlreadyExists:
        return b'{"another":"was first"}'
    return None


def _nothing_seen(log: PublishLog, published: int) -> Seen:
    return Seen({}, {})


_verdict = PublishLog.verdict


def _undecided_is_aborted(log: PublishLog, n: int) -> Verdict:
    return _verdict(log, n) or Aborted("undecided")


def _newest_plan(reader: Reader) -> int:
    return reader._log.newest()


_find = NewAppends.find


def _commits_of_first_listing(new: Any, *args: Any) -> tuple[Mapping[str, int], list[Commit]]:
    if not hasattr(new, "listed"):
        new.listed = _find(new, *args)
    found: tuple[Mapping[str, int], list[Commit]] = new.listed
    return found


_put_stream = Connection.put_stream


def _put_stream_in_background(connection: Connection, key: str, chunks: Any) -> int:
    """Returns while the last request is still under way."""
    data = b"".join(map(bytes, chunks))
    connection._request("begin", key)
    upload = connection._objects.begin_upload(key, connection._scheduler.now)
    connection._scheduler.fly(lambda: connection._objects.complete_upload(upload, data))
    return len(data)


def _close_without_fence(parts: Any, append_id: str) -> Any:
    """No slot: the parts are taken for nobody's."""
    of_append = list(parts._store.list(parts._layout.parts(append_id)))
    if any(info.last_modified >= parts._old for info in of_append):
        return "undecided"
    return leftover_appends._Closed(new_nonce())


def _old_parts_go(parts: Any, info: ObjectInfo) -> str | None:
    return "parts" if info.last_modified < parts._old else None


def _old_slots_go(sweep: Any, layout: Layout, *_: Any) -> None:
    horizon = sweep.now - timedelta(days=7)
    sweep.each(
        sweep.store.list(layout.all_slots), lambda info: "slots" if info.last_modified < horizon else None
    )


@contextmanager
def _manifest_before_shards() -> Iterator[None]:
    with (
        mock.patch.object(Connection, "put_stream", _put_stream_in_background),
        mock.patch("app.services.datasets.publish.shards.writer.is_stored", return_value=True),
        mock.patch.object(executor, "is_stored", return_value=True),
    ):
        yield


def _open_without_comparing(data: bytes, key: str) -> dict[str, Any]:
    """The checksum is a member like any other."""
    value = load_json(data, key)
    value.pop("crc32", None)
    return value


@contextmanager
def _seals_not_verified() -> Iterator[None]:
    """In every module that opens sealed objects."""
    modules = [module for name, module in sys.modules.items() if name.startswith("app.services.")]
    with ExitStack() as stack:
        for module in modules:
            if getattr(module, "open_json", None) is open_json:
                stack.enter_context(mock.patch.object(module, "open_json", _open_without_comparing))
        yield


#: By name; what is found has to be of a kind that a client notices.
MUTATIONS: Final[Mapping[str, Mutation]] = {
    "every create is a plain put": _plain_puts(""),
    "slots are plain puts": _plain_puts("/slots/"),
    "plans are plain puts": _plain_puts("\\.plan$"),
    "an error of a create is taken for a refusal": _patched(
        slots, "create_once", _create_taking_errors_for_refusals
    ),
    "what a create finds is not compared": _patched(publisher, "create_once", _create_without_comparing),
    "seen is ignored": _patched(PublishLog, "seen", _nothing_seen),
    "an undecided plan is passed over": _patched(PublishLog, "verdict", _undecided_is_aborted),
    "a lost race is run again with the same appends": _patched(NewAppends, "find", _commits_of_first_listing),
    "readers believe a plan without a manifest": _patched(Reader, "latest", _newest_plan),
    "collection deletes parts without winning the slot": _patched(
        leftover_appends._Parts, "_close", _close_without_fence
    ),
    "collection deletes parts for their age": _patched(leftover_appends._Parts, "decide", _old_parts_go),
    "collection deletes slots for their age": _patched(collector, "sweep_slots", _old_slots_go),
    "the manifest does not wait for the shards": _manifest_before_shards,
    "seals are not verified": _seals_not_verified,
}
