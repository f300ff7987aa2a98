"""What a dataset's versions have consumed: a list that each plan repeats, with what it adds itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ....errors import CorruptData
from .slot import Commit

#: How long what a published version consumed is remembered at least: the life of an idempotency key.
KEEP_SEEN: Final = timedelta(days=7)
#: Enough to tell two slots of one id apart; a list has a line for each append of a week.
_NONCE_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class Consumed:
    """What became of one append.

    Attributes:
        n: the plan that consumed it.
        nonce: how that of its slot begins; an id is used again once its slot was collected.
        modified: when the slot was written, by the store's clock in seconds, as it was listed; another
            time is a reason to look at the nonce.
        excluded: its rows were left out.
    """

    n: int
    nonce: str = ""
    modified: int = 0
    excluded: bool = False

    def __str__(self) -> str:
        word = "excluded" if self.excluded else "published"
        return f"{self.n} {word} {self.modified} {self.nonce}"

    @classmethod
    def of(cls, n: int, commit: Commit, modified: int, *, excluded: bool) -> Consumed:
        return cls(n, commit.nonce[:_NONCE_DIGITS], modified, excluded)

    def is_of(self, nonce: str) -> bool:
        """Whether the slot with this nonce is the one that was consumed."""
        return nonce.startswith(self.nonce)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the published plans have consumed: the fate of each append, the plan of each publish key.

    One line each, `<id> <n> published|excluded <modified> <nonce>` and `=<publish key> <n>`; a later
    release may say more behind that, an earlier one said no more than two words.
    """

    appends: Mapping[str, Consumed]
    publish_keys: Mapping[str, int]

    def serialize(self) -> bytes:
        lines = [f"{append_id} {fate}\n" for append_id, fate in self.appends.items()]
        lines += [f"={key} {n}\n" for key, n in self.publish_keys.items()]
        return "".join(lines).encode()

    @classmethod
    def parse(cls, data: bytes, key: str) -> Seen:
        """What `serialize` wrote.

        Raises:
            CorruptData: not of that form.
        """
        appends: dict[str, Consumed] = {}
        publish_keys: dict[str, int] = {}
        try:
            for line in data.decode().splitlines():
                name, n, *rest = line.split(" ")
                if name.startswith("="):
                    publish_keys[name[1:]] = int(n)
                elif len(rest) < 3:
                    appends[name] = Consumed(int(n))
                else:
                    appends[name] = Consumed(int(n), rest[2], int(rest[1]), rest[0] == "excluded")
        except ValueError as error:
            raise CorruptData(f"{key} is not of the known form.") from error
        return cls(appends, publish_keys)

    def has(self, commit: Commit) -> bool:
        """Whether this very slot was consumed."""
        fate = self.appends.get(commit.append_id)
        return fate is not None and fate.is_of(commit.nonce)

    def may_be_new(self, append_id: str, modified: int) -> bool:
        """Whether a slot is worth reading: unknown, or written at another time than that consumed."""
        fate = self.appends.get(append_id)
        return fate is None or fate.modified not in (0, modified)

    def without(self, gone: Iterable[str], old: int) -> Seen:
        """Forget what the versions up to `old` consumed: the appends that are `gone`, and publish keys."""
        forgotten = {append_id for append_id in gone if self.appends[append_id].n <= old}
        return Seen(
            {append_id: fate for append_id, fate in self.appends.items() if append_id not in forgotten},
            {key: n for key, n in self.publish_keys.items() if n > old},
        )
