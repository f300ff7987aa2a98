import io
import struct
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.codecs.arrays.array import Array
from app.codecs.arrays.npy_file import serialize_npy
from app.codecs.arrays.npz_file import read_npz, serialize_npz
from app.domain.dtypes import DTYPES
from app.domain.limits import MIB, Limits
from app.errors import InputError, LimitExceeded, MalformedInput, UnprocessableInput
from app.runtime.budget import Budget
from app.runtime.streams import MemoryFile


def saved(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def compressed(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


def read(data: bytes, limits: Limits | None = None) -> dict[str, Array]:
    return read_npz(MemoryFile(data), Budget(limits))


@pytest.mark.parametrize("save", [saved, compressed])
def test_reads_what_numpy_saves(save: Any) -> None:
    found = read(
        save(x=np.arange(6.0).reshape(2, 3), ключ=np.array(["a", "bc"]), empty=np.zeros((0, 2), "i2"))
    )
    assert list(found) == ["x", "ключ", "empty"]
    assert found["x"].shape == (2, 3)
    assert found["x"].values.tolist() == [0, 1, 2, 3, 4, 5]
    assert found["ключ"].values.tolist() == [b"a", b"bc"]
    assert found["empty"].shape == (0, 2)


def test_an_archive_without_members() -> None:
    assert read(saved()) == {}


def test_numpy_loads_what_it_writes() -> None:
    values = np.arange(6, dtype="<i4")
    data = b"".join(
        serialize_npz(
            [
                ("a", lambda: serialize_npy(DTYPES["int32"], (2, 3), [values])),
                ("β", lambda: serialize_npy(DTYPES["string"], (1,), [np.array([b"s"], object)])),
            ]
        )
    )
    with np.load(io.BytesIO(data), allow_pickle=False) as loaded:
        assert loaded.files == ["a", "β"]
        np.testing.assert_array_equal(loaded["a"], values.reshape(2, 3))
        np.testing.assert_array_equal(loaded["β"], np.array([b"s"]))
    assert read(data)["a"].values.tolist() == values.tolist()


def test_equal_arrays_give_equal_bytes() -> None:
    def written() -> bytes:
        values = np.zeros(3, "<f4")
        return b"".join(serialize_npz([("x", lambda: serialize_npy(DTYPES["float32"], (3,), [values]))]))

    assert written() == written()


def test_an_array_without_npy_form_is_named() -> None:
    with pytest.raises(UnprocessableInput) as caught:
        next(
            serialize_npz([("s", lambda: serialize_npy(DTYPES["string"], (1,), [np.array([b"\0"], object)]))])
        )
    assert caught.value.location.feature == "s"


BAD_NAMES = [
    "../x.npy",
    "/x.npy",
    "a//b.npy",
    "a/../b.npy",
    "a/.npy",
    "a\\b.npy",
    ".npy",
    "x.txt",
    "x",
    "x.npy/",
]


def test_a_slash_inside_a_name_is_common_in_tensorflow() -> None:
    assert list(read(zipped(("image/encoded.npy", npy(np.zeros(1)))))) == ["image/encoded"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_are_no_names_of_arrays(name: str) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        read(zipped((name, npy(np.zeros(1)))))
    assert caught.value.code == "invalid_member_name"
    assert caught.value.location.feature == name


def test_a_name_with_a_nul() -> None:
    data = zipped(("xQ.npy", npy(np.zeros(1)))).replace(b"xQ.npy", b"x\0.npy")
    with pytest.raises(UnprocessableInput) as caught:
        read(data)
    assert caught.value.code == "invalid_member_name"


def test_a_name_that_is_too_long() -> None:
    limits = Limits(max_name_bytes=3)
    assert list(read(zipped(("abc.npy", npy(np.zeros(1)))), limits)) == ["abc"]
    with pytest.raises(UnprocessableInput):
        read(zipped(("abcd.npy", npy(np.zeros(1)))), limits)


@pytest.mark.parametrize("name", ["/a", "a/", "a/../b", "..", "", "\0", "\ud800"])
def test_names_that_are_not_written(name: str) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        serialize_npz([(name, lambda: iter([b""]))])
    assert caught.value.code == "invalid_member_name"


def test_duplicate_members() -> None:
    data = zipped(("x.npy", npy(np.zeros(1))), ("y.npy", npy(np.zeros(1)))).replace(b"y.npy", b"x.npy")
    with pytest.raises(UnprocessableInput) as caught:
        read(data)
    assert (caught.value.code, caught.value.location.feature) == ("duplicate_member", "x.npy")
    with pytest.raises(UnprocessableInput):
        serialize_npz([("x", lambda: iter([b""])), ("x", lambda: iter([b""]))])


def test_an_encrypted_member() -> None:
    data = bytearray(zipped(("x.npy", npy(np.zeros(1)))))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(UnprocessableInput) as caught:
        read(bytes(data))
    assert caught.value.code == "encrypted_member"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions(method: int) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        read(zipped(("x.npy", npy(np.zeros(1))), method=method))
    assert caught.value.code == "unsupported_compression"


def test_faults_inside_an_array_name_the_member() -> None:
    with pytest.raises(MalformedInput) as caught:
        read(zipped(("good.npy", npy(np.zeros(1))), ("bad.npy", npy(np.zeros(2))[:-1])))
    assert (caught.value.code, caught.value.location.feature) == ("truncated", "bad")
    with pytest.raises(MalformedInput) as caught:
        read(zipped(("bad.npy", npy(np.zeros(2)) + b"!")))
    assert (caught.value.code, caught.value.location.feature) == ("trailing_bytes", "bad")


@pytest.mark.parametrize("save", [saved, compressed])
def test_a_flipped_bit_in_the_content(save: Any) -> None:
    data = bytearray(save(x=np.arange(100)))
    data[data.index(b"PK\x01\x02") - 20] ^= 1
    with pytest.raises(InputError) as caught:
        read(bytes(data))
    assert caught.value.location.feature == "x"


def commented(comment: bytes, **arrays: Any) -> bytes:
    file = io.BytesIO(saved(**arrays))
    with zipfile.ZipFile(file, "a") as archive:
        archive.comment = comment
    return file.getvalue()


@pytest.mark.parametrize("rest", [b"xx", b"\0", b"PK\5", bytes(65_000), b"x" * 22])
@pytest.mark.parametrize("comment", [b"", b"made by hand"])
def test_bytes_after_the_archive(comment: bytes, rest: bytes) -> None:
    data = commented(comment, x=np.zeros(3))
    with pytest.raises(MalformedInput) as caught:
        read(data + rest)
    assert (caught.value.code, caught.value.location.offset) == ("trailing_bytes", len(data))
    with pytest.raises(MalformedInput) as caught:
        read(saved() + rest)
    assert (caught.value.code, caught.value.location.offset) == ("trailing_bytes", len(saved()))


@pytest.mark.parametrize("comment", [b"c", b"PK\1\2", b"x" * 65_535])
def test_a_comment_belongs_to_the_archive(comment: bytes) -> None:
    assert list(read(commented(comment, x=np.zeros(3)))) == ["x"]


@pytest.mark.parametrize("behind", [saved(), saved(y=np.ones(2)), commented(b"c", y=np.ones(2))])
def test_an_archive_behind_another_does_not_take_its_place(behind: bytes) -> None:
    with pytest.raises(MalformedInput) as caught:
        read(saved(x=np.zeros(3)) + behind)
    assert (caught.value.code, caught.value.location.offset) == ("invalid_npz", 0)


def test_a_bomb_is_stopped_by_the_budget_while_it_inflates() -> None:
    data = compressed(x=np.zeros(64 * MIB, np.uint8))
    assert len(data) < MIB
    budget = Budget(Limits(max_decoded_bytes=8 * MIB))
    with pytest.raises(LimitExceeded):
        read_npz(MemoryFile(data), budget)
    assert budget.peak <= 8 * MIB


def test_members_that_share_their_bytes_are_stopped_by_the_ratio() -> None:
    # What one member honestly inflates to counts again for each that points at the same bytes.
    data = compressed(**{f"x{index}": np.zeros(2 * MIB, np.uint8) for index in range(4)})
    assert len(read(data)) == 4
    with pytest.raises(LimitExceeded) as caught:
        read(data, Limits(max_amplification=500))
    assert caught.value.code == "compression_ratio_exceeded"


def test_too_many_members() -> None:
    data = saved(a=np.zeros(1), b=np.zeros(1))
    assert len(read(data, Limits(max_members=2))) == 2
    with pytest.raises(LimitExceeded) as caught:
        read(data, Limits(max_members=1))
    assert caught.value.code == "too_many_members"


def test_a_directory_too_long_to_be_looked_at() -> None:
    entry = b"PK\x01\x02" + bytes(42)
    directory = entry * 30_000
    data = (
        b"PK\x03\x04" + directory + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(directory), 4, 0)
    )
    with pytest.raises(LimitExceeded) as caught:
        read(data, Limits(max_members=10))
    assert caught.value.code == "too_many_members"


@pytest.mark.parametrize("field_offset", [20, 24], ids=["compressed size", "size"])
@pytest.mark.parametrize("lie", [0, 1, 135, 137, 2**31, 2**32 - 2])
def test_lies_about_sizes(field_offset: int, lie: int) -> None:
    data = bytearray(zipped(("x.npy", npy(np.zeros(1)))))
    entry = data.index(b"PK\x01\x02")
    data[entry + field_offset : entry + field_offset + 4] = lie.to_bytes(4, "little")
    with pytest.raises(InputError):
        read(bytes(data))


def test_lies_in_zip64_fields() -> None:
    data = zipped(("x.npy", npy(np.zeros(1))))
    entry, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    for lie in (0, 2**32, 2**62, 2**64 - 1):
        extra = struct.pack("<HHQQ", 1, 16, lie, lie)
        changed = bytearray(data[entry:end] + extra)
        changed[20:28] = b"\xff" * 8
        changed[30:32] = len(extra).to_bytes(2, "little")
        tail = bytearray(data[end:])
        tail[12:16] = len(changed).to_bytes(4, "little")
        with pytest.raises(InputError):
            read(data[:entry] + bytes(changed) + bytes(tail))


@pytest.mark.parametrize(
    "data", [b"", b"PK", b"PK\x03\x04", b"PK\x05\x06" + bytes(10), npy(np.zeros(3)), b"{}"]
)
def test_not_an_archive(data: bytes) -> None:
    with pytest.raises(MalformedInput) as caught:
        read(data)
    assert caught.value.code == "invalid_npz"


@pytest.mark.parametrize("save", [saved, compressed])
def test_cut_short_anywhere(save: Any) -> None:
    data = save(x=np.arange(3), y=np.ones(2))
    for size in range(len(data)):
        with pytest.raises(InputError):
            read(data[:size])


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_mutated_bytes_are_arrays_or_an_input_error(data: st.DataObject) -> None:
    save = data.draw(st.sampled_from([saved, compressed]))
    mutated = bytearray(save(x=np.arange(3), y=np.ones((2, 2), ">f4")))
    for _ in range(data.draw(st.integers(1, 3))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read(bytes(mutated))
    except InputError:
        return
    assert all(len(array.values) == np.prod(array.shape) for array in found.values())


def test_what_was_charged_for_the_directory_is_given_back() -> None:
    budget = Budget()
    read_npz(MemoryFile(saved(x=np.zeros(125))), budget)
    assert budget.limits.max_decoded_bytes - budget.remaining == 1000
