"""The file of tokens: what it says, and every way in which it can be wrong."""

import hashlib
import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.api.auth.principal import Principal, is_prefix
from app.api.auth.token_file import MAX_FILE_BYTES, InvalidTokenFile, parse_tokens

TOKEN = b"a secret that is not in the file"
DIGEST = hashlib.sha256(TOKEN).hexdigest()
ENTRY = {"name": "ingest", "sha256": DIGEST, "scopes": ["write"]}


def file_of(*entries: Any) -> bytes:
    return json.dumps({"tokens": entries}).encode()


def test_an_entry_is_found_by_the_digest_of_its_token() -> None:
    table = parse_tokens(
        file_of({**ENTRY, "prefix": "acme-", "expires": "2027-01-31T12:00:00+01:00"}),
    )
    assert len(table) == 1
    assert table.find(hashlib.sha256(TOKEN).digest()) == Principal(
        "ingest", frozenset({"write"}), "acme-", 1801393200.0
    )
    assert table.find(hashlib.sha256(b"another").digest()) is None
    assert table.find(bytes(32)) is None


def test_without_prefix_and_expiry_it_is_for_all_datasets_and_for_ever() -> None:
    found = parse_tokens(file_of({**ENTRY, "sha256": DIGEST.upper()})).find(bytes.fromhex(DIGEST))
    assert found is not None
    assert (found.prefix, found.expires) == ("", math.inf)
    assert found.owns("anything")


def test_no_tokens_at_all_let_nobody_in() -> None:
    assert len(parse_tokens(b'{"tokens": []}')) == 0


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "not JSON: line 1, column 1"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", 'one member "tokens"'),
        (b'{"tokens": [], "version": 1}', 'one member "tokens"'),
        (b'{"tokens": {}}', 'one member "tokens"'),
        (b'{"tokens": [], "tokens": []}', "a member twice"),
        (b" " * (MAX_FILE_BYTES + 1), "larger than"),
        (file_of("x"), "tokens[0] is not an object"),
        (file_of({**ENTRY, "expire": None}), "1 unknown member(s)"),
        (file_of({"name": "x", "scopes": ["read"]}), "lacks sha256"),
        (file_of({**ENTRY, "name": "a\nb"}), "tokens[0].name"),
        (file_of({**ENTRY, "name": ""}), "tokens[0].name"),
        (file_of({**ENTRY, "sha256": TOKEN.decode()}), "tokens[0].sha256 is not"),
        (file_of({**ENTRY, "sha256": 7}), "tokens[0].sha256 is not"),
        (file_of({**ENTRY, "sha256": hashlib.sha256(b"").hexdigest()}), "digest of nothing"),
        (file_of({**ENTRY, "sha256": hashlib.sha256(b"\n").hexdigest()}), "digest of nothing"),
        (file_of({**ENTRY, "sha256": "0" * 64}), "digest of nothing"),
        (file_of({**ENTRY, "scopes": []}), "tokens[0].scopes"),
        (file_of({**ENTRY, "scopes": "write"}), "tokens[0].scopes"),
        (file_of({**ENTRY, "scopes": ["write", "root"]}), "tokens[0].scopes"),
        (file_of({**ENTRY, "scopes": ["write", "write"]}), "tokens[0].scopes"),
        (file_of({**ENTRY, "scopes": ["write", ["read"]]}), "tokens[0].scopes"),
        (file_of({**ENTRY, "prefix": ""}), "tokens[0].prefix"),
        (file_of({**ENTRY, "prefix": "acme"}), "tokens[0].prefix"),
        (file_of({**ENTRY, "prefix": "a/-"}), "tokens[0].prefix"),
        (file_of({**ENTRY, "prefix": None}), "tokens[0].prefix"),
        (file_of({**ENTRY, "expires": "2027-01-31"}), "tokens[0].expires"),
        (file_of({**ENTRY, "expires": "2027-01-31T12:00:00"}), "tokens[0].expires"),
        (file_of({**ENTRY, "expires": 1801393200}), "tokens[0].expires"),
        (file_of(ENTRY, {**ENTRY, "name": "b"}), "tokens[1].sha256 is that of tokens[0]"),
        (file_of(ENTRY, {**ENTRY, "sha256": "ab" * 32}), "tokens[1].name is that of tokens[0]"),
    ],
)
def test_error_in_a_token_file_quotes_no_secret(data: bytes, complaint: str) -> None:
    with pytest.raises(InvalidTokenFile) as caught:
        parse_tokens(data)
    assert complaint in str(caught.value)
    assert TOKEN.decode() not in repr(caught.value)
    assert DIGEST not in repr(caught.value)
    assert caught.value.__cause__ is None


def test_a_prefix_ends_where_another_cannot_go_on() -> None:
    assert [is_prefix(text) for text in ("acme-", "acme_eu_", "0-")] == [True] * 3
    assert [is_prefix(text) for text in ("acme", "-", "_", "", "a.b-", "ä-", "a-\n", "a" * 63 + "-")] == [
        False
    ] * 8


def test_the_documented_line_makes_the_digest() -> None:
    made = subprocess.run(
        ["sh", "-c", 'TOKEN=$1; printf %s "$TOKEN" | sha256sum', "sh", TOKEN.decode()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout.split()[0] == DIGEST


def test_the_documented_file_is_one() -> None:
    page = (Path(__file__).parents[4] / "docs" / "auth.md").read_text("utf-8")
    [example] = re.findall(r"^```json\n(\{\"tokens\".*?)^```$", page, re.MULTILINE | re.DOTALL)
    first, second = example.split("<64 hex digits>", 1)
    table = parse_tokens(f"{first}{'ab' * 32}{second.replace('<64 hex digits>', DIGEST)}".encode())
    found = table.find(bytes.fromhex(DIGEST))
    assert found is not None
    assert (found.name, found.prefix) == ("acme-ingest", "acme-")
    assert 'printf %s "$TOKEN" | sha256sum' in page
