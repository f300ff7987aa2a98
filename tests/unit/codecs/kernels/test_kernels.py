from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from app.codecs import kernels


def python(code: str, **environ: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environ},
    )
    return ran.stdout.strip()


def test_importing_the_kernels_imports_no_numba() -> None:
    code = (
        "import sys, app.codecs.messages.tfrecord; print('numba' in sys.modules, 'tensorflow' in sys.modules)"
    )
    assert python(code) == "False False"


def test_without_jit_the_plain_functions_are_the_kernels_and_numba_stays_away() -> None:
    code = (
        "import sys; from app.codecs import kernels; from app.codecs.kernels import crc32c;"
        "print(kernels.load().extend_crc is crc32c.extend_crc, 'numba' in sys.modules)"
    )
    assert python(code, NUMBA_DISABLE_JIT="1") == "True False"


def test_many_threads_load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.load()
    made: list[kernels.Kernels] = []
    monkeypatch.setattr(kernels, "_loaded", None)
    assert not kernels.is_loaded()

    def make() -> kernels.Kernels:
        made.append(kernels.Kernels(lambda function: function))
        return made[-1]

    monkeypatch.setattr(kernels, "_make", make)
    found: list[kernels.Kernels] = []
    threads = [threading.Thread(target=lambda: found.append(kernels.load())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert all(loaded is made[0] for loaded in found)
    assert kernels.is_loaded()
