import io
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from app.codecs.arrays.npz import decode, decode_stream, encode
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.codecs.tensor_stream import NamedStream
from app.codecs.tensors.arriving import Arrival, in_memory
from app.domain.dtypes import DTYPES
from app.domain.limits import MIB, Limits
from app.domain.tensor import NamedTensor, tensor_from_array
from app.errors import InputError, LimitExceeded, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile


def saved(*args: Any, **arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, *args, **arrays)
    return file.getvalue()


def decoded(data: bytes, budget: Budget | None = None, **options: Any) -> list[NamedTensor]:
    return decode(MemoryFile(data), TensorDecodeOptions(**options), budget or Budget())


def tensor(name: str | None, *values: int) -> NamedTensor:
    return NamedTensor(tensor_from_array(np.array(values, "<i4"), DTYPES["int32"]), name)


def test_every_array_is_a_tensor_under_its_name() -> None:
    found = decoded(saved(x=np.zeros((2, 2), "<f4"), label=np.array(7, "<i4")))
    assert [(item.name, item.tensor.dtype.name, item.tensor.shape) for item in found] == [
        ("x", "float32", (2, 2)),
        ("label", "int32", ()),
    ]


def test_numpy_loads_what_is_written_and_so_do_we() -> None:
    data = b"".join(encode([tensor("x", 1, 2), tensor("y", 3)], TensorEncodeOptions()))
    with np.load(io.BytesIO(data)) as loaded:
        assert {name: loaded[name].tolist() for name in loaded.files} == {"x": [1, 2], "y": [3]}
    assert [(item.name, item.tensor.values.tolist()) for item in decoded(data)] == [("x", [1, 2]), ("y", [3])]


def test_tensors_without_a_name_get_numpys() -> None:
    data = b"".join(encode([tensor(None, 1), tensor("x", 2), tensor(None, 3)], TensorEncodeOptions()))
    with np.load(io.BytesIO(data)) as loaded:
        assert loaded.files == ["arr_0", "x", "arr_2"]


def test_no_tensors_are_an_empty_archive() -> None:
    data = b"".join(encode([], TensorEncodeOptions()))
    assert decoded(data) == []
    assert decoded(saved()) == []


def test_a_declaration_holds_for_every_array() -> None:
    data = saved(x=np.zeros(2, "<f4"), y=np.zeros(2, "<f8"))
    with pytest.raises(UnprocessableInput) as caught:
        decoded(data, dtype=DTYPES["float32"])
    assert (caught.value.code, caught.value.location.feature) == ("dtype_mismatch", "y")


def test_bfloat16_comes_in_where_declared() -> None:
    data = saved(x=np.array([1.5], DTYPES["bfloat16"].numpy))
    [found] = decoded(data, dtype=DTYPES["bfloat16"])
    assert found.tensor.values.tolist() == [1.5]
    with pytest.raises(UnprocessableInput, match="bfloat16"):
        decoded(data)


def test_the_archive_is_let_go_once_it_is_read() -> None:
    budget = Budget()
    decoded(saved(x=np.zeros(1000)), budget)
    assert budget.limits.max_decoded_bytes - budget.remaining == 8000


def test_two_tensors_of_one_name_are_refused() -> None:
    with pytest.raises(UnprocessableInput) as caught:
        encode([tensor("x", 1), tensor("x", 2)], TensorEncodeOptions())
    assert caught.value.code == "duplicate_member"


def streamed(data: bytes, budget: Budget | None = None, **options: Any) -> list[Arrival]:
    return list(decode_stream(MemoryFile(data), TensorDecodeOptions(**options), budget or Budget(), None))


def outcome(read: Callable[[], list[NamedTensor]]) -> object:
    try:
        tensors = [(item.name, item.tensor) for item in read()]
        return [(name, found.dtype, found.shape, found.values.tolist()) for name, found in tensors]
    except InputError as error:
        return error.code


def drawn(data: bytes) -> list[NamedTensor]:
    return [in_memory(item, Budget()) for item in streamed(data)]


MIXED = {
    "x": np.arange(6, dtype="<f4").reshape(2, 3),
    "big": np.arange(4, dtype=">i8"),
    "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "text": np.array(["a", "\N{GRINNING FACE}"]),
    "flag": np.array([True, False]),
    "none": np.zeros((0, 3), "<i2"),
}


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_arrays_are_inflated_as_they_are_drawn(write: Callable[..., None]) -> None:
    sink = io.BytesIO()
    write(sink, **MIXED)
    data = sink.getvalue()
    arrivals = streamed(data)
    assert [type(item) for item in arrivals] == [
        NamedStream,
        NamedStream,
        NamedTensor,
        NamedTensor,
        NamedStream,
        NamedStream,
    ]
    found = {item.name: in_memory(item, Budget()) for item in reversed(arrivals)}
    assert outcome(lambda: [found[name] for name in MIXED]) == outcome(lambda: decoded(data))


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_broken_archives_have_the_outcome_of_arrays_in_memory(write: Callable[..., None]) -> None:
    sink = io.BytesIO()
    write(sink, x=MIXED["x"], flag=MIXED["flag"])
    data = sink.getvalue()
    broken = [data[:end] for end in range(len(data))]
    for at in range(len(data)):
        mutated = bytearray(data)
        mutated[at] ^= 0x11
        broken.append(bytes(mutated))
    for body in broken:
        held = outcome(partial(decoded, body))
        found = outcome(partial(drawn, body))
        assert found == held or (isinstance(found, str) and isinstance(held, str))


def test_a_large_array_takes_little() -> None:
    budget = Budget(Limits(max_decoded_bytes=MIB))
    sink = io.BytesIO()
    np.savez_compressed(sink, x=np.zeros(4 * MIB, "<f8"), y=np.zeros(4 * MIB, "<f8"))
    with pytest.raises(LimitExceeded):
        decoded(sink.getvalue(), Budget(Limits(max_decoded_bytes=MIB)))
    arrivals: list[Any] = streamed(sink.getvalue(), budget)
    sizes = [sum(map(len, item.tensor.content)) for item in arrivals]
    assert sizes == [32 * MIB, 32 * MIB]


def test_what_was_declared_is_compared_before_an_array_is_drawn() -> None:
    with pytest.raises(UnprocessableInput) as caught:
        streamed(saved(x=np.zeros(3, "<f4")), dtype=DTYPES["int32"])
    assert caught.value.code == "dtype_mismatch"
