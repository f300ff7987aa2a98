"""Zstandard: the module of Python 3.14, and before that its backport. Nothing else imports either.

Sources: RFC 8878; RFC 9659, which bounds the window of what is sent over HTTP. pyarrow has the codec as well,
but bounds no window, and does not say where a frame ends.
"""

from __future__ import annotations

import sys
from typing import Final

from ...domain.limits import MIB

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

ZstdError = zstd.ZstdError
FLUSH_BLOCK: Final = zstd.ZstdCompressor.FLUSH_BLOCK

#: RFC 9659: the largest window of the content coding, and so what reading it may take.
WINDOW_BYTES: Final = 8 * MIB
#: Twice as fast as gzip's fastest, and smaller, on rows as JSON.
_LEVEL: Final = 1


def compressor() -> zstd.ZstdCompressor:
    """Writes one frame, with a checksum; its window is 512 KiB."""
    parameter = zstd.CompressionParameter
    return zstd.ZstdCompressor(options={parameter.compression_level: _LEVEL, parameter.checksum_flag: 1})


def decompressor() -> zstd.ZstdDecompressor:
    """Reads one frame; refuses a larger window, and one that needs a dictionary."""
    window_log = WINDOW_BYTES.bit_length() - 1
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: window_log})
