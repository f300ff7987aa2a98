"""A campaign of hostile images against the decoder, as services call it: mutated real ones, by a seed.

Each must be decoded or refused with a reason. The script fails when a process that decodes takes more memory
or time than it may, when an image that nobody touched comes back wrong beside hostile ones, or when the
decoder raises anything else than it says.

Run: python -m tests.tools.hostile_images --images 100000 --seed 1
"""

from __future__ import annotations

import argparse
import io
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from PIL import Image

from app.codecs.images.decode import UINT8, UINT16, decoding_bytes, finish_image, prepare_image
from app.domain.limits import MIB
from app.errors import InputError
from app.runtime.budget import Budget
from app.runtime.images import EncodedImage, Refusal
from app.transforms.images.processes import ImageProcesses

BATCH = 64
#: The share of images of many pixels.
LARGE = 0.005
#: Of a process that decodes: its bound on data, what it shares, and its libraries.
MOST_RESIDENT = 1024 * MIB + 256 * MIB + 128 * MIB
#: Of a batch: most images take milliseconds, and those that are stopped two seconds or more.
LONGEST_BATCH_S = 180.0

Random = np.random.Generator


def seeds() -> list[bytes]:
    """Images of all formats and kinds: small ones made here, and photographs where there are some."""
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, (24, 32, 4), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(noise[:6, :8]).resize((64, 48), Image.Resampling.BICUBIC))
    found = []

    def save(pixels: np.ndarray[Any, Any], form: str, mode: str | None = None, **options: Any) -> None:
        file = io.BytesIO()
        image = Image.fromarray(pixels)
        (image.convert(mode) if mode else image).save(file, form, **options)
        found.append(file.getvalue())

    for pixels in (noise, smooth):
        for subsampling in (0, 1, 2):
            save(pixels[:, :, :3], "JPEG", quality=85, subsampling=subsampling)
        save(pixels[:, :, :3], "JPEG", progressive=True)
        save(pixels[:, :, :3], "JPEG", restart_marker_blocks=2, exif=b"Exif\0\0II*\0\x08\0\0\0\0\0")
        save(pixels[:, :, 0], "JPEG", progressive=True, optimize=True)
        save(pixels, "JPEG", "CMYK")
        for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
            save(pixels, "PNG", mode, compress_level=6)
        save(pixels[:, :, 0].astype(np.uint16) * 257, "PNG")
        for lossless in (False, True):
            for channels in (3, 4):
                save(pixels[:, :, :channels], "WEBP", lossless=lossless)
        save(pixels[:, :, :3], "GIF", "P")
        save(pixels[:, :, :3], "GIF", "P", transparency=3)
        for mode in ("L", "RGB", "RGBA"):
            save(pixels, "BMP", mode)
    return found + [path.read_bytes() for path in photographs()]


def bombs() -> list[bytes]:
    """Small files of many pixels."""
    found = []
    for form, options in (
        ("JPEG", {"progressive": True}),
        ("JPEG", {}),
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("GIF", {}),
    ):
        file = io.BytesIO()
        Image.new("L" if form == "GIF" else "RGB", (4000, 3000)).save(file, form, **options)
        found.append(file.getvalue())
    return found


def photographs() -> list[Path]:
    """Of packages that happen to be installed."""
    folders = [Path(folder) / "sklearn/datasets/images" for folder in sys.path]
    return sorted(path for folder in folders for path in folder.glob("*.jpg"))


def flip(data: bytearray, random: Random, _: list[bytes]) -> None:
    for at in random.integers(0, len(data), int(random.integers(1, 9))):
        data[at] ^= 1 << int(random.integers(8))


def overwrite(data: bytearray, random: Random, _: list[bytes]) -> None:
    at, size = int(random.integers(len(data))), int(random.integers(1, 17))
    data[at : at + size] = bytes([int(random.choice([0, 1, 127, 128, 254, 255]))]) * size


def cut(data: bytearray, random: Random, _: list[bytes]) -> None:
    del data[int(random.integers(len(data))) :]


def remove(data: bytearray, random: Random, _: list[bytes]) -> None:
    at = int(random.integers(len(data)))
    del data[at : at + int(random.integers(1, 64))]


def splice(data: bytearray, random: Random, others: list[bytes]) -> None:
    other = others[int(random.integers(len(others)))]
    begin = int(random.integers(len(other)))
    at = int(random.integers(len(data)))
    data[at:at] = other[begin : begin + int(random.integers(1, 2048))]


def repeat(data: bytearray, random: Random, _: list[bytes]) -> None:
    """A piece of it, many times: scans, frames, chunks, rows."""
    begin = int(random.integers(len(data)))
    size = int(random.integers(1, 4096))
    piece = bytes(data[begin : begin + size])
    data[begin:begin] = piece * int(random.integers(1, 1 + (1 << 16) // len(piece)))


def repeat_scan(data: bytearray, random: Random, _: list[bytes]) -> None:
    """The last scan of a JPEG, tens to thousands of times."""
    begin = data.rfind(b"\xff\xda")
    if begin >= 0:
        scan = bytes(data[begin : begin + int(random.integers(14, 64))])
        data[begin:begin] = scan * int(random.choice([10, 60, 70, 1000, 5000]))


def lie_about_length(data: bytearray, random: Random, _: list[bytes]) -> None:
    size = int(random.choice([2, 4]))
    at = int(random.integers(len(data)))
    number = int(random.choice([0, 1, 2, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF])) & ((1 << 8 * size) - 1)
    data[at : at + size] = number.to_bytes(size, "little" if random.integers(2) else "big")


def lie_about_size(data: bytearray, random: Random, _: list[bytes]) -> None:
    """The size in the header, and a PNG's checksum of it."""
    height, width = (int(size) for size in random.choice([1, 7, 300, 1000, 4000, 16383, 65535], 2))
    if data.startswith(b"\xff\xd8"):
        for marker in (b"\xff\xc0", b"\xff\xc2"):
            if (at := data.find(marker)) >= 0 and at + 9 <= len(data):
                struct.pack_into(">HH", data, at + 5, height, width)
    elif data.startswith(b"\x89PNG") and len(data) > 33:
        struct.pack_into(">II", data, 16, width, height)
        struct.pack_into(">I", data, 29, crc32(data[12:29]))
    elif data.startswith(b"GIF8") and len(data) > 10:
        struct.pack_into("<HH", data, 6, width, height)
        if (at := data.find(b",", 10)) >= 0 and at + 9 <= len(data):
            struct.pack_into("<HH", data, at + 5, width, height)
    elif data.startswith(b"BM") and len(data) > 26:
        struct.pack_into("<ii", data, 18, width, -height if random.integers(2) else height)
    elif data[12:15] == b"VP8" and len(data) > 30:
        struct.pack_into("<HH", data, 26, width & 0x3FFF, height & 0x3FFF)


#: With how often each is taken.
MUTATIONS: dict[Callable[[bytearray, Random, list[bytes]], None], float] = {
    flip: 0.35,
    overwrite: 0.15,
    cut: 0.08,
    remove: 0.07,
    splice: 0.12,
    repeat: 0.05,
    repeat_scan: 0.03,
    lie_about_length: 0.1,
    lie_about_size: 0.05,
}


def mutated(random: Random, originals: list[bytes], large: list[bytes]) -> bytes:
    """One of the images, after one to three mutations; seldom one of the large ones."""
    chosen = large if random.random() < LARGE else originals
    data = bytearray(chosen[int(random.integers(len(chosen)))])
    for index in random.choice(len(MUTATIONS), int(random.integers(1, 4)), p=list(MUTATIONS.values())):
        if data:
            list(MUTATIONS)[index](data, random, originals)
    return bytes(data)


@dataclass
class Findings:
    """What became of the images.

    Attributes:
        outcomes: how often, by the first words of the reason.
        most_resident: bytes of the largest process.
        replaced: processes that ended.
    """

    images: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    most_resident: int = 0
    replaced: int = 0


def attack(num_images: int, seed: int, report: Callable[[Findings], None] = lambda _: None) -> Findings:
    """Decode `num_images` mutated images, in batches with one that nobody touched."""
    random = np.random.default_rng(seed)
    originals, large = seeds(), bombs()
    findings = Findings()
    codecs = ImageProcesses()
    seen: set[int] = set()
    try:
        good = prepare_image(originals[0], 0, UINT8)
        (expected,) = codecs.decode([good])
        while findings.images < num_images:
            wanted = min(BATCH, num_images - findings.images)
            hostile = [mutated(random, originals, large) for _ in range(wanted)]
            _attack_once(hostile, good, expected, codecs, findings)
            running = set(codecs.process_ids)
            findings.replaced += len(seen - running)
            seen = running
            for process_id in running:
                findings.most_resident = max(findings.most_resident, _most_resident(process_id))
            if findings.most_resident > MOST_RESIDENT:
                raise AssertionError(f"a process took {findings.most_resident} bytes")
            report(findings)
    finally:
        codecs.close()
    return findings


def _attack_once(
    hostile: list[bytes], good: EncodedImage, expected: Any, codecs: ImageProcesses, findings: Findings
) -> None:
    images, dtypes = [good], [UINT8]
    budget = Budget()
    for index, data in enumerate(hostile):
        findings.images += 1
        dtype = UINT16 if index % 16 == 0 else UINT8
        try:
            image = prepare_image(data, (0, 3, 1, 4)[index % 4], dtype)
            budget.charge(decoding_bytes([image]), "An image")
        except InputError as error:
            if not error.code or not error.detail:
                raise AssertionError(f"{error!r} says nothing") from error
            findings.outcomes[error.code] += 1
            continue
        images.append(image)
        dtypes.append(dtype)
    begin = time.monotonic()
    found = codecs.decode(images)
    took = time.monotonic() - begin
    findings.longest_s = max(findings.longest_s, took)
    if took > LONGEST_BATCH_S:
        raise AssertionError(f"a batch took {took:.0f} s")
    if isinstance(found[0], Refusal) or not np.array_equal(found[0], expected):
        raise AssertionError("an image that nobody touched came back wrong")
    for image, dtype, one in zip(images[1:], dtypes[1:], found[1:], strict=True):
        if isinstance(one, Refusal):
            if not one.reason:
                raise AssertionError("an image is refused without a reason")
            findings.outcomes["stopped" if "more time or memory" in one.reason else "refused"] += 1
            continue
        pixels = finish_image(one, image.header, dtype)
        if pixels.shape[:2] != (image.header.height, image.header.width) or pixels.dtype != dtype.numpy:
            raise AssertionError(f"{image.header} was decoded to {pixels.dtype}{list(pixels.shape)}")
        findings.outcomes["decoded"] += 1


def _most_resident(process_id: int) -> int:
    try:
        status = Path(f"/proc/{process_id}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM")]
    return int(lines[0][1]) * 1024 if lines else 0


def main() -> None:
    """Run a campaign and print its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    begin = time.monotonic()

    def report(findings: Findings) -> None:
        if findings.images % (BATCH * 50) == 0 or findings.images == arguments.images:
            print(
                f"{findings.images} images, {time.monotonic() - begin:.0f} s: {dict(findings.outcomes)}; "
                f"longest batch {findings.longest_s:.1f} s, largest process "
                f"{findings.most_resident / MIB:.0f} MiB, {findings.replaced} replaced",
                flush=True,
            )

    attack(arguments.images, arguments.seed, report)


if __name__ == "__main__":
    main()
