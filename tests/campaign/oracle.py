"""The judgement at the end: what was acknowledged is there exactly once, and nothing else went wrong.

All faults are over by now, and a replica that took no part in the campaign answers.
"""

import hashlib
import json
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.campaign.journal import Fate, Journal
from tests.campaign.raw_store import RawStore
from tests.campaign.tfrecord import inflate, read_rows
from tests.campaign.workload import FORMS, AppendSpec, Dataset, Row, append_index, body_of, row_of

__all__ = ["Oracle"]

_FINISH_WITHIN_S = 180
_SAMPLED_APPENDS = 100
_AT_ONCE = 8

#: split -> rows, in order
Rows = dict[str, list[Row]]


class Oracle:
    """Judges one campaign; everything found wrong goes into its journal."""

    def __init__(
        self, url: str, journal: Journal, raw: RawStore, finish_within_s: float = _FINISH_WITHIN_S
    ) -> None:
        self._http = httpx.Client(base_url=url, timeout=120)
        self._journal = journal
        self._raw = raw
        self._finish_within_s = finish_within_s
        self._sizes: Mapping[str, int] = {}
        self._is_checked = False
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self.counted: Counter[str] = Counter()
        #: The manifests of the last version of each dataset, for readers of other kinds.
        self.manifests: dict[str, dict[str, Any]] = {}
        self.rows: dict[str, Rows] = {}

    def close(self) -> None:
        self._http.close()
        self._pool.shutdown()

    def judge(self, datasets: Mapping[str, Dataset], first_index: int, *, is_forgotten: bool = False) -> None:
        """Publish what is left, then look at everything.

        Args:
            first_index: of appends that nobody has made yet.
            is_forgotten: the log no longer knows which version consumed an append.
        """
        for index, dataset in enumerate(datasets.values(), first_index):
            if self._http.get(f"/v1/datasets/{dataset.name}").status_code == 404:
                if self._journal.acknowledged(dataset.name):
                    self._wrong(f"{dataset.name} took rows and is not there")
                continue
            self._publish_rest(dataset, index)
            self._sizes = self._raw.sizes()
            self._is_checked = is_forgotten
            self._judge_dataset(dataset)
            if not is_forgotten:
                self._check_appends(dataset)

    def _wrong(self, text: str) -> None:
        self._journal.violation(text)

    def _publish_rest(self, dataset: Dataset, index: int) -> None:
        """A last row, published in the same call, which waits for no other publisher."""
        split = dataset.splits[0]
        spec = AppendSpec(
            index,
            dataset.name,
            split,
            "ndjson",
            1,
            0,
            f"last-{index}",
            "whole",
            is_chunked=False,
            publish=True,
        )
        give_up = time.monotonic() + self._finish_within_s
        while True:
            answer = self._http.post(
                f"/v1/datasets/{dataset.name}/records",
                params={"split": split, "publish": "true", **dataset.parameters(of_append=True)},
                content=body_of(spec),
                headers={"Content-Type": FORMS["ndjson"], "Idempotency-Key": f"last-{index}"},
            )
            if answer.status_code == 201:
                break
            if time.monotonic() > give_up:
                self._wrong(
                    f"{dataset.name} cannot be published any more: {answer.status_code} {answer.text}"
                )
                return
            time.sleep(1)
        self._journal.decide(
            Fate(spec, [], "acknowledged", answer.json()["append"]["append_id"]),
        )

    def _judge_dataset(self, dataset: Dataset) -> None:
        name = dataset.name
        manifests = self._manifests(name, keeps_few=dataset.keep_versions is not None)
        if not manifests:
            self._wrong(f"{name} has no version")
            return
        self.manifests[name] = manifests[-1]
        rows: Rows = defaultdict(list)
        for manifest in manifests[-1:] if self._is_checked else manifests:
            self._check_files(manifest)
        for manifest in manifests:
            if dataset.base == "none" or manifest is manifests[-1]:
                for split, found in self._stored_rows(manifest).items():
                    rows[split] += found
        self.rows[name] = rows
        self._check_rows(dataset, rows)
        self._check_reading(dataset, manifests, rows)

    def _manifests(self, name: str, *, keeps_few: bool = False) -> list[dict[str, Any]]:
        """Of every version, oldest first; none is other than when it was first served."""
        versions = self._http.get(f"/v1/datasets/{name}/versions").json()["versions"]
        manifests = [self._http.get(f"/v1/datasets/{name}/versions/{version}").json() for version in versions]
        for manifest in manifests:
            self._journal.see_manifest(manifest)
        for of, version in self._journal.manifests:
            if of == name and version not in versions and not keeps_few:
                self._wrong(f"version {version} of {name} was served, and is gone")
        self.counted["versions"] += len(versions)
        return manifests

    def _check_files(self, manifest: dict[str, Any]) -> None:
        """Each file that the manifest names is there, with its size and its SHA-256."""
        shards = [shard for split in manifest["splits"].values() for shard in split["shards"]]
        indexes = [shard["index"] for shard in shards if shard.get("index")]
        folder = f"{manifest['dataset']}/{manifest['version']}"
        deque(
            self._pool.map(
                lambda entry: self._check_file(f"{folder}/{entry['file']}", entry),
                (*shards, *indexes, *manifest["files"]),
            ),
            maxlen=0,
        )

    def _check_file(self, key: str, entry: Mapping[str, Any]) -> None:
        if key not in self._sizes:
            # dataset_info.json comes after the manifest; only the last version's is made up for.
            if entry["file"] != "dataset_info.json":
                self._wrong(f"{key} is missing")
            return
        data = self._raw.get(key)
        if len(data) != entry["num_bytes"] or hashlib.sha256(data).hexdigest() != entry["sha256"]:
            self._wrong(f"{key} has {len(data)} bytes that are not those of its manifest")
        self.counted["files"] += 1

    def _stored_rows(self, manifest: dict[str, Any]) -> Rows:
        """The rows of the shards, by a reader that is not the service's."""
        rows: Rows = {}
        for split, entry in manifest["splits"].items():
            rows[split] = []
            for shard in entry["shards"]:
                data = self._raw.get(f"{manifest['dataset']}/{manifest['version']}/{shard['file']}")
                try:
                    found = list(read_rows(inflate(data, manifest.get("compression", "none"))))
                except (ValueError, KeyError, IndexError, OSError) as error:
                    self._wrong(f"{shard['file']} of {manifest['version']} cannot be read: {error!r}")
                    continue
                if len(found) != shard["num_records"]:
                    self._wrong(f"{shard['file']} of {manifest['version']} has {len(found)} records")
                rows[split] += found
        return rows

    def _check_rows(self, dataset: Dataset, rows: Rows) -> None:
        """Acknowledged exactly once, unknown at most once, refused never; each as it was sent."""
        places: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for split, found in rows.items():
            for position, row in enumerate(found):
                places[row[0]].append((split, position))
                fate = self._journal.fates.get(append_index(row[0]))
                if fate is None or row != row_of(row[0], fate.spec.padding):
                    self._wrong(f"{dataset.name} holds a row that nobody sent: {str(row)[:100]}")
        self.counted["rows"] += sum(map(len, rows.values()))
        for fate in self._fates(dataset):
            self._check_append(dataset, fate, places)
        if dataset.is_ordered:
            self._check_order(dataset, places)

    def _check_append(
        self, dataset: Dataset, fate: Fate, places: Mapping[int, Sequence[tuple[str, int]]]
    ) -> None:
        spec, outcome = fate.spec, fate.outcome
        counts = Counter(len(places.get(row_id, ())) for row_id in spec.row_ids)
        self.counted[f"rows {outcome}"] += spec.num_rows
        if any(count > 1 for count in counts):
            self._wrong(f"append {spec.index} ({outcome}) is there more than once: {dict(counts)}")
        elif outcome == "acknowledged" and 0 in counts:
            self._wrong(f"append {spec.index} was acknowledged, and {counts[0]} of its rows are lost")
        elif outcome == "refused" and 1 in counts:
            self._wrong(f"append {spec.index} was refused, and {counts[1]} of its rows are there")
        elif len(counts) > 1:
            self._wrong(f"append {spec.index} ({outcome}) is there in part: {dict(counts)}")
        elif 1 in counts and dataset.is_ordered:
            first = places[spec.row_ids[0]][0]
            expected = [(spec.split, first[1] + place) for place in range(spec.num_rows)]
            if [places[row_id][0] for row_id in spec.row_ids] != expected:
                self._wrong(f"the rows of append {spec.index} are not in order in {spec.split}")

    def _check_order(self, dataset: Dataset, places: Mapping[int, Sequence[tuple[str, int]]]) -> None:
        """Appends that one process took one after the other stand in that order, version by version."""
        version_of = self._consumed(dataset.name)
        by_process: dict[tuple[object, ...], list[tuple[int, float, float, int]]] = defaultdict(list)
        for fate in self._fates(dataset):
            if fate.outcome != "acknowledged" or len(fate.attempts) != 1 or fate.attempts[0].status != 201:
                continue
            attempt = fate.attempts[0]
            place = places.get(fate.spec.row_ids[0], ())
            process = (attempt.replica, attempt.start, fate.spec.split, version_of.get(fate.append_id or ""))
            if place:
                by_process[process].append((place[0][1], attempt.sent, attempt.ended, fate.spec.index))
        for taken in by_process.values():
            last_sent, last_index = 0.0, -1
            for _, sent, ended, index in sorted(taken):
                if last_sent > ended:
                    self._wrong(
                        f"append {last_index} of {dataset.name} stands before {index}, which was first"
                    )
                last_sent, last_index = max((last_sent, last_index), (sent, index))

    def _consumed(self, name: str) -> dict[str, int]:
        """The number of the plan that consumed each append, by the log itself."""
        plans = [key for key in self._sizes if key.startswith(f"{name}/_g1/log/") and key.endswith(".plan")]
        newest = max(plans, key=lambda key: int(key.rsplit("/", 1)[1].removesuffix(".plan")))
        seen = self._raw.get(json.loads(self._raw.get(newest))["seen"]["key"]).decode()
        words = [line.split(" ") for line in seen.splitlines()]
        return {line[0]: int(line[1]) for line in words if not line[0].startswith("=")}

    def _check_reading(self, dataset: Dataset, manifests: Sequence[dict[str, Any]], rows: Rows) -> None:
        """The service hands out the same rows in the same order."""
        for split, expected in rows.items():
            versions = manifests if dataset.base == "none" else manifests[-1:]
            told = [row for manifest in versions for row in self._told(manifest, split)]
            if told != expected:
                self._wrong(f"{dataset.name} {split}: the service reads {len(told)} other rows")

    def _told(self, manifest: dict[str, Any], split: str) -> Iterator[Row]:
        if split not in manifest["splits"]:
            return
        url = f"/v1/datasets/{manifest['dataset']}/versions/{manifest['version']}/records"
        answer = self._http.get(url, params={"split": split, "to": "ndjson"})
        if answer.status_code != 200:
            self._wrong(f"{url}: {answer.status_code} {answer.text[:200]}")
            return
        for line in answer.text.splitlines():
            value = json.loads(line)
            yield value["id"], value["score"], value["text"]

    def _check_appends(self, dataset: Dataset) -> None:
        """What is said of acknowledged appends: published, and no later than promised."""
        version_of = self._consumed(dataset.name)
        for publication in self._journal.publications:
            if publication.dataset != dataset.name:
                continue
            n = int(publication.version.split(".")[1]) + 1
            late = [append_id for append_id in publication.before if version_of.get(append_id, n + 1) > n]
            if late:
                self._wrong(
                    f"version {publication.version} of {dataset.name} lacks {late[:3]}, acknowledged before"
                )
        known = sorted(self._journal.acknowledged(dataset.name))
        for append_id in known[:: max(1, len(known) // _SAMPLED_APPENDS)]:
            content = self._http.get(f"/v1/datasets/{dataset.name}/appends/{append_id}").json()
            if content.get("state") != "published":
                self._wrong(f"append {append_id} of {dataset.name} is said to be {content}")

    def _fates(self, dataset: Dataset) -> Iterator[Fate]:
        return (fate for fate in self._journal.fates.values() if fate.spec.dataset == dataset.name)

    def check_unchanged(self, datasets: Mapping[str, Dataset]) -> None:
        """After a collection all versions are as they were."""
        self._sizes = self._raw.sizes()
        for dataset in datasets.values():
            if dataset.name in self.manifests:
                for manifest in self._manifests(dataset.name, keeps_few=dataset.keep_versions is not None):
                    self._check_files(manifest)

    def check_collected(self, names: Sequence[str], *, slots: bool = True) -> None:
        """No parts, no uploads, no log files that no plan names; and no slots, where they had their time."""
        leaked = self._raw.uploads()
        if leaked:
            self._wrong(f"{len(leaked)} uploads are left after collection, such as {leaked[:3]}")
        sizes = self._raw.sizes()
        for name in names:
            log = f"{name}/_g1/log/"
            if not slots and any(key.startswith(f"{name}/_g1/slots/") for key in sizes):
                self._wrong(f"{name} has slots that are over a week old")
            parts = [key for key in sizes if key.startswith(f"{name}/_g1/parts/")]
            if parts:
                self._wrong(f"{len(parts)} parts of {name} are left after collection, such as {parts[0]}")
            plans = [
                json.loads(self._raw.get(key))
                for key in sizes
                if key.startswith(log) and key.endswith(".plan")
            ]
            named = {plan[file]["key"] for plan in plans for file in ("inputs", "seen")}
            stray = [
                key
                for key in sizes
                if key.startswith(log) and key.endswith((".inputs", ".seen")) and key not in named
            ]
            if stray:
                self._wrong(f"{len(stray)} log files of {name} that no plan names are left: {stray[0]}")
