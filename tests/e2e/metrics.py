"""Reading the metrics of a started service."""

from collections.abc import Callable, Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.service import SSL_CONTEXT
from tests.support.waiting import wait_for

#: A sample without its labels' braces: `name{a=x,b=y}`, labels sorted.
Samples = Mapping[str, float]

#: What moves by itself, and by how much nobody can say.
_RESTLESS = ("process_", "python_", "shardsmith_event_loop_delay_", "shardsmith_store_")


def scrape(url: str) -> dict[str, float]:
    """All samples that there are now."""
    answer = httpx.get(url, verify=SSL_CONTEXT, timeout=30)
    assert answer.status_code == 200
    samples = [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]
    found = {_key(sample.name, sample.labels): sample.value for sample in samples}
    assert len(found) == len(samples)  # none comes twice
    return found


def _key(name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={labels[label]}' for label in sorted(labels))}}}"


def moved(before: Samples, after: Samples, prefix: str = "shardsmith_") -> dict[str, float]:
    """By how much each sample moved that begins so; buckets, and what moves by itself, are left out."""
    return {
        key: after[key] - before.get(key, 0)
        for key in after
        if key.startswith(prefix)
        and (prefix != "shardsmith_" or not key.startswith(_RESTLESS))
        and "_bucket{" not in key
        and after[key] != before.get(key, 0)
    }


def settled(url: str, condition: Callable[[Samples], bool]) -> Samples:
    """The samples, once the condition holds: an answer may reach its client before it is counted."""
    found: dict[str, float] = {}

    def look() -> bool:
        found.clear()
        found.update(scrape(url))
        return condition(found)

    wait_for(look)
    return found
