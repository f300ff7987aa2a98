"""What runs in a limited process, as a script: it bounds itself, then answers by a program that it is given.

    limited_main.py PROGRAM MEMORY_BYTES SHARED_DESCRIPTOR SHARED_BYTES [ARGUMENT...]

PROGRAM is a file of Python that defines `answer(request, memory)`, and may define `begin(arguments)`, which
is called first. Requests and answers are lines of JSON on standard input and output; `memory` is what both
sides share. `{"ready": true}` is said before the first request is read.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import runpy
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

#: It has nothing to write; Python tries whether it can, as it looks for a folder for temporary files.
_FILE_BYTES: Final = 4096


def main() -> None:
    """Answer until standard input ends."""
    program, memory_bytes, descriptor, shared_bytes = sys.argv[1], *map(int, sys.argv[2:5])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    limit(memory_bytes)
    end_with_parent()
    shared = mmap.mmap(descriptor, shared_bytes) if shared_bytes else None
    memory = memoryview(shared or b"")
    names = runpy.run_path(program)  # noqa: TID251  # the process is limited
    if "begin" in names:
        names["begin"](sys.argv[5:])
    print('{"ready": true}', file=answers, flush=True)  # the answer, not the log
    while line := sys.stdin.readline():
        print(json.dumps(names["answer"](json.loads(line), memory)), file=answers, flush=True)


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
            time.sleep(1)  # noqa: TID251  # no turn is held here
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main()
