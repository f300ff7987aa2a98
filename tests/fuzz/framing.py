"""Frames for payloads that the fuzzer has changed: lengths and checksums that are right again.

Without them hardly any change of a framed body gets past the first check. A payload is cut off by a length
of two bytes in front of it; what is left behind the last one is a payload as well.
"""

from __future__ import annotations

import base64
import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.codecs.forms import FormName
from tests.support.tfrecord_frames import frame

__all__ = ["FRAMINGS", "Framing", "join", "split"]

_PARQUET_MAGIC: Final = b"PAR1"
#: A date, without which the archive would be another one each time.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def split(data: bytes) -> list[bytes]:
    """The payloads of an input."""
    payloads = []
    while data:
        size = int.from_bytes(data[:2], "little")
        payloads.append(data[2 : 2 + size])
        data = data[2 + size :]
    return payloads


def join(payloads: Sequence[bytes]) -> bytes:
    """The input that is split into `payloads`."""
    return b"".join(struct.pack("<H", len(payload)) + payload for payload in payloads)


def _frame_tfrecord(payloads: Sequence[bytes]) -> bytes:
    return b"".join(map(frame, payloads))


def _tfrecord_payloads(body: bytes) -> Iterator[bytes]:
    while body:
        size = int.from_bytes(body[:8], "little")
        yield body[12 : 12 + size]
        body = body[16 + size :]


def _frame_b64(payloads: Sequence[bytes]) -> bytes:
    messages = [{"b64": base64.b64encode(payload).decode()} for payload in payloads]
    return json.dumps({"instances": messages}).encode()


def _b64_payloads(body: bytes) -> Iterator[bytes]:
    value = json.loads(body)
    for message in value.get("instances", [value]):
        yield base64.b64decode(message["b64"])


def _frame_npz(payloads: Sequence[bytes]) -> bytes:
    """Two payloads are an array's name and its NPY; every other array is deflated."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")  # a name that stands twice is for the decoder to refuse
        for index, (name, content) in enumerate(zip(payloads[::2], payloads[1::2], strict=False)):
            info = zipfile.ZipInfo(name[:64].decode("utf-8", "replace") + ".npy", _EPOCH)
            archive.writestr(info, content, zipfile.ZIP_DEFLATED if index % 2 else zipfile.ZIP_STORED)
    return out.getvalue()


def _npz_payloads(body: bytes) -> Iterator[bytes]:
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        for info in archive.infolist():
            yield info.filename.removesuffix(".npy").encode()
            yield archive.read(info)


def _frame_parquet(payloads: Sequence[bytes]) -> bytes:
    """The pages, then the footer."""
    pages, footer = b"".join(payloads[:-1]), b"".join(payloads[-1:])
    return _PARQUET_MAGIC + pages + footer + struct.pack("<I", len(footer)) + _PARQUET_MAGIC


def _parquet_payloads(body: bytes) -> Iterator[bytes]:
    (size,) = struct.unpack("<I", body[-8:-4])
    yield body[4 : -8 - size]
    yield body[-8 - size : -8]


def _frame_safetensors(payloads: Sequence[bytes]) -> bytes:
    """The header, then the content of all tensors."""
    header = b"".join(payloads[:1])
    return struct.pack("<Q", len(header)) + header + b"".join(payloads[1:])


def _safetensors_payloads(body: bytes) -> Iterator[bytes]:
    (size,) = struct.unpack("<Q", body[:8])
    yield body[8 : 8 + size]
    yield body[8 + size :]


def _frame_tar(payloads: Sequence[bytes]) -> bytes:
    """Two payloads are a header, of which the checksum is made right, and a content."""
    out = bytearray()
    for header, content in zip(payloads[::2], payloads[1::2], strict=False):
        block = bytearray(header[:512].ljust(512, b"\0"))
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
        out += block + content + bytes(-len(content) % 512)
    return bytes(out) + bytes(1024)


def _tar_payloads(body: bytes) -> Iterator[bytes]:
    while body[0]:
        size = int(body[124:135], 8)
        yield body[:512].rstrip(b"\0")
        yield body[512 : 512 + size]
        body = body[512 + size + -size % 512 :]


@dataclass(frozen=True, slots=True)
class Framing:
    """One way to frame payloads, and to find them in a body again."""

    frame: Callable[[Sequence[bytes]], bytes]
    payloads: Callable[[bytes], Iterator[bytes]]

    def body_of(self, data: bytes) -> bytes:
        """The body that an input stands for."""
        return self.frame(split(data))

    def input_of(self, body: bytes) -> bytes:
        """The input that stands for a body."""
        return join(list(self.payloads(body)))


#: By the name of the form.
FRAMINGS: Final[dict[FormName, Framing]] = {
    "tfrecord": Framing(_frame_tfrecord, _tfrecord_payloads),
    "b64": Framing(_frame_b64, _b64_payloads),
    "npz": Framing(_frame_npz, _npz_payloads),
    "tar": Framing(_frame_tar, _tar_payloads),
    "parquet": Framing(_frame_parquet, _parquet_payloads),
    "safetensors": Framing(_frame_safetensors, _safetensors_payloads),
}
