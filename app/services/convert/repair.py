"""A damaged TFRecord file: its good records, and what is lost between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from typing_extensions import TypedDict

from ...codecs.messages.salvage import good_frames
from ...domain.compression import Compression
from ...domain.losses import Losses, LossesJson
from ...runtime.budget import Budget
from ...runtime.streams import Buffer, ByteStream


class RepairJson(TypedDict):
    """What there is of a damaged TFRecord file, and what is lost."""

    num_records: int
    num_bytes: int
    lost: LossesJson


@dataclass(slots=True)
class Repair:
    """Good records, drawn as they are found; what is counted is final once all are drawn.

    Attributes:
        chunks: the records, framed as they were: a TFRecord file.
        num_bytes: of these.
    """

    chunks: Iterator[Buffer]
    losses: Losses = field(default_factory=Losses)
    num_records: int = 0
    num_bytes: int = 0

    def to_json(self) -> RepairJson:
        return {
            "num_records": self.num_records,
            "num_bytes": self.num_bytes,
            "lost": self.losses.to_json(),
        }


def repair_records(source: ByteStream, compression: Compression | None, budget: Budget) -> Repair:
    """The good records of a TFRecord file.

    Args:
        compression: of the file; None detects it.

    Raises:
        InputError: as `salvage_frames`, as the records are drawn.
    """
    repair = Repair(iter(()))
    repair.chunks = _read_good_frames(repair, source, compression, budget)
    return repair


def _read_good_frames(
    repair: Repair, source: ByteStream, compression: Compression | None, budget: Budget
) -> Iterator[Buffer]:
    for block in good_frames(source, budget, repair.losses, compression=compression):
        repair.num_records += block.num_records
        repair.num_bytes += len(block.data)
        yield block.data
