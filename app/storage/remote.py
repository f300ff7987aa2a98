"""Opening the stores of S3, Google Cloud Storage and Azure Blob as the environment describes them.

obstore reads the providers' usual variables by itself. Mistakes that would make it panic, or
fail only at the first request, are checked here first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from ..domain.urls import hide_secrets
from ..errors import StorageError
from .failures import Hints, reason

if TYPE_CHECKING:  # these names exist for type checkers only
    from obstore.store import ClientConfig, RetryConfig


Remote: TypeAlias = AzureStore | GCSStore | S3Store

_KINDS: Final[Mapping[str, type[Remote]]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_FAMILIES: Final = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
HINTS: Final[Mapping[type[Remote], Hints]] = {
    S3Store: Hints(
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with AWS_SESSION_TOKEN where they are temporary",
        "AWS_ENDPOINT_URL and AWS_REGION",
    ),
    GCSStore: Hints("GOOGLE_SERVICE_ACCOUNT or GOOGLE_APPLICATION_CREDENTIALS", "the network"),
    AzureStore: Hints(
        "AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_ACCOUNT_NAME and AZURE_ENDPOINT",
    ),
}
#: Each in the order in which it counts.
_S3_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_AZURE_ENDPOINTS: Final = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
#: Options that obstore reads from the environment only when no client options are given.
_ALLOW_HTTP: Final = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long one request to a store may take, in seconds, and how often it is repeated.

    A try ends after `request_s` (20 s: a part of 16 MiB at 0.8 MiB/s). After `retry_s` no wait for a
    further try is begun. The first wait is `first_wait_s`; each further one is drawn at random between
    that and twice the one before.
    """

    connect_s: float = 5.0
    request_s: float = 20.0
    retry_s: float = 8.0
    max_retries: int = 5
    first_wait_s: float = 0.1

    @property
    def total_s(self) -> float:
        """The time within which a request always ends: half of the 60 s after which nginx gives up."""
        return self.retry_s + self.first_wait_s * 2.0 ** (self.max_retries - 1) + self.request_s

    @property
    def client(self) -> ClientConfig:
        """As obstore takes it."""
        return {
            "connect_timeout": timedelta(seconds=self.connect_s),
            "timeout": timedelta(seconds=self.request_s),
        }

    @property
    def retries(self) -> RetryConfig:
        """For obstore; its jitter is the "decorrelated" one of AWS's article on backoff."""
        return {
            "max_retries": self.max_retries,
            "retry_timeout": timedelta(seconds=self.retry_s),
            "backoff": {
                "init_backoff": timedelta(seconds=self.first_wait_s),
                "max_backoff": timedelta(seconds=5),
                "base": 2,
            },
        }


def open_remote(url: str, timeouts: Timeouts) -> Remote:
    """Open the store at `s3://`, `gs://` or `az://`.

    Raises:
        StorageError: it cannot be set up so; the error says which variable is at fault.
    """
    scheme = url.partition("://")[0]
    allow_http = any(is_true(name) for name in _ALLOW_HTTP)
    for name in (*_S3_ENDPOINTS, *_AZURE_ENDPOINTS):
        if name.startswith(_FAMILIES[scheme]) and name in os.environ:
            _check_endpoint(name, os.environ[name], allow_http=allow_http)
    try:
        return _KINDS[scheme].from_url(
            url,
            client_options={**timeouts.client, "allow_http": allow_http},
            retry_config=timeouts.retries,
        )
    except (BaseError, ValueError) as error:
        shown = hide_secrets(url)
        said = reason(ValueError(str(error).replace(url, shown)))
        raise StorageError(
            f"The store {shown[:200]!r} cannot be set up: {said}. Check {HINTS[_KINDS[scheme]].credentials}.",
            code="invalid_storage_url",
        ) from None  # obstore's error may quote what it was given


def s3_endpoint() -> str | None:
    """The endpoint of S3 in the environment; None for Amazon's own."""
    return next((os.environ[name] for name in _S3_ENDPOINTS if name in os.environ), None)


def is_true(name: str) -> bool:
    """Whether that variable is set to a yes."""
    return os.environ.get(name, "").lower() in ("1", "true")


def _check_endpoint(name: str, value: str, *, allow_http: bool) -> None:
    """An endpoint without a scheme makes obstore panic at the first request; one with http fails there."""
    try:
        parts = urlsplit(value)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        known = False
    if not known:
        raise StorageError(
            f"{name} is no URL that begins with http:// or https://.", code="invalid_storage_endpoint"
        )
    if parts.scheme == "http" and not allow_http:
        family = name.partition("_")[0]
        raise StorageError(
            f"{name} is an http:// URL, over which data and signatures go in the clear. Set "
            f"{family}_ALLOW_HTTP=true if that is meant.",
            code="invalid_storage_endpoint",
        )
