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
| `<d>/_g<g>/imports/<id>/plan`             | once    | what an import reads, and how                      |
| `<d>/_g<g>/imports/<id>/<nonce>.<k>`      | put     | named by that plan: its ranges, 1,000 in each      |
| `<d>/_g<g>/imports/<id>/ranges/<note>`    | put     | what became of a range (`imports.notes`)           |
| `<d>/_g<g>/imports/<id>/end`              | once    | the import is done, or was cancelled               |
| `<d>/<version>/<file>`                    | put     | shards and the files beside them                   |
| `<d>/<version>/_manifest.json`            | once    | the publication, or why it was aborted             |
| `<d>/<version>/_deleted.json`             | once    | the version was deleted                            |
| `<d>/<version>/_statistics-<split>.1.json` | once   | the statistics of a split; 1 is their form         |
| `_imports/<d>/<id>`                       | put     | that a replica runs an import (`imports.runs`)     |
| `_probe/<nonce>`                          | put     | nothing for long: tries the store, tells its time  |

Those written once carry their writer's nonce and are never overwritten. The others have a nonce in
their names, or bytes that an object written once determines, or are hints: whoever writes one late
can only repeat it. JSON that no other object names with its SHA-256 is sealed (`stored_json`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....domain.names import Version

FEATURES: Final = "features.json"
PBTXT: Final = "schema.pbtxt"
#: The pieces of every shard, so that a range of records is found without reading from the beginning.
INDEX: Final = "_index.json"
#: Written after the manifest, so that TFDS sees published versions only.
DATASET_INFO: Final = "dataset_info.json"
#: The publication itself.
MANIFEST: Final = "_manifest.json"
DELETED: Final = "_deleted.json"

_SHARD_TYPE: Final = "application/x-tfrecord"
_TEXT: Final = "text/plain; charset=utf-8"
_SIDE_FILE_TYPES: Final = {".json": "application/json", ".pbtxt": _TEXT, ".idx": _TEXT, ".txt": _TEXT}


def record_index(shard: str) -> str:
    """The name of the index of record offsets beside a shard; `*.tfrecord*` does not match it."""
    return f"_{'-'.join(shard.rsplit('.tfrecord-', 1))}.idx"


def media_type(file: str) -> str:
    """The media type of a file of a version: of a side file by its ending, else of a shard."""
    return _SIDE_FILE_TYPES.get(file[file.rfind(".") :], _SHARD_TYPE)


@dataclass(frozen=True, slots=True)
class Layout:
    """The objects of one incarnation of one dataset."""

    dataset: str
    generation: int

    @property
    def own(self) -> str:
        """The folder of all that is not of a version."""
        return f"{self.dataset}/_g{self.generation}"

    @property
    def incarnation(self) -> str:
        return f"{self.dataset}/_gen/{self.generation}.json"

    @property
    def end(self) -> str:
        return f"{self.dataset}/_gen/{self.generation}.end"

    def schema(self, k: int) -> str:
        return f"{self.own}/schema/{k}.json"

    @property
    def all_slots(self) -> str:
        return f"{self.own}/slots"

    def slots(self, first_digit: str) -> str:
        return f"{self.all_slots}/{first_digit}"

    def slot(self, append_id: str) -> str:
        return f"{self.slots(append_id[0])}/{append_id}"

    @property
    def all_parts(self) -> str:
        return f"{self.own}/parts"

    def parts(self, append_id: str) -> str:
        return f"{self.all_parts}/{append_id}"

    def part(self, append_id: str, attempt: str, index: int) -> str:
        return f"{self.parts(append_id)}/{attempt}/{index}"

    @property
    def log(self) -> str:
        return f"{self.own}/log"

    def plan(self, n: int) -> str:
        return f"{self.log}/{n}.plan"

    def inputs(self, n: int, nonce: str) -> str:
        return f"{self.log}/{n}.{nonce}.inputs"

    def seen(self, n: int, nonce: str) -> str:
        return f"{self.log}/{n}.{nonce}.seen"

    def dealt(self, n: int, nonce: str) -> str:
        return f"{self.log}/{n}.{nonce}.dealt"

    def all_done(self, n: int) -> str:
        return f"{self.log}/{n}.done"

    def done(self, n: int, shard: str) -> str:
        return f"{self.all_done(n)}/{shard}"

    @property
    def hint(self) -> str:
        return f"{self.log}/hint"

    def import_(self, import_id: str) -> str:
        """The folder of an import."""
        return f"{self.own}/imports/{import_id}"

    def version(self, n: int) -> Version:
        """The version that plan `n` publishes: rows were added, hence a minor step."""
        return Version(self.generation, n - 1)

    def number(self, version: Version) -> int:
        """The number of the plan that can have published `version`, 0 where none can."""
        n = version.minor + 1
        return n if self.version(n) == version else 0

    def folder(self, n: int) -> str:
        return f"{self.dataset}/{self.version(n)}"

    def file(self, n: int, name: str) -> str:
        return f"{self.folder(n)}/{name}"

    def manifest(self, n: int) -> str:
        return self.file(n, MANIFEST)

    def deleted(self, n: int) -> str:
        return self.file(n, DELETED)

    def statistics(self, n: int, split: str) -> str:
        return self.file(n, f"_statistics-{split}.1.json")
