"""Clients that append, publish and read, and write down what they are told."""

import asyncio
import base64
import hashlib
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx

from tests.campaign.fleet import Fleet, Replica
from tests.campaign.journal import Attempt, Fate, Journal, PublishedAt
from tests.campaign.script import Publish, Read
from tests.campaign.workload import FORMS, AppendSpec, Dataset, append_index, body_of, row_of

__all__ = ["Clients"]

#: An operation on the store ends within 30 s, and a request is a few of them; a replica may be frozen.
_TIMEOUT_S = 100.0
_PAUSE_S = (0.05, 0.5)
#: Answers that leave no doubt that nothing was stored, beside all that blame the client.
_NOTHING_STORED = {"storage_unavailable", "storage_full", "storage_error", "overloaded"}
#: Why there may be no version to publish: other publishers, nothing appended yet, or a split that gets none.
_NO_VERSION = {"publish_in_progress", "nothing_to_publish", "dataset_not_found", "invalid_division"}
_CHUNK = 64 << 10


class _Cut(Exception):
    """The client goes away in the middle of its body."""


class Clients:
    """All clients of a campaign. Safe to use from many tasks."""

    def __init__(self, fleet: Fleet, journal: Journal, datasets: dict[str, Dataset], seed: int) -> None:
        self._fleet = fleet
        self._journal = journal
        self._datasets = datasets
        self._dice = random.Random(f"{seed}:replicas")
        self._http = httpx.AsyncClient(timeout=_TIMEOUT_S, limits=httpx.Limits(max_connections=200))

    async def close(self) -> None:
        await self._http.aclose()

    async def create(self, dataset: Dataset) -> None:
        """Create a dataset; whoever asks again finds it."""
        while True:
            answer = await self._request("PUT", f"/v1/datasets/{dataset.name}", json=dataset.creation())
            if answer is not None and answer.status_code in (200, 201):
                return
            await self._pause()

    async def append(self, spec: AppendSpec) -> None:
        """Send the rows until their fate is known, or cannot be."""
        fate = Fate(spec)
        body = body_of(spec)
        if spec.behaviour in ("cut", "cut_then_whole"):
            await self._cut(fate, body)
        if spec.behaviour == "cut":
            fate.outcome = "refused"
        else:
            while not await self._try(fate, body):
                await self._pause()
        self._journal.decide(fate)
        if fate.outcome == "acknowledged" and spec.behaviour == "again":
            await self._again(fate, body)
        if fate.outcome == "acknowledged" and spec.behaviour == "altered":
            await self._altered(fate)

    async def _try(self, fate: Fate, body: bytes) -> bool:
        """One attempt; whether the fate is sealed now."""
        spec = fate.spec
        answer = await self._send(fate, body)
        attempt = fate.attempts[-1]
        if attempt.code == "not sent":
            fate.attempts.pop()
            return False
        content = _content(answer)
        append = content.get("append", content)
        if attempt.status == 201 or "append_id" in append:
            if append.get("num_records", spec.num_rows) != spec.num_rows:
                self._journal.violation(f"append {spec.index} was acknowledged as {append}")
            fate.outcome, fate.append_id = "acknowledged", append["append_id"]
            self._see(content)
            return True
        if attempt.code == "append_in_progress":
            return False
        if attempt.code == "append_expired":
            fate.outcome = "refused"
            return True
        if 400 <= attempt.status < 500:
            self._journal.violation(f"append {spec.index} was refused: {attempt.status} {content}")
            fate.outcome = "unknown"
            return True
        if attempt.code == "internal_error":
            self._journal.violation(f"append {spec.index} met a defect: {content}")
        if spec.key is not None:
            return False
        fate.outcome = "refused" if attempt.code in _NOTHING_STORED else "unknown"
        return True

    async def _send(self, fate: Fate, body: bytes, *, cut: bool = False) -> httpx.Response | None:
        spec = fate.spec
        replica = self._fleet.choose(self._dice)
        attempt = Attempt(self._fleet.replicas.index(replica), replica.starts, time.monotonic(), 0, 0)
        fate.attempts.append(attempt)
        try:
            answer = await self._http.post(
                f"{replica.url}/v1/datasets/{spec.dataset}/records",
                params=self._parameters(spec),
                headers=_headers(spec, len(body)),
                content=_chunks(body, cut=cut),
            )
            attempt.status = answer.status_code
            attempt.code = str(_content(answer).get("code", ""))
            return answer
        except httpx.ConnectError:
            attempt.code = "not sent"
        except (httpx.TransportError, _Cut) as error:
            attempt.code = type(error).__name__
        finally:
            attempt.ended = time.monotonic()
        return None

    def _parameters(self, spec: AppendSpec) -> dict[str, str]:
        parameters = {"split": spec.split}
        if spec.publish:
            parameters |= {"publish": "true", **self._datasets[spec.dataset].parameters(of_append=True)}
        return parameters

    async def _cut(self, fate: Fate, body: bytes) -> None:
        """Begin to send the body, and go away."""
        spec = fate.spec
        answer = await self._send(fate, body, cut=True)
        if answer is not None and answer.is_success:
            self._journal.violation(f"append {spec.index} was acknowledged without its end")
        fate.attempts.clear()

    async def _again(self, fate: Fate, body: bytes) -> None:
        """The same key again, anywhere: the same answer, or none."""
        again = Fate(fate.spec)
        answer = await self._send(again, body)
        self._journal.note("again", index=fate.spec.index, code=again.attempts[-1].code)
        if answer is None or answer.status_code >= 500:
            return
        content = _content(answer)
        if content.get("append", content).get("append_id") not in (fate.append_id, None) or (
            answer.status_code != 201 and content.get("code") != "append_in_progress"
        ):
            self._journal.violation(f"append {fate.spec.index}, repeated: {answer.status_code} {content}")

    async def _altered(self, fate: Fate) -> None:
        """Other rows under a used key: refused, if answered at all."""
        other = replace(fate.spec, num_rows=fate.spec.num_rows + 1, publish=False)
        answer = await self._send(Fate(other), body_of(other))
        if answer is None or answer.status_code >= 500:
            return
        if _content(answer).get("code") not in ("idempotency_key_reused", "append_in_progress"):
            self._journal.violation(
                f"append {fate.spec.index} took other rows: {answer.status_code} {answer.text}"
            )

    async def publish(self, operation: Publish) -> None:
        """Ask for a version; with a key until there is an answer."""
        name, started = operation.dataset, time.monotonic()
        before = self._journal.acknowledged(name)
        headers = {} if operation.key is None else {"Idempotency-Key": operation.key}
        parameters = self._datasets[name].parameters()
        tries = 0
        while True:
            tries += 1
            answer = await self._request(
                "POST", f"/v1/datasets/{name}/versions", params=parameters, headers=headers
            )
            content = _content(answer)
            self._journal.note(
                "publish",
                dataset=name,
                key=operation.key,
                status=answer.status_code if answer is not None else 0,
                code=content.get("code"),
                version=content.get("version"),
                seconds=round(time.monotonic() - started, 2),
            )
            if answer is not None and answer.status_code == 201:
                self._see(content)
                if tries == 1:
                    self._journal.publications.append(PublishedAt(name, content["version"], before))
                return
            if answer is not None and answer.status_code < 500 and answer.status_code not in (202, 429):
                if content.get("code") not in _NO_VERSION:
                    self._journal.violation(f"publishing {name}: {answer.status_code} {content}")
                return
            if content.get("code") == "internal_error":
                self._journal.violation(f"publishing {name} met a defect: {content}")
            if operation.key is None or tries == 20:
                return
            await self._pause()

    async def read(self, operation: Read) -> None:
        """Read the latest version, or an older one, and check all that it says of itself."""
        dice = random.Random(operation.dice)
        name = operation.dataset
        oldest = self._journal.newest.get(name, 0)
        older = dice.random() < 0.3 and oldest > 0
        version = f"1.{dice.randrange(oldest)}.0" if older else "latest"
        answer = await self._request("GET", f"/v1/datasets/{name}/versions/{version}")
        if answer is None or answer.status_code != 200:
            self._refused("manifest", name, answer)
            return
        manifest = answer.json()
        self._journal.see_manifest(manifest, oldest=0 if older else oldest)
        shards = [shard for split in manifest["splits"].values() for shard in split["shards"]]
        if shards:
            await self._download(manifest, dice.choice(shards), dice)
        split = dice.choice(sorted(manifest["splits"]))
        await self._rows(manifest, split, dice)

    async def _download(self, manifest: dict[str, Any], shard: dict[str, Any], dice: random.Random) -> None:
        """A shard, whole or in two ranges."""
        url = f"/v1/datasets/{manifest['dataset']}/versions/{manifest['version']}/shards/{shard['file']}"
        middle = dice.randrange(max(1, shard["num_bytes"])) if dice.random() < 0.5 else 0
        ranges = [f"bytes=0-{middle - 1}", f"bytes={middle}-"] if middle else [""]
        content, stated = b"", True
        for wanted in ranges:
            answer = await self._request("GET", url, headers={"Range": wanted} if wanted else {})
            if answer is None or not answer.is_success:
                self._refused("shard", manifest["dataset"], answer)
                return
            content += answer.content
            stated &= answer.headers.get("repr-digest") == _digest_field(shard["sha256"])
        if hashlib.sha256(content).hexdigest() == shard["sha256"]:
            return
        # A shard is handed on as the store gives it; the digest in the answer tells that it is damaged.
        self._journal.damaged_downloads += 1
        if not stated:
            self._journal.violation(f"{url} has other bytes than its manifest says, and no word of it")

    async def _rows(self, manifest: dict[str, Any], split: str, dice: random.Random) -> None:
        total = manifest["splits"][split]["num_records"]
        offset = dice.randrange(total + 1)
        length = min(dice.choice((1, 10, 500)), total - offset)
        url = f"/v1/datasets/{manifest['dataset']}/versions/{manifest['version']}/records"
        answer = await self._request(
            "GET", url, params={"split": split, "offset": offset, "length": length, "to": "ndjson"}
        )
        if answer is None or answer.status_code != 200:
            self._refused("rows", manifest["dataset"], answer)
            return
        rows = [json.loads(line) for line in answer.text.splitlines()]
        wrong = [row for row in rows if tuple(row.values()) != self._right(row)]
        if len(rows) != length or wrong:
            self._journal.violation(f"{url}: {len(rows)} rows of {length} from {offset}, wrong: {wrong[:2]}")

    def _right(self, row: dict[str, Any]) -> tuple[object, ...]:
        fate = self._journal.fates.get(append_index(row["id"]))
        padding = len(row["text"]) - len(f"r{row['id']}") if fate is None else fate.spec.padding
        return row_of(row["id"], padding)

    def _refused(self, what: str, name: str, answer: httpx.Response | None) -> None:
        content = _content(answer)
        status = 0 if answer is None else answer.status_code
        self._journal.note("read", of=what, dataset=name, status=status, code=content.get("code"))
        if content.get("code") == "internal_error" or (status == 404 and what != "manifest"):
            self._journal.violation(f"reading {what} of {name}: {status} {content}")

    def _see(self, content: dict[str, Any]) -> None:
        if "splits" in content:
            self._journal.see_manifest(content)

    async def _request(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        """One request to some replica; None where there was no answer."""
        replica: Replica = self._fleet.choose(self._dice)
        try:
            return await self._http.request(method, replica.url + path, **options)
        except httpx.TransportError:
            return None

    async def _pause(self) -> None:
        await asyncio.sleep(self._dice.uniform(*_PAUSE_S))


def _headers(spec: AppendSpec, length: int) -> dict[str, str]:
    headers = {"Content-Type": FORMS[spec.form]}
    if not spec.is_chunked:
        headers["Content-Length"] = str(length)
    return headers if spec.key is None else {**headers, "Idempotency-Key": spec.key}


async def _chunks(body: bytes, *, cut: bool) -> AsyncIterator[bytes]:
    end = len(body) * 2 // 3 if cut else len(body)
    for begin in range(0, end, _CHUNK):
        yield body[begin : min(begin + _CHUNK, end)]
    if cut:
        await asyncio.sleep(0.01)
        raise _Cut


def _digest_field(sha256: str) -> str:
    return f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode()}:"


def _content(answer: httpx.Response | None) -> dict[str, Any]:
    if answer is None or not answer.content:
        return {}
    try:
        value = json.loads(answer.content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
