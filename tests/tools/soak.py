"""Large bodies of many forms, more at a time than there is memory for.

    python -m tests.tools.soak --limit-mib 512 --rounds 20

starts the service in a control group with that limit, and ends with status 1 where it was killed, or where
an answer was neither a success nor a refusal that the contract names.
"""

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import httpx

from tests.support.control_groups import limited_to
from tests.support.service import Service, ready, served_alone

MIB = 1 << 20
CLIENTS = 24
_SIZE = 9 * MIB
#: Done; or more than one request may hold, or than there is while others hold what they do. An answer that
#: has begun by then is broken off, as the contract says.
BROKEN_OFF = 0
EXPECTED = {200, 201, 413, 503, BROKEN_OFF}


@dataclass(frozen=True)
class Load:
    """One kind of request."""

    name: str
    path: str
    media_type: str
    make_body: Callable[[], bytes]

    @cached_property
    def body(self) -> bytes:
        """Made when it is first sent."""
        return self.make_body()


def _of(row: bytes) -> bytes:
    """As many of it in a JSON array as fill 9 MiB."""
    return b"[" + b",".join([row] * (_SIZE // (len(row) + 1))) + b"]"


def _lines(row: bytes) -> bytes:
    return b"\n".join([row] * (_SIZE // (len(row) + 1)))


_JSON, _NDJSON = "application/json", "application/x-ndjson"
_ROW = b'{"x":1}'
_MIXED = b'{"name":"n1","v":0.25,"tags":["a","b"],"id":7}'
_WIDE = json.dumps({f"feature{i}": i for i in range(200)}).encode()

#: What was killed with.
APPEND = Load("append", "/v1/datasets/soak/records", _JSON, partial(_of, _ROW))
SHORT = (
    APPEND,
    Load("parquet", "/v1/records/serialize?to=parquet", _JSON, partial(_of, _ROW)),
    Load("lines", "/v1/records/serialize", _NDJSON, partial(_lines, _ROW)),
    Load("integers", "/v1/tensors/serialize", _JSON, partial(_of, b"1")),
    Load("append lines", "/v1/datasets/lines/records", _NDJSON, partial(_lines, _ROW)),
    Load("npz of text", "/v1/records/serialize?to=npz", _NDJSON, partial(_lines, b'{"x":"a"}')),
)
LONG = (
    *SHORT,
    Load("infer all", "/v1/records/serialize?infer=all", _JSON, partial(_of, _ROW)),
    Load("describe", "/v1/records/describe", _JSON, partial(_of, _MIXED)),
    Load("lists", "/v1/records/serialize?to=npz", _JSON, partial(_of, b'{"x":[1,2]}')),
    Load("append lists", "/v1/datasets/lists/records", _JSON, partial(_of, b'{"x":[1,2]}')),
    Load("ragged", "/v1/records/serialize", _JSON, partial(_of, b'{"x":["","",""]}')),
    Load("bytes", "/v1/datasets/bytes/records", _JSON, partial(_of, b'{"x":{"b64":"QQ=="}}')),
    Load("wide", "/v1/records/serialize?to=parquet", _NDJSON, partial(_lines, _WIDE)),
    Load("append wide", "/v1/datasets/wide/records", _JSON, partial(_of, _WIDE)),
    Load("mixed", "/v1/records/serialize?to=parquet", _JSON, partial(_of, _MIXED)),
    Load("rows", "/v1/records/parse?from=json&to=json", _JSON, partial(_of, _MIXED)),
    Load("one text", "/v1/records/serialize", _JSON, lambda: b'[{"x":"' + b"a" * _SIZE + b'"}]'),
    Load(
        "escapes",
        "/v1/datasets/escapes/records",
        _JSON,
        lambda: b'[{"x":"' + b"\\u00e9" * (_SIZE // 6) + b'"}]',
    ),
    Load("columns", "/v1/records/serialize", _JSON, lambda: b'{"x":' + _of(b"1") + b"}"),
    Load("example", "/v1/examples/serialize", _JSON, lambda: b'{"x":' + _of(b"0.5") + b"}"),
    Load("texts", "/v1/tensors/serialize", _JSON, partial(_of, b'"a"')),
    Load("describe texts", "/v1/tensors/describe", _JSON, partial(_of, b'""')),
    Load("nested", "/v1/tensors/serialize?to=npy", _JSON, partial(_of, b"[1]")),
    Load(
        "comma-separated", "/v1/datasets/csv/records", "text/csv", lambda: b"x,y\n" + b"1,2\n" * (_SIZE // 4)
    ),
)


def ask(service: Service, load: Load) -> int:
    """The status of the answer, all of which is read."""
    headers = {"Content-Type": load.media_type}
    with httpx.stream(
        "POST", service.url + load.path, content=load.body, headers=headers, timeout=300
    ) as answer:
        try:
            for _ in answer.iter_raw():
                pass
        # The second where the service closes while some of the body has not been read: a reset.
        except (httpx.RemoteProtocolError, httpx.ReadError):
            return BROKEN_OFF
        return answer.status_code


def ask_at_once(service: Service, loads: Iterable[Load]) -> Counter[tuple[str, int]]:
    """How often each was answered with which status, with `CLIENTS` of them under way at a time."""
    loads = list(loads)
    with ThreadPoolExecutor(CLIENTS) as clients:
        statuses = clients.map(lambda load: ask(service, load), loads)
        return Counter(zip((load.name for load in loads), statuses, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--limit-mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    unexpected: Counter[tuple[str, int]] = Counter()
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        limited_to(arguments.limit_mib * MIB) as group,
        ready(Path(folder), run=group.within(served_alone())) as service,
    ):
        for index in range(arguments.rounds):
            # In even rounds one kind at a time, in odd ones all kinds together.
            for load in LONG if index % 2 == 0 else (None,):
                asked = [load] * CLIENTS if load else [*LONG] * 4
                statuses = ask_at_once(service, asked)
                unexpected += Counter({key: n for key, n in statuses.items() if key[1] not in EXPECTED})
                resident = f"{service.anonymous_mib():.0f} MiB"
                print(index, load.name if load else "all", resident, dict(statuses), flush=True)
        killed = group.num_killed
        print("killed:", killed, "unexpected:", dict(unexpected))
    raise SystemExit(bool(unexpected or killed))


if __name__ == "__main__":
    main()
