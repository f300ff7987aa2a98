"""Every setting: environment variables `SHARDSMITH_*`. Imported by `main` alone."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, field_serializer, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from .domain.limits import KIB, MIB, Limits
from .domain.urls import hide_secrets
from .errors import CannotStart

_PREFIX: Final = "SHARDSMITH_"
#: Variables that Kubernetes sets for each Service of the namespace ("Accessing the Service" in its
#: documentation), here for those named `shardsmith` and `shardsmith-*`. `SHARDSMITH_PORT` is such a variable
#: and a setting.
_LINK: Final = re.compile(r"(tcp|udp|sctp)://")
_OF_A_LINK: Final = re.compile(
    r"SHARDSMITH_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)"
)
#: Settings that have the names of such variables.
_PORTS: Final = frozenset({"port", "metrics_port"})
#: Variables of the tests, and of the command line where it talks to a service.
_OF_OTHERS: Final = ("SHARDSMITH_TEST_", "SHARDSMITH_CLIENT_")


class SettingsError(CannotStart):
    """Settings that cannot be used. Each is named, without its value, which may be a secret."""


class Settings(BaseSettings):
    """The configuration of one process; each field is read from `SHARDSMITH_<FIELD>`.

    A URL may hold a secret, though it should not. So URLs are shown without secrets, and errors quote no
    values.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    workers: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes that serve from the port. They share memory for requests and the spool; "
        "limits on connections, requests, and conversions hold for each.",
    )
    metrics_host: str = Field("127.0.0.1", description="Address to serve metrics on.")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port to serve metrics for Prometheus on, at /metrics; 0 picks a free one. "
        "By default there are none.",
    )
    storage_url: str = Field(
        "file://./data",
        repr=False,
        description="Where datasets live: file://DIR, s3://BUCKET/PREFIX, gs://, az://, memory://.",
    )
    spool_dir: Path | None = Field(
        None, description="Folder for bodies and answers that overflow memory; the system's by default."
    )
    spool_max_bytes: int = Field(
        16384 * MIB, ge=0, description="Most bytes on the spool disk, over all requests."
    )
    max_body_bytes: int = Field(
        Limits().max_body_bytes, gt=0, description="Largest request body in bytes, both as sent and decoded."
    )
    max_decoded_bytes: int = Field(
        Limits().max_decoded_bytes, gt=0, description="Most bytes one request may hold decoded in memory."
    )
    max_amplification: int = Field(
        Limits().max_amplification,
        gt=1,
        description="Most bytes that one byte of a body may become, beyond 64 MiB.",
    )
    max_json_depth: int = Field(
        Limits().max_json_depth, gt=0, description="Most arrays and objects of JSON in one another."
    )
    max_npy_header_bytes: int = Field(
        Limits().max_npy_header_bytes, gt=0, description="Longest header of an NPY array, in bytes."
    )
    max_members: int = Field(
        Limits().max_members, gt=0, description="Most tensors in one body, arrays in one NPZ."
    )
    max_features: int = Field(Limits().max_features, gt=0, description="Most features in one schema.")
    max_name_bytes: int = Field(
        Limits().max_name_bytes, gt=0, description="Longest name of a feature or tensor, in bytes of UTF-8."
    )
    max_record_bytes: int = Field(
        Limits().max_record_bytes, gt=0, lt=2**31, description="Longest record of a TFRecord, in bytes."
    )
    max_rows: int = Field(Limits().max_rows, gt=0, description="Most rows in one body.")
    max_seconds: float = Field(
        Limits().max_seconds,
        gt=0,
        description="Seconds that one conversion may take, answer and all.",
    )
    memory_bytes: int | None = Field(
        None,
        gt=0,
        description="Most bytes that all requests may hold; by default what the process leaves of its limit, "
        "half at most.",
    )
    max_requests: int = Field(
        1024, ge=1, description="Requests under way at one time, but for probes; further ones are refused."
    )
    streams: int = Field(
        32,
        ge=1,
        description="Conversions under way at one time, half of them for one caller; some more wait, "
        "further ones are refused.",
    )
    compute_threads: int | None = Field(
        None, ge=1, description="Conversions that compute at one time; one a processor by default."
    )
    encode_answers: bool = Field(
        True, description="Whether answers are encoded (gzip, zstd) for clients that ask for it."
    )
    body_timeout_s: float = Field(
        60.0, gt=0, description="Seconds without a byte, in or out, after which a request is given up."
    )
    min_rate: int = Field(
        240,
        ge=0,
        description="Least bytes a second of a body, and of an answer that waits; 0: none (Kestrel).",
    )
    body_grace_s: float = Field(
        5.0, gt=0, description="Seconds before that rate is asked of a body (Kestrel)."
    )
    header_timeout_s: float = Field(
        20.0, gt=0, description="Seconds for the head of a request, or until it begins (Apache)."
    )
    keep_alive_s: float = Field(
        75.0, gt=0, description="Seconds without a request after which a connection is closed (nginx)."
    )
    linger_s: float = Field(
        30.0, gt=0, description="Seconds for which the rest of a refused body is let in and dropped (nginx)."
    )
    linger_stall_s: float = Field(5.0, gt=0, description="The same, without any byte of it (nginx).")
    max_connections: int = Field(
        2048, ge=1, description="Connections at one time; beyond, probes alone are answered."
    )
    max_target_bytes: int = Field(
        32 * KIB, gt=0, description="Longest request target, percent-encoded, in bytes; nginx has 8 KiB."
    )
    max_header_bytes: int = Field(
        64 * KIB, gt=0, description="Largest head of a request, in bytes (uvicorn with h11; Envoy: 60 KiB)."
    )
    max_headers: int = Field(100, gt=0, description="Most header fields of a request (Apache, Envoy).")
    max_chunk_overhead: int = Field(
        16 * KIB, gt=0, description="Most bytes of a chunked body that are no content, beyond the usual (Go)."
    )
    collect_interval_s: float = Field(
        3600.0, ge=0, description="Seconds between two collections of leftovers; 0 leaves them to requests."
    )
    import_sources: str | None = Field(
        None,
        description="URLs at or below which requests may import from, separated by commas, as "
        "`s3://bucket/incoming`; none by default.",
    )
    import_engine: Literal["local", "ray"] = Field(
        "local", description="What does the ranges of `shardsmith import`: processes here, or a Ray cluster."
    )
    ray_address: str | None = Field(
        None, description="The Ray cluster; by default one is begun on this machine."
    )
    shutdown_grace_s: int = Field(25, ge=0, description="Seconds that running requests get at SIGTERM.")
    shutdown_delay_s: int = Field(
        0, ge=0, description="Of them, seconds in which it is unready but still takes connections."
    )
    tokens_file: Path | None = Field(
        None, description="File of bearer tokens, as digests; read again when it changes (docs/auth.md)."
    )
    oidc_issuer: str | None = Field(
        None,
        repr=False,
        description="OpenID Connect issuer whose signed tokens are accepted, as an https:// URL.",
    )
    oidc_audience: str | None = Field(None, description="What has to stand in the claim `aud` of its tokens.")
    oidc_scope_claim: str = Field(
        "scope", min_length=1, description="Claim that holds `read`, `write`, `admin`."
    )
    oidc_tenant_claim: str | None = Field(
        None,
        min_length=1,
        description="Claim that holds the tenant; unset, tokens are for all datasets.",
    )
    allow_unauthenticated: Literal["anyone-may-read-write-and-delete"] | None = Field(
        None,
        description="`anyone-may-read-write-and-delete`: serve beyond this machine without authentication.",
    )
    cors_origins: str | None = Field(
        None, description="Origins whose pages may call it, separated by commas; none by default."
    )
    allowed_hosts: str | None = Field(
        None,
        description="Names that `Host` may have beside localhost, separated by commas; `*.example.org` for "
        "all below it, `*` for any. Unset, any is taken only with authentication or "
        "`ALLOW_UNAUTHENTICATED`.",
    )
    access_log: bool = Field(
        True, description="Whether each request has a line in the log; aborted uploads have one anyway."
    )
    log_format: Literal["text", "json"] = Field("text", description="Form of a log line: `text` or `json`.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Log level.")

    @model_validator(mode="before")
    @classmethod
    def _leave_out_link(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in given.items() if name not in _PORTS or not _is_link(value)}

    @model_validator(mode="after")
    def _refuse_one_port_for_both(self) -> Settings:
        if self.port and self.metrics_port == self.port:
            raise ValueError("SHARDSMITH_METRICS_PORT and SHARDSMITH_PORT have to be two ports.")
        return self

    @model_validator(mode="after")
    def _refuse_half_an_issuer(self) -> Settings:
        if (self.oidc_issuer is None) != (self.oidc_audience is None):
            raise ValueError("SHARDSMITH_OIDC_ISSUER and SHARDSMITH_OIDC_AUDIENCE go together.")
        return self

    @model_validator(mode="after")
    def _refuse_workers_without_a_common_store(self) -> Settings:
        if self.workers > 1 and self.storage_url.startswith("memory://"):
            raise ValueError(
                "SHARDSMITH_STORAGE_URL: memory:// is the memory of one process. Name another store, or set "
                "SHARDSMITH_WORKERS to 1."
            )
        return self

    @field_serializer("storage_url", "oidc_issuer")
    def _hide_secrets(self, url: str | None) -> str | None:
        return None if url is None else hide_secrets(url)

    @property
    def origins(self) -> list[str]:
        """The origins of `cors_origins`."""
        return _split_names(self.cors_origins)

    @property
    def hosts(self) -> list[str]:
        """The names of `allowed_hosts`."""
        return _split_names(self.allowed_hosts)

    @property
    def sources(self) -> list[str]:
        """The URLs of `import_sources`."""
        return _split_names(self.import_sources)

    @property
    def limits(self) -> Limits:
        """The limits for codecs."""
        return Limits(**{field.name: getattr(self, field.name) for field in fields(Limits)})


def _split_names(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def read_settings(**given: Any) -> Settings:
    """The settings from the environment, with `given` taking precedence.

    Raises:
        SettingsError: one of them is invalid.
    """
    try:
        return Settings(**given)
    except ValidationError as error:
        raise SettingsError(" ".join(_refusal(fault) for fault in error.errors())) from None


def _refusal(fault: Mapping[str, Any]) -> str:
    message = fault["msg"].removeprefix("Value error, ").rstrip(".")
    return ": ".join([*(f"{_PREFIX}{str(name).upper()}" for name in fault["loc"]), message]) + "."


def refuse_unknown(environment: Mapping[str, str]) -> None:
    """Refuse variables that look like settings and are none.

    Raises:
        SettingsError: there are such variables. It names the settings that they resemble.
    """
    known = [name.upper() for name in Settings.model_fields]
    complaints = [
        complaint
        for name, value in sorted(environment.items())
        if name.upper().startswith(_PREFIX) and (complaint := _complaint(name, value, known))
    ]
    if complaints:
        raise SettingsError(" ".join(complaints))


def _complaint(name: str, value: str, known: list[str]) -> str | None:
    upper = name.upper()
    field = upper.removeprefix(_PREFIX)
    if field in known or upper.startswith(_OF_OTHERS) or _OF_A_LINK.fullmatch(upper) or _is_link(value):
        return None
    nearest = difflib.get_close_matches(field, known, n=1)
    return f"{name} is no setting. " + (
        f"Did you mean {_PREFIX}{nearest[0]}?" if nearest else "docs/settings.md lists all."
    )


def ignored_port(environment: Mapping[str, str]) -> str | None:
    """A sentence for a port where Kubernetes has set it, which is none to listen on."""
    for name, value in environment.items():
        if name.upper().removeprefix(_PREFIX).lower() in _PORTS and _is_link(value):
            return (
                f"{name} holds an address that Kubernetes sets for a Service, and is ignored. "
                "`enableServiceLinks: false` in the pod's specification leaves such variables out."
            )
    return None


def _is_link(value: object) -> bool:
    return isinstance(value, str) and _LINK.match(value) is not None
