"""What is freed does not stay with the process."""

import subprocess
import sys

import pytest

CODE = """
import os, threading
from app.allocator import return_large_blocks


assert return_large_blocks()
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
os.environ["MALLOC_MMAP_THRESHOLD_"] = "set"
assert not return_large_blocks()  # the operator's word
before = resident()
def work():
    for _ in range(3):
        blocks = [b"x" * (16 << 20) for _ in range(2)]
        del blocks
        keep.append(b"y" * 100_000)
keep = []
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print((resident() - before) >> 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_memory_freed_by_threads_is_returned() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 40


MANY = """
import os
from app.allocator import return_unused
import pyarrow

assert pyarrow.default_memory_pool().backend_name == "system"
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
kept, freed = [], []
for _ in range(1000):
    freed.append(b"x" * 100_000)
    kept.append(b"y" * 600)  # beside each block: the heap cannot shrink
before = resident()
del freed
return_unused()
print((before - resident()) >> 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's")
def test_blocks_between_others_are_given_back_when_asked() -> None:
    ran = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=True)
    assert int(ran.stdout) > 80
