"""The names of all objects, as the storage protocol fixes them."""

import re

from app.services.datasets.objects.layout import Layout, media_type, record_index
from app.services.datasets.objects.publish_options import PublishOptions
from app.storage.obstore_store import open_store
from tests.support.dataset_rows import Client
from tests.support.faulty_store import FaultStore

HEX = "[0-9a-f]{32}"


def test_every_object_has_its_name() -> None:
    layout = Layout("d", 2)
    assert layout.incarnation == "d/_gen/2.json"
    assert layout.end == "d/_gen/2.end"
    assert layout.schema(3) == "d/_g2/schema/3.json"
    assert layout.slot("abc") == "d/_g2/slots/a/abc"
    assert layout.part("abc", "x", 3) == "d/_g2/parts/abc/x/3"
    assert layout.plan(7) == "d/_g2/log/7.plan"
    assert layout.inputs(7, "x") == "d/_g2/log/7.x.inputs"
    assert layout.seen(7, "x") == "d/_g2/log/7.x.seen"
    assert layout.done(7, "shard") == "d/_g2/log/7.done/shard"
    assert layout.hint == "d/_g2/log/hint"
    assert layout.manifest(7) == "d/2.6.0/_manifest.json"
    assert layout.deleted(7) == "d/2.6.0/_deleted.json"
    assert layout.file(1, "features.json") == "d/2.0.0/features.json"


def test_the_first_version_is_1_0_0_and_the_next_1_1_0() -> None:
    assert [str(Layout("d", 1).version(n)) for n in (1, 2, 11)] == ["1.0.0", "1.1.0", "1.10.0"]


def test_an_append_and_a_publish_write_in_this_order() -> None:
    store = FaultStore(open_store("memory://"))
    client = Client(store)
    client.append(range(400), key="k", pad=1000)
    client.publish(PublishOptions(num_shards=2))
    writes = [
        (operation, re.sub(HEX, "*", key))
        for operation, key in store.requests
        if operation in ("put", "create", "put_stream", "delete")
    ]
    digit = next(key for operation, key in store.requests if "/slots/" in key).split("/")[3]
    assert writes == [
        ("put", "d/_g1/parts/*/*/0"),
        ("create", "d/_gen/1.json"),
        ("create", f"d/_g1/slots/{digit}/*"),
        ("put", "d/_g1/log/1.*.inputs"),
        ("put", "d/_g1/log/1.*.seen"),
        ("create", "d/_g1/log/1.plan"),
        ("put_stream", "d/1.0.0/d-train.tfrecord-00000-of-00002"),
        ("put_stream", "d/1.0.0/_d-train-00000-of-00002.idx"),
        ("put", "d/_g1/log/1.done/d-train.tfrecord-00000-of-00002"),
        ("put_stream", "d/1.0.0/d-train.tfrecord-00001-of-00002"),
        ("put_stream", "d/1.0.0/_d-train-00001-of-00002.idx"),
        ("put", "d/_g1/log/1.done/d-train.tfrecord-00001-of-00002"),
        ("put", "d/1.0.0/features.json"),
        ("put", "d/1.0.0/schema.pbtxt"),
        ("put", "d/1.0.0/_index.json"),
        ("create", "d/1.0.0/_manifest.json"),
        ("put", "d/1.0.0/dataset_info.json"),
        ("put", "d/_g1/log/hint"),
        ("delete", "d/_g1/parts/*/*/0"),
    ]


def test_every_file_of_a_version_has_a_media_type() -> None:
    assert media_type("d-train.tfrecord-00000-of-00001") == "application/x-tfrecord"
    assert media_type("dataset_info.json") == "application/json"
    assert media_type("schema.pbtxt") == "text/plain; charset=utf-8"


def test_patterns_for_shards_do_not_match_their_indexes() -> None:
    assert (
        record_index("a.tfrecord-b-train.tfrecord-00000-of-00002") == "_a.tfrecord-b-train-00000-of-00002.idx"
    )
    assert ".tfrecord" not in record_index("d-train.tfrecord-00000-of-00002")
