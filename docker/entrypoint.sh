#!/bin/sh
# Names the processor that kernels are compiled for, then becomes the command. The build and every
# container must agree on it, or numba passes over the kernels compiled into the image.
# x86-64-v2 has the CRC32C instruction; other architectures compile for the processor at hand.
set -eu
if [ "$(uname -m)" = x86_64 ]; then
    export NUMBA_CPU_NAME="${NUMBA_CPU_NAME:-x86-64-v2}"
    export NUMBA_CPU_FEATURES="${NUMBA_CPU_FEATURES:-+crc32,+cx16,+popcnt,+sahf,+sse3,+sse4.1,+sse4.2,+ssse3}"
fi
exec "$@"
