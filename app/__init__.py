"""Shardsmith: tensors in, TFRecord shards out, and back again, over plain HTTP."""

__version__ = "0.1.0"
