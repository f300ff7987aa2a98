"""What a publish may ask for: bounds, contradictions, and what counts as the same request."""

import json
from typing import Any

import pytest

from app.domain.sharding.division import Division
from app.errors import MalformedInput, UnprocessableInput
from app.services.datasets.objects.publish_options import PublishOptions

ID = "0123456789abcdef0123456789abcdef"
FRACTIONS = {"train": "0.8", "test": "0.2"}


def test_defaults() -> None:
    options = PublishOptions()
    assert options.indexed
    assert options.shuffle_seed is None
    assert options.division is None
    assert json.loads(json.dumps(options.to_json())) == {
        "num_shards": None,
        "shard_bytes": None,
        "compression": "none",
        "index": True,
        "shuffle": False,
        "seed": 0,
        "fractions": None,
        "divide": None,
        "by": None,
        "base": "latest",
        "exclude": [],
    }


def test_everything_at_once() -> None:
    options = PublishOptions(
        shard_bytes=1, compression="gzip", shuffle=True, seed=-3, fractions=FRACTIONS, divide="pool",
        by="user", base="none", exclude=(ID,), publish_key="k",
    )  # fmt: skip
    assert not options.indexed
    assert options.shuffle_seed == -3
    assert options.division == Division("pool", FRACTIONS, "user", -3)


def test_an_index_is_left_out_where_asked() -> None:
    assert not PublishOptions(index=False).indexed
    assert PublishOptions(index=True).indexed
    assert not PublishOptions(index=False, compression="zlib").indexed


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"num_shards": 0}, "invalid_num_shards"),
        ({"num_shards": {"train": 10_001}}, "invalid_num_shards"),
        ({"shard_bytes": 0}, "invalid_shard_bytes"),
        ({"shard_bytes": 2**50 + 1}, "invalid_shard_bytes"),
        ({"shard_bytes": True}, "invalid_shard_bytes"),
        ({"compression": "lz4"}, "invalid_compression"),
        ({"shuffle": True, "seed": 2**63}, "invalid_seed"),
        ({"shuffle": True, "seed": 1.5}, "invalid_seed"),
        ({"fractions": FRACTIONS, "divide": "a/b"}, "invalid_split_name"),
        ({"exclude": ("x",)}, "invalid_append_id"),
        ({"exclude": (ID, ID)}, "invalid_exclude"),
        ({"exclude": tuple(f"{i:032x}" for i in range(1001))}, "invalid_exclude"),
    ],
)
def test_values_have_bounds(asked: dict[str, Any], code: str) -> None:
    with pytest.raises(MalformedInput) as caught:
        PublishOptions(**asked)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "asked",
    [
        {"num_shards": 2, "shard_bytes": 100},
        {"index": True, "compression": "gzip"},
        {"by": "user"},
        {"divide": "train"},
        {"seed": 1},
        {"seed": 0},
    ],
)
def test_contradictions_are_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(UnprocessableInput) as caught:
        PublishOptions(**asked)
    assert caught.value.code == "contradictory_options"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"index": True}, {}, True),
        ({"index": False}, {}, False),
        ({"compression": "gzip", "index": False}, {"compression": "gzip"}, True),
        ({"shuffle": True, "seed": 0}, {"shuffle": True}, True),
        ({"shuffle": True, "seed": 1}, {"shuffle": True}, False),
        ({"shard_bytes": 5}, {"shard_bytes": 6}, False),
        ({"fractions": FRACTIONS, "divide": "train"}, {"fractions": FRACTIONS}, True),
        ({"fractions": FRACTIONS, "by": "x"}, {"fractions": FRACTIONS}, False),
        ({"fractions": FRACTIONS}, {"fractions": dict(reversed(FRACTIONS.items()))}, False),
        ({"exclude": (ID, "f" * 32)}, {"exclude": ("f" * 32, ID)}, True),
        ({"exclude": (ID,)}, {}, False),
        ({"publish_key": "a"}, {"publish_key": "b"}, True),
    ],
)
def test_repeated_request_is_recognised(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    stored = json.loads(json.dumps(PublishOptions(**other).to_json()))
    assert PublishOptions(**one).repeats(stored) is same
