from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from app.codecs import kernels
from app.codecs.kernels import cache, crc32c
from app.codecs.kernels import compile as compiling
from app.codecs.kernels.messages import values

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"), reason="nothing is compiled"
)


def test_read_only_arrays_are_taken_like_writable_ones() -> None:
    data = np.arange(16, dtype=np.uint8)
    frozen = data.copy()
    frozen.flags.writeable = False
    extend = kernels.load().extend_crc
    assert extend(np.uint64(0), data, 0, 16) == extend(np.uint64(0), frozen, 0, 16)


def test_compiled_code_checks_its_bounds() -> None:
    data, kinds, spans = np.zeros(4, np.uint8), np.ones(2, np.uint8), np.array([2, 3])
    out, offsets = np.zeros(2, np.uint8), np.zeros(1, np.int64)
    with pytest.raises(IndexError):
        kernels.load().gather_spans(data, kinds, spans, spans + 1, out, offsets)
    with pytest.raises(IndexError):
        kernels.load().extend_crc(np.uint64(0), data, 0, 5)


def test_a_kernel_has_one_signature_and_is_never_compiled_again() -> None:
    with pytest.raises(TypeError, match="No matching definition"):
        kernels.load().extend_crc(np.uint64(0), np.zeros(1, np.int32), 0, 1)


def test_every_argument_of_a_kernel_has_a_type() -> None:
    def untyped(data: object) -> None:
        del data

    with pytest.raises(KeyError, match="object"):
        compiling.compiled(untyped)


@pytest.mark.parametrize(
    ("features", "host", "expected"),
    [
        (None, True, True),
        (None, False, False),
        ("", True, False),
        ("+avx,+crc32", True, True),
        ("+crc32", False, False),
    ],
)
def test_the_crc_instruction_is_used_only_where_the_target_has_it(
    features: str | None, host: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling._config, "CPU_FEATURES", features)
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: {"crc32": host})
    assert compiling.has_crc_instruction() is expected


def test_the_crc_is_the_same_without_the_instruction(tmp_path: Path) -> None:
    code = """
import json, numpy as np
from app.codecs.kernels import compile as compiling, crc32c
extend = compiling.compiled(crc32c.extend_crc)
data = np.arange(5000, dtype=np.int64).astype(np.uint8)
crcs = [int(extend(np.uint64(0), data, 0, size)) for size in (0, 1, 9, 100, 3071, 3072, 5000)]
print(json.dumps([compiling.has_crc_instruction(), crcs]))
"""
    environ = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ
    )
    has_instruction, crcs = json.loads(ran.stdout)
    assert not has_instruction
    data = np.arange(5000, dtype=np.int64).astype(np.uint8)
    sizes = (0, 1, 9, 100, 3071, 3072, 5000)
    assert crcs == [int(crc32c.crc32c(data, 0, size)) for size in sizes]


def test_numbas_own_folder_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling._config, "CACHE_DIR", "elsewhere")
    monkeypatch.setattr(cache, "writable_folder", lambda: None)
    kernel = compiling.compiled(values.gather_spans)
    out, offsets = np.zeros(1, np.uint8), np.zeros(2, np.int64)
    kernel(np.array([5, 6, 7], np.uint8), np.ones(1, np.uint8), np.array([1]), np.array([2]), out, offsets)
    assert (out.tolist(), offsets.tolist()) == ([6], [0, 1])
    assert compiling._config.CACHE_DIR == "elsewhere"
