"""Images are decoded apart: what misbehaves is killed and replaced, and costs the others nothing."""

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.codecs.images.decode import UINT8, decoding_bytes, prepare_image
from app.codecs.images.header import read_header
from app.errors import Overloaded, UnprocessableInput
from app.runtime.images import EncodedImage, ImageHeader, Pixels, Refusal
from app.runtime.memory import MemoryPool
from app.runtime.processes.limited_process import LimitedProcess, ProcessEnded
from app.transforms.images.processes import ImageProcesses
from tests.support.waiting import wait_for
from tests.tools.hostile_images import attack

MIB = 1 << 20


@pytest.fixture
def codecs() -> Iterator[ImageProcesses]:
    codecs = ImageProcesses(shared_bytes=32 * MIB)
    yield codecs
    codecs.close()


def png(seed: int, height: int = 8, width: int = 9) -> tuple[np.ndarray[Any, Any], EncodedImage]:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    data = file.getvalue()
    return pixels, EncodedImage(data, read_header(data), 0)


#: Prints how much each decoding added to the memory of its process, at the peak.
MEASURE = """
import sys
from app.transforms.images import program
import PIL.Image, simplejpeg

def memory(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))

for path, form, channels, inverted, size in zip(*[iter(sys.argv[1:])] * 5):
    data = open(path, "rb").read()
    target = memoryview(bytearray(int(size)))
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    before = memory("VmRSS")
    if form == "jpeg" and inverted == "None":
        program._decode_jpeg(data, int(channels), target)
    else:
        program._DECODERS[form](data, int(channels), inverted == "True")
    print(memory("VmHWM") - before)
"""


def test_a_decoder_holds_no_more_than_is_charged_for(tmp_path: Path) -> None:
    pixels = np.kron(np.random.default_rng(1).integers(0, 256, (200, 250, 4), np.uint8), np.ones((8, 8, 1)))
    picture = Image.fromarray(pixels.astype(np.uint8))
    cases: list[tuple[str, str, int, dict[str, Any]]] = [
        ("RGB", "JPEG", 3, {}),
        ("RGB", "JPEG", 1, {"progressive": True, "subsampling": 0}),
        ("CMYK", "JPEG", 3, {}),
        ("CMYK", "JPEG", 3, {"progressive": True, "subsampling": 0}),
        ("P", "GIF", 0, {}),
        ("RGBA", "PNG", 1, {"compress_level": 1}),
        ("L", "PNG", 4, {"compress_level": 1}),
        ("RGBA", "WEBP", 0, {"method": 0}),
        ("RGB", "WEBP", 1, {"method": 0}),
        ("RGBA", "BMP", 1, {}),
    ]
    arguments, charged = [], []
    for index, (mode, form, channels, options) in enumerate(cases):
        path = tmp_path / f"{index}"
        picture.convert("RGB").convert(mode).save(path, form, **options)
        image = prepare_image(path.read_bytes(), channels, UINT8)
        header = image.header
        arguments += [str(path), header.format, str(channels), str(header.inverted), str(header.num_bytes)]
        shared = len(image.data) + header.num_bytes
        result = (
            0 if form == "JPEG" and mode == "RGB" else header.num_bytes
        )  # else decoded where it is shared
        charged.append(decoding_bytes([image]) - 2 * shared + result)
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE, *arguments], check=True, capture_output=True, text=True
    ).stdout.split()
    took = [int(peak) for peak in measured]
    assert len(took) == len(cases)
    for case, peak, allowed in zip(cases, took, charged, strict=True):
        assert peak <= allowed + MIB, case


def test_images_come_back_in_their_order(codecs: ImageProcesses) -> None:
    images = [png(seed, 1 + seed % 5, 1 + seed % 7) for seed in range(200)]
    for (pixels, _), found in zip(images, codecs.decode([image for _, image in images]), strict=True):
        assert not isinstance(found, Refusal)
        np.testing.assert_array_equal(found, pixels)
    assert codecs.decode([]) == []


def test_undecodable_image_is_refused_alone(codecs: ImageProcesses) -> None:
    pixels, image = png(0)
    broken = bytearray(image.data)
    at = broken.index(b"IDAT") + 6
    broken[at : at + 20] = bytes(20)
    found = codecs.decode([image, EncodedImage(bytes(broken), image.header, 0), image])
    assert isinstance(found[1], Refusal)
    for kept in (found[0], found[2]):
        assert np.array_equal(kept, pixels)  # type: ignore[arg-type]  # a refusal is not equal


def test_an_image_that_is_not_what_its_header_says_is_refused(codecs: ImageProcesses) -> None:
    _, image = png(0)
    for header in (ImageHeader("png", 9, 8, 3), ImageHeader("png", 8, 9, 3, depth=16)):
        (found,) = codecs.decode([EncodedImage(image.data, header, 0)])
        assert found == Refusal("it is not of the size or kind that its header says")
    (found,) = codecs.decode([EncodedImage(image.data, ImageHeader("png", 1, 1, 3), 0)])
    assert isinstance(found, Refusal)
    (found,) = codecs.decode([EncodedImage(image.data, ImageHeader("jpeg", 8, 9, 3), 3)])
    assert isinstance(found, Refusal)


def test_an_image_larger_than_what_is_shared_is_refused_undecoded(codecs: ImageProcesses) -> None:
    _, image = png(0)
    (found,) = codecs.decode([EncodedImage(image.data, ImageHeader("png", 1 << 12, 1 << 12, 3), 0)])
    assert isinstance(found, Refusal)
    assert found.is_limit
    assert f"at most {32 * MIB} bytes" in found.reason


def test_more_than_what_is_shared_is_decoded_in_parts(codecs: ImageProcesses) -> None:
    pixels, image = png(0, 1000, 1000)
    found = codecs.decode([image] * 12)
    assert all(np.array_equal(one, pixels) for one in found if not isinstance(one, Refusal))
    assert not any(isinstance(one, Refusal) for one in found)


def test_processes_killed_once_cost_no_image(codecs: ImageProcesses) -> None:
    images = [png(seed, 300, 300) for seed in range(60)]
    codecs.decode([images[0][1]] * 4)
    for wait_s in (0.0, 0.01, 0.03, 0.1):
        running = tuple(codecs._running)
        killers = [
            threading.Timer(wait_s, os.kill, (process.process_id, signal.SIGKILL)) for process in running
        ]
        for killer in killers:
            killer.start()
        found = codecs.decode([image for _, image in images])
        for killer in killers:
            killer.join()
        for one, (pixels, _) in zip(found, images, strict=True):
            assert not isinstance(one, Refusal)
            np.testing.assert_array_equal(one, pixels)


@pytest.mark.exhaustive
def test_processes_killed_again_and_again_give_no_wrong_answer(codecs: ImageProcesses) -> None:
    images = [png(seed) for seed in range(64)]
    codecs.decode([image for _, image in images])
    kills = 20

    def kill() -> None:
        pause = threading.Event()
        for _ in range(kills):
            pause.wait(0.02)
            wait_for(lambda: bool(codecs._running))
            with suppress(IndexError, ProcessLookupError):  # it has ended by itself
                os.kill(codecs.process_ids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    while killer.is_alive():
        found = codecs.decode([image for _, image in images])
        # An image whose process is killed twice is refused; nothing is ever wrong.
        assert 2 * sum(isinstance(one, Refusal) for one in found) <= kills
        for one, (pixels, _) in zip(found, images, strict=True):
            assert isinstance(one, Refusal) or np.array_equal(one, pixels)
    killer.join()
    for one, (pixels, _) in zip(codecs.decode([image for _, image in images]), images, strict=True):
        assert not isinstance(one, Refusal)
        np.testing.assert_array_equal(one, pixels)


def progressive(size: int) -> EncodedImage:
    file = io.BytesIO()
    Image.new("RGB", (size, size)).save(file, "JPEG", progressive=True)
    return EncodedImage(file.getvalue(), read_header(file.getvalue()), 3)


class NoTimeForLargeImages(ImageProcesses):
    """Waits not at all for what takes a MiB or more, and as long as anything takes for the rest."""

    def _within_s(self, num_bytes: int) -> float:
        return 0.0 if num_bytes >= MIB else 300.0


def test_an_image_that_takes_too_long_is_refused_and_the_others_are_not() -> None:
    codecs = NoTimeForLargeImages(1)
    try:
        pixels, image = png(0)
        kept, refused = codecs.decode([image, progressive(6000)])
        assert isinstance(refused, Refusal)
        assert "more time or memory" in refused.reason
        assert refused.is_limit
        assert np.array_equal(kept, pixels)  # type: ignore[arg-type]  # a refusal is not equal
    finally:
        codecs.close()


def test_memory_is_bounded() -> None:
    codecs = ImageProcesses(1, memory_bytes=160 * MIB)
    try:
        pixels, image = png(0)
        refused, kept = codecs.decode([progressive(6000), image])  # 216 MB of coefficients
        assert isinstance(refused, Refusal)
        assert np.array_equal(kept, pixels)  # type: ignore[arg-type]  # a refusal is not equal
    finally:
        codecs.close()


def test_pixels_are_encoded_in_their_order(codecs: ImageProcesses) -> None:
    images = [png(seed, 1 + seed % 5, 1 + seed % 7)[0] for seed in range(150)]
    for pixels, found in zip(images, codecs.encode([Pixels(one, "PNG", ()) for one in images]), strict=True):
        assert isinstance(found, bytes)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(found))), pixels)


def test_processes_end_with_the_codecs() -> None:
    codecs = ImageProcesses()
    codecs.decode([png(0)[1]] * 4)
    processes = tuple(codecs._running)
    assert processes
    codecs.close()
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process.process_id, 0)


def test_hostile_images_are_decoded_or_refused_and_nothing_else() -> None:
    """A short campaign; `python -m tests.tools.hostile_images` runs long ones."""
    findings = attack(2000, seed=2)
    assert findings.images == 2000 == findings.outcomes.total()
    # It reaches all of what can become of an image.
    for outcome in ("decoded", "refused", "not_an_image", "unsupported_image", "payload_too_large"):
        assert findings.outcomes[outcome] > 2


def test_a_progressive_jpeg_of_thousands_of_scans_is_refused_undecoded() -> None:
    data = bytes(progressive(4000).data)
    begin = data.rindex(b"\xff\xda")
    with pytest.raises(UnprocessableInput, match="scans"):
        read_header(data[:begin] + data[begin:-2] * 3000 + data[-2:])


def test_running_processes_are_counted_in_the_memory_of_the_service() -> None:
    pool = MemoryPool(256 * MIB)
    codecs = ImageProcesses(1, memory=pool)
    assert pool.used == 0  # nothing runs before the first image
    pixels, image = png(1)
    (found,) = codecs.decode([image])
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, pixels)
    running = pool.used
    assert running > 16 * MIB
    assert isinstance(codecs.decode([png(2)[1]])[0], np.ndarray)
    assert pool.used == running
    codecs.close()
    assert pool.used == 0


def test_a_process_cannot_cut_off_what_it_shares(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\n"
        "def answer(request, memory):\n"
        "    try:\n"
        "        os.ftruncate(int(sys.argv[3]), request)\n"
        "    except PermissionError:\n"
        "        return len(memory)\n"
    )
    with LimitedProcess(program, memory_bytes=1 << 30, shared_bytes=MIB) as process:
        process.wait_until_ready(30)
        assert process.ask(0, 30) == MIB
        assert len(process.memory[:]) == MIB


def test_a_process_that_says_too_much_or_half_a_line_is_ended(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, time\n"
        "def answer(request, memory):\n"
        "    if request == 'much':\n"
        "        return 'x' * (2 << 20)\n"
        "    answers = sys._getframe(1).f_locals['answers']\n"
        "    print('[1', end='', file=answers, flush=True)\n"
        "    time.sleep(60)\n"
    )
    for request, within_s in (("half", 0.5), ("much", 30)):
        with LimitedProcess(program, memory_bytes=1 << 30) as process:
            process.wait_until_ready(30)
            with pytest.raises(ProcessEnded, match="signal 9"):
                process.ask(request, within_s)


def test_without_memory_for_a_process_no_image_is_refused_for_it() -> None:
    pool = MemoryPool(256 * MIB)
    other = pool.share()
    other.charge(250 * MIB)
    codecs = ImageProcesses(1, memory=pool)
    with pytest.raises(Overloaded):
        codecs.decode([png(1)[1]])
    other.end()
    pixels, image = png(1)
    (found,) = codecs.decode([image])
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, pixels)
    codecs.close()


def test_process_that_does_not_start_is_overloaded() -> None:
    codecs = ImageProcesses(1, memory_bytes=1)
    with pytest.raises(Overloaded):
        codecs.decode([png(1)[1]])
    codecs.close()
