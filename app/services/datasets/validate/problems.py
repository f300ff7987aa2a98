"""What is found wrong with a published version."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from typing_extensions import TypedDict

#: Further ones are not told.
MAX_PROBLEMS: Final = 1000


class FaultJson(TypedDict):
    """Something that is not as it should be; null where it concerns no single record."""

    code: str
    file: str
    detail: str
    record: int | None
    offset: int | None


class ValidationJson(TypedDict):
    """What a version was found to be; counts are of what is there."""

    version: str
    valid: bool
    num_records: int
    num_bytes: int
    num_shards: int
    problems: list[FaultJson]
    truncated: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be.

    Attributes:
        code: stable name of the kind.
        file: in the version.
        record: number of the record in the file, from 0; of a record index, the number of the line.
        offset: in the file, once inflated; where the record's frame begins.
    """

    code: str
    file: str
    detail: str
    record: int | None = None
    offset: int | None = None

    def to_json(self) -> FaultJson:
        return {
            "code": self.code,
            "file": self.file,
            "detail": self.detail,
            "record": self.record,
            "offset": self.offset,
        }


@dataclass(slots=True)
class Problems:
    """The first problems that were found."""

    found: list[Problem] = field(default_factory=list)
    #: There are more.
    truncated: bool = False

    def add(
        self, code: str, file: str, detail: str, *, record: int | None = None, offset: int | None = None
    ) -> None:
        """Note a problem."""
        if len(self.found) < MAX_PROBLEMS:
            self.found.append(Problem(code, file, detail, record, offset))
        else:
            self.truncated = True


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """What a version was found to be; counts are of what is there."""

    version: str
    num_records: int
    num_bytes: int
    num_shards: int
    problems: Problems

    def to_json(self) -> ValidationJson:
        return {
            "version": self.version,
            "valid": not self.problems.found,
            "num_records": self.num_records,
            "num_bytes": self.num_bytes,
            "num_shards": self.num_shards,
            "problems": [problem.to_json() for problem in self.problems.found],
            "truncated": self.problems.truncated,
        }
