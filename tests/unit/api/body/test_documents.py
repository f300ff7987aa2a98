"""Descriptions: of one that is too long hardly more is read, or held, than one may have."""

import pytest

from app.api.body.documents import read_document
from app.domain.limits import MIB
from app.errors import LimitExceeded
from app.runtime.budget import Budget


class Endless:
    """A body of which ever more comes."""

    def __init__(self) -> None:
        self.num_read = 0

    def read(self, n: int, /) -> bytes:
        self.num_read += n
        assert self.num_read < 100 * MIB
        return b"a" * n

    @property
    def ended(self) -> bool:
        return False


class Some(Endless):
    """A body of so many bytes, which come one after the other."""

    def __init__(self, num_bytes: int) -> None:
        super().__init__()
        self._left = num_bytes

    def read(self, n: int, /) -> bytes:
        n = min(n, self._left, 100_000)
        self._left -= n
        return b"b" * n


def test_of_a_description_without_end_hardly_more_is_read_than_one_may_have() -> None:
    body = Endless()
    with pytest.raises(LimitExceeded) as caught:
        read_document(body, Budget(), "a dataset")
    assert caught.value.code == "payload_too_large"
    assert body.num_read <= 5 * MIB


def test_a_description_may_have_4_mib() -> None:
    assert len(read_document(Some(4 * MIB), Budget(), "a dataset")) == 4 * MIB
    with pytest.raises(LimitExceeded):
        read_document(Some(4 * MIB + 1), Budget(), "a dataset")
