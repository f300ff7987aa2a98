"""The keys of the issuer, kept in memory and renewed off the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import jwt

from ...errors import IssuerUnavailable
from .issuer import IssuerUnreachable, Keys

logger = logging.getLogger(__name__)

#: Renewed when older; Envoy's default is 5 minutes, PyJWT's own client has 5 as well.
_FRESH_FOR_S: Final = 300.0
#: After so long without an answer from the issuer its keys are no longer believed.
_BELIEVED_FOR_S: Final = 3600.0
#: Between two fetches, whatever tokens with unknown key ids come in.
_FETCH_EVERY_S: Final = 30.0
#: A fetch ends within that, unless the name of the issuer is not resolved.
_WAIT_S: Final = 10.0


class KeySet:
    """Finds the key that a token names. Everything but the fetch itself happens on the event loop.

    Args:
        fetch: gets the keys, blocking; it runs in a thread of its own.
    """

    def __init__(self, fetch: Callable[[], Keys]) -> None:
        self._fetch = fetch
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="issuer-keys")
        self._keys: Keys = {}
        self._fetched_at = -_BELIEVED_FOR_S
        self._asked_at = -_FETCH_EVERY_S
        self._asking: asyncio.Task[None] | None = None
        #: Counts the key sets so far: what was found out with an older one is to be found out again.
        self.generation = 0

    def start(self) -> None:
        """Fetch the keys before they are asked for; to be called on the event loop."""
        self._renewal()

    def close(self) -> None:
        """Fetch no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def current(self) -> Keys:
        """The keys, none of which is believed for long without hearing from the issuer.

        Raises:
            IssuerUnavailable: they cannot be had (`issuer_unreachable`).
        """
        age = time.monotonic() - self._fetched_at
        if age > _FRESH_FOR_S:
            asking = self._renewal()
            if age > _BELIEVED_FOR_S and asking is not None:
                await asyncio.wait({asking}, timeout=_WAIT_S)
            if time.monotonic() - self._fetched_at > _BELIEVED_FOR_S:
                raise _unavailable()
        return self._keys

    async def find(self, identifier: str | None) -> jwt.PyJWK | None:
        """The key of that id, after another look at the issuer where it is new; the only key for None.

        Raises:
            IssuerUnavailable: as `current`.
        """
        found = _pick(await self.current(), identifier)
        if found is None and (asking := self._renewal()) is not None:
            before = self.generation
            await asyncio.wait({asking}, timeout=_WAIT_S)
            if self.generation == before:
                raise _unavailable()
            found = _pick(self._keys, identifier)
        return found

    def _renewal(self) -> asyncio.Task[None] | None:
        """The fetch under way, a new one, or None where the last began just now."""
        if self._asking is not None and not self._asking.done():
            return self._asking
        now = time.monotonic()
        if now - self._asked_at < _FETCH_EVERY_S:
            return None
        self._asked_at = now
        self._asking = asyncio.create_task(self._renew())
        return self._asking

    async def _renew(self) -> None:
        try:
            keys = await asyncio.get_running_loop().run_in_executor(self._pool, self._fetch)
        except IssuerUnreachable as error:
            logger.error("the keys of the OpenID issuer cannot be had: %s", error)
            return
        except Exception:
            logger.exception("the keys of the OpenID issuer cannot be had")
            return
        self._keys, self._fetched_at = keys, time.monotonic()
        self.generation += 1
        logger.info("the OpenID issuer signs with %d keys", len(keys))


def _unavailable() -> IssuerUnavailable:
    return IssuerUnavailable("The keys of the token's issuer cannot be had now. Try again.")


def _pick(keys: Keys, identifier: str | None) -> jwt.PyJWK | None:
    if identifier is not None:
        return keys.get(identifier)
    return next(iter(keys.values())) if len(keys) == 1 else None
