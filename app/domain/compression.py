"""How a TFRecord file is compressed as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

#: The names of `tf.io.TFRecordOptions`, in lower case.
Compression = Literal["none", "gzip", "zlib"]

#: What the name of a compressed shard ends with; Spark, gunzip and people go by it.
SUFFIXES: Final[Mapping[Compression, str]] = {"none": "", "gzip": ".gz", "zlib": ".zlib"}
