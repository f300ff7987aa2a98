"""Faults of stores, memory and the spool: app/storage and app/runtime."""

from __future__ import annotations

from typing import Final

from tests.mutations.entry import Mutation, Patch

MUTATIONS: Final = (
    Mutation(
        id="create-refused-after-unknown-outcome",
        where="create_once(store, key, data)",
        given="a store that fails once with an unknown outcome, and then refuses",
        right="OutcomeUnknown: the first try may have stored it",
        wrong="a definite failure: parts are deleted that a slot may name",
        patch=Patch("app/storage/create_once.py", "            if not uncertain:\n", "            if key:\n"),
        tests=("tests/unit/storage/test_create_once.py",),
    ),
    Mutation(
        id="local-store-lists-through-links",
        where="ObjectStore.list of a local folder",
        given="a symbolic link in the folder that leads out of it",
        right="nothing beyond the link is listed",
        wrong="objects outside of the folder are listed",
        patch=Patch(
            "app/storage/obstore_store.py",
            'if self._root is None or self._root.contains(meta["path"]):',
            'if self._root is None or meta["path"]:',
        ),
        tests=("tests/unit/storage/test_local_root.py",),
    ),
    Mutation(
        id="spool-share-of-a-request",
        where="a request whose body and response go to the spool",
        given="a body that comes in many pieces, and is larger than the share of one request",
        right="503 spool_full, once the share is used up",
        wrong="the request fills the spool of all others",
        patch=Patch(
            "app/runtime/spool.py",
            "self._max_bytes is not None and self._size + len(view) > self._max_bytes",
            "self._max_bytes is not None and len(view) > self._max_bytes",
        ),
        tests=("tests/unit/runtime/test_spool.py",),
    ),
    Mutation(
        id="amplification-over-several-charges",
        where="any request whose body stands for more bytes than it has",
        given="a small body that becomes large in many steps",
        right="413 amplification_exceeded, once the sum is too much",
        wrong="200: only the last step counts",
        patch=Patch(
            "app/runtime/amplification.py", "self._made[way] += num_bytes", "self._made[way] = num_bytes"
        ),
        tests=("tests/unit/runtime/test_amplification.py",),
    ),
)
