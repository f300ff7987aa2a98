"""Each limit is a setting, with the limit's own default."""

from dataclasses import fields

import pytest

from app.domain.limits import Limits
from app.settings import Settings


def test_the_defaults_are_those_of_the_limits() -> None:
    assert Settings().limits == Limits()


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_each_limit_can_be_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SHARDSMITH_{name.upper()}", "7")
    assert getattr(Settings().limits, name) == 7
