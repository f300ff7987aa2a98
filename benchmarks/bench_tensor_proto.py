"""How fast are TensorProtos written and read, next to TensorFlow, in one run on one core?

Writing: the buffers that are sent (a header, kept for shapes seen before, and a view of the elements),
against `tf.io.serialize_tensor`, and against the same with `.numpy()`, which gives the bytes. Reading:
against `tf.io.parse_tensor`. The buffers are also joined into one, for the cost of a copy.
Run: python -m benchmarks.bench_tensor_proto
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.measure import Peer, Session, counted, main, pin_to_one_core

if __name__ == "__main__":
    pin_to_one_core()

import numpy as np
import tensorflow as tf

from app.codecs.array import Array
from app.codecs.messages.tensor_proto.read import parse_tensor_proto
from app.codecs.messages.tensor_proto.write import make_message
from app.domain.dtypes import FLOAT32
from app.domain.limits import MIB
from app.runtime.budget import Budget

SERIALIZE, TO_BYTES, PARSE = (
    "tf.io.serialize_tensor",
    "tf.io.serialize_tensor().numpy()",
    "tf.io.parse_tensor",
)


def measure_size(session: Session, size: str, num_bytes: int, repeats: int, target: float) -> None:
    array = np.random.default_rng(0).standard_normal(num_bytes // 4, np.float32)
    tensor, constant = Array.of(array, FLOAT32), tf.constant(array)
    message = b"".join(make_message(tensor))
    if message != tf.io.serialize_tensor(constant).numpy():
        raise AssertionError("not the bytes of TensorFlow")
    serialize = counted(lambda: tf.io.serialize_tensor(constant))
    to_bytes = counted(lambda: tf.io.serialize_tensor(constant).numpy())
    parse = counted(lambda: tf.io.parse_tensor(message, tf.float32))

    # Of 16 bytes a copy is nothing but the call of it.
    copied = num_bytes if num_bytes >= MIB else None

    def ask(question: str, how: str, ours: Callable[[], object], peers: list[Peer]) -> None:
        session.ask(
            question, f"{size}, {how}", "tensors", counted(ours), peers,
            num_bytes=copied, repeats=repeats, runs=21,
        )  # fmt: skip

    written = "Tensor to TensorProto"
    ask(
        written,
        "buffers to send",
        lambda: list(make_message(tensor)),
        [Peer(SERIALIZE, serialize, target), Peer(TO_BYTES, to_bytes, target)],
    )
    ask(written, "joined", lambda: b"".join(make_message(tensor)), [Peer(TO_BYTES, to_bytes)])
    read = "TensorProto to tensor"
    ask(read, "where it lies", lambda: parse_tensor_proto(message, Budget()), [Peer(PARSE, parse)])
    ask(read, "copied", lambda: parse_tensor_proto(message, Budget(), copy=True), [Peer(PARSE, parse)])


def measure(session: Session) -> None:
    if session.wants("32 MiB"):
        measure_size(session, "32 MiB", 32 * MIB, 1, 20)
    if session.wants("16 bytes"):
        measure_size(session, "16 bytes", 16, 500, 5)


if __name__ == "__main__":
    main(measure)
