"""The manifests of imports on many machines: an Indexed Job, and a RayJob of KubeRay."""

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.failures import STATUS, UNREADABLE
from app.cli.importing import import_command
from app.errors import NotFound
from app.settings import read_settings, refuse_unknown
from tests.deploy.manifests import CHECKERS, KUBECTL, KUSTOMIZE, Object

IMPORTS = KUSTOMIZE / "imports"
ROOT = KUSTOMIZE.parents[1]
#: Wrong usage, as click says it.
USAGE = 2


def load(name: str) -> Object:
    [found] = yaml.safe_load_all((IMPORTS / name).read_text("utf-8"))
    manifest: Object = found
    return manifest


JOB = load("indexed/job.yaml")
RAY_JOB = load("ray/rayjob.yaml")
JOB_POD: Object = JOB["spec"]["template"]
RAY_PODS: dict[str, Object] = {
    "head": RAY_JOB["spec"]["rayClusterSpec"]["headGroupSpec"]["template"],
    "worker": RAY_JOB["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"],
}
PODS = {"indexed": JOB_POD, **RAY_PODS}


def container_of(pod: Object) -> Object:
    [container] = pod["spec"]["containers"]
    found: Object = container
    return found


def parse(arguments: list[str]) -> dict[str, Any]:
    """What the command makes of its arguments; an error if it knows one of them not."""
    program, command, *rest = arguments
    assert (Path(program).name, command) == ("shardsmith", "import")
    return dict(import_command.make_context("import", rest).params)


def test_each_pod_of_the_job_does_its_share() -> None:
    spec = JOB["spec"]
    arguments = [
        argument.replace("$(JOB_COMPLETION_INDEX)", "7") for argument in container_of(JOB_POD)["args"]
    ]
    given = parse(arguments)
    assert spec["completionMode"] == "Indexed"
    assert (given["index"], given["wait"]) == (7, True)
    # Pods that wait for one that is not started would wait for ever.
    assert spec["completions"] == spec["parallelism"] == given["of"]


def test_the_job_fails_at_once_only_where_the_same_again_cannot_help() -> None:
    rules = {rule["action"]: rule for rule in JOB["spec"]["podFailurePolicy"]["rules"]}
    assert rules["FailJob"]["onExitCodes"]["values"] == [USAGE, UNREADABLE, STATUS[NotFound]]
    assert rules["FailJob"]["onExitCodes"]["containerName"] == container_of(JOB_POD)["name"]
    assert JOB_POD["spec"]["restartPolicy"] == "Never"  # which such rules need


def test_the_driver_on_ray_is_the_command() -> None:
    given = parse(shlex.split(RAY_JOB["spec"]["entrypoint"]))
    assert given["engine"] == "ray"
    assert (given["index"], given["of"], given["wait"]) == (None, None, False)


def test_ray_is_of_one_version_everywhere() -> None:
    locked = re.findall(r"^ray==(\S+)", (ROOT / "locks/dev.txt").read_text("utf-8"), re.MULTILINE)
    image = re.findall(
        r"^FROM rayproject/ray:([\d.]+)-", (IMPORTS / "ray/Dockerfile").read_text("utf-8"), re.MULTILINE
    )
    assert image == locked[:1] == [RAY_JOB["spec"]["rayClusterSpec"]["rayVersion"]]
    assert len({container_of(pod)["image"] for pod in RAY_PODS.values()}) == 1


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_the_command_takes_the_settings_that_it_is_given(
    pod: Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = container_of(pod)
    given = {variable["name"]: variable["value"] for variable in container["env"]}
    refuse_unknown(given)
    for name in os.environ:
        if name.startswith("SHARDSMITH_"):
            monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = read_settings()
    assert settings.storage_url.startswith("s3://")
    for volume in pod["spec"].get("volumes", []):
        if volume["name"] == "spool":
            size = int(volume["emptyDir"]["sizeLimit"].removesuffix("Gi")) << 30
            processes = 4 if pod is RAY_PODS["worker"] else 1
            assert processes * settings.spool_max_bytes < size


def test_tasks_have_the_memory_that_they_take() -> None:
    worker = container_of(RAY_PODS["worker"])
    group = RAY_JOB["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    tasks = int(group["rayStartParams"]["num-cpus"])
    given = {variable["name"]: variable["value"] for variable in worker["env"]}
    memory = int(worker["resources"]["limits"]["memory"].removesuffix("Gi")) << 30
    assert 2 * tasks * int(given["SHARDSMITH_MEMORY_BYTES"]) <= memory
    assert tasks == int(worker["resources"]["limits"]["cpu"])


def test_pods_of_the_job_have_no_more_rights_than_they_need() -> None:
    user = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    security = JOB_POD["spec"]["securityContext"]
    assert [(str(security["runAsUser"]), str(security["runAsGroup"]))] == user
    assert container_of(JOB_POD)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.tools
@pytest.mark.usefixtures("kubernetes_tools")
@pytest.mark.parametrize("release", ["1.35", "1.36", "1.37"])
def test_the_manifests_are_valid(release: str, tmp_path: Path) -> None:
    """As kubectl builds them. Of the RayJob, its pods: its own schema is KubeRay's."""
    built = [_build(name) for name in ("indexed", "ray")]
    assert [document["kind"] for document in built] == ["Job", "RayJob"]
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, **pod}
        for name, pod in RAY_PODS.items()
    ]
    (tmp_path / "manifests.yaml").write_text(yaml.safe_dump_all([built[0], *pods]), "utf-8")
    command = [str(Path(os.environ[CHECKERS]) / "kubernetes-validate"), "--strict", "-k", release]
    ran = subprocess.run(
        [*command, str(tmp_path / "manifests.yaml")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (ran.stdout + ran.stderr).count(f"against version {release}") == 3


def _build(name: str) -> Object:
    command = [os.environ[KUBECTL], "kustomize", str(IMPORTS / name)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    [found] = yaml.safe_load_all(text)
    manifest: Object = found
    return manifest
