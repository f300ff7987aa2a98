"""The chart and the kustomize overlays: valid, in step with the service and with each other."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.api.http1.connections import PROBES
from app.domain.limits import MIB
from app.settings import Settings, read_settings, refuse_unknown
from tests.deploy.manifests import (
    ALL,
    CHART,
    CHECKERS,
    HELM,
    KUSTOMIZE,
    LEAST,
    OVERLAYS,
    Rendered,
    build,
    render,
    template,
)

pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("kubernetes_tools")]

#: The last three minor releases whose schemas kubernetes-validate has.
RELEASES = ("1.35", "1.36", "1.37")
HTTP_ROUTE = Path(__file__).with_name("httproute.schema.json")
VALIDATE_HTTP_ROUTE = """
import json, sys, jsonschema
jsonschema.validate(json.load(sys.stdin), json.load(open(sys.argv[1])))
"""
#: Policies of checkov that are not followed.
NOT_FOLLOWED = {
    "CKV_K8S_15": "imagePullPolicy Always: a digest or a version's tag names the same bytes for ever",
    "CKV_K8S_21": "no default namespace: helm takes it from its command line, and writes none",
    "CKV_K8S_35": "secrets as files: clients of stores read keys from variables; identities need neither",
    "CKV_K8S_43": "images by digest: the default names the version; there is no published image to name",
}
#: Set by the chart or the image, so not among `settings`.
SET_ELSEWHERE = {
    "allow_unauthenticated", "host", "metrics_host", "metrics_port", "oidc_audience", "oidc_issuer", "port",
    "shutdown_delay_s", "shutdown_grace_s", "spool_dir", "spool_max_bytes", "storage_url", "tokens_file",
}  # fmt: skip
#: What the service takes to end, after the grace that it gives to requests (docs/settings.md).
ENDS_WITHIN_S = 4
DOCKERFILE = (KUSTOMIZE.parents[1] / "Dockerfile").read_text("utf-8")


def checker(program: str) -> str:
    return str(Path(os.environ[CHECKERS]) / program)


@pytest.fixture(scope="module", params=["least", "all", *OVERLAYS])
def rendered(request: pytest.FixtureRequest) -> Rendered:
    values = {"least": LEAST, "all": ALL}.get(request.param)
    return build(request.param) if values is None else render(values)


@pytest.fixture(scope="module")
def everything() -> Rendered:
    return render(ALL)


def test_every_object_is_valid_in_the_last_releases(rendered: Rendered, tmp_path: Path) -> None:
    others = {"HTTPRoute", "PrometheusRule", "ServiceMonitor"}
    own = [document for kind, document in rendered.objects.items() if kind not in others]
    (tmp_path / "manifests.yaml").write_text(yaml.safe_dump_all(own), "utf-8")
    for release in RELEASES:
        command = [
            checker("kubernetes-validate"),
            "--strict",
            "-k",
            release,
            str(tmp_path / "manifests.yaml"),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert (ran.stdout + ran.stderr).count(f"against version {release}") == len(own)


def test_the_route_of_the_gateway_is_valid(everything: Rendered) -> None:
    route = json.dumps(everything.objects["HTTPRoute"])
    command = [checker("python"), "-c", VALIDATE_HTTP_ROUTE, str(HTTP_ROUTE)]
    ran = subprocess.run(command, input=route, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_policies_are_followed(rendered: Rendered, tmp_path: Path) -> None:
    (tmp_path / "manifests.yaml").write_text(rendered.text, "utf-8")
    command = [
        *(checker("checkov"), "--file", str(tmp_path / "manifests.yaml")),
        *("--framework", "kubernetes", "--skip-download", "--output", "json"),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(ran.stdout)
    failed = {check["check_id"] for check in report["results"]["failed_checks"]}
    assert failed - NOT_FOLLOWED.keys() == set()
    assert report["summary"]["passed"] > 70


def test_the_chart_has_no_fault_that_helm_finds() -> None:
    command = [os.environ[HELM], "lint", "--strict", str(CHART), "--values", "-"]
    ran = subprocess.run(command, input=ALL, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ("authentication: {tokensSecret: x}", "/storage/url"),
        (LEAST.replace("s3://bucket", "file:///data"), "/storage/url"),
        (LEAST.replace("tokensSecret", "tokenSecret"), "tokenSecret"),
        (LEAST.replace("shardsmith-tokens", '""'), "Say who may use the service"),
        (LEAST + "settings: {SHARDSMITH_MAX_REQUEST: '1'}", "SHARDSMITH_MAX_REQUEST"),
        (LEAST + "settings: {SHARDSMITH_PORT: '1'}", "SHARDSMITH_PORT"),
        (LEAST + "settings: {SHARDSMITH_MAX_REQUESTS: 1}", "want string"),
        (LEAST + "ingress: {enabled: true}", "/ingress/host"),
        (LEAST + "httpRoute: {enabled: true}", "/httpRoute/parentRefs"),
        (LEAST + "resources: {limits: {memory: null}}", "memory"),
        (LEAST + "settings: {SHARDSMITH_METRICS_PORT: '1'}", "SHARDSMITH_METRICS_PORT"),
        (LEAST + "tracing: {environment: {SHARDSMITH_PORT: '1'}}", "SHARDSMITH_PORT"),
        (LEAST + "tracing: {environment: {OTEL_EXPORTER_OTLP_HEADERS: 'x=secret'}}", "_HEADERS"),
    ],
)
def test_values_that_cannot_work_are_refused(values: str, complaint: str) -> None:
    refused = template(values)
    assert refused.returncode != 0
    assert complaint in refused.stderr


def test_names_of_objects_are_not_too_long() -> None:
    rendered = template(LEAST + "fullnameOverride: " + "long-" * 20).stdout
    names = re.findall(r"^  name: (\S+)$", rendered, re.MULTILINE)
    assert any(name.endswith("-metrics") for name in names)
    assert max(map(len, names)) <= 63
    assert not any("--" in name for name in names)


def test_the_chart_knows_every_setting_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    offered = schema["properties"]["settings"]["propertyNames"]["enum"]
    expected = {f"SHARDSMITH_{name.upper()}" for name in Settings.model_fields.keys() - SET_ELSEWHERE}
    assert offered == sorted(expected)


def test_the_service_takes_the_settings_that_it_is_given(
    rendered: Rendered, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = dict(re.findall(r"^ +(SHARDSMITH_\w+)=(\S+)", DOCKERFILE, re.MULTILINE))
    given = image | rendered.variables
    refuse_unknown(given)
    for name in os.environ:
        if name.startswith("SHARDSMITH_"):
            monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = read_settings()
    assert settings.storage_url.startswith(("az://", "gs://", "s3://"))
    assert settings.port == rendered.container["ports"][0]["containerPort"]
    mounts = {mount["mountPath"]: mount["name"] for mount in rendered.container["volumeMounts"]}
    assert mounts[str(settings.spool_dir)] == "spool"
    assert settings.tokens_file is not None
    assert mounts[str(settings.tokens_file.parent)] == "tokens"
    volumes: dict[str, Any] = {volume["name"]: volume for volume in rendered.pod["volumes"]}
    assert volumes.keys() == set(mounts.values())

    assert rendered.pod["terminationGracePeriodSeconds"] > settings.shutdown_grace_s + ENDS_WITHIN_S
    assert settings.shutdown_delay_s < settings.shutdown_grace_s
    spool = volumes["spool"]
    size = (
        spool["emptyDir"]["sizeLimit"]
        if "emptyDir" in spool
        else spool["ephemeral"]["volumeClaimTemplate"]["spec"]["resources"]["requests"]["storage"]
    )
    assert settings.spool_max_bytes < int(size.removesuffix("Gi")) * 1024 * MIB


def test_pods_have_no_more_rights_than_they_need(rendered: Rendered) -> None:
    user = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    security = rendered.pod["securityContext"]
    assert [(str(security["runAsUser"]), str(security["runAsGroup"]))] == user
    assert security["runAsNonRoot"] is True
    assert rendered.container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert rendered.pod["enableServiceLinks"] is False
    assert rendered.pod["automountServiceAccountToken"] is False


def test_probes_ask_what_the_service_answers(rendered: Rendered) -> None:
    probes = {kind: rendered.container[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")}
    assert {kind: probe["httpGet"]["path"] for kind, probe in probes.items()} == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    assert {probe["httpGet"]["path"] for probe in probes.values()} <= PROBES
    assert {probe["httpGet"]["port"] for probe in probes.values()} == {"http"}


def test_memory_that_requests_are_promised_is_there(rendered: Rendered) -> None:
    resources = rendered.container["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"]


def test_proxies_accept_the_largest_upload(everything: Rendered) -> None:
    settings = Settings.model_validate({})
    ingress = everything.objects["Ingress"]["metadata"]["annotations"]
    prefix = "nginx.ingress.kubernetes.io/proxy-"
    assert int(ingress[f"{prefix}body-size"].removesuffix("g")) * 1024 * MIB >= settings.max_body_bytes
    assert float(ingress[f"{prefix}read-timeout"]) >= settings.max_seconds
    assert {ingress[f"{prefix}{name}"] for name in ("request-buffering", "buffering", "next-upstream")} == {
        "off"
    }
    [rule] = everything.objects["HTTPRoute"]["spec"]["rules"]
    assert {float(limit.removesuffix("s")) for limit in rule["timeouts"].values()} == {settings.max_seconds}


def test_objects_find_each_other(everything: Rendered) -> None:
    objects = everything.objects
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
        objects["Service"]["spec"]["selector"],
        objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        objects["Service-metrics"]["spec"]["selector"],
    ):
        assert selector
        assert selector.items() <= labels.items()
    monitored = objects["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    assert monitored.items() <= objects["Service-metrics"]["metadata"]["labels"].items()
    assert not monitored.items() <= objects["Service"]["metadata"]["labels"].items()
    assert objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == "shardsmith"
    assert "replicas" not in objects["Deployment"]["spec"]
    assert everything.pod["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"]
    assert [next(iter(source.values()))["name"] for source in everything.container["envFrom"]] == [
        "shardsmith",
        "store",
    ]


def test_metrics_are_where_prometheus_looks_for_them(everything: Rendered, rendered: Rendered) -> None:
    ports = {port["name"]: port["containerPort"] for port in rendered.container["ports"]}
    assert rendered.variables["SHARDSMITH_METRICS_HOST"] == "0.0.0.0"  # noqa: S104
    assert rendered.variables["SHARDSMITH_METRICS_PORT"] == str(ports["metrics"])
    [port] = rendered.objects["Service-metrics"]["spec"]["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == ("metrics", ports["metrics"], "metrics")
    # The Service of the API may be open to the world.
    assert [port["targetPort"] for port in rendered.objects["Service"]["spec"]["ports"]] == ["http"]
    let_in = [rule["ports"] for rule in rendered.objects["NetworkPolicy"]["spec"]["ingress"]]
    assert let_in == [[{"port": "http"}], [{"port": "metrics"}]]
    [endpoint] = everything.objects["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint == {"port": "metrics", "interval": "30s"}


def test_rules_and_dashboard_are_the_files_of_the_chart(everything: Rendered) -> None:
    folder = CHART / "observability"
    rule = everything.objects["PrometheusRule"]
    assert rule["spec"] == yaml.safe_load((folder / "alerts.yaml").read_text("utf-8"))
    dashboard = everything.objects["ConfigMap-dashboard"]
    assert json.loads(dashboard["data"]["shardsmith.json"]) == json.loads(
        (folder / "dashboard.json").read_text("utf-8")
    )
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_without_metrics_nothing_listens_for_prometheus() -> None:
    values = "metrics: {enabled: false, serviceMonitor: {enabled: true}, dashboard: {enabled: true}}"
    rendered = render(LEAST + values)
    assert "metrics" not in rendered.text.lower()


def test_traces_reach_their_collector(everything: Rendered) -> None:
    assert everything.variables["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318"
    collectors = {4317, 4318}
    assert collectors <= ports_that_are_let_out(everything)
    assert not collectors & ports_that_are_let_out(render(LEAST))


def ports_that_are_let_out(rendered: Rendered) -> set[int]:
    rules = rendered.objects["NetworkPolicy"]["spec"]["egress"]
    return {port["port"] for rule in rules for port in rule["ports"]}


def test_a_changed_setting_replaces_the_pods() -> None:
    def annotation(values: str) -> str:
        pods = render(values).objects["Deployment"]["spec"]["template"]
        checksum: str = pods["metadata"]["annotations"]["checksum/config"]
        return checksum

    assert annotation(LEAST) == annotation(LEAST + "replicas: 3")
    assert annotation(LEAST) != annotation(LEAST + "settings: {SHARDSMITH_LOG_LEVEL: debug}")


@pytest.mark.parametrize(
    ("overlay", "annotation"),
    [
        ("azure", "azure.workload.identity/client-id"),
        ("gcs", "iam.gke.io/gcp-service-account"),
        ("s3", "eks.amazonaws.com/role-arn"),
    ],
)
def test_overlays_name_a_store_and_an_identity(overlay: str, annotation: str) -> None:
    built = build(overlay)
    scheme = {"azure": "az", "gcs": "gs", "s3": "s3"}[overlay]
    assert built.variables["SHARDSMITH_STORAGE_URL"].startswith(f"{scheme}://")
    assert list(built.objects["ServiceAccount"]["metadata"]["annotations"]) == [annotation]
    labels = built.objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert ("azure.workload.identity/use" in labels) is (overlay == "azure")
    # A generated name, so that changed settings replace the pods.
    [source] = built.container["envFrom"]
    assert source["configMapRef"]["name"] == built.objects["ConfigMap"]["metadata"]["name"] != "shardsmith"


def test_the_base_is_what_the_chart_says(tmp_path: Path) -> None:
    subprocess.run([sys.executable, KUSTOMIZE / "render.py", tmp_path], check=True)
    written = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    base = KUSTOMIZE / "base"
    kept = {
        path.name: path.read_text("utf-8") for path in base.iterdir() if path.name != "kustomization.yaml"
    }
    assert written == kept
    assert [kind for kind in written.values() if re.search("helm|Helm|checksum", kind)] == []
