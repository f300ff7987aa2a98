"""How fast are Examples written and read, next to the package `tfrecord`, which needs no TensorFlow?

The rows of `bench_example`. Apart from it, because one process cannot hold both: each brings the same protos.
The files of the peer lie in memory where there is /dev/shm.
Run: python -m benchmarks.bench_tfrecord_package [part of a case's name]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.measure import Peer, Session, drained, main, memory_folder, pin_to_one_core

if __name__ == "__main__":
    pin_to_one_core()

import numpy as np
import tfrecord

from app.codecs import kernels
from benchmarks.example_rows import Case, cases, read, write


def described(values: Any) -> tuple[Any, str]:
    """A value and its type, as the package takes them."""
    if isinstance(values, bytes):
        return values, "byte"
    if values.ndim > 1:
        return values.tobytes(), "byte"
    return np.atleast_1d(values), "float" if values.dtype.kind == "f" else "int"


def write_file(case: Case, path: Path) -> int:
    writer = tfrecord.TFRecordWriter(str(path))
    for row in case.peer_columns():
        writer.write({name: described(values) for name, values in row.items()})
    writer.close()
    return case.num_peer_rows


def load_file(path: Path, num_rows: int) -> int:
    return drained(tfrecord.tfrecord_loader(str(path), None), num_rows)


def measure_case(session: Session, case: Case, folder: Path) -> None:
    batches, path, loaded = case.batches(), folder / "written", folder / "loaded"
    data = b"".join(write(case, batches))
    write_file(case, loaded)
    session.ask(
        "Rows to TFRecord",
        case.name,
        "rows",
        lambda: drained(write(case, batches), case.num_rows),
        [Peer("tfrecord.TFRecordWriter from columns", lambda: write_file(case, path))],
        num_bytes=len(data),
    )
    session.ask(
        "TFRecord to rows",
        case.name,
        "rows",
        lambda: read(case, data),
        [Peer("tfrecord.tfrecord_loader", lambda: load_file(loaded, case.num_peer_rows))],
        num_bytes=len(data),
    )


def measure(session: Session) -> None:
    kernels.compile_all()
    with memory_folder() as folder:
        for case in cases():
            if session.wants(case.name):
                measure_case(session, case, folder)


if __name__ == "__main__":
    main(measure)
