"""Metrics: what is declared is what can be read, what is documented, and what has a test."""

from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from app.main import create_app_with
from app.settings import Settings
from app.telemetry.metrics import DECLARED, REGISTRY

ROOT = Path(__file__).parents[3]
PREFIX = "shardsmith_"


def test_every_metric_that_can_be_read_is_declared() -> None:
    create_app_with(Settings(storage_url="memory://"))
    families = text_string_to_metric_families(generate_latest(REGISTRY).decode())
    found = {
        f"{family.name}_total" if family.type == "counter" else family.name: (
            family.type,
            family.documentation,
        )
        for family in families
        if family.name.startswith(PREFIX)
    }
    assert found == {name: (declared.kind, declared.meaning) for name, declared in DECLARED.items()}


def test_names_end_in_their_unit() -> None:
    """As Prometheus names them: counters end in `_total`, and times are seconds."""
    for name, declared in DECLARED.items():
        assert name.endswith("_total") == (declared.kind == "counter"), name
        assert declared.kind not in ("histogram", "summary") or name.endswith("_seconds"), name


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(f"| `{PREFIX}")]
    assert sorted(rows) == sorted(
        f"| `{name}` | {declared.kind} | {', '.join(f'`{label}`' for label in declared.labels)} "
        f"| {declared.meaning} |"
        for name, declared in DECLARED.items()
    )


def test_every_metric_has_a_test_of_a_running_process() -> None:
    tests = (ROOT / "tests" / "e2e" / "test_metrics.py").read_text(encoding="utf-8")
    assert [name for name in DECLARED if name not in tests] == []
