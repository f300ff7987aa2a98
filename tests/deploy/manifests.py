"""The chart and the overlays as Kubernetes gets them: rendered by helm and kubectl, read as objects."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

#: Name helm, kubectl, and the folder with the commands of .ci/kubernetes/requirements.lock.
HELM = "SHARDSMITH_TEST_HELM"
KUBECTL = "SHARDSMITH_TEST_KUBECTL"
CHECKERS = "SHARDSMITH_TEST_KUBERNETES"

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "shardsmith"
KUSTOMIZE = ROOT / "deploy" / "kustomize"
OVERLAYS = ("azure", "gcs", "s3")

#: The least that has to be said.
LEAST = """
storage: {url: s3://bucket}
authentication: {tokensSecret: shardsmith-tokens}
"""
#: Everything that can be switched on.
ALL = """
image:
  repository: registry.example/shardsmith
  digest: sha256:30292fc2eeacc67a36993b01f7a7a5e3361a19cced0e80c1d71cfa2a4b0a2499
imagePullSecrets: [{name: registry}]
storage:
  url: az://container/prefix
  environment: {AZURE_STORAGE_ACCOUNT_NAME: account}
  existingSecret: store
authentication:
  tokensSecret: shardsmith-tokens
  oidc: {issuer: "https://id.example", audience: shardsmith}
settings: {SHARDSMITH_MAX_REQUESTS: "512", SHARDSMITH_OIDC_TENANT_CLAIM: team}
forwardedAllowIps: 10.0.0.0/8
serviceAccount: {annotations: {azure.workload.identity/client-id: client}}
podLabels: {azure.workload.identity/use: "true"}
podAnnotations: {example.org/owner: data}
spool: {gib: 64, storageClassName: fast}
shutdown: {graceSeconds: 300}
service: {annotations: {example.org/owner: data}}
ingress: {enabled: true, className: nginx, host: shardsmith.example, tlsSecret: tls}
httpRoute: {enabled: true, parentRefs: [{name: public, namespace: gateways}], hostnames: [shardsmith.example]}
autoscaling:
  enabled: true
  metrics:
    - type: Pods
      pods: {metric: {name: shardsmith_threads_in_use}, target: {type: AverageValue, averageValue: "20"}}
metrics:
  from: [{namespaceSelector: {matchLabels: {team: monitoring}}}]
  serviceMonitor: {enabled: true, labels: {release: prometheus}}
  prometheusRule: {enabled: true, labels: {release: prometheus}}
  dashboard: {enabled: true}
tracing: {environment: {OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:4318"}}
networkPolicy:
  from: [{namespaceSelector: {matchLabels: {team: data}}}]
  egress: [{ports: [{port: 9000}]}]
nodeSelector: {kubernetes.io/arch: amd64}
tolerations: [{key: data, operator: Exists}]
affinity: {nodeAffinity: {}}
priorityClassName: high
"""

Object = dict[str, Any]


@dataclass(frozen=True)
class Rendered:
    """What is sent to Kubernetes."""

    text: str

    @property
    def objects(self) -> dict[str, Object]:
        """By kind; a second one of a kind has its name's end behind that: `Service-metrics`."""
        found = [document for document in yaml.safe_load_all(self.text) if document]
        kinds: dict[str, Object] = {}
        for document in sorted(found, key=lambda document: len(document["metadata"]["name"])):
            kind, name = document["kind"], document["metadata"]["name"]
            kinds[kind + name.removeprefix("shardsmith") if kind in kinds else kind] = document
        assert len(kinds) == len(found)
        return kinds

    @property
    def pod(self) -> Object:
        """The pods' specification."""
        specification: Object = self.objects["Deployment"]["spec"]["template"]["spec"]
        return specification

    @property
    def container(self) -> Object:
        [container] = self.pod["containers"]
        found: Object = container
        return found

    @property
    def variables(self) -> dict[str, str]:
        """What the ConfigMap sets for the service."""
        data: dict[str, str] = self.objects["ConfigMap"]["data"]
        return data


def base_pod() -> Object:
    """The pods of the kustomize base, which a test keeps equal to those of the chart."""
    deployment = yaml.safe_load((KUSTOMIZE / "base" / "deployment.yaml").read_text("utf-8"))
    pod: Object = deployment["spec"]["template"]["spec"]
    return pod


def base_settings() -> dict[str, str]:
    """The settings of the base."""
    lines = (KUSTOMIZE / "base" / "settings.env").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def template(values: str) -> "subprocess.CompletedProcess[str]":
    """The chart with those values."""
    command = [os.environ[HELM], "template", "shardsmith", str(CHART), "--namespace", "data", "--values", "-"]
    return subprocess.run(command, input=values, capture_output=True, text=True, check=False)


def render(values: str) -> Rendered:
    done = template(values)
    assert done.returncode == 0, done.stderr
    return Rendered(done.stdout)


def build(overlay: str) -> Rendered:
    """An overlay as `kubectl apply --kustomize` sends it."""
    command = [os.environ[KUBECTL], "kustomize", str(KUSTOMIZE / "overlays" / overlay)]
    return Rendered(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
