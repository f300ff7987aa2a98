"""With whom a request is counted."""

from app.api.auth.principal import Principal, caller_of


def test_of_callers_without_a_token_those_of_one_address_count_together() -> None:
    one, other = {"client": ("192.0.2.1", 1234)}, {"client": ("192.0.2.2", 1234)}
    assert caller_of(one) == caller_of({"client": ("192.0.2.1", 4321)}) != caller_of(other)
    assert caller_of({"client": None}) == caller_of({})
    named = dict(one)
    Principal("me", frozenset()).enter(named)
    again = dict(other)
    Principal("me", frozenset()).enter(again)
    assert caller_of(named) == caller_of(again) != caller_of(one)
