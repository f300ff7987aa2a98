"""Trainings that are killed in the middle of an epoch and go on end with the weights of one that was not."""

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.client import adapters
from app.client.feed import Feed
from tests.support.service import ROOT, ready

ROWS = 1000
STEP = 50
NEVER = 10**9

TRAIN_WITH_KERAS = """
import json, os, signal, sys
from pathlib import Path
import keras
from app.client.adapters import as_keras
from app.client.feed import Feed

url, name, folder, killed_at = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
keras.utils.set_random_seed(1)
feed = Feed(url, name, global_batch=50, shuffle_buffer=200, seed=3)
if (folder / "state.json").exists():
    model = keras.models.load_model(folder / "model.keras")
    feed.load_state_dict(json.loads((folder / "state.json").read_text()))
else:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")


class Checkpoints(keras.callbacks.Callback):
    done = 0

    def on_train_batch_end(self, batch, logs=None):
        self.done += 1
        if self.done == killed_at:
            self.model.save(folder / "model.keras")
            (folder / "state.json").write_text(json.dumps(feed.state_dict(steps_done=self.done)))
        if self.done == killed_at + 3:  # what comes after the checkpoint is lost
            os.kill(os.getpid(), signal.SIGKILL)


data, callbacks, first = as_keras(feed, "x", "y"), [Checkpoints()], feed.epoch
for begin, end in ((first, first + 1), (first + 1, 3)):
    model.fit(data, initial_epoch=begin, epochs=end, shuffle=False, verbose=0, callbacks=callbacks)
print(json.dumps([weights.tolist() for weights in model.get_weights()]))
"""

TRAIN_WITH_TORCH = """
import json, os, signal, sys
from pathlib import Path
import torch
from app.client.adapters import as_torch
from app.client.feed import Feed

url, name, folder, killed_at, library = *sys.argv[1:3], Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
torch.manual_seed(1)
torch.set_num_threads(1)
feed = Feed(url, name, mix="train:4,test:1", global_batch=50, shuffle_buffer=200, seed=3)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
if library == "torch":
    loader, place = torch.utils.data.DataLoader(as_torch(feed), batch_size=None), feed
else:
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = place = StatefulDataLoader(as_torch(feed), batch_size=None, num_workers=1)
epoch = 0
if (folder / "checkpoint.pt").exists():
    saved = torch.load(folder / "checkpoint.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    place.load_state_dict(saved["place"])
    epoch = saved["epoch"]
done = 0
for epoch in range(epoch, 3):
    for batch in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(batch["x"]), batch["y"]).backward()
        optimizer.step()
        done += 1
        if done == killed_at:
            states = {"model": model, "optimizer": optimizer, "place": place}
            saved = {name: value.state_dict() for name, value in states.items()}
            torch.save({**saved, "epoch": epoch}, folder / "checkpoint.pt")
        if done == killed_at + 3:  # what comes after the checkpoint is lost
            os.kill(os.getpid(), signal.SIGKILL)
print(json.dumps([weights.tolist() for weights in model.parameters()]))
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A running service, and a dataset of points with a number for each."""
    with ready(tmp_path_factory.mktemp("service")) as service:
        name = f"d-{uuid.uuid4().hex[:8]}"
        x = np.random.default_rng(1).normal(size=(ROWS, 4)).astype(np.float32)
        rows = [
            {"id": i, "x": x[i].tolist(), "y": [float(np.float32(x[i].sum()))], "name": f"row {i}"}
            for i in range(ROWS)
        ]
        schema = {
            "features": {
                "id": {"dtype": "int64"},
                "x": {"dtype": "float32", "shape": [4]},
                "y": {"dtype": "float32", "shape": [1]},
                "name": {"dtype": "text"},
            }
        }
        url = f"{service.url}/v1/datasets/{name}"
        httpx.put(url, json={"schema": schema}).raise_for_status()
        httpx.post(f"{url}/records", json=rows).raise_for_status()
        httpx.post(f"{url}/records", params={"split": "test"}, json=rows[::4]).raise_for_status()
        httpx.post(f"{url}/versions", params={"num_shards": 3}).raise_for_status()
        yield service.url, name


def train(program: str, *arguments: object) -> Any:
    """What the program prints, as JSON; None where it killed itself."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.tensorflow
def test_keras_goes_on_in_the_middle_of_an_epoch(dataset: tuple[str, str], tmp_path: Path) -> None:
    whole = train(TRAIN_WITH_KERAS, *dataset, tmp_path, NEVER)
    assert whole is not None
    assert train(TRAIN_WITH_KERAS, *dataset, tmp_path, 27) is None
    assert json.loads((tmp_path / "state.json").read_text())["row"] == 7 * STEP
    assert train(TRAIN_WITH_KERAS, *dataset, tmp_path, NEVER) == whole


@pytest.mark.tools
@pytest.mark.parametrize("library", ["torch", "torchdata"])
def test_torch_goes_on_in_the_middle_of_an_epoch_of_a_mixture(
    dataset: tuple[str, str], tmp_path: Path, library: str
) -> None:
    """Where PyTorch is: what the index has for Linux is 5 GB with CUDA, too much to install for one test."""
    pytest.importorskip(library)
    whole = train(TRAIN_WITH_TORCH, *dataset, tmp_path, NEVER, library)
    assert whole is not None
    assert train(TRAIN_WITH_TORCH, *dataset, tmp_path, 27, library) is None
    assert (tmp_path / "checkpoint.pt").exists()
    assert train(TRAIN_WITH_TORCH, *dataset, tmp_path, NEVER, library) == whole


@pytest.mark.tools
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_each_pass_in_a_process_of_its_own_is_the_next_epoch(dataset: tuple[str, str], start: str) -> None:
    torch_data = pytest.importorskip("torch.utils.data")
    with Feed(*dataset, global_batch=STEP, shuffle_buffer=200) as feed:
        epochs = [[batch["id"].tolist() for batch in feed] for _ in range(3)]
        feed.start_epoch(0)
        loader = torch_data.DataLoader(
            adapters.as_torch(feed), batch_size=None, num_workers=1, multiprocessing_context=start
        )
        assert [[batch["id"].tolist() for batch in loader] for _ in range(3)] == epochs


@pytest.mark.tensorflow
def test_tf_data_has_the_batches_of_a_feed(dataset: tuple[str, str]) -> None:
    import tensorflow as tf

    with Feed(*dataset, global_batch=64, drop_remainder=False) as feed:
        rows = adapters.as_tf_data(feed)
        assert rows.element_spec["x"] == tf.TensorSpec([None, 4], tf.float32)
        assert rows.element_spec["name"] == tf.TensorSpec([None], tf.string)
        epochs = [[batch["id"].numpy().tolist() for batch in rows] for _ in range(2)]
        names = [name.decode() for batch in rows for name in batch["name"].numpy()]
    assert sorted(names) == sorted(f"row {i}" for i in range(ROWS))
    assert epochs[0] != epochs[1]
    for epoch in epochs:
        assert sorted(row for batch in epoch for row in batch) == list(range(ROWS))
