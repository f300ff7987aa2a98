"""Whether bytes are UTF-8."""

from __future__ import annotations

from .memory import Bytes


def valid_utf8(data: Bytes, begin: int, end: int) -> bool:
    """Whether `data[begin:end]` is well-formed by table 3-7 of the Unicode standard."""
    position = begin
    while position < end:
        lead = int(data[position])
        position += 1
        if lead < 0x80:
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        more = 1 if lead < 0xE0 else (2 if lead < 0xF0 else 3)
        if end - position < more:
            return False
        low = 0xA0 if lead == 0xE0 else (0x90 if lead == 0xF0 else 0x80)
        high = 0x9F if lead == 0xED else (0x8F if lead == 0xF4 else 0xBF)
        for _ in range(more):
            if data[position] < low or data[position] > high:
                return False
            low = 0x80
            high = 0xBF
            position += 1
    return True
