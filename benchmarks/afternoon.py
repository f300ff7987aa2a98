"""What somebody would write in an afternoon instead of using ours; the peer of `bench_afternoon`."""

from __future__ import annotations

import io
import tempfile
from typing import Any

import numpy as np
import orjson
import tensorflow as tf
from fastapi import FastAPI, Request, Response

app = FastAPI()


def feature(value: Any) -> Any:
    values = value if isinstance(value, list) else [value]
    if not values:
        return tf.train.Feature()
    if isinstance(values[0], str):
        texts = [text.encode() for text in values]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


@app.post("/rows")
async def serialize_rows(request: Request) -> Response:
    rows = orjson.loads(await request.body())
    with tempfile.NamedTemporaryFile() as file:
        with tf.io.TFRecordWriter(file.name) as writer:
            for row in rows:
                features = {name: feature(value) for name, value in row.items()}
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
        return Response(file.read(), media_type="application/x-tfrecord")


@app.post("/tensor")
async def serialize_tensor(request: Request) -> Response:
    array = np.array(orjson.loads(await request.body()), np.float32)
    return Response(tf.io.serialize_tensor(array).numpy(), media_type="application/protobuf")


@app.post("/npy")
async def serialize_npy(request: Request) -> Response:
    array = np.load(io.BytesIO(await request.body()))
    return Response(tf.io.serialize_tensor(array).numpy(), media_type="application/protobuf")
