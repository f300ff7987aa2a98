"""Conversions of tensors: large ones leave as they arrive, and are what small ones are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.codecs.array import Array
from app.codecs.columns import Strings
from app.codecs.forms import TENSOR_CODECS, FormName
from app.codecs.options import TensorDecodeOptions, TensorEncodeOptions
from app.domain.dtypes import DTYPES
from app.domain.limits import KIB, MIB, Limits
from app.errors import InputError, StreamInterrupted, UnprocessableInput
from app.runtime import arriving_body
from app.runtime.budget import Budget
from app.runtime.spool import Spool, SpoolFile
from app.runtime.streams import MemoryStream
from app.runtime.workspace import Workspace
from app.services.convert.tensors import ConvertedTensors, TensorConversion, convert_tensors
from tests.support.bodies import stream_of

COUNT = 80_000
LARGE = Array(DTYPES["float32"], (COUNT // 2, 2), np.arange(COUNT, dtype="<f4"))
STREAMED: tuple[FormName, ...] = ("npy", "raw", "tensorproto", "safetensors", "tfrecord")
ALL: tuple[FormName, ...] = (*STREAMED, "json", "npz", "oip", "b64")
LITTLE = Limits(max_decoded_bytes=64 * KIB)


def written(form: FormName, *tensors: Array, **options: Any) -> bytes:
    encode = TENSOR_CODECS[form].encode
    name = "tensor_{}" if form == "safetensors" else None
    named = [replace(item, name=name and name.format(index)) for index, item in enumerate(tensors)]
    return b"".join(encode(named, TensorEncodeOptions(**options), Budget()))


def convert(
    data: bytes,
    form: FormName,
    to: FormName,
    *,
    known: bool = True,
    chosen: bool = True,
    limits: Limits | None = None,
    encode: TensorEncodeOptions | None = None,
    **options: Any,
) -> ConvertedTensors:
    if form == "raw":
        options = {"dtype": LARGE.dtype, "shape": LARGE.shape} | options
    conversion = TensorConversion(
        form,
        to,
        chosen,
        TensorDecodeOptions(**options),
        encode or TensorEncodeOptions(),
    )
    size = len(data) if known else None
    return convert_tensors(
        stream_of(data, 30_000), conversion, Workspace(Budget(limits), Spool(None, 0)), size
    )


def code_of(converted: Any) -> str:
    with pytest.raises(InputError) as caught:
        b"".join(converted().chunks)
    return caught.value.code


@pytest.mark.parametrize("known", [True, False], ids=["length known", "length not known"])
@pytest.mark.parametrize("form", STREAMED)
def test_a_large_tensor_leaves_in_every_form_as_a_held_one_does(form: FormName, known: bool) -> None:
    data = written(form, LARGE)
    for to in ALL:
        converted = convert(data, form, to, known=known)
        held = replace(LARGE, name={"safetensors": "tensor_0"}.get(form))
        encode = TENSOR_CODECS[to].encode
        assert b"".join(converted.chunks) == b"".join(encode([held], TensorEncodeOptions(), Budget())), to
        assert converted.form == to


@pytest.mark.parametrize("to", [*STREAMED, "json"])
@pytest.mark.parametrize("form", STREAMED)
def test_between_forms_that_stream_nothing_is_held(form: FormName, to: FormName) -> None:
    converted = convert(written(form, LARGE), form, to, limits=LITTLE)
    assert sum(len(chunk) for chunk in converted.chunks) > 4 * COUNT - 1
    assert converted.num_messages == (None if converted.tensors is None else 1)


def test_the_answer_begins_before_the_body_ends() -> None:
    data = written("npy", LARGE)
    drawn: list[int] = []

    class Source:
        def __init__(self) -> None:
            self._pieces = iter([data[:280_000], data[280_000:]])

        def read(self, n: int, /) -> bytes:
            piece = next(self._pieces, b"")
            assert len(piece) <= n
            drawn.append(len(piece))
            return piece

    conversion = TensorConversion("npy", "tfrecord", True, TensorDecodeOptions(), TensorEncodeOptions())
    source = Source()
    source.read = _buffered(source.read)  # type: ignore[method-assign]  # reads of any size
    chunks = convert_tensors(source, conversion, Workspace(Budget(), Spool(None, 0))).chunks
    first = list(itertools.islice(chunks, 3))
    assert sum(map(len, first)) > 200_000
    assert drawn == [280_000]


def _buffered(read: Any) -> Any:
    pending = b""

    def some(n: int, /) -> bytes:
        nonlocal pending
        if not pending:
            pending = read(1 << 30)
        piece, pending = pending[:n], pending[n:]
        return piece

    return some


def test_a_small_body_is_decoded_in_memory() -> None:
    small = Array(DTYPES["float32"], (4,), np.arange(4, dtype="<f4"))
    for known in (True, False):
        converted = convert(written("npy", small), "npy", "raw", known=known)
        assert converted.tensors is not None
        assert not any(isinstance(item, Array) and item.is_arriving for item in converted.tensors)


def test_components_are_put_together_in_memory() -> None:
    indices = Array(DTYPES["int64"], (COUNT, 1), np.arange(COUNT, dtype="<i8"))
    values = Array(DTYPES["float32"], (COUNT,), np.arange(COUNT, dtype="<f4"))
    shape = Array(DTYPES["int64"], (1,), np.array([COUNT], "<i8"))
    data = written("tfrecord", indices, values, shape)
    converted = convert(data, "tfrecord", "tfrecord", kind="sparse")
    assert converted.num_messages == 1


# How many tensors there are.


@pytest.mark.parametrize("known", [True, False], ids=["length known", "length not known"])
def test_several_records_leave_in_forms_of_several(known: bool) -> None:
    data = written("tfrecord", LARGE, LARGE)
    for to in ("tfrecord", "json", "npz", "safetensors"):
        converted = convert(data, "tfrecord", to, known=known)
        assert b"".join(converted.chunks) == written(to, LARGE, LARGE)


def test_any_number_of_records_is_held_one_at_a_time() -> None:
    data = written("tfrecord", *[LARGE] * 3)
    converted = convert(data, "tfrecord", "tfrecord", limits=LITTLE)
    assert (b"".join(converted.chunks), converted.num_messages) == (data, None)


def test_records_in_memory_are_charged_together_unless_they_leave_one_by_one() -> None:
    text = Array(DTYPES["string"], (1,), Strings.pack([b"x" * 5000]))
    data = written("tfrecord", *[text] * 400)
    limits = Limits(max_decoded_bytes=1200 * KIB)
    assert b"".join(convert(data, "tfrecord", "tfrecord", limits=limits).chunks) == data
    assert code_of(lambda: convert(data, "tfrecord", "json", limits=limits)) == "payload_too_large"


def test_a_proto_not_asked_for_becomes_records_where_there_are_several() -> None:
    one, two = written("tfrecord", LARGE), written("tfrecord", LARGE, LARGE)
    for known in (True, False):
        single = convert(one, "tfrecord", "tensorproto", known=known, chosen=False)
        assert (single.form, b"".join(single.chunks)) == ("tensorproto", written("tensorproto", LARGE))
        several = convert(two, "tfrecord", "tensorproto", known=known, chosen=False)
        assert (several.form, b"".join(several.chunks), several.num_messages) == ("tfrecord", two, 2)


@pytest.mark.parametrize("to", ["npy", "raw", "tensorproto"])
def test_a_second_tensor_in_a_form_of_one_is_refused_at_its_end(to: FormName) -> None:
    data = written("tfrecord", LARGE, LARGE)
    for known in (True, False):
        assert code_of(lambda: convert(data, "tfrecord", to, known=known)) == "several_tensors"  # noqa: B023 (called at once)


@pytest.mark.parametrize("to", ["npy", "raw", "tensorproto"])
def test_safetensors_of_two_are_refused_in_a_form_of_one_before_they_are_drawn(to: FormName) -> None:
    data = written("safetensors", LARGE, LARGE)
    with pytest.raises(UnprocessableInput) as caught:
        convert(data, "safetensors", to)
    assert caught.value.code == "several_tensors"


def test_long_strings_in_records_are_held() -> None:
    strings = Array(DTYPES["string"], (2,), Strings.pack([b"a", b"x" * 300_000]))
    data = written("tfrecord", strings, LARGE)
    for known in (True, False):
        assert b"".join(convert(data, "tfrecord", "tfrecord", known=known).chunks) == data
        assert code_of(lambda: convert(data, "tfrecord", "npy", known=known)) == "several_tensors"  # noqa: B023 (called at once)
    alone = written("tfrecord", strings)
    assert b"".join(convert(alone, "tfrecord", "npy", known=False).chunks) == written("npy", strings)


def test_elements_that_change_their_order_are_held() -> None:
    data = written("npy", LARGE)
    options = TensorEncodeOptions(order="F")
    converted = convert(data, "npy", "raw", encode=options)
    assert b"".join(converted.chunks) == written("raw", LARGE, order="F")
    assert code_of(lambda: convert(data, "npy", "raw", encode=options, limits=LITTLE)) == "payload_too_large"


def test_late_error_is_raised_while_streaming() -> None:
    def pieces(chunks: Iterator[Any]) -> tuple[int, str]:
        size = 0
        try:
            for chunk in chunks:
                size += len(chunk)
        except InputError as error:
            return size, error.code
        return size, ""

    data = bytearray(written("tfrecord", LARGE))
    data[-1] ^= 1
    assert pieces(convert(bytes(data), "tfrecord", "raw").chunks) == (4 * COUNT, "corrupt_record")
    short = written("npy", LARGE)[:-1]
    size, code = pieces(convert(short, "npy", "raw").chunks)
    assert (size, code) == (4 * COUNT - 1, "truncated")


def json_of(count: int, ending: str) -> bytes:
    return ('{"dtype":"float32","data":[' + "0.25,-1.5e3,17.125," * (count // 3) + ending).encode()


@pytest.mark.parametrize("read", [30_000, 1_000_000], ids=["small pieces", "large pieces"])
def test_json_that_is_read_while_it_arrives_is_what_it_is_as_a_whole(
    read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arriving_body, "monotonic", lambda: 0.0)
    views: list[SpoolFile] = []
    view = SpoolFile.view

    def noted(file: SpoolFile) -> memoryview:
        views.append(file)
        return view(file)

    monkeypatch.setattr(SpoolFile, "view", noted)
    data = json_of(300_000, "1.0]}")
    assert len(data) > MIB
    budgets = []
    answers = []
    for known in (len(data), None):
        budget = Budget()
        conversion = TensorConversion(
            "json", "tensorproto", True, TensorDecodeOptions(), TensorEncodeOptions()
        )
        with Workspace(budget, Spool(None, 8 * MIB)) as workspace:
            found = convert_tensors(stream_of(data, read), conversion, workspace, known)
            answers.append(b"".join(found.chunks))
            budgets.append(budget.remaining)
    assert answers[0] == answers[1]
    assert len(answers[0]) > 4 * 300_001
    assert budgets[0] == budgets[1]
    assert len(views) == 1  # where the length is not known, the body is read as a whole


class Stopping:
    """A `TimedStream` whose sender stops for a while once half of the body is there."""

    def __init__(self, data: bytes, budget: Budget) -> None:
        self._source = stream_of(data, 65_536)
        self._left = len(data) // 2 // 65_536
        self._budget = budget
        #: What the budget had left when the reader waited, however long that took.
        self.left_over: int | None = None

    def wait_readable(self, _seconds: float) -> bool:
        return self._left > 0

    def read(self, n: int, /) -> bytes:
        if self._left == 0:
            self.left_over = self._budget.remaining
        self._left -= 1
        return self._source.read(n)


def test_no_memory_is_held_for_a_tensor_whose_sender_stops() -> None:
    data = json_of(600_000, "1.0]}")
    budget = Budget()
    source = Stopping(data, budget)
    conversion = TensorConversion("json", "tensorproto", True, TensorDecodeOptions(), TensorEncodeOptions())
    with Workspace(budget, Spool(None, 32 * MIB)) as workspace:
        found = convert_tensors(source, conversion, workspace, len(data))
        size = sum(map(len, found.chunks))
    assert size > 4 * 600_001
    assert source.left_over == Budget().remaining


def test_json_that_is_declared_too_long_to_be_held_is_refused_where_it_ends() -> None:
    """What it would take is an estimate until then: most of it may be one long text."""

    class Leaving(MemoryStream):
        def read(self, n: int, /) -> bytes:
            piece = super().read(n)
            if not piece:
                raise StreamInterrupted("The client has left.")
            return piece

    conversion = TensorConversion("json", "tensorproto", True, TensorDecodeOptions(), TensorEncodeOptions())
    source = Leaving(json_of(600_000, ""))
    with Workspace(Budget(), Spool(None, 32 * MIB)) as workspace, pytest.raises(StreamInterrupted):
        convert_tensors(source, conversion, workspace, 1_000_000_000)
    assert source.ended


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("1.0]", "invalid_json"),
        ("1.0,]}", "invalid_json"),
        ('1.0],"data":[]}', "duplicate_key"),
        ("null]}", "null_value"),
        ("1e39]}", "out_of_range"),
        ("9007199254740993]}", "inexact_integer"),
        ("[1.0]]}", "ragged"),
        ('1.0],"more":1}', "invalid_tensor"),
    ],
)
def test_fault_in_arriving_json_equals_fault_in_whole_json(ending: str, code: str) -> None:
    data = json_of(300_000, ending)
    errors = []
    for known in (True, False):
        with pytest.raises(InputError) as caught:
            b"".join(convert_spooled(data, known=known))
        errors.append((caught.value.code, caught.value.detail, caught.value.location))
    assert errors[0] == errors[1]
    assert errors[0][0] == code


def convert_spooled(data: bytes, *, known: bool) -> list[Any]:
    conversion = TensorConversion(
        "json",
        "tensorproto",
        True,
        TensorDecodeOptions(),
        TensorEncodeOptions(),
    )
    size = len(data) if known else None
    with Workspace(Budget(), Spool(None, 32 * MIB)) as workspace:
        source = stream_of(data, 65_536)
        found = convert_tensors(source, conversion, workspace, size)
        return list(found.chunks)
