"""The part of the kubelet that probes a container and restarts it (pkg/kubelet/prober in Kubernetes)."""

import http.client
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.service import Service


@dataclass(frozen=True)
class Probe:
    """A probe of a manifest, with the defaults of Kubernetes.

    Args:
        path: asked with GET; an answer of 200 to 399 passes.
        period_s: between two requests.
        timeout_s: of one request.
        failures, successes: in a row that change the result.
    """

    path: str
    period_s: float
    timeout_s: float
    failures: int
    successes: int

    @classmethod
    def read(cls, probe: Mapping[str, Any], *, pace: float = 1.0) -> "Probe":
        """What a manifest says; with a pace of 10 a request follows the last in a tenth of the time."""
        return cls(
            probe["httpGet"]["path"],
            probe.get("periodSeconds", 10) / pace,
            probe.get("timeoutSeconds", 1),
            probe.get("failureThreshold", 3),
            probe.get("successThreshold", 1),
        )


class Result:
    """What a probe has found: it changes only after enough answers of the other kind in a row."""

    def __init__(self, probe: Probe, *, passed: bool) -> None:
        self._probe = probe
        self._last: bool | None = None
        self._in_a_row = 0
        self.passed = passed

    def add(self, passed: bool) -> bool:
        """Count an answer; whether it makes the threshold full."""
        self._in_a_row = self._in_a_row + 1 if passed == self._last else 1
        self._last = passed
        if self._in_a_row < (self._probe.successes if passed else self._probe.failures):
            return False
        self.passed = passed
        return True


class Kubelet:
    """Probes one service as its container's manifest says, and ends it when it must.

    Until the startup probe has passed there is no other. Then liveness ends the container when it fails, and
    readiness decides whether it is an endpoint. To end it is SIGTERM, and SIGKILL after the grace.

    Args:
        pod: the specification in the manifest.
        on_ready: told each time that the container becomes ready or unready.
        pace: so many times as fast requests follow one another, and the grace ends. Timeouts stay.
    """

    def __init__(
        self,
        service: Service,
        pod: Mapping[str, Any],
        *,
        on_ready: Callable[[bool], None] = lambda _: None,
        pace: float = 1.0,
    ) -> None:
        [container] = pod["containers"]
        self.service = service
        self._on_ready = on_ready
        self._startup, self._liveness, self._readiness = (
            Probe.read(container[f"{kind}Probe"], pace=pace) for kind in ("startup", "liveness", "readiness")
        )
        self.grace_s: float = pod["terminationGracePeriodSeconds"] / pace
        self.ready = threading.Event()
        #: Why the container was ended; None while it was not.
        self.killed: str | None = None
        #: Requests of the liveness probe, and those of them that failed.
        self.num_asked = self.num_failed = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True)]
        self._threads[0].start()

    def delete(self) -> None:
        """The pod is deleted: it is told to end, and its liveness does not matter any more."""
        self.stop()
        self.service.process.terminate()

    def stop(self) -> None:
        """End all probes."""
        self._stop.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        started = Result(self._startup, passed=False)
        for passed in self._answers(self._startup):
            if started.add(passed):
                break
        if self._stop.is_set():
            return
        if not started.passed:
            self._kill("startup")
            return
        self._threads.append(threading.Thread(target=self._watch_readiness, daemon=True))
        self._threads[-1].start()
        alive = Result(self._liveness, passed=True)
        for passed in self._answers(self._liveness):
            self.num_asked += 1
            self.num_failed += not passed
            if alive.add(passed) and not passed:
                self._kill("liveness")
                return

    def _watch_readiness(self) -> None:
        ready = Result(self._readiness, passed=False)
        for passed in self._answers(self._readiness):
            if ready.add(passed) and passed != self.ready.is_set():
                (self.ready.set if passed else self.ready.clear)()
                self._on_ready(passed)

    def _answers(self, probe: Probe) -> Iterator[bool]:
        """Whether each request passed; the next begins a period after the last did."""
        due = time.monotonic()
        while not self._stop.is_set():
            yield self._passes(probe)
            due = max(due + probe.period_s, time.monotonic())
            self._stop.wait(due - time.monotonic())

    def _passes(self, probe: Probe) -> bool:
        """One request, on a connection of its own; the timeout is for all of it."""
        url = httpx.URL(self.service.url)
        connection = http.client.HTTPConnection(url.host, url.port, timeout=probe.timeout_s)
        begun = time.monotonic()
        try:
            connection.request("GET", probe.path)
            status = connection.getresponse().status
            return 200 <= status < 400 and time.monotonic() - begun <= probe.timeout_s
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _kill(self, probe: str) -> None:
        self.killed = probe
        process = self.service.process
        process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self.grace_s
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if process.poll() is None:
            process.kill()
            process.wait()
