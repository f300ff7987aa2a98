import numpy as np
import pytest

from app.codecs.tensors.single import only_tensor
from app.domain.dtypes import DTYPES
from app.domain.tensor import NamedTensor, Tensor
from app.errors import UnprocessableInput

TENSOR = Tensor(DTYPES["int8"], (1,), np.zeros(1, "i1"))


def test_one_tensor_is_that_one() -> None:
    assert only_tensor([NamedTensor(TENSOR, "x")], "npy") is TENSOR


@pytest.mark.parametrize(("count", "code"), [(0, "no_tensors"), (2, "several_tensors")])
def test_any_other_number_is_refused(count: int, code: str) -> None:
    with pytest.raises(UnprocessableInput, match="'npy' holds exactly one") as caught:
        only_tensor([NamedTensor(TENSOR)] * count, "npy")
    assert caught.value.code == code
