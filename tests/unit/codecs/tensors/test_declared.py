import numpy as np
import pytest

from app.codecs.options import TensorDecodeOptions
from app.codecs.tensors.declared import check_declared
from app.domain.dtypes import DTYPES
from app.domain.tensor import NamedTensor, Tensor
from app.errors import UnprocessableInput

FLOAT32, INT32 = DTYPES["float32"], DTYPES["int32"]
TENSOR = NamedTensor(Tensor(FLOAT32, (2, 1), np.zeros(2, "<f4")), "x")


@pytest.mark.parametrize("options", [TensorDecodeOptions(), TensorDecodeOptions(dtype=FLOAT32, shape=(2, 1))])
def test_what_agrees_passes(options: TensorDecodeOptions) -> None:
    check_declared(TENSOR, options)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (TensorDecodeOptions(dtype=INT32), "dtype_mismatch"),
        (TensorDecodeOptions(shape=(2,)), "shape_mismatch"),
        (TensorDecodeOptions(shape=(1, 2)), "shape_mismatch"),
    ],
)
def test_what_disagrees_is_refused(options: TensorDecodeOptions, code: str) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        check_declared(TENSOR, options)
    assert (caught.value.code, caught.value.location.feature) == (code, "x")
