"""Which requests go wrong, and how: rules whose choices follow from a seed.

The i-th request that a rule matches meets the same fate in every run of one seed; which request the
i-th is depends on the processes that make them.
"""

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Fault", "Kind", "Rule", "Rules", "When"]

#: - error: the answer is `status`, whatever became of the request
#: - drop: the connection ends without an answer
#: - delay: everything `seconds` later
#: - hang: no answer for `seconds`, then the connection ends
#: - late: the connection ends, the request is applied `seconds` later
#: - again: all is well, but the request is applied once more `seconds` later
#: - partial: half of the answer's body, then the connection ends
#: - flip: one bit of the answer's body is wrong
#: - short: the answer's body lacks its last quarter, and says nothing of it
#: - error_body: the answer is 200 with an error in its body
Kind = Literal["error", "drop", "delay", "hang", "late", "again", "partial", "flip", "short", "error_body"]
#: Whether the store gets the request: `before` means that it never does.
When = Literal["before", "after"]


@dataclass(frozen=True)
class Fault:
    kind: Kind
    when: When = "before"
    status: int = 500
    seconds: float = 1.0

    @property
    def name(self) -> str:
        if self.kind == "error":
            return f"{self.status} {self.when}"
        return f"{self.kind} {self.when}" if self.kind in ("drop", "hang", "error_body") else self.kind


@dataclass(frozen=True)
class Rule:
    """`fault` befalls requests whose summary `matches`, with `probability`, `times` times at most."""

    name: str
    matches: str
    fault: Fault
    probability: float = 1.0
    times: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Rule":
        return cls(**{**value, "fault": Fault(**value["fault"])})


class Rules:
    """The rules in force; the first that strikes decides."""

    def __init__(self, seed: object, rules: Iterable[Rule] = ()) -> None:
        self._rules = [
            (rule, re.compile(rule.matches), random.Random(f"{seed}:{rule.name}")) for rule in rules
        ]
        self._struck: Counter[str] = Counter()

    def choose(self, summary: str) -> Fault | None:
        """What befalls this request; None for nothing."""
        for rule, pattern, dice in self._rules:
            if not pattern.search(summary) or dice.random() >= rule.probability:
                continue
            if rule.times is None or self._struck[rule.name] < rule.times:
                self._struck[rule.name] += 1
                return rule.fault
        return None
