"""Names the processor that kernels are compiled for, then becomes the command; the image has no shell.

The build and every container must name the same, or numba passes over the kernels that the image holds.
x86-64-v2 has the CRC32C instruction, and every x86 server since 2011 is one. On other architectures kernels
are for the processor that builds; elsewhere they are compiled again, at each start.
"""

import os
import sys

if os.uname().machine == "x86_64":
    os.environ.setdefault("NUMBA_CPU_NAME", "x86-64-v2")
    os.environ.setdefault("NUMBA_CPU_FEATURES", "+crc32,+cx16,+popcnt,+sahf,+sse3,+sse4.1,+sse4.2,+ssse3")
os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  # the command of the container
