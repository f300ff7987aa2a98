"""A process that reads foreign bytes with other people's code, bounded in memory and time.

It gets no setting and no credential of the service. It ends with the service, and the service ends it where
it does not answer in time. `limited_main.py` is its side.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import select
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from ..turns import waiting

_MAIN: Final = Path(__file__).with_name("limited_main.py")
#: What of the environment says how programs run; the rest may be secret.
_KEPT: Final = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR")
#: Of what the process says: what reads foreign bytes is not trusted with the memory of the service.
_MAX_ANSWER: Final = 1 << 20
_READ_BYTES: Final = 1 << 16


def open_shared() -> IO[bytes]:
    """A file without a name for memory of several processes, in memory where the system has such."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("shared", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def _keep_size(shared: IO[bytes]) -> None:
    """Fix the size of the file: a process that cut it off would end the other one by a signal."""
    if hasattr(os, "memfd_create"):
        fcntl.fcntl(shared, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


class ProcessEnded(Exception):
    """The process ended without an answer; the text says how."""


class LimitedProcess:
    """A running program that answers one request at a time.

    Args:
        program: a file of Python; see `limited_main.py`.
        memory_bytes: most that it may allocate, beside what it shares.
        shared_bytes: size of `memory`, which both sides see.
        descriptors: open files that it inherits.
    """

    def __init__(
        self,
        program: Path,
        arguments: Sequence[str] = (),
        *,
        memory_bytes: int,
        shared_bytes: int = 0,
        descriptors: Sequence[int] = (),
        environment: Mapping[str, str] = types.MappingProxyType({}),
    ) -> None:
        with open_shared() as shared:
            shared.truncate(shared_bytes)
            _keep_size(shared)
            self._shared = mmap.mmap(shared.fileno(), shared_bytes) if shared_bytes else None
            bounds = (str(memory_bytes), str(shared.fileno()), str(shared_bytes))
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                # Bytecode that it cached would end at its bound on files: what imports that afterwards fails.
                [sys.executable, "-I", "-B", str(_MAIN), str(program), *bounds, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _KEPT if name in os.environ}
                | dict(environment or {}),
                pass_fds=(shared.fileno(), *descriptors),
                start_new_session=True,  # a signal to the service ends it by way of the service
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def memory(self) -> mmap.mmap:
        """The memory that both sides see."""
        if self._shared is None:
            raise ValueError("the process shares no memory")
        return self._shared

    @property
    def process_id(self) -> int:
        return self._process.pid

    def wait_until_ready(self, within_s: float) -> None:
        """Wait for the program to be loaded.

        Raises:
            ProcessEnded: it was not, in that time.
        """
        self._read(within_s)

    def ask(self, request: object, within_s: float) -> Any:
        """What the program answers.

        Raises:
            ProcessEnded: nothing in that time; the process has been killed.
        """
        pipe = self._process.stdin
        assert pipe is not None  # noqa: S101  # it is a pipe; this is for the type
        with suppress(BrokenPipeError):  # it has ended, which reading tells
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
        return self._read(within_s)

    def _read(self, within_s: float) -> Any:
        with waiting():
            said = self._read_line(time.monotonic() + within_s)
        if not said.endswith(b"\n"):
            self._process.kill()
            status = self._process.wait()
            raise ProcessEnded(f"signal {-status}" if status < 0 else f"status {status}")
        return json.loads(said)

    def _read_line(self, until: float) -> bytes:
        """What it says up to the end of a line; less if it ends, says too much or takes too long."""
        pipe = self._process.stdout
        assert pipe is not None  # noqa: S101  # it is a pipe; this is for the type
        poller = select.poll()
        poller.register(pipe, select.POLLIN)
        said = b""
        while not said.endswith(b"\n") and len(said) < _MAX_ANSWER:
            left = until - time.monotonic()
            if left <= 0 or not poller.poll(left * 1000):
                break
            part = os.read(pipe.fileno(), _READ_BYTES)
            if not part:
                break
            said += part
        return said

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait()
        if self._shared is not None:
            with suppress(BufferError):  # something still views it, and lets go of it later
                self._shared.close()
