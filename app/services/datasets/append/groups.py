"""Group commit: small appends without a key are gathered for a moment and stored by one put.

Each is whole and encoded before it joins, so that none can spoil another. Only what they can share is put
off: the check that the dataset still has the schema that they were encoded by, and the slot.
"""

from __future__ import annotations

import copy
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ....domain.limits import KIB, MIB
from ....errors import Conflict, OutcomeUnknown, Overloaded
from ....runtime.turns import pause
from ....storage.create_once import new_nonce
from ....tracing import Mark, mark, shared_span
from ..objects.catalog import Catalog, Outdated
from ..objects.incarnation import Destination
from ..objects.layout import Layout
from ..pieces.pieces import Piece, digest_of
from .slots import SlotWriter

#: An append of up to so many bytes of records is small.
SMALL_BYTES: Final = 64 * KIB
#: A group is stored after so many seconds, or once it has so many bytes.
_PAUSE_S: Final = 0.02
_GROUP_BYTES: Final = 4 * MIB
#: Where a store hangs, so much waits for it in memory; further appends are stored one by one.
_WAITING_BYTES: Final = 64 * MIB
#: Where it hangs, a group that no thread has taken up after so many seconds is refused: many clients give up
#: after 60 s, and storing it may take half of them.
_LONGEST_WAIT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Member:
    """One append of a group: its framed records, and the id of the slot that will hold them.

    Attributes:
        rounded, dropped, skipped, as_text: as of `AppendResult`.
        outcome: set once the fate of the group is known.
        mark: of the request that appends.
    """

    data: bytes
    num_records: int
    rounded: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    skipped: int = 0
    as_text: tuple[str, ...] = ()
    outcome: Future[str] = field(default_factory=Future)
    mark: Mark = field(default_factory=mark)


@dataclass(slots=True)
class _Group:
    destination: Destination
    split: str
    members: list[Member] = field(default_factory=list)
    num_bytes: int = 0
    begun: float = field(default_factory=lambda: time.monotonic())


#: Stores the members of a group, and returns the id of their slot.
StoreGroup = Callable[[Destination, str, Sequence[Member]], str]


class Groups:
    """Gathers appends by dataset, schema and split. Safe to use from several threads.

    Args:
        pool: where groups wait and are stored, and where what follows is done for each member. Storing
            may wait for other pools, so no other work may wait for this one.
        store: stores a group; what it raises is raised for every member.
    """

    def __init__(self, pool: ThreadPoolExecutor, store: StoreGroup) -> None:
        self._pool = pool
        self._store_members = store
        self._lock = threading.Lock()
        self._open: dict[tuple[Layout, int, str], _Group] = {}
        self._waiting = 0

    def add(self, destination: Destination, split: str, member: Member) -> bool:
        """Take in `member`, which is small; false where too much is waiting already."""
        size = len(member.data)
        with self._lock:
            if self._waiting + size > _WAITING_BYTES:
                return False
            group = self._group(destination, split, size)
            group.members.append(member)
            group.num_bytes += size
            self._waiting += size
        return True

    def _group(self, destination: Destination, split: str, size: int) -> _Group:
        """The group that has room for `size` bytes; one that has not is sent on its way."""
        key = (destination.layout, destination.step, split)
        group = self._open.get(key)
        if group is not None and group.num_bytes + size > _GROUP_BYTES:
            self._pool.submit(self._store, group)
            del self._open[key]
            group = None
        if group is None:
            group = _Group(destination, split)
            self._pool.submit(self._store_after_pause, key, group)
            self._open[key] = group
        return group

    def _store_after_pause(self, key: tuple[Layout, int, str], group: _Group) -> None:
        pause(_PAUSE_S)
        with self._lock:
            if self._open.get(key) is not group:
                return  # it was full before
            del self._open[key]
        self._store(group)

    def _store(self, group: _Group) -> None:
        try:
            _require_in_time(group)
            with shared_span("store group", [member.mark for member in group.members]):
                append_id = self._store_members(group.destination, group.split, group.members)
        except BaseException as error:  # carried to those who wait
            for member in group.members:
                fail = partial(member.outcome.set_exception, _own(error))
                if isinstance(error, Outdated):  # each is read again, one after the other it would take long
                    self._pool.submit(fail)
                else:
                    fail()
        else:
            for member in group.members:
                member.outcome.set_result(append_id)
        finally:
            with self._lock:
                self._waiting -= group.num_bytes


def store_group(
    catalog: Catalog, slots: SlotWriter, destination: Destination, split: str, members: Sequence[Member]
) -> str:
    """Store small appends in one slot, and return its id.

    Raises:
        Outdated: the dataset is another one by now, or has another schema; nothing is stored.
        OutcomeUnknown: they may or may not be stored.
    """
    catalog.require_current(destination)
    inline = b"".join(member.data for member in members)
    pieces = [Piece.of(inline, sum(member.num_records for member in members))] if inline else []
    slot = slots.new_commit(secrets.token_hex(16), new_nonce(), split, pieces, digest=digest_of(pieces))
    try:
        winner = slots.create(destination.layout, slot, inline, num_grouped=len(members))
    except OutcomeUnknown as error:
        raise OutcomeUnknown(
            "The store did not confirm the write in time; it may or may not have been stored. With an "
            "idempotency key, the same request again would find out."
        ) from error
    if winner is not None:
        raise Conflict("This append is not stored. Send it again.", code="append_expired")
    return slot.append_id


def _require_in_time(group: _Group) -> None:
    """Refuse a group that has waited for a thread for too long.

    Raises:
        Overloaded: it has; nothing is stored.
    """
    if time.monotonic() - group.begun > _LONGEST_WAIT_S:
        raise Overloaded("The store is too slow; this append is not stored. Try again.", short="store")


def _own(error: BaseException) -> BaseException:
    """An error for one member alone, who may add to it; the same where it cannot be copied."""
    try:
        return copy.copy(error)
    except Exception:
        return error
