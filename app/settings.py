"""Every setting: environment variables `SHARDSMITH_*`. Imported by `main` (and `cli`) alone."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from .domain.limits import MIB, Limits

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
        Limits().max_body_bytes, gt=0, description="Largest request body in bytes, both as sent and decoded."
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
    collect_interval_s: float = Field(
        3600.0, ge=0, description="Seconds between two collections of leftovers; 0 leaves them to requests."
    )
    shutdown_grace_s: int = Field(25, ge=0, description="Seconds that running requests get at SIGTERM.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Log level.")

    @property
    def limits(self) -> Limits:
        """The limits that codecs are given."""
        return Limits(max_body_bytes=self.max_body_bytes, max_decoded_bytes=self.max_decoded_bytes)
