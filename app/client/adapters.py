"""A feed as the datasets of other libraries, each of which is imported where it is used.

Grain needs no adapter: `grain.MapDataset.source(feed)` takes what has a length and items.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .feed import Feed

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
    import torch.utils.data


def as_tf_data(feed: Feed) -> tf.data.Dataset:
    """A `tf.data.Dataset` of batches, each a dictionary of tensors; a pass is what is left of an epoch.

    With `prefetch` batches are handed out before they are trained on: give `feed.state_dict` the steps done.
    """
    import tensorflow as tf

    def spec(feature: Any) -> tf.TensorSpec:
        dtype = (
            tf.string
            if feature["dtype"] in ("text", "bytes", "string")
            else tf.dtypes.as_dtype(feature["dtype"])
        )
        return tf.TensorSpec([None, *feature["shape"]], dtype)

    signature = {name: spec(feature) for name, feature in feed.features.items()}
    return tf.data.Dataset.from_generator(lambda: iter(feed), output_signature=signature)


def as_torch(feed: Feed) -> torch.utils.data.IterableDataset[dict[str, Any]]:
    """An `IterableDataset` of batches: tensors for numbers, lists for strings. It has the state of the feed.

    Give it to `DataLoader` or torchdata's `StatefulDataLoader` with `batch_size=None`, and one process at
    most (`num_workers`): other workers have feeds of their own. A process reads ahead, so that a pass that is
    left before its end begins anew. `StatefulDataLoader` knows where the training is; with `DataLoader`, give
    `feed.state_dict` the steps done.
    """
    import torch

    return _as_torch(feed, torch.zeros(2, dtype=torch.int64).share_memory_())


def _as_torch(feed: Feed, begin: torch.Tensor) -> torch.utils.data.IterableDataset[dict[str, Any]]:
    """The same; `begin` is where passes begin, in memory of all processes.

    For each pass a loader makes a new process with a copy of its own dataset, which stays where it is.
    """
    import torch
    import torch.utils.data

    feed.share_begin(begin.numpy())

    class Batches(torch.utils.data.IterableDataset[dict[str, Any]]):  # type: ignore[misc]  # no types are installed
        def __iter__(self) -> Iterator[dict[str, Any]]:
            info = torch.utils.data.get_worker_info()
            if info is not None and info.num_workers > 1:
                raise ValueError("A feed is read by one process: set num_workers to 0 or 1.")
            if info is not None:
                feed.begin_pass()
            for batch in feed:
                yield {
                    name: values.tolist() if values.dtype == object else torch.from_numpy(values)
                    for name, values in batch.items()
                }

        def state_dict(self) -> dict[str, Any]:
            return feed.state_dict()

        def load_state_dict(self, state: dict[str, Any]) -> None:
            feed.load_state_dict(state)

        def __reduce__(self) -> tuple[Any, ...]:
            return _as_torch, (feed, begin)

    return Batches()


def as_keras(feed: Feed, inputs: str | list[str], target: str) -> keras.utils.PyDataset:
    """A Keras `PyDataset` of inputs and targets, for `fit(..., shuffle=False)`: the feed has the order.

    It has what is left of the epoch, then whole epochs. Keras asks for the length once a `fit`: after a state
    in the middle of an epoch, `fit` the rest of that one by itself (`epochs=feed.epoch + 1`). Keras reads
    ahead: give `feed.state_dict` the steps done. `steps_per_epoch` would leave out rows: for that, take
    `as_tf_data`.

    Args:
        inputs: a feature, or several, which become a dictionary.
        target: a feature.
    """
    import keras

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]  # no types are installed
        def __init__(self) -> None:
            super().__init__()
            self._passed = 0  # steps of epochs that ended
            self._is_within = False

        def __len__(self) -> int:
            return feed.left(self._passed)

        def __getitem__(self, index: int) -> Any:
            batch = feed.ahead(self._passed + index)
            values = batch[inputs] if isinstance(inputs, str) else {name: batch[name] for name in inputs}
            return values, batch[target]

        def on_epoch_begin(self) -> None:
            self._is_within = True

        def on_epoch_end(self) -> None:
            if self._is_within:  # Keras also says so before the first one
                self._passed += len(self)
            self._is_within = False

    return Batches()
