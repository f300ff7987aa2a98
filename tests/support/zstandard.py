"""Zstandard as tests write and read it: the module of Python 3.14, and before that its backport."""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
