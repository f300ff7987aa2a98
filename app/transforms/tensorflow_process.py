"""The process that reads shards with TensorFlow, run as a script by `tensorflow_reader.py`.

    tensorflow_process.py DESCRIPTOR COMPRESSION MEMORY_BYTES

The first line on standard input is a JSON string: Python source that defines `parse`, which parses a record.
`{}` answers it once TensorFlow is loaded. Each further line asks to read the file behind DESCRIPTOR. It is
answered with `num_records`, those before the first that cannot be read, and `fault`, what TensorFlow says of
that one, or null.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_KINDS: Final = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
_BATCH: Final = 1024
#: Which operation failed on which device: that says nothing about the record.
_NOISE: Final = re.compile(r"\{\{.*?\}\}\s*|\s*\[Op:.*|\s*\[\[.*", re.DOTALL)
_LONGEST: Final = 500
#: It has nothing to write; Python tries whether it can, as it looks for a folder for temporary files.
_FILE_BYTES: Final = 4096


def main() -> None:
    """Answer until standard input ends."""
    descriptor, compression, memory_bytes = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    limit(memory_bytes)
    end_with_parent()
    import tensorflow as tf

    # One thread computes: the service beside it has work to do.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    loader: dict[str, Any] = {}
    exec(json.loads(sys.stdin.readline()), loader)  # noqa: S102  # ours, made from the schema
    answer: dict[str, Any] = {}
    while True:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if not sys.stdin.readline():
            return
        answer = read(tf, loader["parse"], f"/dev/fd/{descriptor}", _KINDS[compression])


def limit(memory_bytes: int) -> None:
    """Bound what this process may take for bytes that nobody can trust."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
    with suppress(OSError):  # where the machine runs out of memory, this process ends and not the service
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def end_with_parent() -> None:
    """End when the service has ended: it is the one that bounds the time."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


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


if __name__ == "__main__":
    main()
