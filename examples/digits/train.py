"""Trains a small Keras model on the downloaded shards: `train.py FOLDER`, FOLDER holding the shards.

Nothing here knows Shardsmith: the shards are read with tf.data as any TFRecord files are. Prints the
accuracy on the test split and exits with 1 when it is below 0.95.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported

import keras
import tensorflow as tf

SEED = 7
EPOCHS = 15
BATCH = 64
ENOUGH = 0.95
FEATURES = {
    "image": tf.io.FixedLenFeature([8, 8], tf.int64),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """One serialized tf.train.Example as (image float32 [8, 8, 1] in 0..1, label int64)."""
    example = tf.io.parse_single_example(record, FEATURES)
    image = tf.cast(example["image"], tf.float32) / 16.0
    return image[..., tf.newaxis], example["label"]


def read(folder: str, split: str) -> tf.data.Dataset:
    """The examples of a split, its shards interleaved."""
    files = tf.data.Dataset.list_files(f"{folder}/digits-{split}.tfrecord-*", shuffle=False)
    records = files.interleave(
        tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def build_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main(folder: str) -> int:
    keras.utils.set_random_seed(SEED)
    train = read(folder, "train").shuffle(2048, seed=SEED).batch(64).prefetch(tf.data.AUTOTUNE)
    test = read(folder, "test").batch(256).prefetch(tf.data.AUTOTUNE)
    model = build_model()
    model.compile(
        optimizer="adam",
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(train, epochs=EPOCHS, verbose=0)
    accuracy = model.evaluate(test, verbose=0, return_dict=True)["accuracy"]
    print(f"test accuracy: {accuracy:.4f}")
    return 0 if accuracy >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "digits/shards"))
