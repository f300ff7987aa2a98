"""TensorFlow's own reader of TFRecord files, in a process that is bounded in memory and time.

The process gets no setting and no credential of the service, and a file to read. TensorFlow is an extra:
`shardsmith[tensorflow]`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ..domain.compression import Compression
from ..domain.limits import MIB
from ..errors import Overloaded, UnprocessableInput
from ..runtime.processes.limited_process import LimitedProcess, ProcessEnded
from ..runtime.spool import Spool
from ..runtime.streams import ByteStream

_PROGRAM: Final = Path(__file__).with_name("tensorflow_process.py")
#: TensorFlow itself takes 500 MiB.
_MEMORY_BYTES: Final = 2048 * MIB
#: To import TensorFlow, which takes some 5 s; and for each file, beside what its size takes.
_PATIENCE_S: Final = 120.0
#: The slowest schemas are parsed at some 10 MiB/s.
_BYTES_PER_S: Final = MIB
_CHUNK_BYTES: Final = MIB
_QUIET: Final = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}

#: A process takes more memory than all else that the service does: there is one at a time.
_the_one = threading.Lock()


@dataclass(frozen=True, slots=True)
class Reading:
    """What TensorFlow reads of a file.

    Attributes:
        num_records: how many, or how many before the first that it cannot read or parse.
        fault: what it says of that one.
    """

    num_records: int
    fault: str | None


class TensorFlowReader:
    """Reads files, one after the other, as long as the context lasts.

    Args:
        source: Python that defines `parse`, which parses a record.
        compression: of all files.
        memory_bytes, patience_s: bounds of the process; `patience_s` is for each file.
    """

    def __init__(
        self,
        source: bytes,
        compression: Compression,
        spool: Spool,
        *,
        memory_bytes: int = _MEMORY_BYTES,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._source = source.decode()
        self._compression = compression
        self._spool = spool
        self._memory_bytes = memory_bytes
        self._patience_s = patience_s

    def __enter__(self) -> Self:
        """Start the process.

        Raises:
            Overloaded: there is one already.
            SpoolFull, SpoolUnavailable: there is no room for files.
            UnprocessableInput: TensorFlow is not installed (`tensorflow_missing`) or does not start
                (`tensorflow_failed`).
        """
        if find_spec("tensorflow") is None:
            raise UnprocessableInput(
                "TensorFlow is not installed beside this service. Leave out reader=tensorflow, or have the "
                "operator install shardsmith[tensorflow].",
                code="tensorflow_missing",
            )
        if not _the_one.acquire(blocking=False):
            raise Overloaded(
                "TensorFlow reads another version for this service. Try again later.", short="tensorflow"
            )
        try:
            self._file = self._spool.open()
            try:
                self._process = self._start()
            except BaseException:
                self._file.close()
                raise
        except BaseException:
            _the_one.release()
            raise
        try:
            self._process.wait_until_ready(self._patience_s)
            self._process.ask(self._source, self._patience_s)
        except ProcessEnded as ended:
            self._end()
            raise self._ended(ended, self._patience_s, "while it was started") from None
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def read(self, stream: ByteStream, name: str) -> Reading:
        """What TensorFlow reads of a file, which lies on the spool meanwhile.

        Raises:
            SpoolFull, SpoolUnavailable: there is no room for it.
            UnprocessableInput: the process came to no end within its bounds (`tensorflow_failed`).
        """
        while chunk := stream.read(_CHUNK_BYTES):
            self._file.append(chunk)
        try:
            within_s = self._patience_s + self._file.size / _BYTES_PER_S
            answer = self._process.ask(None, within_s)
        except ProcessEnded as ended:
            raise self._ended(ended, within_s, f"while it read {name}") from None
        finally:
            self._file.clear()
        return Reading(answer["num_records"], answer["fault"])

    def _start(self) -> LimitedProcess:
        descriptor = self._file.fileno()
        return LimitedProcess(
            _PROGRAM,
            (str(descriptor), self._compression),
            memory_bytes=self._memory_bytes,
            descriptors=(descriptor,),
            environment=_QUIET,
        )

    def _ended(self, ended: ProcessEnded, within_s: float, when: str) -> UnprocessableInput:
        return UnprocessableInput(
            f"TensorFlow's process ended {when} ({ended}). It may take {within_s:.0f} s and "
            f"{self._memory_bytes} bytes of memory. Leave out reader=tensorflow.",
            code="tensorflow_failed",
        )

    def _end(self) -> None:
        self._process.end()
        self._file.close()
        _the_one.release()
