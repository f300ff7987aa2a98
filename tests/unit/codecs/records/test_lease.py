from __future__ import annotations

import pytest

from app.codecs.records.lease import Lease
from app.domain.limits import Limits
from app.errors import LimitExceeded
from app.runtime.budget import Budget


def test_what_is_leased_is_given_back_together() -> None:
    budget = Budget(Limits(max_decoded_bytes=100))
    with Lease(budget) as lease:
        lease.charge(30, "This")
        lease.charge(20, "That")
        assert budget.remaining == 50
        before = budget.remaining
        budget.charge(10, "By someone else")
        lease.adopt(before)
    assert budget.remaining == 100
    lease.release()
    assert budget.remaining == 100


def test_a_refused_charge_is_not_held() -> None:
    budget = Budget(Limits(max_decoded_bytes=100))
    lease = Lease(budget)
    lease.charge(60, "This")
    with pytest.raises(LimitExceeded):
        lease.charge(60, "That")
    lease.release()
    assert budget.remaining == 100
