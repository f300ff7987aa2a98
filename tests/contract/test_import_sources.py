"""What imports read from a real S3, from Azure's emulator, and as from Google Cloud Storage."""

import json
import os
import secrets

import botocore.session
import pytest

from app.domain.limits import Limits
from app.errors import InputError, MalformedInput
from app.runtime.budget import Budget
from app.runtime.memory import MemoryPool
from app.runtime.spool import Spool
from app.services.datasets.imports.drive import drive
from app.services.datasets.imports.engines import HereEngine
from app.services.datasets.imports.imports import Imports
from app.services.datasets.imports.request import ImportRequest
from app.services.datasets.objects.publish_options import PublishOptions
from app.storage.obstore_store import ObstoreStore, open_store
from app.storage.sources import open_source
from tests.support.arrow_rows import as_arrow
from tests.support.dataset_rows import Client
from tests.support.object_stores.running import RunningStore, make_bucket

pytestmark = pytest.mark.stores

#: More than a page of a listing.
MANY = 1100
CONFIGURATION = ("AWS_", "AZURE_", "GOOGLE_")


class Bucket:
    """A folder of a bucket with objects.

    Args:
        url: by which it is written.
        read_at: by which it is read.
    """

    def __init__(self, url: str, read_at: str) -> None:
        self.url = read_at
        self.folder = url.split("/", 3)[3]
        self.store: ObstoreStore = open_store(url)
        for name in ("logs/a.csv", "logs/b.csv", "logs/deep/c.csv", "logs-of-others/d.csv", "logs/e.json"):
            self.store.put(name, name.encode() * 100)

    def names(self, path: str) -> list[str]:
        found = sorted(item.name for item in open_source(f"{self.url}/{path}").list())
        return [name.removeprefix(f"{self.folder}/") for name in found]


def _open_to_anyone(server: RunningStore) -> str:
    """The name of a new bucket of S3 that anyone may read without a signature."""
    name = f"anyone-{secrets.token_hex(4)}"
    make_bucket(server.endpoint, name)
    client = botocore.session.get_session().create_client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id="testkey",
        aws_secret_access_key="testsecret",  # noqa: S106  # of a server on loopback, for one test run
    )
    everything = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"]}
    places = [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"]
    policy = {"Version": "2012-10-17", "Statement": [{**everything, "Resource": places}]}
    client.put_bucket_policy(Bucket=name, Policy=json.dumps(policy))
    return name


@pytest.fixture(params=["s3", "gs", "az"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """As `gs://`, Ceph's gateway is read by the requests for Google's XML API, which are those for S3."""
    scheme, folder = request.param, f"sources-{secrets.token_hex(4)}"
    server: RunningStore = request.getfixturevalue("azurite" if scheme == "az" else "ceph_rgw")
    for name in [name for name in os.environ if name.startswith(CONFIGURATION)]:
        monkeypatch.delenv(name)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    if scheme != "gs":
        return Bucket(f"{server.url}/{folder}", f"{server.url}/{folder}")
    key = {"gcs_base_url": server.endpoint, "disable_oauth": True}
    key |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(key))
    name = _open_to_anyone(server)
    return Bucket(f"s3://{name}/{folder}", f"gs://{name}/{folder}")


def test_a_prefix_a_pattern_and_an_object_are_listed(bucket: Bucket) -> None:
    below = ["logs/a.csv", "logs/b.csv", "logs/deep/c.csv", "logs/e.json"]
    assert bucket.names("logs") == bucket.names("logs/") == below
    assert bucket.names("logs/*.csv") == ["logs/a.csv", "logs/b.csv", "logs/deep/c.csv"]
    assert bucket.names("logs/[ab].csv") == ["logs/a.csv", "logs/b.csv"]
    assert bucket.names("logs/a.csv") == ["logs/a.csv"]
    for path in ("log", "logs/nothing", "logs/*.parquet"):
        with pytest.raises(InputError) as caught:
            bucket.names(path)
        assert caught.value.code == "source_not_found"


def test_more_than_a_page_is_listed(bucket: Bucket) -> None:
    names = [f"many/{k:04}.csv" for k in range(MANY)]
    for name in names:
        bucket.store.put(name, b"x")
    assert bucket.names("many") == names


def test_an_object_is_read_as_it_was_listed_or_not_at_all(bucket: Bucket) -> None:
    source = open_source(f"{bucket.url}/logs/a.csv")
    [item] = source.list()
    data = b"logs/a.csv" * 100
    assert item.size == len(data)
    assert bytes(source.read(item, 5, 17)) == data[5:22]
    assert bytes(source.read(item, 0, item.size)) == data
    bucket.store.put("logs/a.csv", b"logs/A.csv" * 100)
    with pytest.raises(InputError) as caught:
        source.read(item, 0, 10)
    assert caught.value.code == "source_changed"
    assert "logs/a.csv" in caught.value.detail
    bucket.store.delete("logs/a.csv")
    with pytest.raises(InputError) as caught:
        source.read(item, 0, 10)
    assert caught.value.code == "source_changed"


def test_rows_of_a_bucket_become_a_version_where_that_is_allowed(bucket: Bucket) -> None:
    rows = [{"id": k, "text": "x" * (k % 50)} for k in range(500)]
    for k in range(2):
        part = "".join(json.dumps(row) + "\n" for row in rows[250 * k :][:250])
        bucket.store.put(f"rows/{k}.ndjson", part.encode())
    datasets = Client(open_store("memory://")).datasets

    def allowing(*urls: str) -> Imports:
        spool, memory = Spool(None, 1 << 30), MemoryPool(1 << 30)
        return Imports(datasets, limits=Limits(), spool=spool, memory=memory, allowed=urls)

    publish = PublishOptions(num_shards=2)
    request = ImportRequest(source=f"{bucket.url}/rows", range_bytes=3000, publish=publish)
    with pytest.raises(MalformedInput) as caught:
        allowing(f"{bucket.url}/other", "file:///").begin("d", request)
    assert caught.value.code == "source_not_allowed"
    imports = allowing(f"{bucket.url}/rows/")
    import_id, _ = imports.begin("d", request)
    status = drive(imports, "d", import_id, HereEngine(imports))
    assert (status.version, status.num_records) == ("1.0.0", 500)
    assert status.plan.num_ranges > 4
    read = as_arrow(datasets.read_records("d", "latest", "train", budget=Budget()))
    assert [value for batch in read for value in batch.column("id").to_pylist()] == list(range(500))
