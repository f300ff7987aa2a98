"""How a TFRecord file is compressed as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

#: The names of `tf.io.TFRecordOptions`, in lower case.
Compression = Literal["none", "gzip", "zlib"]

#: How the name of a compressed shard ends; Spark and gunzip need that.
SUFFIXES: Final[Mapping[Compression, str]] = {"none": "", "gzip": ".gz", "zlib": ".zlib"}
