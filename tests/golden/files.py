"""The bytes of `tensorflow.json` as files, for implementations elsewhere: python -m tests.golden.files

Writes `files/` beside this file, and `files/index.json`, which docs/reference/golden.md describes.
"""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.golden.make import GOLDEN

FILES: Final = Path(__file__).with_name("files")
INDEX: Final = "index.json"
_SUFFIXES: Final = {"": "", "GZIP": ".gz", "ZLIB": ".zlib"}
_WRITTEN: Final = "TFRecord, as tf.io.TFRecordWriter writes it"

#: What the index says of a file, and its bytes.
File = tuple[dict[str, Any], bytes]


def files() -> list[File]:
    """All of them, inputs before what is made of them."""
    golden = json.loads(GOLDEN.read_text("utf-8"))
    tensors = [file for tensor in golden["tensors"] for file in _tensor(tensor)]
    rows = [file for name in ("example", "sequence_example") for file in _rows(name, golden[name])]
    return [({**entry, "sha256": sha256(content).hexdigest()}, content) for entry, content in tensors + rows]


def _tensor(tensor: dict[str, Any]) -> Iterator[File]:
    dtype, shape, content = tensor["dtype"], tensor["shape"], tensor["content"]
    stem = f"tensors/{dtype}-{'x'.join(map(str, shape)) or 'scalar'}"
    said = {"dtype": dtype, "shape": shape}
    if dtype == "string":
        data = [{"b64": b64encode(bytes.fromhex(value)).decode()} for value in content]
        path, what = f"{stem}.json", "the tensor as JSON"
        yield {"path": path, "what": what, **said}, json.dumps({**said, "data": data}).encode()
    else:
        path, what = f"{stem}.raw", "the elements: little-endian, row-major"
        yield {"path": path, "what": what, **said}, bytes.fromhex(content)
    message = {"path": f"{stem}.pb", "what": "TensorProto, as tf.io.serialize_tensor writes it", "of": path}
    yield {**message, **said}, bytes.fromhex(tensor["message"])
    if dtype not in ("string", "bfloat16"):  # numpy has them not, or as objects
        saved = io.BytesIO()
        np.save(saved, np.frombuffer(bytes.fromhex(content), dtype).reshape(shape))
        npy = {"path": f"{stem}.npy", "what": "the tensor as numpy.save writes it", "of": path}
        yield {**npy, **said}, saved.getvalue()


def _rows(name: str, case: dict[str, Any]) -> Iterator[File]:
    schema, rows = f"rows/{name}.schema.json", f"rows/{name}.json"
    yield {"path": schema, "what": "the schema of the rows"}, _json(case["schema"])
    yield {"path": rows, "what": "the rows", "schema": schema}, _json(case["rows"])
    for compression, suffix in _SUFFIXES.items():
        what = f"{_WRITTEN} with {compression}" if compression else _WRITTEN
        entry = {"path": f"rows/{name}.tfrecord{suffix}", "what": what, "of": rows, "schema": schema}
        yield entry, bytes.fromhex(case["files"][compression])


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def main() -> None:
    made = files()
    for entry, content in made:
        path = FILES / entry["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (FILES / INDEX).write_bytes(_json([entry for entry, _ in made]))


if __name__ == "__main__":
    main()
