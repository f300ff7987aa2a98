"""What one request may cost: frozen `Limits`, and a `Budget` that is charged before every allocation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..errors import LimitExceeded

__all__ = ["KIB", "MIB", "Budget", "Limits"]

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what is read from outside.

    Attributes:
        max_body_bytes: the body as sent, and what it is without its Content-Encoding.
        max_decoded_bytes: all that is held decoded at one time for one request. A tensor is held
            whole, records only a batch at a time.
        max_compression_ratio: decompressed to compressed bytes, once past 1 MiB.
        max_json_depth: nesting of arrays and objects.
        max_npy_header_bytes: as in numpy (`numpy.lib.format`, max_header_size).
        max_members: arrays in one NPZ, tensors in one body.
        max_features: features in one schema.
        max_name_bytes: UTF-8 bytes in the name of a feature or a tensor.
        max_record_bytes: one TFRecord payload; TensorFlow parses protos below 2 GiB.
    """

    max_body_bytes: int = 4096 * MIB
    max_decoded_bytes: int = 1024 * MIB
    max_compression_ratio: int = 1100
    max_json_depth: int = 512
    max_npy_header_bytes: int = 10_000
    max_members: int = 10_000
    max_features: int = 10_000
    max_name_bytes: int = 4 * KIB
    max_record_bytes: int = 512 * MIB


class Budget:
    """The bytes that one request may still hold in memory. Not shared between threads."""

    __slots__ = ("_limit", "_used", "limits", "peak")

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._limit = self.limits.max_decoded_bytes
        self._used = 0
        #: The most that was held at one time, in bytes.
        self.peak = 0

    @property
    def remaining(self) -> int:
        """Bytes that can still be charged."""
        return self._limit - self._used

    def charge(self, num_bytes: int, what: str) -> None:
        """Reserve `num_bytes` for `what`, before allocating them.

        Raises:
            LimitExceeded: more than the request may hold.
        """
        if num_bytes > self._limit - self._used:
            raise LimitExceeded(
                f"{what} would take {num_bytes} bytes; this request may hold "
                f"{self._limit} bytes and holds {self._used}. Send it in smaller pieces.",
                code="payload_too_large",
            )
        self._used += num_bytes
        self.peak = max(self.peak, self._used)

    def release(self, num_bytes: int) -> None:
        """Give back what was charged and is no longer held."""
        self._used = max(0, self._used - num_bytes)
