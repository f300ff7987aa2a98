"""Decoding and encoding images in limited processes: a few, started when they are first needed, and kept.

There is a thread for each process. It converts the pixels where they were decoded, in the memory shared
with the process, and has the same process encode what came of them.

A process that dies or takes too long is killed and replaced. The images it had are then tried one by one,
so that one of them costs the others nothing; one that ends two processes is refused.
"""

from __future__ import annotations

import mmap
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any, Final

import numpy as np

from ...codecs.content import content_view
from ...domain.limits import MIB
from ...errors import Overloaded
from ...runtime.images import Converted, EncodedImage, Image, Pixels, Refusal
from ...runtime.memory import MemoryPool, MemoryShare
from ...runtime.processes.limited_process import LimitedProcess, ProcessEnded
from ...runtime.threads import Threads
from ...runtime.turns import offer_turn, turns_of_helpers, waiting
from ...telemetry.metrics import IMAGE_PROCESS_ENDS

_PROGRAM: Final = Path(__file__).with_name("program.py")
_PROCESSES: Final = 2
#: Beside what it shares: libraries take 100 MiB, and a progressive JPEG some 12 bytes a pixel.
_MEMORY_BYTES: Final = 1024 * MIB
#: What one request holds of encoded and decoded images: one of 60 megapixels, or many small ones.
_SHARED_BYTES: Final = 256 * MIB
#: Pages that a larger request has touched are given back after it.
_KEPT_BYTES: Final = 16 * MIB
#: What a process holds from its start to its end: its own, and the pages that it shares.
_PROCESS_BYTES: Final = 24 * MIB + _KEPT_BYTES
#: Have it reuse what it frees, up to 4 MiB: glibc would give back the memory of each image, and take new.
_ENVIRONMENT: Final = {"MALLOC_MMAP_THRESHOLD_": str(4 * MIB), "MALLOC_TRIM_THRESHOLD_": str(4 * MIB)}
_START_S: Final = 30.0
#: Attempts to start a process; what keeps one from starting is no fault of an image.
_STARTS: Final = 3
_FREE_WITHIN_S: Final = 30.0
#: For each request, and for the bytes that it decodes to: a tenth of what a slow machine does.
_PATIENCE_S: Final = 2.0
_BYTES_PER_S: Final = 4 * MIB
#: Images of one request.
_MAX_IMAGES: Final = 64
_ALIGNMENT: Final = 64

#: Makes something of each image, or says why not.
Work = Callable[[Sequence[Any]], list[Any]]
Convert = Callable[[EncodedImage, Image], Converted | Pixels]
#: Gives a thread its turn to compute.
Turn = Callable[[], AbstractContextManager[None]]


class ImageProcesses:
    """The `ImageCodecs` of the service, for all of its requests. Nothing is started before the first image.

    Args:
        processes: most that run at a time.
        memory: of the service; each process takes its part of it. Images are charged by who decodes them.
        memory_bytes, shared_bytes: bounds of each.
        patience_s, bytes_per_s: what a request to it may take: so long, and its bytes at that rate.
    """

    def __init__(
        self,
        processes: int = _PROCESSES,
        *,
        memory: MemoryPool | None = None,
        memory_bytes: int = _MEMORY_BYTES,
        shared_bytes: int = _SHARED_BYTES,
        patience_s: float = _PATIENCE_S,
        bytes_per_s: float = _BYTES_PER_S,
    ) -> None:
        self._memory = memory
        self._memory_bytes = memory_bytes
        self._shared_bytes = shared_bytes
        self._patience_s = patience_s
        self._bytes_per_s = bytes_per_s
        self._lock = threading.Lock()
        #: What each running process holds of the memory.
        self._running: dict[LimitedProcess, MemoryShare | None] = {}
        #: A place for each process; None where it is yet to be started.
        self._free: LifoQueue[LimitedProcess | None] = LifoQueue()
        for _ in range(processes):
            self._free.put(None)
        self._threads = Threads(processes, thread_name_prefix="images")

    @property
    def num_idle(self) -> int:
        """Processes that run and have nothing to do."""
        return sum(process is not None for process in list(self._free.queue))

    @property
    def process_ids(self) -> list[int]:
        """Of the processes that run now."""
        return [process.process_id for process in list(self._running)]

    def close(self) -> None:
        """End all processes."""
        self._threads.shutdown()
        for process in list(self._running):
            self._end(process)

    def decode(self, images: Sequence[EncodedImage]) -> list[Image | Refusal]:
        """The images, decoded.

        Raises:
            Overloaded: no process came free in time.
        """
        return self._decode_all(images, _copy, nullcontext)  # type: ignore[return-value]  # copies are kept

    def encode(self, images: Sequence[Pixels]) -> list[bytes | Refusal]:
        """The images, encoded.

        Raises:
            Overloaded: no process came free in time.
        """
        return self._try_all(images, self._encode)

    def start_decoding(
        self, images: Sequence[EncodedImage], convert: Convert[Converted]
    ) -> Future[list[Converted | bytes | Refusal]]:
        """As `ImageCodecs.start_decoding`."""
        return self._threads.submit(self._decode_all, images, convert, turns_of_helpers())

    def start_encoding(self, images: Sequence[Pixels]) -> Future[list[bytes | Refusal]]:
        """As `ImageCodecs.start_encoding`."""
        return self._threads.submit(self.encode, images)

    def _decode_all(
        self, images: Sequence[EncodedImage], convert: Convert[Converted], turn: Turn
    ) -> list[Converted | bytes | Refusal]:
        return self._try_all(images, partial(self._decode, convert=convert, turn=turn))

    def _try_all(self, images: Sequence[Any], work: Work) -> list[Any]:
        return [result for part in self._parts(images) for result in self._try(part, work)]

    def _parts(self, images: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Parts that fit into what is shared."""
        begin, size = 0, 0
        for index, image in enumerate(images):
            needed = _shared_size(image)
            if index > begin and (index - begin >= _MAX_IMAGES or size + needed > self._shared_bytes):
                yield images[begin:index]
                begin, size = index, 0
            size += needed
        if begin < len(images):
            yield images[begin:]

    def _try(self, images: Sequence[Any], work: Work, tries: int = 2) -> list[Any]:
        try:
            return work(images)
        except ProcessEnded as ended:
            if len(images) > 1:
                return [result for image in images for result in self._try([image], work)]
            if tries > 1:
                return self._try(images, work, tries - 1)
            return [self._stopped(images[0], ended)]

    def _is_too_large(self, images: Sequence[EncodedImage | Pixels]) -> bool:
        return len(images) == 1 and _shared_size(images[0]) > self._shared_bytes

    def _too_large(self, *, was_encoded: bool = False) -> Refusal:
        most = f"at most {self._shared_bytes} bytes of an image are worked on, encoded and decoded together"
        return Refusal(most, was_encoded, is_limit=True)

    def _stopped(self, image: EncodedImage | Pixels, ended: ProcessEnded) -> Refusal:
        seconds, memory = self._within_s(_shared_size(image)), self._memory_bytes // MIB
        reason = (
            f"it takes more time or memory than an image may take, {seconds:.3g} s and {memory} MiB ({ended})"
        )
        return Refusal(reason, isinstance(image, Pixels), is_limit=True)

    @contextmanager
    def _process(self) -> Iterator[LimitedProcess]:
        """A process of this thread's own, which is replaced if it ends."""
        try:
            with waiting():
                process = self._free.get(timeout=_FREE_WITHIN_S)
        except Empty:
            raise Overloaded(
                "All processes that decode images are busy. Try again later.", short="images"
            ) from None
        try:
            if process is None:
                process = self._start()
            yield process
        except BaseException:
            if process is not None:
                self._end(process)
                IMAGE_PROCESS_ENDS.inc()
            process = None
            raise
        finally:
            self._free.put(process)

    def _start(self) -> LimitedProcess:
        """A new process.

        Raises:
            Overloaded: there is no memory for it, or it does not start.
        """
        for _ in range(_STARTS):
            share = None
            if self._memory is not None:
                share = self._memory.share()
                share.reserve(_PROCESS_BYTES)
            try:
                process = self._launch()
            except (OSError, ProcessEnded):
                if share is not None:
                    share.end()
                continue
            with self._lock:
                self._running[process] = share
            return process
        raise Overloaded("A process that decodes images does not start. Try again later.", short="images")

    def _launch(self) -> LimitedProcess:
        process = LimitedProcess(
            _PROGRAM,
            memory_bytes=self._memory_bytes,
            shared_bytes=self._shared_bytes,
            environment=_ENVIRONMENT,
        )
        try:
            process.wait_until_ready(_START_S)
        except BaseException:
            process.end()
            raise
        return process

    def _end(self, process: LimitedProcess) -> None:
        process.end()
        with self._lock:
            share = self._running.pop(process, None)
        if share is not None:
            share.end()

    def _within_s(self, num_bytes: int) -> float:
        return self._patience_s + num_bytes / self._bytes_per_s

    def _decode(
        self, images: Sequence[EncodedImage], convert: Convert[Converted], turn: Turn
    ) -> list[Converted | bytes | Refusal]:
        if self._is_too_large(images):
            return [self._too_large()]
        with self._process() as process:
            found = self._ask_to_decode(process, images, convert, turn)
            pixels = [one for one in found if isinstance(one, Pixels)]
            parts = [self._ask_to_encode(process, part) for part in self._parts(pixels)]
            encoded = chain.from_iterable(parts)
            return [next(encoded) if isinstance(one, Pixels) else one for one in found]

    def _ask_to_decode(
        self,
        process: LimitedProcess,
        images: Sequence[EncodedImage],
        convert: Convert[Converted],
        turn: Turn,
    ) -> list[Converted | Pixels | Refusal]:
        memory, items, at = process.memory, [], 0
        for image in images:
            memory[at : at + len(image.data)] = image.data
            target = _aligned(at + len(image.data))
            header, room = image.header, image.header.num_bytes
            kind = (header.format, image.channels, header.inverted)
            items.append((at, len(image.data), target, room, *kind))
            at = _aligned(target + room)
        answers = process.ask(("decode", items), self._within_s(at))
        converted: list[Converted | Pixels | Refusal] = []
        with turn():
            for image, item, answer in zip(images, items, answers, strict=True):
                offer_turn()
                found = _found_image(memory, image, item[2], answer)
                converted.append(found if isinstance(found, Refusal) else convert(image, found))
        _give_back(memory, at)
        return converted

    def _encode(self, images: Sequence[Pixels]) -> list[bytes | Refusal]:
        with self._process() as process:
            return self._ask_to_encode(process, images)

    def _ask_to_encode(self, process: LimitedProcess, images: Sequence[Pixels]) -> list[bytes | Refusal]:
        if self._is_too_large(images):
            return [self._too_large(was_encoded=True)]
        memory, items, at = process.memory, [], 0
        for pixels in images:
            image = np.ascontiguousarray(pixels.image)
            memory[at : at + image.nbytes] = content_view(image)
            target, room = _aligned(at + image.nbytes), _room(image)
            shape, dtype = image.shape, image.dtype.name
            items.append((at, dtype, shape, target, room, pixels.format, dict(pixels.options)))
            at = _aligned(target + room)
        answers = process.ask(("encode", items), self._within_s(at))
        found = [
            _found_bytes(memory, item[3], item[4], answer)
            for item, answer in zip(items, answers, strict=True)
        ]
        _give_back(memory, at)
        return found


def _copy(_: EncodedImage, image: Image) -> Image:
    return image.copy()


def _aligned(at: int) -> int:
    return -(-at // _ALIGNMENT) * _ALIGNMENT


def _room(image: Image) -> int:
    """Bytes that an encoded image takes at most: more than its pixels, where they are noise."""
    return 2 * int(image.nbytes) + 4096


def _shared_size(image: EncodedImage | Pixels) -> int:
    if isinstance(image, Pixels):
        return int(image.image.nbytes) + _room(image.image) + 2 * _ALIGNMENT
    return len(image.data) + image.header.num_bytes + 2 * _ALIGNMENT


def _found_image(memory: mmap.mmap, image: EncodedImage, at: int, answer: Any) -> Image | Refusal:
    """What was decoded, where it lies; it is checked, because what decodes foreign bytes is not trusted."""
    if isinstance(answer, str):
        return Refusal(answer)
    header = image.header
    (height, width, channels), dtype = answer
    size = height * width * channels
    if (
        (height, width) != (header.height, header.width)
        or channels not in (1, 2, 3, 4)
        or dtype != ("uint16" if header.depth == 16 else "uint8")
        or (image.channels and channels != image.channels)
    ):
        return Refusal("it is not of the size or kind that its header says")
    return np.frombuffer(memory, dtype, size, at).reshape(height, width, channels)


def _found_bytes(memory: mmap.mmap, at: int, room: int, answer: Any) -> bytes | Refusal:
    if isinstance(answer, str) or not 0 <= answer <= room:
        return Refusal(str(answer), was_encoded=True)
    return memory[at : at + answer]


def _give_back(memory: mmap.mmap, used: int) -> None:
    """Pages of a large request, which would otherwise stay in memory."""
    if used > _KEPT_BYTES and sys.platform == "linux":
        memory.madvise(mmap.MADV_REMOVE, _KEPT_BYTES, used - _KEPT_BYTES)
