"""Batches for training, straight from the service, which go on where a training was cut off.

    from shardsmith.client.feed import Feed

    feed = Feed("http://127.0.0.1:8000", "flowers", global_batch=256, seed=7)
    for epoch in range(3):
        for batch in feed:
            train_step(batch["petals"], batch["label"])

`feed.state_dict()` goes into a checkpoint, and `feed.load_state_dict(state)` takes it up again, with any
number of workers. `adapters.py` makes tf.data, PyTorch and Keras datasets of a feed. Needed are httpx and
numpy (`pip install 'shardsmith[client]'`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .aio import connect
from .arrow import ArrowStream, Batch, Features, no_rows
from .connection import Answer, Parameter
from .errors import FeedError
from .steps import StepReader, Steps
from .transport import BlockingTransport, run

#: Between two bytes: a window of the shuffle may have to be read first.
_TIMEOUT_S: Final = 60.0
#: An epoch, and the one after it, is an int64.
_END_OF_EPOCHS: Final = 2**63 - 1
#: In a mixture, another dataset and which version of it.
_OTHER: Final = re.compile("([^@/:,]+)@([^@/:,]+)/")


@dataclass(frozen=True)
class _Source:
    """What is read: versions as they were published, and what the service gives of them.

    Attributes:
        rows: parameters that say which, and with which transforms.
    """

    version: str
    mix: str | None
    rows: Mapping[str, Parameter]
    features: Features
    steps: Steps


class Feed:
    """The batches of one worker; iterating gives those left of an epoch, and then the next epoch's.

    A batch is an array for each feature, of this worker's part of a step. A connection that breaks is opened
    again, and goes on with the next batch: none is lost, none comes twice. `feed[i]` is step i of the epoch,
    `len(feed)` how many there are; several threads may ask for these.

    Args:
        url: of the service, `http://host:port`.
        dataset, split: what to read.
        mix: several splits in turns, in place of `split`, as the service takes them: `train:3,validation:1`.
        version: `latest` is looked up once, and stays the version of this feed and of its states; so does
            that of another dataset in a mixture.
        global_batch: rows of a step over all workers; a multiple of `num_workers`.
        worker, num_workers: which part of each step, from 0. They are no part of a state.
        shuffle_buffer, seed: of the order; 0 keeps the order of the version.
        drop_remainder: leave out a last step that is not full.
        transforms: for the values, by feature: lists of steps as the service takes them.
        token: sent as `Authorization: Bearer`; if not given, that of SHARDSMITH_CLIENT_TOKEN.
        patience_s: how long the service may fail, from the last batch on, before the feed does.

    Raises:
        FeedError: there is no such split, or it cannot be fed like this.
        Refused: there is no such dataset or version, or the service refuses these parameters.
        Unavailable: the service failed for too long; so do all methods that read.
    """

    def __init__(
        self,
        url: str,
        dataset: str,
        split: str = "train",
        *,
        mix: str | None = None,
        version: str = "latest",
        global_batch: int,
        worker: int = 0,
        num_workers: int = 1,
        shuffle_buffer: int = 10_000,
        seed: int = 0,
        drop_remainder: bool = True,
        transforms: Mapping[str, Any] | None = None,
        token: str | None = None,
        patience_s: float = 300.0,
    ) -> None:
        if not 0 <= worker < num_workers or global_batch < 1 or global_batch % num_workers:
            raise FeedError(
                f"worker {worker} of {num_workers} has no part of steps of {global_batch} rows: workers are "
                f"counted from 0, and global_batch is a multiple of num_workers."
            )
        if mix is not None and split != "train":
            raise FeedError("split is of one split, and mix names several. Leave one of them out.")
        self.dataset = dataset
        self.split = split if mix is None else None
        self.worker, self.num_workers = worker, num_workers
        self.global_batch = global_batch
        self._order = {"shuffle_buffer": shuffle_buffer, "seed": seed}
        self._transforms = None if transforms is None else json.dumps(transforms, sort_keys=True)
        self._connection = connect(
            BlockingTransport, url, token, timeout_s=_TIMEOUT_S, patience_s=patience_s, verify=True
        )
        self._drop_remainder = drop_remainder
        self._reader = StepReader(self._connection, self._open_step, global_batch)
        #: Where counting began, and how many steps were handed out since.
        self._base = (0, 0)
        self._steps_done = 0
        #: Where the feed was moved to, or the last pass ended.
        self._begin = np.zeros(2, np.int64)
        try:
            self._source = self._find(version, mix)
        except BaseException:
            self.close()
            raise

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._at()[0]

    @property
    def version(self) -> str:
        """Of the dataset; never `latest`."""
        return self._source.version

    @property
    def mix(self) -> str | None:
        """The mixture, with the versions of other datasets."""
        return self._source.mix

    @property
    def features(self) -> Features:
        """By name, the dtype and shape of each feature, as in a schema, after the transforms."""
        return self._source.features

    @property
    def steps(self) -> Steps:
        """Those of an epoch."""
        return self._source.steps

    def __len__(self) -> int:
        """How many steps a whole epoch has."""
        return self.steps.left(0)

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the epoch from where the feed is, up to the end of it."""
        for _ in range(self.steps.left(self._at()[1])):
            batch = self._read(*self._at())
            self._steps_done += 1  # before it is handed out: a state that is taken then has it
            yield batch
        self._begin[:] = self._at()

    def __getitem__(self, step: int) -> Batch:
        """The batch of a step of the epoch; one after the other they come as fast as by iterating."""
        if not 0 <= step < len(self):
            raise IndexError(f"Step {step} is none of the {len(self)} of an epoch.")
        return self._read(self.epoch, step * self.global_batch)

    def ahead(self, steps: int) -> Batch:
        """The batch so many steps after the next one, also in later epochs; the feed stays where it is."""
        return self._read(*self._at(steps))

    def left(self, steps: int = 0) -> int:
        """How many steps an epoch still has, `steps` after the next one."""
        return self.steps.left(self._at(steps)[1])

    def start_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch."""
        _check_place(self.steps, epoch, 0)
        self._move(int(epoch), 0)

    def share_begin(self, memory: NDArray[np.int64]) -> None:
        """Keep where passes begin in two numbers of `memory`, which copies in other processes share.

        Nothing else tells a copy, or the feed it was made of, that a pass of another one has ended.
        """
        memory[:] = self._begin
        self._begin = memory

    def begin_pass(self) -> None:
        """Go to where the last pass has ended, or the feed was moved to, in whatever process."""
        self._move(*self._begin.tolist())

    def state_dict(self, *, steps_done: int | None = None) -> dict[str, Any]:
        """Where the feed is, as values of JSON.

        Args:
            steps_done: how many steps the training has done since the feed was made, moved, or given a state.
                Whoever reads batches ahead says so; otherwise all that were handed out are taken for done.

        Raises:
            FeedError: `steps_done` is negative.
        """
        if steps_done is not None and steps_done < 0:
            raise FeedError(f"No training has done {steps_done} steps. Count them from 0.")
        done = self._steps_done if steps_done is None else steps_done
        epoch, row = self.steps.after(*self._base, done)
        return {
            "dataset": self.dataset,
            "split": self.split,
            "mix": self.mix,
            **self._order,
            "transforms": self._transforms,
            "version": self.version,
            "epoch": epoch,
            "row": row,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, which may be one of another worker, or of steps of another size.

        Raises:
            FeedError: it is a state of other rows, or of another order.
        """
        ours = self.state_dict()
        if lacking := sorted(ours.keys() - state.keys()):
            raise FeedError(f"The state lacks {', '.join(lacking)}. Give one that state_dict has returned.")
        for name, value in ours.items():
            found = state[name]
            same = _without_versions(found) == _without_versions(value) if name == "mix" else found == value
            if not same and name not in ("version", "epoch", "row"):
                raise FeedError(
                    f"The state is one with {name}={found!r}; this feed has {value!r}. Make the feed with "
                    f"the same value."
                )
        source, version, mix = self._source, state["version"], state["mix"]
        if (version, mix) != (source.version, source.mix):
            source = self._find(str(version), mix)
        epoch, row = state["epoch"], state["row"]
        _check_place(source.steps, epoch, row)
        if source is not self._source:
            self._reader.forget()
            self._source = source
        self._move(int(epoch), int(row))

    def close(self) -> None:
        """Close the connection; the feed opens it again when it is used."""
        self._reader.close()
        run(self._connection.close())

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _at(self, steps: int = 0) -> tuple[int, int]:
        """The epoch and the row of the batch so many steps after the next one."""
        return self.steps.after(*self._base, self._steps_done + steps)

    def _move(self, epoch: int, row: int) -> None:
        self._base, self._steps_done = (epoch, row), 0
        self._begin[:] = epoch, row

    def _find(self, version: str, mix: str | None) -> _Source:
        """The versions as they are published."""
        manifest = self._manifest(self.dataset, version)
        rows: dict[str, Parameter]
        if mix is None:
            splits = manifest["splits"]
            if self.split not in splits:
                raise FeedError(
                    f"Version {manifest['version']} has no split {self.split!r}; it has {sorted(splits)}."
                )
            rows = {"split": self.split}
        else:
            mix = _OTHER.sub(lambda it: f"{it[1]}@{self._manifest(*it.groups())['version']}/", mix)
            rows = {"mix": mix}
        if self._transforms is not None:
            rows["transforms"] = self._transforms
        found: str = manifest["version"]
        num_rows, features = run(self._connection.patiently(lambda: self._look(found, rows)))
        steps = Steps(num_rows, self.global_batch, self._drop_remainder)
        if not steps.left(0):
            raise FeedError(
                f"An epoch has {num_rows} rows, less than a step of {self.global_batch}. Choose a smaller "
                f"global_batch."
            )
        return _Source(found, mix, rows, features, steps)

    def _manifest(self, dataset: str, version: str) -> dict[str, Any]:
        answer, manifest = run(self._connection.ask("GET", "datasets", dataset, "versions", version))
        if answer.status == 202:
            raise FeedError(f"Version {version} of {dataset} is still being published. Wait until it is.")
        found: dict[str, Any] = manifest
        return found

    def _read(self, epoch: int, row: int) -> Batch:
        """The batch of the step that begins at a row."""
        num_rows = self.steps.rows_of(row, self.worker, self.num_workers)
        if not num_rows:
            return no_rows(self.features)
        batch = self._reader.read(epoch, row)
        if any(len(values) != num_rows for values in batch.values()):
            raise FeedError(
                f"The batch at row {row} of epoch {epoch} has not the {num_rows} rows of its step."
            )
        return batch

    async def _open_step(self, epoch: int, row: int) -> Answer:
        """The steps of this worker from a row of an epoch on."""
        parameters: dict[str, Parameter] = {
            "start": row,
            "global_batch": self.global_batch,
            "worker": self.worker,
            "num_workers": self.num_workers,
            "drop_remainder": self._drop_remainder,
        }
        return await self._open(self.version, {**self._source.rows, **self._shuffle(epoch), **parameters})

    async def _look(self, version: str, rows: Mapping[str, Parameter]) -> tuple[int, Features]:
        """How many rows an epoch has, and their features."""
        answer = await self._open(version, {**rows, **self._shuffle(0)})
        try:
            features = ArrowStream(lambda n: run(answer.read(n))).features
            return int(answer.headers["Record-Count"]), features
        finally:
            await answer.close()

    def _shuffle(self, epoch: int) -> dict[str, Parameter]:
        return {**self._order, "epoch": epoch} if self._order["shuffle_buffer"] else {}

    async def _open(self, version: str, parameters: Mapping[str, Parameter]) -> Answer:
        path = "datasets", self.dataset, "versions", version, "records"
        return await self._connection.send("GET", *path, params={"to": "arrow", **parameters})


def _check_place(steps: Steps, epoch: object, row: object) -> None:
    if not (
        isinstance(epoch, int | np.integer)
        and isinstance(row, int | np.integer)
        and 0 <= epoch < _END_OF_EPOCHS
        and 0 <= row <= steps.num_rows
    ):
        raise FeedError(
            f"There is no row {row!r} of epoch {epoch!r}: an epoch has {steps.num_rows} rows. Give a state "
            f"that state_dict has returned."
        )


def _without_versions(mix: Any) -> Any:
    """A mixture, without the versions of its other datasets."""
    return _OTHER.sub(r"\1/", mix) if isinstance(mix, str) else mix
