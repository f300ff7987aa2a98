"""Authentication of a running process: rotation as Kubernetes does it, and secrets that stay inside."""

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.settings import Settings
from tests.contract.tokens import as_, token_file
from tests.support.service import ROOT, RUN, Service, free_port, ready, started
from tests.support.waiting import wait_for

READ = {"scopes": ["read"]}


def mount(folder: Path, version: str, tokens: str) -> Path:
    """Bring a Secret into `folder` as the kubelet does: a new folder, and one link that changes."""
    (folder / version).mkdir(parents=True)
    (folder / version / "tokens.json").write_text(tokens)
    (folder / "..data_tmp").symlink_to(version)
    (folder / "..data_tmp").rename(folder / "..data")
    if not (folder / "tokens.json").is_symlink():
        (folder / "tokens.json").symlink_to("..data/tokens.json")
    return folder / "tokens.json"


@pytest.mark.waits
def test_tokens_change_without_a_restart(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    path = mount(secret, "..1", token_file({"old": {"name": "old", **READ}}))
    with ready(tmp_path, SHARDSMITH_TOKENS_FILE=str(path)) as service:

        def known(token: str) -> bool:
            return httpx.get(f"{service.url}/v1/datasets", headers=as_(token)).status_code == 200

        assert known("old")
        assert not known("new")
        mount(secret, "..2", token_file({"old": {"name": "old", **READ}, "new": {"name": "new", **READ}}))
        wait_for(lambda: known("new"))
        assert known("old")
        mount(secret, "..3", '{"tokens": [')
        wait_for(lambda: "stay in force" in service.log())
        assert known("old")
        assert httpx.get(f"{service.url}/readyz").status_code == 200
        mount(secret, "..4", token_file({"new": {"name": "new", **READ}}))
        wait_for(lambda: not known("old"))
        assert known("new")
        assert service.stop() == 0
        assert "Traceback" not in service.log()


def refusal(folder: Path, **settings: str) -> str:
    """What a process says that does not start."""
    environment = {
        **os.environ,
        "SHARDSMITH_PORT": str(free_port()),
        "SHARDSMITH_STORAGE_URL": "memory://",
        **settings,
    }
    ended = subprocess.run(
        RUN, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.processes
def test_start_is_refused_without_tokens_beyond_loopback(tmp_path: Path) -> None:
    assert "SHARDSMITH_ALLOW_UNAUTHENTICATED" in refusal(tmp_path, SHARDSMITH_HOST="0.0.0.0")  # noqa: S104
    path = tmp_path / "tokens.json"
    assert "cannot be read" in refusal(tmp_path, SHARDSMITH_TOKENS_FILE=str(path))
    path.write_text(json.dumps({"tokens": [{"name": "x", "sha256": "plain-secret", "scopes": ["read"]}]}))
    said = refusal(tmp_path, SHARDSMITH_TOKENS_FILE=str(path))
    assert "tokens[0].sha256" in said
    assert "plain-secret" not in said


# Secrets

TOKEN = f"canary-token-{secrets.token_hex(8)}"
GUESS = f"canary-guess-{secrets.token_hex(8)}"
AWS = f"canary-aws-{secrets.token_hex(8)}"
SECRETS = (TOKEN, GUESS, AWS)


@pytest.fixture(params=["text", "json"])
def canaried(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """A talkative service whose object store cannot be reached."""
    path = tmp_path / "tokens.json"
    entry = {"name": "all", "scopes": ["read", "write", "admin"]}
    path.write_text(token_file({TOKEN: entry}))
    with started(
        tmp_path,
        SHARDSMITH_TOKENS_FILE=str(path),
        SHARDSMITH_STORAGE_URL="s3://bucket/prefix",
        SHARDSMITH_LOG_LEVEL="debug",
        SHARDSMITH_LOG_FORMAT=request.param,
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{free_port()}",
        AWS_ALLOW_HTTP="true",
        AWS_REGION="us-east-1",
        AWS_ACCESS_KEY_ID="public-id",
        AWS_SECRET_ACCESS_KEY=AWS,
        AWS_SESSION_TOKEN=AWS,
    ) as service:
        wait_for(lambda: service.answers("/livez"))
        yield service


@pytest.mark.waits
def test_no_secret_shows_in_an_answer_or_a_log(canaried: Service, tmp_path: Path) -> None:
    json_body = {"Content-Type": "application/json"}
    requests = [
        ("GET", "/openapi.json", b"", {}),
        ("GET", "/docs", b"", {}),
        ("GET", "/readyz", b"", {}),
        ("GET", "/livez?x=1", b"", {}),
        ("GET", "/v1/nothing", b"", {}),
        ("PATCH", "/v1/datasets", b"", {}),
        ("GET", "/v1/datasets", b"", {}),
        ("GET", "/v1/datasets/a%0ab", b"", {}),
        ("POST", "/v1/datasets/a/records", b'[{"x": 1}]', json_body),
        ("POST", "/v1/datasets/a/records", b"[", json_body),
        ("POST", "/v1/datasets/a/versions/1.0.0/abort", b"", {}),
        ("POST", "/v1/tensors/serialize?to=json", b"[[1], [2, 3]]", json_body),
        ("POST", "/v1/tensors/serialize", b"{}", {"Content-Type": "application/wrong"}),
        ("POST", "/v1/tensors/serialize", b"1", {**json_body, "Accept": "image/tiff"}),
        ("POST", "/v1/records/parse", b"\0" * 20, {"Content-Type": "application/x-tfrecord"}),
        ("POST", "/v1/records/serialize?schema=dataset:a", b"[{}]", json_body),
    ]
    answers = []
    with httpx.Client(base_url=canaried.url, timeout=60) as client:
        for method, path, body, headers in requests:
            for authorization in (
                f"Bearer {TOKEN}",
                f"Bearer {GUESS}",
                f"Basic {GUESS}",
                GUESS,
                f"Bearer {GUESS}.a.b",
            ):
                sent = {**headers, "Authorization": authorization, "Cookie": GUESS, "X-Request-Id": "r"}
                answers.append(client.request(method, path, content=body, headers=sent))
        answers.append(
            client.get("/v1/datasets", headers=[("Authorization", GUESS), ("Authorization", TOKEN)])
        )
    assert canaried.stop() == 0
    assert {answer.status_code for answer in answers} >= {200, 400, 401, 404, 405, 406, 415, 422, 503}
    settings = Settings(tokens_file=tmp_path / "tokens.json", storage_url="s3://bucket/prefix")
    shown = [canaried.log(), repr(settings), str(settings.model_dump())]
    shown += [f"{answer.headers}{answer.text}" for answer in answers]
    digests = json.loads((tmp_path / "tokens.json").read_text())["tokens"]
    for secret in (*SECRETS, *(entry["sha256"] for entry in digests)):
        assert [text[:2000] for text in shown if secret in text] == []
    assert "storage is not ready" in canaried.log()
