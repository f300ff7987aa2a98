"""The plan of an import: which ranges are appended, and how. It is created once and never changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Final

from ....codecs.forms import FormName
from ....domain.stored_values import count, text
from ....errors import CorruptData, InputError, NotFound, StorageError
from ....storage.create_once import create_once, new_nonce
from ....storage.object_store import ObjectNotFound
from ..objects.dataset import Dataset
from ..objects.plan import NamedFile
from ..objects.stored_json import dump_json, load_json, open_json, read_again, seal_json
from .ranges import Range
from .request import ImportRequest

#: Ranges in an object of the plan.
PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What an import does.

    Attributes:
        import_id: of the import.
        nonce: of the planner.
        request: what was asked for.
        form: the format of all objects.
        num_objects: of the source.
        num_bytes: of all ranges.
        passed_over: how many objects of the source are of another format, hidden, or mark a folder.
        num_ranges: in all pages.
        pages: the objects that hold the ranges, in order.
    """

    import_id: str
    nonce: str
    request: ImportRequest
    form: FormName
    num_objects: int
    num_bytes: int
    passed_over: int
    num_ranges: int
    pages: tuple[NamedFile, ...]

    def key_of(self, index: int, attempt: int) -> str:
        """The key of the append of a range. A further attempt is one after an append that never can be."""
        return f"{self.import_id}.{index}.{attempt}"

    @property
    def publish_key(self) -> str:
        """The key of the publication."""
        return f"import-{self.import_id}"

    def serialize(self) -> bytes:
        return seal_json(
            {
                "nonce": self.nonce,
                "import_id": self.import_id,
                "request": self.request.to_json(),
                "form": self.form,
                "num_objects": self.num_objects,
                "num_bytes": self.num_bytes,
                "passed_over": self.passed_over,
                "num_ranges": self.num_ranges,
                "pages": [asdict(page) for page in self.pages],
            }
        )

    @classmethod
    def parse(cls, data: bytes, key: str) -> ImportPlan:
        """What `serialize` wrote.

        Raises:
            CorruptData: not of that form.
        """
        value = open_json(data, key)
        try:
            return cls(
                text(value["import_id"]),
                text(value["nonce"]),
                ImportRequest.from_json(value["request"]),
                value["form"],
                count(value["num_objects"]),
                count(value["num_bytes"]),
                count(value["passed_over"]),
                count(value["num_ranges"]),
                tuple(NamedFile.from_json(page) for page in value["pages"]),
            )
        except (InputError, KeyError, TypeError, ValueError) as error:
            raise CorruptData(f"{key} is not of the known form.") from error


def find_plan(dataset: Dataset, import_id: str) -> ImportPlan | None:
    """The plan of an import that was begun."""
    key = _key(dataset, import_id)
    try:
        return read_again(lambda: ImportPlan.parse(dataset.store.get(key), key))
    except ObjectNotFound:
        return None


def open_plan(dataset: Dataset, import_id: str) -> ImportPlan:
    """The plan of an import.

    Raises:
        NotFound: it was never begun (`import_not_found`).
    """
    plan = find_plan(dataset, import_id)
    if plan is None:
        raise NotFound(f"Dataset {dataset.name!r} has no import {import_id!a:.40}.", code="import_not_found")
    return plan


def create_plan(
    dataset: Dataset,
    import_id: str,
    request: ImportRequest,
    form: FormName,
    ranges: Iterable[Range],
    *,
    num_objects: int,
    passed_over: int,
) -> ImportPlan:
    """Create the plan with these ranges; if another planner was first, its plan is the answer."""
    nonce, folder = new_nonce(), dataset.layout.import_(import_id)
    pages: list[NamedFile] = []
    num_ranges = num_bytes = 0
    try:
        for k, some in enumerate(_batches(ranges)):
            num_ranges += len(some)
            num_bytes += sum(part.num_bytes for part in some)
            data = dump_json({"ranges": [part.to_json() for part in some]})
            pages.append(NamedFile(f"{folder}/{nonce}.{k}", sha256(data).hexdigest()))
            dataset.store.put(pages[-1].key, data)
        plan = ImportPlan(
            import_id, nonce, request, form, num_objects, num_bytes, passed_over, num_ranges, tuple(pages)
        )
        key = _key(dataset, import_id)
        winner = create_once(dataset.store, key, plan.serialize())
    except (InputError, StorageError) as error:
        if error.code != "outcome_unknown":
            _discard(dataset, pages)
        raise
    if winner is None:
        return plan
    _discard(dataset, pages)
    return ImportPlan.parse(winner, key)


def _batches(ranges: Iterable[Range]) -> Iterator[list[Range]]:
    iterator = iter(ranges)
    while some := list(islice(iterator, PAGE)):
        yield some


def _discard(dataset: Dataset, pages: Iterable[NamedFile]) -> None:
    """Remove the pages of a plan that came too late."""
    for page in pages:
        with contextlib.suppress(StorageError):
            dataset.store.delete(page.key)


def read_page(dataset: Dataset, page: NamedFile) -> Sequence[Range]:
    """The ranges in one object of a plan.

    Raises:
        CorruptData: it is not as the plan says.
    """
    return read_again(lambda: list(_read_page(dataset, page)))


def _read_page(dataset: Dataset, page: NamedFile) -> Iterator[Range]:
    try:
        data = dataset.store.get(page.key)
    except ObjectNotFound as error:
        raise CorruptData(f"{page.key} is gone.") from error
    if sha256(data).hexdigest() != page.sha256:
        raise CorruptData(f"{page.key} does not match its checksum.")
    try:
        items: list[Mapping[str, Any]] = load_json(data, page.key)["ranges"]
        yield from map(Range.from_json, items)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptData(f"{page.key} is not of the known form.") from error


def _key(dataset: Dataset, import_id: str) -> str:
    return f"{dataset.layout.import_(import_id)}/plan"
