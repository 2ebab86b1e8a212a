"""Kueue's own manager beside kube-scheduler, with its CRDs and webhooks from its module.

There is no Service for the manager: the API server calls the webhooks by a URL. Kueue opens some
certificates at a fixed path below /etc, so that it gets an /etc of its own."""

from __future__ import annotations

import base64
import json
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.real.build import files_of, program
from tests.real.http_api import Api, ApiError, Json
from tests.real.rig import Rig

GROUP = "kueue.x-k8s.io"
API = f"{GROUP}/v1beta2"
OBJECTS = f"/apis/{API}"
IN_DEV = f"{OBJECTS}/namespaces/dev"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
HEALTH = "http://127.0.0.1:8081"
WEBHOOK = "https://127.0.0.1:9443"
CERTIFICATES = "kueue/metrics/certs"
INSTALLED_GROUPS = {"", "apps", "batch", GROUP}  # of webhooks
SYSTEM_NAMESPACES = ("kube-system", "kueue-system")
OUTSIDE: Json = {
    "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(SYSTEM_NAMESPACES)
}  # fmt: skip
CONFIGURATION: Json = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "namespace": "kueue-system",
    "health": {"healthProbeBindAddress": HEALTH.removeprefix("http://")},
    "metrics": {"bindAddress": "0"},
    "webhook": {"host": "127.0.0.1", "port": 9443, "certDir": f"/etc/{CERTIFICATES}"},
    "leaderElection": {"leaderElect": False},
    "internalCertManagement": {"enable": False},
    "clientConnection": {"qps": 300, "burst": 500},
    "managedJobsNamespaceSelector": {"matchExpressions": [OUTSIDE]},
    "integrations": {"frameworks": ["batch/job", "pod", "deployment", "statefulset"]},
    "featureGates": {"VisibilityOnDemand": False},
}
# The CRDs of the objects that a test may leave, in the order of their removal.
KINDS = ("workloads", "localqueues", "clusterqueues", "cohorts", "resourceflavors", "topologies")


class Kueue:
    """Kueue on the real cluster. It runs from `start` to `remove`, its webhooks since `serve`."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.sources = files_of("kueue")
        self.bundle = base64.b64encode((rig.keys / "ca.crt").read_bytes()).decode()

    # --- start and end ---------------------------------------------------------------------------

    def start(self) -> None:
        """Creates the CRDs and starts the manager."""
        for definition in self.definitions():
            apply(self.rig, f"{CRDS}/{definition['metadata']['name']}", definition)
        self.rig.create("/api/v1/namespaces", {"metadata": {"name": "kueue-system"}})
        self.rig.wait_for(self.is_served, "the API server serves the kinds of Kueue")
        self.rig.add("kueue", self.command(), lambda: Api(HEALTH).answers("/readyz"),
                     KUBECONFIG=self.rig.kubeconfig("kueue"))  # fmt: skip
        self.rig.servers["kueue"].start()
        version = program("kueue").name.rpartition("-")[2]
        self.rig.note_versions({"Kueue": version})

    def restart(self) -> None:
        """Starts the manager again after it was killed."""
        self.rig.servers["kueue"].start()

    def kill(self) -> None:
        self.rig.servers["kueue"].stop(signal.SIGKILL)

    def serve(self) -> None:
        """Creates the webhooks after Kueue has started, since they refuse everything without it."""
        for hooks in self.webhooks():
            name = hooks["metadata"]["name"]
            apply(self.rig, f"{HOOKS}/{hooks['kind'].lower()}s/{name}", hooks)
        queue = f"{OBJECTS}/clusterqueues?dryRun=All"

        def is_called() -> bool:
            try:
                self.rig.api.post(queue, named("ClusterQueue", "tried", wrong_quota()))
            except ApiError as error:
                return "vclusterqueue.kb.io" in error.text
            return False

        self.rig.wait_for(is_called, "a webhook of Kueue refuses a negative quota")

    def clear(self) -> None:
        """Removes all objects of a test, and the webhooks."""
        if not self.rig.servers["kueue"].is_up:
            self.restart()
        self.rig.remove_work()
        for kind in KINDS:
            self.rig.wait_for(partial(self.is_without, kind), f"no {kind} are left")
        self.remove_webhooks()

    def remove_webhooks(self) -> None:
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            self.rig.api.ask("DELETE", f"{HOOKS}/{kind}")

    def remove(self) -> None:
        """Stops the manager and removes its CRDs."""
        self.remove_webhooks()
        if "kueue" in self.rig.servers:
            self.rig.servers.pop("kueue").stop()
        for definition in self.definitions():
            self.rig.api.delete(f"{CRDS}/{definition['metadata']['name']}")
        self.rig.wait_for(lambda: not self.rig.api.answers(OBJECTS), "the kinds of Kueue are gone")

    def command(self) -> list[str]:
        etc = self.rig.directory / "kueue-etc"
        certificates = etc / CERTIFICATES
        certificates.mkdir(parents=True, exist_ok=True)
        for kind in ("crt", "key"):
            shutil.copy(self.rig.keys / f"apiserver.{kind}", certificates / f"tls.{kind}")
        configuration = self.rig.directory / "kueue.json"
        configuration.write_text(json.dumps(CONFIGURATION, indent=1))
        script = 'mount --bind "$1" /etc && shift && exec "$@"'
        return [
            "unshare", "--mount", "bash", "-c", script, "bash", str(etc), str(program("kueue")),
            "--config", str(configuration), "--zap-log-level=2",
        ]  # fmt: skip

    # --- what its module ships -----------------------------------------------------------------

    def definitions(self) -> Iterator[Json]:
        """Yields Kueue's CRDs, with a conversion webhook for those that need one."""
        patches = self.sources / "crd" / "patches"
        converted = {read(path)["metadata"]["name"] for path in patches.glob("webhook_in_*.yaml")}
        for path in sorted((self.sources / "crd" / "bases").glob("*.yaml")):
            definition = read(path)
            several = len(definition["spec"]["versions"]) > 1
            if several and definition["metadata"]["name"] in converted:
                webhook = {"clientConfig": self.client("/convert"),
                           "conversionReviewVersions": ["v1"]}  # fmt: skip
                definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
            yield definition

    def webhooks(self) -> Iterator[Json]:
        """Yields Kueue's webhooks for kinds that this API server has. Those for pods and
        controllers ignore system namespaces, as in Kueue's own kustomization."""
        text = (self.sources / "webhook" / "manifests.yaml").read_text()
        for document in yaml.safe_load_all(text):
            document["metadata"]["name"] = f"kueue-{document['metadata']['name']}"
            groups = {
                hook["name"]: {group for rule in hook["rules"] for group in rule["apiGroups"]}
                for hook in document["webhooks"]
            }
            document["webhooks"] = [
                {
                    **hook,
                    "clientConfig": self.client(hook["clientConfig"]["service"]["path"]),
                    **({} if GROUP in groups[hook["name"]]
                       else {"namespaceSelector": {"matchExpressions": [OUTSIDE]}}),
                }
                for hook in document["webhooks"]
                if groups[hook["name"]] <= INSTALLED_GROUPS
            ]  # fmt: skip
            yield document

    def client(self, path: str) -> Json:
        return {"url": f"{WEBHOOK}{path}", "caBundle": self.bundle}

    # --- what there is ---------------------------------------------------------------------------

    def is_served(self) -> bool:
        """Returns whether the API server serves all kinds of Kueue."""
        try:
            kinds = {item["name"] for item in self.rig.api.get(OBJECTS)["resources"]}
        except ApiError:
            return False
        return kinds >= set(KINDS) and all(
            self.rig.api.answers(f"{OBJECTS}/{kind}") for kind in KINDS
        )

    def is_without(self, kind: str) -> bool:
        """Deletes all objects of a kind; returns whether there were none."""
        items = self.rig.api.get(f"{OBJECTS}/{kind}")["items"]
        for namespace in {item["metadata"].get("namespace", "") for item in items}:
            within = f"namespaces/{namespace}/" if namespace else ""
            self.rig.api.ask("DELETE", f"{OBJECTS}/{within}{kind}")
        return not items


def read(path: Path) -> Json:
    document: Json = yaml.safe_load(path.read_text())
    return document


def apply(rig: Rig, path: str, manifest: Json, manager: str = "administrator") -> Json:
    """Applies a manifest at the server; returns the object."""
    applied: Json = rig.api.patch(f"{path}?fieldManager={manager}&force=true", manifest, "apply")
    return applied


def named(kind: str, name: str, spec: Json, **metadata: Any) -> Json:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def quota_rows(quotas: dict[str, dict[str, str]], **limits: str) -> Json:
    """Returns a resource group of cpu and memory; `limits` are fields of the last flavor."""
    last = list(quotas)[-1]
    flavors = [
        {"name": flavor, "resources": [
            {"name": name, "nominalQuota": text, **(limits if flavor == last else {})}
            for name, text in amounts.items()
        ]}
        for flavor, amounts in quotas.items()
    ]  # fmt: skip
    return {"coveredResources": ["cpu", "memory"], "flavors": flavors}


def wrong_quota() -> Json:
    quotas = {"permanent": {"cpu": "-1", "memory": "-1"}}
    return {"namespaceSelector": {}, "resourceGroups": [quota_rows(quotas)]}
