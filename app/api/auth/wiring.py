"""From what is configured to what stands in front of the routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from fastapi import FastAPI

from ...services.readiness import Check
from .bearer import Bearers, Verifier
from .hosts import KnownHosts
from .loopback import WithoutAuthentication
from .middleware import Authentication
from .options import AuthOptions, Oidc
from .watched_tokens import WatchedTokens


class Auth:
    """What authentication keeps running beside the application.

    Raises:
        AuthConfigurationError: the file of tokens cannot be used.
    """

    def __init__(self, options: AuthOptions) -> None:
        self._options = options
        self._tokens = None if options.tokens_file is None else WatchedTokens(options.tokens_file)
        self._starting: list[Callable[[], None]] = []
        self._closing: list[Callable[[], None]] = []
        self._verifier = None if options.oidc is None else self._open_issuer(options.oidc)

    def install(self, app: FastAPI) -> None:
        """Stand in front of the routes of `app`."""
        options = self._options
        if options.on:
            app.add_middleware(Authentication, bearers=Bearers(self._tokens, self._verifier))
        else:
            app.add_middleware(WithoutAuthentication, origins=options.origins, anyone=options.anyone)
        if options.hosts or not (options.on or options.anyone):
            app.add_middleware(KnownHosts, names=options.hosts)

    def checks(self) -> Mapping[str, Callable[[], Check]]:
        """For `/readyz`."""
        return {} if self._tokens is None else {"tokens": self._tokens.check}

    def start(self) -> None:
        """Begin to watch what changes; to be called on the event loop."""
        if self._tokens is not None:
            self._tokens.start()
        for start in self._starting:
            start()

    def stop(self) -> None:
        """End that."""
        if self._tokens is not None:
            self._tokens.stop()
        for close in self._closing:
            close()

    def _open_issuer(self, options: Oidc) -> Verifier:
        # PyJWT and cryptography are loaded where they are needed.
        from .issuer import fetch_keys
        from .key_set import KeySet
        from .oidc import OidcVerifier

        keys = KeySet(partial(fetch_keys, options.issuer))
        self._starting.append(keys.start)
        self._closing.append(keys.close)
        return OidcVerifier(options, keys)
