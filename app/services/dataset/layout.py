"""The names of all objects of a dataset, in one place.

| object                                    | written | holds                                              |
|-------------------------------------------|---------|----------------------------------------------------|
| `<d>/_gen/<g>.json`                       | once    | incarnation g: options, first schema               |
| `<d>/_gen/<g>.end`                        | once    | it was deleted                                     |
| `<d>/_g<g>/schema/<k>.json`               | once    | the schema; k is dense from 1, each widens the last |
| `<d>/_g<g>/slots/<h>/<id>`                | once    | the fate of one append; h is the first digit of id |
| `<d>/_g<g>/parts/<id>/<attempt>/<k>`      | put     | record bytes of one attempt                        |
| `<d>/_g<g>/log/<n>.plan`                  | once    | what version n will hold; n is dense from 1        |
| `<d>/_g<g>/log/<n>.<nonce>.inputs` `.seen`| put     | named by the plan; also `.dealt`                   |
| `<d>/_g<g>/log/<n>.done/<shard>`          | put     | that a shard is written, its size, count, SHA-256  |
| `<d>/_g<g>/log/hint`                      | put     | some published n                                   |
| `<d>/<version>/<file>`                    | put     | shards and the files beside them                   |
| `<d>/<version>/_manifest.json`            | once    | the publication, or why it was aborted             |
| `<d>/<version>/_deleted.json`             | once    | the version was deleted                            |
| `_probe/<nonce>`                          | put     | nothing for long: tries the store, tells its time  |

Those written once carry their writer's nonce and are never overwritten. The others have a nonce in
their names, or bytes that an object written once determines, or are hints: whoever writes one late
can only repeat it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...domain.names import Version

__all__ = ["DATASET_INFO", "FEATURES", "INDEX", "MANIFEST", "PBTXT", "Layout", "media_type"]

FEATURES: Final = "features.json"
PBTXT: Final = "schema.pbtxt"
#: The pieces of every shard, so that a range of records is found without reading from the beginning.
INDEX: Final = "_index.json"
#: Written after the manifest, so that TFDS sees published versions only.
DATASET_INFO: Final = "dataset_info.json"
#: The publication itself.
MANIFEST: Final = "_manifest.json"

_SHARD_TYPE: Final = "application/x-tfrecord"
_SIDE_FILE_TYPES: Final = {".json": "application/json", ".pbtxt": "text/plain; charset=utf-8"}


def media_type(file: str) -> str:
    """The media type of a file of a version: of a side file by its ending, else of a shard."""
    return _SIDE_FILE_TYPES.get(file[file.rfind(".") :], _SHARD_TYPE)


@dataclass(frozen=True, slots=True)
class Layout:
    """The objects of one incarnation of one dataset."""

    dataset: str
    generation: int

    @property
    def _own(self) -> str:
        return f"{self.dataset}/_g{self.generation}"

    @property
    def incarnation(self) -> str:
        return f"{self.dataset}/_gen/{self.generation}.json"

    @property
    def end(self) -> str:
        return f"{self.dataset}/_gen/{self.generation}.end"

    def schema(self, k: int) -> str:
        return f"{self._own}/schema/{k}.json"

    def slots(self, first_digit: str) -> str:
        return f"{self._own}/slots/{first_digit}"

    def slot(self, append_id: str) -> str:
        return f"{self.slots(append_id[0])}/{append_id}"

    def part(self, append_id: str, attempt: str, index: int) -> str:
        return f"{self._own}/parts/{append_id}/{attempt}/{index}"

    def plan(self, n: int) -> str:
        return f"{self._own}/log/{n}.plan"

    def inputs(self, n: int, nonce: str) -> str:
        return f"{self._own}/log/{n}.{nonce}.inputs"

    def seen(self, n: int, nonce: str) -> str:
        return f"{self._own}/log/{n}.{nonce}.seen"

    def dealt(self, n: int, nonce: str) -> str:
        return f"{self._own}/log/{n}.{nonce}.dealt"

    def all_done(self, n: int) -> str:
        return f"{self._own}/log/{n}.done"

    def done(self, n: int, shard: str) -> str:
        return f"{self.all_done(n)}/{shard}"

    @property
    def hint(self) -> str:
        return f"{self._own}/log/hint"

    def version(self, n: int) -> Version:
        """The version that plan `n` publishes: rows were added, hence a minor step."""
        return Version(self.generation, n - 1)

    def file(self, n: int, name: str) -> str:
        return f"{self.dataset}/{self.version(n)}/{name}"

    def manifest(self, n: int) -> str:
        return self.file(n, MANIFEST)

    def deleted(self, n: int) -> str:
        return self.file(n, "_deleted.json")
