"""The kinds of bad weather that a campaign goes through, one at a time."""

from typing import Final

from tests.campaign.fault_rules import Fault, Rule

__all__ = ["FAULTS"]

#: What has a checksum on record; a read of it may hand out wrong bytes and none of them must pass.
_CHECKED: Final = (
    r"^get .*(/parts/|\.inputs|\.seen|\.tfrecord-|/_index\.json"
    r"|/_gen/\d+\.json|/schema/|\.plan|/_manifest\.json|/hint)"
)
_SLOTS: Final = "^get .*/slots/"
_DATA: Final = r"^(get|put|create|delete|head|copy|list|part|initiate|complete) "

FAULTS: Final[dict[str, tuple[Rule, ...]]] = {
    "calm": (),
    "drizzle": (
        Rule("error before", _DATA, Fault("error", "before", 500), 0.01),
        Rule("error after", _DATA, Fault("error", "after", 500), 0.01),
        Rule("unavailable", _DATA, Fault("error", "before", 503), 0.01),
        Rule("drop before", _DATA, Fault("drop", "before"), 0.01),
        Rule("drop after", _DATA, Fault("drop", "after"), 0.01),
        Rule("partial", r"^(get|list) ", Fault("partial"), 0.02),
        Rule("delay", _DATA, Fault("delay", seconds=0.5), 0.02),
    ),
    "slow down": (
        Rule("slow down", _DATA, Fault("error", "before", 503), 0.4),
        Rule("delay", _DATA, Fault("delay", seconds=0.2), 0.2),
    ),
    "lost answers": (
        Rule("create 500", "^create ", Fault("error", "after", 500), 0.2),
        Rule("create 503", "^create ", Fault("error", "after", 503), 0.1),
        Rule("create dropped", "^create ", Fault("drop", "after"), 0.2),
        Rule("put dropped", "^put ", Fault("drop", "after"), 0.1),
        Rule("delete dropped", "^delete ", Fault("drop", "after"), 0.2),
    ),
    "conflicts": (
        Rule("409 with nothing stored", "^create ", Fault("error", "before", 409), 0.4),
        Rule("409 with something stored", "^create ", Fault("error", "after", 409), 0.2),
    ),
    "late writes": (
        Rule("create late", "^create ", Fault("late", seconds=3), 0.15),
        Rule("put late", "^put ", Fault("late", seconds=5), 0.1),
        Rule("put again", "^(put|create) ", Fault("again", seconds=4), 0.2),
        Rule("delete late", "^delete ", Fault("late", seconds=3), 0.1),
        Rule("delete again", "^delete ", Fault("again", seconds=6), 0.2),
        Rule("part again", "^part ", Fault("again", seconds=2), 0.3),
    ),
    "wrong bytes": (
        Rule("flip", _CHECKED, Fault("flip"), 0.08),
        Rule("short", _CHECKED, Fault("short"), 0.05),
        Rule("flip slot", _SLOTS, Fault("flip"), 0.05),
        Rule("partial", "^get ", Fault("partial"), 0.05),
    ),
    "uploads": (
        Rule("initiate lost", "^initiate ", Fault("drop", "after"), 0.3),
        Rule("initiate failed", "^initiate ", Fault("error", "after", 500), 0.2),
        Rule("part lost", "^part ", Fault("drop", "after"), 0.2),
        Rule("part failed", "^part ", Fault("error", "before", 500), 0.2),
        Rule("complete lost", "^complete ", Fault("drop", "after"), 0.2),
        Rule("complete failed", "^complete ", Fault("error_body", "before"), 0.2),
        Rule("complete denied", "^complete ", Fault("error_body", "after"), 0.1),
        Rule("copy failed", "^copy ", Fault("error_body", "before"), 0.3),
        Rule("abort lost", "^abort ", Fault("drop", "before"), 0.5),
    ),
    "hanging": (
        Rule("create hangs", "^create ", Fault("hang", "after", seconds=40), 0.05, times=2),
        Rule("get hangs", "^get ", Fault("hang", "before", seconds=40), 0.05, times=2),
        Rule("put hangs", "^put ", Fault("hang", "before", seconds=40), 0.05, times=2),
    ),
}
