"""Collection in the background, as long as the process lives."""

from __future__ import annotations

import logging
import random
import threading
from typing import Final

from ...errors import NotFound, ShardsmithError
from ...tracing import root_span
from .datasets import Datasets

logger = logging.getLogger(__name__)

_STOPS_WITHIN_S: Final = 2.0


class BackgroundCollection:
    """Collects in a thread of its own; any number of replicas may do so at a time.

    Args:
        interval_s: between the beginnings of two runs; 0 collects nothing. The first run comes after a
            random part of it, so that replicas started together do not all list the store at once.
    """

    def __init__(self, datasets: Datasets, interval_s: float) -> None:
        self._datasets = datasets
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="collect", daemon=True)

    def start(self) -> None:
        """Begin, where it is switched on."""
        if self._interval_s > 0:
            self._thread.start()

    def stop(self) -> None:
        """End between two batches, so that no thread is inside the store when the process exits."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOPS_WITHIN_S)

    def run_once(self) -> None:
        """Collect every dataset; one that fails leaves the others alone."""
        for name in self._datasets.collectable():
            if self._stop.is_set():
                return
            try:
                report = self._datasets.collect(name, stopped=self._stop.is_set)
            except NotFound:
                continue  # another replica removed the last of it
            except ShardsmithError as error:
                logger.warning("collection of %s failed: %s", name, error.detail)
                continue
            if report.deleted or report.num_failures:
                logger.info("collection: %s", report.to_json())

    def _work(self) -> None:
        wait = random.uniform(0, self._interval_s)  # noqa: S311  # jitter, not a secret
        while not self._stop.wait(wait):
            try:
                with root_span("collect"):
                    self.run_once()
            except ShardsmithError as error:
                logger.warning("collection failed: %s", error.detail)
            except Exception:
                logger.exception("collection failed unexpectedly")
            wait = self._interval_s
