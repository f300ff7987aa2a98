"""Every setting: environment variables `SHARDSMITH_*`. Imported by `main` (and `cli`) alone."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from .domain.limits import KIB, MIB, Limits

__all__ = ["Settings"]


class Settings(BaseSettings):
    """The configuration of one process; each field is read from `SHARDSMITH_<FIELD>`."""

    model_config = SettingsConfigDict(env_prefix="SHARDSMITH_", extra="ignore", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    storage_url: str = Field(
        "file://./data",
        description="Where datasets live: file://DIR, s3://BUCKET/PREFIX, gs://, az://, memory://.",
    )
    spool_dir: Path | None = Field(
        None, description="Folder for bodies and answers that overflow memory; the system's by default."
    )
    spool_max_bytes: int = Field(
        8192 * MIB, ge=0, description="Most bytes on the spool disk, over all requests."
    )
    max_body_bytes: int = Field(
        Limits().max_body_bytes, gt=0, description="Largest request body, as sent, in bytes."
    )
    max_decoded_bytes: int = Field(
        Limits().max_decoded_bytes, gt=0, description="Most bytes one request may hold decoded in memory."
    )
    streams: int = Field(
        32, ge=1, description="Conversions under way at one time; further ones wait their turn."
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
        512, ge=1, description="Connections at one time; beyond, probes alone are answered (nginx)."
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
    shutdown_grace_s: int = Field(25, ge=0, description="Seconds that running requests get at SIGTERM.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Log level.")

    @property
    def limits(self) -> Limits:
        """The limits that codecs are given."""
        return Limits(max_body_bytes=self.max_body_bytes, max_decoded_bytes=self.max_decoded_bytes)
