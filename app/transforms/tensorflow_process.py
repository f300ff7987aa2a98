"""The program that reads shards with TensorFlow, run in a limited process by `tensorflow_reader.py`.

Its arguments are the descriptor of a file and the compression. The first request is Python source that
defines `parse`, which parses a record. Each further one, null, asks to read the file. It is answered with
`num_records`, those before the first that cannot be read, and `fault`, what TensorFlow says of that one, or
null.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

_KINDS: Final = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
_BATCH: Final = 1024
#: Which operation failed on which device: that says nothing about the record.
_NOISE: Final = re.compile(r"\{\{.*?\}\}\s*|\s*\[Op:.*|\s*\[\[.*", re.DOTALL)
_LONGEST: Final = 500

_state: dict[str, Any] = {}


def begin(arguments: list[str]) -> None:
    """Load TensorFlow."""
    import tensorflow as tf

    # One thread computes: the service beside it has work to do.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    descriptor, compression = arguments
    _state.update(tf=tf, path=f"/dev/fd/{descriptor}", compression=_KINDS[compression])


def answer(source: str | None, _: memoryview) -> dict[str, Any]:
    """Take over the source, or read the file."""
    if source is not None:
        exec(source, _state)  # noqa: S102  # ours, made from the schema
        return {}
    return read(_state["tf"], _state["parse"], _state["path"], _state["compression"])


def read(tf: Any, parse: Callable[[Any], Any], path: str, compression: str) -> dict[str, Any]:
    """Read and parse every record, up to the first that fails."""
    records = tf.data.TFRecordDataset(path, compression)
    done, fault = go_on(tf, parse, records, 0, _BATCH)
    if fault is not None:  # its batch is lost with it
        done, fault = go_on(tf, parse, records, done, 1)
    return {"num_records": done, "fault": fault}


def go_on(
    tf: Any, parse: Callable[[Any], Any], records: Any, done: int, batch_size: int
) -> tuple[int, str | None]:
    """Read on behind `done` records: how many there are then, and what failed."""
    rows = records.skip(done).map(parse).enumerate()
    try:
        for numbers in rows.map(lambda number, _: number).batch(batch_size):
            done += len(numbers)
    except tf.errors.ResourceExhaustedError:
        raise  # the limit is ours, and says nothing about the record
    except tf.errors.OpError as error:
        return done, _NOISE.sub("", error.message)[:_LONGEST]
    return done, None
