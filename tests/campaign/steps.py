"""The named steps of the storage protocol: what a process is about to do, told from one store request."""

import re
from typing import Final, Literal

from tests.support.faulty_store import Operation

__all__ = ["COLLECTOR_STEPS", "STEPS", "Moment", "step_of"]

#: `during` is after the first chunk of a streamed object.
Moment = Literal["before", "during", "after"]

_DEAD: Final = re.compile(rb'"fate":\s*"dead"')

#: name of the step, the operation, what the key ends like.
_PATTERNS: Final[tuple[tuple[str, Operation, str], ...]] = (
    ("incarnation created", "create", r"/_gen/\d+\.json$"),
    ("incarnation ended", "create", r"/_gen/\d+\.end$"),
    ("schema created", "create", r"/schema/\d+\.json$"),
    ("part put", "put", r"/parts/"),
    ("part deleted", "delete", r"/parts/"),
    ("slot created", "create", r"/slots/"),
    ("slot deleted", "delete", r"/slots/"),
    ("inputs put", "put", r"\.inputs$"),
    ("seen put", "put", r"\.seen$"),
    ("log file deleted", "delete", r"\.(inputs|seen)$"),
    ("plan created", "create", r"\.plan$"),
    ("shard written", "put_stream", r"\.tfrecord-[^/]*$"),
    ("shard copied", "copy", r"\.tfrecord-[^/]*$"),
    ("shard done", "put", r"\.done/"),
    ("record index put", "put", r"/_[^/]*\.idx$"),
    ("record index written", "put_stream", r"/_[^/]*\.idx$"),
    ("side file put", "put", r"/(features\.json|schema\.pbtxt|_index\.json)$"),
    ("manifest created", "create", r"/_manifest\.json$"),
    ("dataset_info put", "put", r"/dataset_info\.json$"),
    ("hint put", "put", r"/hint$"),
    ("version deleted", "create", r"/_deleted\.json$"),
    ("version file deleted", "delete", r"/\d+\.\d+\.\d+/"),
    ("uploads swept", "sweep", r""),
)
_DEAD_SLOT: Final = "dead slot created"

#: Every step there is a name for.
STEPS: Final = frozenset((*(name for name, _, _ in _PATTERNS), _DEAD_SLOT))
#: Those of a collection alone.
COLLECTOR_STEPS: Final = frozenset(
    (_DEAD_SLOT, "slot deleted", "version deleted", "version file deleted", "uploads swept")
)

_BY_OPERATION: Final = {
    operation: [(name, re.compile(pattern)) for name, of, pattern in _PATTERNS if of == operation]
    for operation in {operation for _, operation, _ in _PATTERNS}
}


def step_of(operation: Operation, key: str, data: bytes = b"") -> str | None:
    """The step that a request belongs to; None for those that change nothing, and for probes.

    Args:
        data: what is stored, or its beginning.
    """
    for name, pattern in _BY_OPERATION.get(operation, ()):
        if pattern.search(key):
            return _DEAD_SLOT if name == "slot created" and _DEAD.search(data) else name
    return None
