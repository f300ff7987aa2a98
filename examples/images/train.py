"""Trains a small Keras model on the published photographs: `train.py FOLDER`, FOLDER holding the version.

Nothing here knows Shardsmith: the shards are read with tf.data as the tutorials on TFRecord do, which decode
each image, resize it to 128 x 128 and divide it by 255. Prints the loss of the first and the last epoch and
the accuracy on the test split; exits with 1 when the loss has not fallen or the accuracy is below 0.9.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported

import keras
import tensorflow as tf

SEED = 7
EPOCHS = 6
BATCH = 16
ENOUGH = 0.9
SIZE = (128, 128)
FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """One serialized tf.train.Example as (image float32 [128, 128, 3] in 0..1, label int64)."""
    example = tf.io.parse_single_example(record, FEATURES)
    image = tf.io.decode_jpeg(example["image"], channels=3)
    return tf.image.resize(image, SIZE) / 255.0, example["label"]


def read(folder: str, split: str) -> tf.data.Dataset:
    """The examples of a split."""
    files = tf.data.Dataset.list_files(f"{folder}/*-{split}.tfrecord-*", shuffle=False)
    return tf.data.TFRecordDataset(files).map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def build_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((*SIZE, 3)),
            keras.layers.Conv2D(8, 5, strides=4, activation="relu"),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(2),
        ]
    )


def main(folder: str) -> int:
    keras.utils.set_random_seed(SEED)
    train = read(folder, "train").shuffle(256, seed=SEED).batch(BATCH).prefetch(tf.data.AUTOTUNE)
    model = build_model()
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    losses = model.fit(train, epochs=EPOCHS, verbose=0).history["loss"]
    accuracy = model.evaluate(read(folder, "test").batch(64), verbose=0, return_dict=True)["accuracy"]
    print(f"loss: {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"test accuracy: {accuracy:.4f}")
    return 0 if losses[-1] < losses[0] and accuracy >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "photos/1.0.0"))
