"""What clients send: rows that carry their own identity, in several forms, all told by the seed."""

import csv
import io
import json
import random
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from tests.support.tfrecord_frames import frame

__all__ = ["FORMS", "SCHEMA", "AppendSpec", "Dataset", "Row", "append_spec", "body_of", "rows_of"]

Row = tuple[int, float, str]
Form = Literal["ndjson", "json", "csv", "arrow", "tfrecord"]
#: - whole: sent whole; sent again under its key until the answer is definite
#: - again: like whole, and once more after the acknowledgement
#: - altered: like whole, and then another body under the same key, which has to be refused
#: - cut: the connection ends in the middle of the body; nothing may come of it
#: - cut_then_whole: the same, and then the whole body under the same key
Behaviour = Literal["whole", "again", "altered", "cut", "cut_then_whole"]

SCHEMA = {
    "features": {
        "id": {"dtype": "int64", "shape": []},
        "score": {"dtype": "float32", "shape": []},
        "text": {"dtype": "string", "shape": []},
    }
}
FORMS: dict[Form, str] = {
    "ndjson": "application/x-ndjson",
    "json": "application/json",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
    "tfrecord": "application/x-tfrecord",
}
#: A row's id is the number of its append times this, plus its place in it.
_PLACES = 1 << 20
#: Every so-many-th append is of some 400 KB, which makes a part, or of 18 MB, which makes two.
_MEDIUM_EVERY = 100
_LARGE_EVERY = 2000


@dataclass(frozen=True)
class Dataset:
    """Where rows go.

    Attributes:
        is_declared: created with its schema; else by the first append.
        base: of its publications.
        options: further parameters of its publications.
        splits: that rows are appended to.
        keep_versions: how many collection leaves; None: all.
    """

    name: str
    is_declared: bool = True
    base: Literal["latest", "none"] = "latest"
    options: tuple[tuple[str, str], ...] = ()
    splits: tuple[str, ...] = ("train", "test")
    keep_versions: int | None = None

    @property
    def is_ordered(self) -> bool:
        """Whether rows stay where they were put."""
        return not {"shuffle", "fractions"} & dict(self.options).keys()

    def parameters(self, *, of_append: bool = False) -> dict[str, str]:
        """Of a publication; `of_append`: by an append, where `compression` is that of the body."""
        parameters = {"base": self.base, **dict(self.options)}
        if of_append and "compression" in parameters:
            parameters["shard_compression"] = parameters.pop("compression")
        return parameters

    def creation(self) -> dict[str, object]:
        """The body of the request that creates it."""
        kept = {} if self.keep_versions is None else {"keep_versions": self.keep_versions}
        return {"schema": SCHEMA, **kept}


@dataclass(frozen=True)
class AppendSpec:
    """One append: the rows `index * 2^20 + place` for each place below `num_rows`."""

    index: int
    dataset: str
    split: str
    form: Form
    num_rows: int
    padding: int
    key: str | None
    behaviour: Behaviour
    is_chunked: bool
    publish: bool

    @property
    def row_ids(self) -> range:
        return range(self.index * _PLACES, self.index * _PLACES + self.num_rows)


def append_index(row_id: int) -> int:
    """The append that a row belongs to."""
    return row_id // _PLACES


def append_spec(seed: int, index: int, datasets: dict[str, Dataset], names: list[str]) -> AppendSpec:
    """The append number `index` of a campaign; `names` are the datasets that small ones go to."""
    dice = random.Random(f"{seed}:append:{index}")
    if index % _LARGE_EVERY == 40:
        name, num_rows, padding = "large", 40, 450_000
    elif index % _MEDIUM_EVERY == 7:
        name, num_rows, padding = "large", 50, 8_000
    else:
        name = dice.choice(names)
        num_rows = 1 if dice.random() < 0.6 else dice.randint(1, 60)
        padding = dice.choice((0, 0, 10, 100))
    dataset = datasets[name]
    form: Form = dice.choice(tuple(FORMS)) if dataset.is_declared else "ndjson"
    if padding > 1000 and form == "tfrecord":  # framed in plain Python here
        form = "arrow"
    is_large = padding > 100_000
    is_keyed = is_large or dice.random() < 0.6
    behaviour = dice.choices(
        ("whole", "again", "altered", "cut", "cut_then_whole"),
        (80, 8, 4, 4, 4) if is_keyed else (95, 0, 0, 5, 0),
    )[0]
    if is_large:
        behaviour = "again"  # there are few of them
    return AppendSpec(
        index=index,
        dataset=name,
        split=dice.choice(dataset.splits),
        form=form,
        num_rows=num_rows,
        padding=padding,
        key=f"{seed}-{index}" if is_keyed else None,
        behaviour=behaviour,  # type: ignore[arg-type]  # `choices` forgets the literals
        is_chunked=dice.random() < 0.3,
        publish=dice.random() < 0.02 and name != "large",
    )


def row_of(row_id: int, padding: int) -> Row:
    """What every reader has to get for a row."""
    return row_id, (row_id % 4096) / 8, f"r{row_id}" + "." * padding


def rows_of(spec: AppendSpec) -> list[Row]:
    return [row_of(row_id, spec.padding) for row_id in spec.row_ids]


def body_of(spec: AppendSpec) -> bytes:
    """The body of the request."""
    return _BODIES[spec.form](rows_of(spec))


def _objects(rows: Iterable[Row]) -> list[dict[str, object]]:
    return [dict(zip(SCHEMA["features"], row, strict=True)) for row in rows]


def _ndjson(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in _objects(rows)).encode()


def _json(rows: list[Row]) -> bytes:
    return json.dumps({"instances": _objects(rows)}).encode()


def _csv(rows: list[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(SCHEMA["features"])
    writer.writerows(rows)
    return text.getvalue().encode()


def _arrow(rows: list[Row]) -> bytes:
    ids, scores, texts = zip(*rows, strict=True)
    columns = [pa.array(ids, pa.int64()), pa.array(scores, pa.float32()), pa.array(texts, pa.string())]
    batch = pa.record_batch(columns, names=list(SCHEMA["features"]))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _tfrecord(rows: list[Row]) -> bytes:
    return b"".join(frame(_example(row)) for row in rows)


def _example(row: Row) -> bytes:
    """A `tf.train.Example`, written by hand."""
    row_id, score, text = row
    values = {
        "id": _field(3, _field(1, _varint(row_id))),
        "score": _field(2, _field(1, struct.pack("<f", score))),
        "text": _field(1, _field(1, text.encode())),
    }
    entries = [_field(1, _field(1, name.encode()) + _field(2, value)) for name, value in values.items()]
    return _field(1, b"".join(entries))


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of protobuf."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


_BODIES: dict[Form, Callable[[list[Row]], bytes]] = {
    "ndjson": _ndjson,
    "json": _json,
    "csv": _csv,
    "arrow": _arrow,
    "tfrecord": _tfrecord,
}
