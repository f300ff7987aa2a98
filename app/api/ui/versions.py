"""The page of a version: its splits, shards and files, and how to load them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter

from ...domain.manifest import Manifest
from ...runtime.streams import ByteStream
from ...services.datasets.publish.progress import Progress
from ..base_url import base_url
from ..downloads.loader_lines import loader_lines, torch_lines
from ..execution.job import Answer, Job, Plan
from ..operation import Operation
from .features import MOST_SOURCE, describe_schema
from .rendering import page

router = APIRouter(include_in_schema=False, route_class=Operation)

#: Shards of a split that are listed.
_SHARDS: Final = 1_000
#: What the lines of `loader_lines` are for, as the page calls it, in its order.
_LOADERS: Final = {
    "tf.data": "tf.data",
    "tfds": "TFDS",
    "python": "Python",
    "download": "Download",
}


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all splits of a version."""

    num_records: int
    num_bytes: int
    num_shards: int


def totals_of(manifest: Manifest) -> Totals:
    """What the splits have together."""
    splits = manifest.splits.values()
    return Totals(
        sum(split.num_records for split in splits),
        sum(split.num_bytes for split in splits),
        sum(len(split.shards) for split in splits),
    )


@router.get("/ui/datasets/{dataset}/{version}")
@router.head("/ui/datasets/{dataset}/{version}")
def version_page(dataset: str, version: str) -> Plan:
    """A version; while it is being published, how far that is."""

    def work(job: Job, _: ByteStream) -> Answer:
        found = job.services.datasets.follow(dataset, version)
        values: dict[str, Any] = {"section": "datasets", "dataset": dataset}
        if isinstance(found, Progress):
            return page("publishing.html", job, {**values, "progress": found})
        lines = loader_lines(found, base_url(job.request))
        loaders = [(title, lines[name]) for name, title in _LOADERS.items() if name in lines]
        if (of_torch := torch_lines(found)) is not None:
            loaders.insert(1, ("PyTorch", of_torch))
        loaders = [(title, text) for title, text in loaders if len(text) <= MOST_SOURCE]
        values |= {
            "manifest": found,
            "is_latest": version == "latest",
            "totals": totals_of(found),
            "features": describe_schema(found.schema.features),
            "loaders": loaders,
            "most_shards": _SHARDS,
        }
        return page("version.html", job, values)

    return Plan(work, "metadata")
