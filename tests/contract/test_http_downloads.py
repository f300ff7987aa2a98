"""Downloads over a real connection, by the clients that people have."""

import base64
import hashlib
import io
import json
import re
import subprocess
import tarfile
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.service import Service


@pytest.fixture(scope="module")
def manifest(client: httpx.Client) -> dict[str, Any]:
    """A version with a shard of some 10 MB in train, and a small one in test."""
    name = f"d-{uuid.uuid4().hex[:8]}"
    large = b"".join(b'{"x": %d, "s": "%s"}\n' % (i, b"%05d" % i * 200) for i in range(10_000))
    for split, content in (("train", large), ("test", large[:10_000].rsplit(b"\n", 1)[0])):
        answer = client.post(
            f"/v1/datasets/{name}/records",
            params={"split": split},
            headers={"Content-Type": "application/x-ndjson"},
            content=content,
        )
        assert answer.status_code == 201, answer.text
    answer = client.post(f"/v1/datasets/{name}/versions")
    assert answer.status_code == 201, answer.text
    published: dict[str, Any] = answer.json()
    return published


@pytest.fixture(scope="module")
def base(manifest: dict[str, Any]) -> str:
    return f"/v1/datasets/{manifest['dataset']}/versions/{manifest['version']}"


@pytest.fixture(scope="module")
def shard(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["splits"]["train"]["shards"][0]
    return found


@pytest.fixture(scope="module")
def url(base: str, shard: dict[str, Any]) -> str:
    return f"{base}/shards/{shard['file']}"


@pytest.fixture(scope="module")
def content(client: httpx.Client, url: str) -> bytes:
    return client.get(url).content


@pytest.fixture(scope="module")
def tar(client: httpx.Client, base: str) -> bytes:
    return client.get(f"{base}/tar").content


def digest_of(data: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"


def parts_of(answer: httpx.Response) -> list[tuple[str, bytes]]:
    """Content-Range and bytes of each part, by the grammar of RFC 2046."""
    found = re.fullmatch(r"multipart/byteranges; boundary=(\w+)", answer.headers["content-type"])
    assert found is not None
    lead, *parts, end = (b"\r\n" + answer.content).split(b"\r\n--" + found[1].encode())
    assert (lead, end) == (b"", b"--\r\n")
    heads = [part.split(b"\r\n\r\n", 1) for part in parts]
    assert all(head.startswith(b"\r\nContent-Type: application/x-tfrecord\r\n") for head, _ in heads)
    return [(head.rsplit(b"Content-Range: ", 1)[1].decode(), data) for head, data in heads]


def test_a_whole_file(client: httpx.Client, url: str, shard: dict[str, Any]) -> None:
    answer = client.get(url)
    assert answer.status_code == 200
    assert answer.headers["content-length"] == str(shard["num_bytes"])
    assert answer.headers["etag"] == f'"{shard["sha256"]}"'
    assert answer.headers["repr-digest"] == answer.headers["content-digest"] == digest_of(answer.content)
    assert answer.headers["content-disposition"] == f'attachment; filename="{shard["file"]}"'
    assert answer.headers["accept-ranges"] == "bytes"


def test_head_is_get_without_content(client: httpx.Client, url: str, shard: dict[str, Any]) -> None:
    head = client.head(url, headers={"Range": "bytes=0-1"})
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(shard["num_bytes"])
    assert head.headers["etag"] == f'"{shard["sha256"]}"'
    assert "content-range" not in head.headers


def test_one_range(client: httpx.Client, url: str, content: bytes) -> None:
    answer = client.get(url, headers={"Range": "bytes=3000000-5999999"})
    assert answer.status_code == 206
    assert answer.headers["content-range"] == f"bytes 3000000-5999999/{len(content)}"
    assert answer.content == content[3_000_000:6_000_000]
    assert answer.headers["content-digest"] == digest_of(answer.content)
    assert answer.headers["repr-digest"] == digest_of(content)


def test_a_range_too_long_to_be_read_first_has_no_digest_of_its_own(
    client: httpx.Client, url: str, content: bytes
) -> None:
    answer = client.get(url, headers={"Range": "bytes=1-"})
    assert (answer.status_code, answer.content) == (206, content[1:])
    assert "content-digest" not in answer.headers


def test_several_ranges(client: httpx.Client, url: str, content: bytes) -> None:
    answer = client.get(url, headers={"Range": "bytes=-5,0-9,100-109"})
    size = len(content)
    assert answer.status_code == 206
    assert answer.headers["content-length"] == str(len(answer.content))
    assert answer.headers["content-digest"] == digest_of(answer.content)
    assert "content-range" not in answer.headers
    assert parts_of(answer) == [
        (f"bytes {size - 5}-{size - 1}/{size}", content[-5:]),
        (f"bytes 0-9/{size}", content[:10]),
        (f"bytes 100-109/{size}", content[100:110]),
    ]


def test_ranges_that_touch_come_as_one(client: httpx.Client, url: str, content: bytes) -> None:
    answer = client.get(url, headers={"Range": "bytes=0-9,10-19,5-14"})
    assert answer.headers["content-range"] == f"bytes 0-19/{len(content)}"
    assert answer.content == content[:20]


def test_flood_of_ranges_gets_the_whole_file(client: httpx.Client, url: str, content: bytes) -> None:
    overlapping = client.get(url, headers={"Range": "bytes=" + ",".join(["0-"] * 60)})
    many = client.get(url, headers={"Range": "bytes=" + ",".join(f"{i}-{i}" for i in range(0, 400, 2))})
    assert (overlapping.status_code, many.status_code) == (206, 200)
    assert overlapping.content == many.content == content


def test_range_outside_the_file_is_416(client: httpx.Client, url: str, content: bytes) -> None:
    answer = client.get(url, headers={"Range": f"bytes={len(content)}-,{len(content) + 5}-"})
    assert (answer.status_code, answer.json()["code"]) == (416, "range_not_satisfiable")
    assert answer.headers["content-range"] == f"bytes */{len(content)}"


def test_conditions(client: httpx.Client, url: str, shard: dict[str, Any]) -> None:
    etag = f'"{shard["sha256"]}"'
    same = client.get(url, headers={"If-None-Match": f'W/{etag}, "x"'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
    other = client.head(url, headers={"If-Match": '"x"'})
    assert other.status_code == 412
    assert client.get(url, headers={"If-Match": '"x"'}).json()["code"] == "precondition_failed"
    assert client.head(url, headers={"If-Match": etag}).status_code == 200


@pytest.mark.parametrize(
    ("condition", "status"),
    [('"{sha256}"', 206), ('W/"{sha256}"', 200), ('"x"', 200), ("Sat, 21 Nov 2026 19:00:00 GMT", 200)],
)
def test_if_range_is_a_strong_etag(
    client: httpx.Client, url: str, shard: dict[str, Any], condition: str, status: int
) -> None:
    headers = {"Range": "bytes=0-9", "If-Range": condition.format(**shard)}
    assert client.get(url, headers=headers).status_code == status


def test_a_store_without_signed_urls_says_so(client: httpx.Client, url: str) -> None:
    answer = client.get(url, params={"redirect": "signed"})
    assert (answer.status_code, answer.json()["code"]) == (422, "cannot_sign")
    assert client.get(url, params={"redirect": "x"}).json()["code"] == "invalid_parameter"
    assert client.get(f"{url}?redirect=signed&redirect=signed").json()["code"] == "repeated_parameter"


def test_curl_takes_ranges_and_resumes(service: Service, url: str, content: bytes, tmp_path: Path) -> None:
    curl = ["curl", "-sSf", f"{service.url}{url}"]
    assert subprocess.run([*curl, "-r", "5-14"], check=True, capture_output=True).stdout == content[5:15]
    several = subprocess.run([*curl, "-r", "0-1,-2"], check=True, capture_output=True).stdout
    assert content[:2] in several
    begun = tmp_path / "shard"
    begun.write_bytes(content[:4_000_000])
    subprocess.run([*curl, "-C", "-", "-o", str(begun)], check=True)
    assert begun.read_bytes() == content


def test_urllib_takes_ranges(service: Service, url: str, content: bytes) -> None:
    request = urllib.request.Request(f"{service.url}{url}", headers={"Range": "bytes=-7"})  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        assert (answer.status, answer.read()) == (206, content[-7:])


def test_segments_at_a_time_make_up_the_file(client: httpx.Client, url: str, content: bytes) -> None:
    """As aria2 and other download managers fetch."""
    etag = client.head(url).headers["etag"]

    def fetch(begin: int) -> bytes:
        headers = {"Range": f"bytes={begin}-{begin + 999_999}", "If-Range": etag}
        return client.get(url, headers=headers).content

    with ThreadPoolExecutor(8) as pool:
        assert b"".join(pool.map(fetch, range(0, len(content), 1_000_000))) == content


def test_a_version_as_one_tar(
    client: httpx.Client, base: str, manifest: dict[str, Any], tar: bytes, content: bytes
) -> None:
    head = client.head(f"{base}/tar")
    assert head.headers["content-length"] == str(len(tar))
    assert head.headers["content-type"] == "application/x-tar"
    folder = f"{manifest['dataset']}/{manifest['version']}"
    file_name = f"{manifest['dataset']}-{manifest['version']}.tar"
    assert head.headers["content-disposition"] == f'attachment; filename="{file_name}"'
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        names = opened.getnames()
        files = {name: opened.extractfile(name).read() for name in names}  # type: ignore[union-attr]
    listed = [*manifest["files"]]
    for split in manifest["splits"].values():
        for entry in split["shards"]:
            listed += [entry, *([entry["index"]] if "index" in entry else [])]
    assert sorted(names) == sorted(f"{folder}/{name}" for name in
                                   [*(entry["file"] for entry in listed), "_manifest.json"])  # fmt: skip
    for entry in listed:
        assert hashlib.sha256(files[f"{folder}/{entry['file']}"]).hexdigest() == entry["sha256"]
    assert names[-2:] == [f"{folder}/dataset_info.json", f"{folder}/_manifest.json"]
    told = json.loads(files[f"{folder}/_manifest.json"])
    assert told == {name: value for name, value in manifest.items() if name != "load"}


def test_a_tar_is_the_same_each_time_and_resumes(client: httpx.Client, base: str, tar: bytes) -> None:
    again = client.get(f"{base}/tar")
    assert again.content == tar
    etag = again.headers["etag"]
    half = len(tar) // 2
    rest = client.get(f"{base}/tar", headers={"Range": f"bytes={half}-", "If-Range": etag})
    assert (rest.status_code, rest.content) == (206, tar[half:])
    assert client.get(f"{base}/tar", headers={"If-None-Match": etag}).status_code == 304
    edges = client.get(f"{base}/tar", headers={"Range": "bytes=0-511,-1024"})
    assert edges.status_code == 206
    assert tar[:512] in edges.content


def test_gnu_tar_unpacks_what_curl_fetches(
    service: Service,
    base: str,
    manifest: dict[str, Any],
    shard: dict[str, Any],
    content: bytes,
    tmp_path: Path,
) -> None:
    line = f"curl -fsS {service.url}{base}/tar | tar x"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True, capture_output=True)
    assert done.stderr == b""
    folder = tmp_path / manifest["dataset"] / manifest["version"]
    assert (folder / shard["file"]).read_bytes() == content


def test_a_version_that_is_not_there_has_no_tar(client: httpx.Client, base: str) -> None:
    answer = client.get(base.replace("1.0.0", "1.7.0") + "/tar")
    assert (answer.status_code, answer.json()["code"]) == (404, "version_not_found")
