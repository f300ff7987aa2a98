"""The limits of one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on input from outside.

    Attributes:
        max_body_bytes: the body as sent, and the same after its content coding is undone.
        max_decoded_bytes: bytes decoded in memory at one time for one request. A tensor is held whole unless
            both formats stream; records are held one batch at a time.
        max_amplification: bytes that one byte of a body may become: inflated, decoded, stored or answered;
            any may become 64 MiB (`Amplification`), and anything compressed 1 MiB.
        max_json_depth: nesting of arrays and objects.
        max_npy_header_bytes: as in numpy (`numpy.lib.format`, max_header_size).
        max_members: arrays in one NPZ, tensors in one body, tiny members of one gzip body.
        max_features: features in one schema.
        max_name_bytes: UTF-8 bytes in the name of a feature or a tensor.
        max_record_bytes: one TFRecord payload that is held; TensorFlow parses protos below 2 GiB,
            and up to there a tensor streams.
        max_rows: rows in one body; lists of Arrow and tables of Java count no further.
        max_seconds: from the first byte of a conversion's request to the last of its answer.
    """

    max_body_bytes: int = 4096 * MIB
    max_decoded_bytes: int = 1024 * MIB
    max_amplification: int = 1100
    max_json_depth: int = 512
    max_npy_header_bytes: int = 10_000
    max_members: int = 10_000
    max_features: int = 10_000
    max_name_bytes: int = 4 * KIB
    max_record_bytes: int = 512 * MIB
    max_rows: int = 2**31 - 1
    max_seconds: float = 3600.0
