"""Seeds that our encoders never write: what other writers make of the same forms, compression above all."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.framing import FRAMINGS
from tests.support.archives import form_of, part_of, tar_of, zip_of
from tests.support.images import encode, pixels

__all__ = ["FOREIGN_RECORDS", "FOREIGN_TENSORS"]


def _tensor_column() -> Any:
    return pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype="<f4").reshape(3, 2, 2))


_COLUMNS: Final[dict[str, Any]] = {
    "x": pa.array([[1.5, -2.25, 0.0, 1e-3], None, [0.5, 3.0, 2.0, 1e3]], pa.list_(pa.float32(), 4)),
    "label": pa.array([7, None, -1], pa.int64()),
    "text": pa.array(["a", "a", None]).dictionary_encode(),
    "small": pa.array([[1, -2], [], [3]], pa.large_list(pa.int8())),
    "id": pa.array([[b"\0"], [b"", b"ab"], []], pa.list_(pa.binary())),
    "flag": pa.array([True, False, None]),
    "half": pa.array(np.array([0.5, 1.5, 2.5], np.float16)),
    "r": pa.array([[[1.0], []], [], [[2.0, 3.0]]], pa.list_(pa.list_(pa.float32()))),
}
_MORE_COLUMNS: Final[dict[str, Any]] = {
    "view": pa.array(["a long enough text to stand alone", None, "b"], pa.string_view()),
    "nothing": pa.nulls(3),
    "listed": pa.array([[1, 2], None, [3]], pa.list_view(pa.int32())),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array([1.5, 2.5])),
    "tensor": _tensor_column(),
    "fixed": pa.array([b"abcd", b"efgh", b"ijkl"], pa.binary(4)),
}


def _table(columns: dict[str, Any]) -> pa.Table:
    table = pa.table(columns)
    return pa.concat_tables([table, table.slice(1)])


def _arrow(
    columns: dict[str, Any], *, file: bool, compression: Literal["lz4", "zstd"] | None = None
) -> bytes:
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    table = _table(columns).unify_dictionaries()
    open_ = pa.ipc.new_file if file else pa.ipc.new_stream
    with open_(out, table.schema, options=options) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)
    return out.getvalue().to_pybytes()


def _arrow_records() -> Iterator[bytes]:
    scalars = {name: _COLUMNS[name] for name in ("label", "text", "flag", "half")}
    yield b"\0" + _arrow(_COLUMNS, file=False)
    yield b"\0" + _arrow(_COLUMNS, file=True, compression="zstd")
    yield b"\1" + _arrow({"small": _COLUMNS["small"], **scalars}, file=False, compression="lz4")
    yield b"\7" + _arrow(scalars, file=True)
    for name, column in _MORE_COLUMNS.items():
        yield b"\0" + _arrow({name: column}, file=False)
    yield b"\1" + _arrow({"x": _tensor_column()}, file=False)
    places = pa.array([[[0, 1], [3, 2]], [], None], pa.list_(pa.list_(pa.int64(), 2)))
    values = pa.array([[5, 6], [], None], pa.list_(pa.int32()))
    sparse = pa.StructArray.from_arrays(
        [places, values], ["indices", "values"], mask=pa.array([False, False, True])
    )
    yield b"\2" + _arrow({"s": sparse, "r": _COLUMNS["r"]}, file=False)


def _parquet(columns: dict[str, Any], **options: Any) -> bytes:
    out = io.BytesIO()
    # Without statistics and Arrow's schema, which take most of a small file.
    options = {"write_statistics": False, "store_schema": False, **options}
    pq.write_table(_table(columns), out, row_group_size=3, **options)
    return out.getvalue()


def _parquet_records() -> Iterator[bytes]:
    names = ("x", "label", "text", "small", "id")
    columns = {name: _COLUMNS[name] for name in names}
    scalars = {name: _COLUMNS[name] for name in ("label", "text")}
    yield b"\0" + _parquet(columns, compression="snappy")
    yield b"\0" + _parquet({"r": _COLUMNS["r"]}, compression="none", data_page_version="2.0")
    yield b"\0" + _parquet(scalars, compression="zstd", data_page_version="2.0", store_schema=True)
    yield b"\7" + _parquet(scalars, compression="gzip", use_dictionary=False)
    yield b"\0" + _parquet({"label": _COLUMNS["label"]}, compression="lz4", write_page_index=True)
    # Not text: what Arrow cannot read of it is refused.
    deltas: dict[str, Any] = {"label": "DELTA_BINARY_PACKED"}
    label = {"label": _COLUMNS["label"]}
    yield b"\0" + _parquet(label, compression="none", use_dictionary=False, column_encoding=deltas)
    floats = {"half": _COLUMNS["half"], "f": pa.array([1.5, None, 2.5], pa.float32())}
    encoding: dict[str, Any] = {"f": "BYTE_STREAM_SPLIT"}
    yield b"\0" + _parquet(floats, compression="none", use_dictionary=False, column_encoding=encoding)
    yield b"\0" + _parquet({"flag": _COLUMNS["flag"]}, compression="brotli")


#: label: 7
_EXAMPLE: Final = bytes.fromhex("0a 10 0a 0e 0a 05 6c 61 62 65 6c 12 05 1a 03 0a 01 07")


def _tfrecord(*payloads: bytes) -> bytes:
    return FRAMINGS["tfrecord"].frame(payloads)


def _tfrecord_records() -> Iterator[bytes]:
    body = _tfrecord(_EXAMPLE, _EXAMPLE)
    yield b"\0" + gzip.compress(body, mtime=0)
    yield b"\0" + gzip.compress(body, mtime=0) + gzip.compress(body, mtime=0)
    yield b"\0" + zlib.compress(body)


def _npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def _npz_records() -> Iterator[bytes]:
    yield b"\0" + _npz(
        text=np.array(["a", "βγ"]), raw=np.array([b"a", b"bc"]), x=np.ones((2, 3), ">f4", order="F")
    )
    yield b"\0" + _npz(label=np.arange(2, dtype="<u2"), z=np.array([1 + 2j, 3], "<c8"))


def _csv_records() -> Iterator[bytes]:
    yield b'\7label,flag,half,text\r\n7,true,0.5,"a ""b"""\r\n-1,,1e3,"two\r\nlines"\r\n'
    yield b'\0a,"b c"\n1,x\n2.5,\n"3","y,z"'


def _libsvm_records() -> Iterator[bytes]:
    yield b"\0+1 1:0.5 17:2e-3 # a comment\r\n\n-1 qid:7\n"
    yield b"\x091 qid:3 8:-1.5 0:2\n0\n"


def _tar_records() -> Iterator[bytes]:
    sample = [("a.jpg", b"\xff\xd8"), ("a.cls", b"7"), ("a.json", b"{}"), ("a.x.npy", _npy(np.ones((2, 2))))]
    yield b"\0" + tar_of(*sample, ("b.x.npy", _npy(np.ones((1, 2)))))
    yield b"\1" + tar_of(("d/a.label.cls", b"7"), ("d/a.flag", b"true"), ("d/a.small.npy", _npy([1, -2])))
    long = ("n" * 120 + ".txt", "β".encode())
    yield b"\x0a" + tar_of(("pets/cat/1.jpg", b"1"), ("pets/dog/2.PNG", b"2"))
    for layout in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        yield b"\0" + tar_of(long, layout=layout)


def _zip_records() -> Iterator[bytes]:
    pets = [("cat/1.jpg", b"\xff\xd8"), ("cat/.DS_Store", b""), ("dog/2.png", b"\x89PNG" * 9)]
    yield b"\0" + zip_of(*pets)
    yield b"\x0c" + zip_of(*pets, method=zipfile.ZIP_STORED)
    yield b"\x0b" + zip_of(("a.cls", b"7"), ("a.x.npy", _npy([1, 2])), ("b.cls", b"8"))


def _form_records() -> Iterator[bytes]:
    yield b"\0" + form_of("cat", ("1.jpg", b"\xff\xd8"), ("2.png", b""), "dog", ("ü.gif", b"GIF\r\n--"))
    yield b"\x0c" + form_of(part_of("schema", b"{}"), ("cat/1.jpg", b"1"), ("dog/.x.jpg", b""))
    yield b"\x0b" + form_of(("a.cls", b"7"), ("a.x.npy", _npy([1, 2])), ("b.cls", b"8"))


def _json_records() -> Iterator[bytes]:
    columns = b'{"x":[[1,2],[3,4]],"text":["a","b"],"y":[null,1.5]}'
    yield b"\0" + columns
    yield b'\0{"columns":' + columns + b"}"
    yield b'\0{"inputs":[{"name":"x","datatype":"FP32","shape":[2,2],"data":[1,2,3,4]}]}'
    yield b'\0{"inputs":[{"name":"x","datatype":"BYTES","shape":[2],"data":["a","b"]}],"id":"1"}'
    yield b'\0{"schema":{"features":{"x":{"dtype":"int8"}}},"instances":[{"x":1},{"x":"2"}]}'
    yield b'\5[{"a":-0,"b":1e38},{"a":1.0,"b":null},{"b":null,"c":"\\ud83d\\ude00"}]'
    yield b'\6[{"x":[[NaN,-Infinity],["NaN",1e-46]],"label":"12","half":0.1}]'
    for sign in (b"\1", b"\6"):
        yield sign + b'[{"x":[[1,2],[3,4]],"raw":[1,65535],"z":[[[1.5,-2]]],"id":["a",{"b64":"_-8"}]}]'


def _ndjson_records() -> Iterator[bytes]:
    yield b'\0{"a":1,"b":[1.5,2],"c":{"b64":"_-8"}}\r\n\n{"a":2.5,"b":[]}\n{"b":[3],"c":{"b64":"AA"}}'
    yield b'\6{"x":[[NaN,1],[2,3]],"flag":false}\n{"label":9223372036854775807}\n'
    yield (
        b'\2{"r":{"values":[1,2,3],"row_splits":[[0,1,3]]},'
        b'"s":{"values":[5],"indices":[[3,2]],"dense_shape":[4,3]}}'
    )


def _npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def _npy_tensors() -> Iterator[bytes]:
    yield b"\0" + _npy(np.ones((2, 3), ">f8", order="F"))
    yield b"\0" + _npy(np.array(["a", "βγ"]))
    yield b"\0" + _npy(np.array([[b"a", b"bc"]]))
    yield b"\0" + _npy(np.array([True, False]))
    yield (
        b"\0\x93NUMPY\2\0"
        + struct.pack("<I", 60)
        + b"{'descr':'<i2','fortran_order':False,'shape':(2,)}".ljust(59)
        + b"\n\1\0\2\0"
    )


def _tensor_protos() -> Iterator[bytes]:
    """The typed fields, of which a short one repeats its last value."""
    shape = bytes.fromhex("12 08 12 02 08 02 12 02 08 03")
    fields = {
        1: "2a 08 00 00 80 3f 00 00 00 40",  # float_val
        2: "32 08 00 00 00 00 00 00 f0 3f",  # double_val
        3: "3a 03 01 02 03",  # int_val
        6: "38 01 38 ff ff ff ff ff ff ff ff ff 01",  # int_val, unpacked
        7: "42 01 61 42 00",  # string_val
        8: "4a 08 00 00 80 3f 00 00 00 40",  # scomplex_val
        9: "52 02 01 02",  # int64_val
        10: "5a 01 01",  # bool_val
        14: "6a 02 80 7f",  # half_val
        22: "82 01 01 07",  # uint32_val
        23: "8a 01 01 07",  # uint64_val
    }
    for number, text in fields.items():
        yield b"\0" + bytes([8, number]) + shape + bytes.fromhex(text)
    yield b"\1" + _sparse_rows()
    yield b"\0" + bytes.fromhex("08 1d 12 04 12 02 08 02 22 02 0f 01")  # int4


def _sparse_rows() -> bytes:
    """Two rows as `tf.io.serialize_many_sparse` gives them: indices, values and dense_shape of each."""
    indices = bytes.fromhex("08 09 12 08 12 02 08 01 12 02 08 01 22 08") + struct.pack("<q", 2)
    values = bytes.fromhex("08 01 12 04 12 02 08 01 22 04") + struct.pack("<f", 1.5)
    dense_shape = bytes.fromhex("08 09 12 04 12 02 08 01 22 08") + struct.pack("<q", 4)
    parts = b"".join(b"\x42" + bytes([len(part)]) + part for part in (indices, values, dense_shape))
    return bytes.fromhex("08 07 12 08 12 02 08 02 12 02 08 03") + 2 * parts


def _arrow_tensors() -> Iterator[bytes]:
    tensors: Any = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype="<f4").reshape(2, 2, 3))
    for compression in (None, "zstd"):
        yield b"\0" + _arrow_tensor(tensors, compression)
    yield b"\0" + _arrow_tensor(pa.array([1, 2, 3], pa.uint16()), None)


def _arrow_tensor(array: Any, compression: Literal["lz4", "zstd"] | None) -> bytes:
    out = pa.BufferOutputStream()
    table = pa.table({"x": array})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(out, table.schema, options=options) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


def _json_tensors() -> Iterator[bytes]:
    yield b"\0[[1,2],[3,4.5]]"
    yield b'\0{"inputs":{"a":[1,2],"b":[["x"],[{"b64":"AA"}]]}}'
    yield b'\0{"inputs":[{"name":"a","datatype":"BF16","shape":[1,2],"data":[[1,2.5]]}]}'
    yield b'\0{"tensors":[{"data":[true],"name":"a"},[1],{"values":[1,2],"row_splits":[[0,1,2]]}]}'
    yield b"\5[[true],[false]]"
    yield b'\3[["NaN",-0,1e-46],[0.1,3.4028235e38,1]]'
    yield b'\0{"dtype":"int64","shape":[2],"data":["9223372036854775807",-1]}'


def _npz_tensors() -> Iterator[bytes]:
    yield b"\0" + _npz(a=np.array(["a", "βγ"]), b=np.ones((1, 2), ">i4"))
    yield b"\2" + _npz(values=np.arange(3), row_splits_0=np.array([0, 1, 3]))


def _compressed_tensors() -> Iterator[bytes]:
    body = _tfrecord(bytes.fromhex("08 03 12 00 3a 01 07"), bytes.fromhex("08 01 12 00"))
    yield b"\0" + gzip.compress(body, mtime=0)
    yield b"\0" + zlib.compress(body)


def _raw_tensors() -> Iterator[bytes]:
    yield b"\3" + np.arange(6, dtype="<f4").tobytes()
    yield b"\4" + np.arange(4, dtype=">c8").tobytes()
    yield b"\5\0\1"
    yield b"\7\x0f\1\x07"


def _oip_records() -> Iterator[bytes]:
    blob = struct.pack("<2f", 1, 2) + struct.pack("<I", 1) + b"a" + struct.pack("<I", 0)
    text = (
        b'{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}},'
        b'{"name":"text","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":9}},'
        b'{"name":"label","datatype":"INT64","shape":[2],"data":[1,2]}],"id":"a"}'
    )
    yield b"\0" + struct.pack("<H", len(text)) + text + blob


def _images(form: str, *options: dict[str, Any]) -> Callable[[], Iterator[bytes]]:
    """Images of one grey and of noise: decoded to their own channels, to RGB, and a PNG to 16 bits."""

    def seeds() -> Iterator[bytes]:
        for image in (np.full((4, 6, 3), 128, np.uint8), pixels(9, 7, 3), pixels(3, 5, 1)):
            for variant in b"\0\x08\x09" if form == "png" else b"\0\x08":
                for given in options or ({},):
                    yield bytes([variant]) + encode(image, form, **given)

    return seeds


FOREIGN_RECORDS: Final = {
    "arrow": _arrow_records,
    "parquet": _parquet_records,
    "tfrecord": _tfrecord_records,
    "npz": _npz_records,
    "oip": _oip_records,
    "csv": _csv_records,
    "libsvm": _libsvm_records,
    "tar": _tar_records,
    "zip": _zip_records,
    "multipart": _form_records,
    "json": _json_records,
    "ndjson": _ndjson_records,
}
FOREIGN_TENSORS: Final = {
    "raw": _raw_tensors,
    "npy": _npy_tensors,
    "npz": _npz_tensors,
    "tensorproto": _tensor_protos,
    "arrow": _arrow_tensors,
    "json": _json_tensors,
    "tfrecord": _compressed_tensors,
    "jpeg": _images("jpeg", {"quality": 90}, {"progressive": True}),
    "png": _images("png"),
    "webp": _images("webp", {"lossless": True}, {"quality": 50}),
    "gif": _images("gif"),
    "bmp": _images("bmp"),
}
