"""One real cluster on this machine: etcd, kube-apiserver, controller-manager, kwok, YuniKorn.

It listens on the loopback of a network namespace that `python -m tests.real` has entered; all its
processes die with that namespace's first one, so that nothing is left after a kill.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.real.build import program
from tests.real.http_api import Api, ApiError, Json
from tests.real.keys import make_keys
from tests.real.namespaces import OWN_ADDRESS
from tests.real.programs import RigError, Server
from tests.real.versions import YUNIKORNS

PORT = 6443
ETCD = "http://127.0.0.1:2379"
REST = "http://127.0.0.1:9080"  # YuniKorn's port is fixed
HOST_ADDRESSES = ("10.77.1.1", "10.77.2.1")
QUEUES = (Path(__file__).parent / "queues.yaml").read_text()
NAMESPACES = ("yunikorn", "dev", "notebook")
SERVERS_OWN = ("default", "yunikorn")
CPU, MEMORY = 64, "256Gi"


class Rig:
    """Starts in `with`; `api` is its administrator, `rest` YuniKorn's own service."""

    def __init__(self, directory: Path, yunikorn: str = YUNIKORNS[0]) -> None:
        self.directory = directory
        self.keys = directory / "keys"
        self.servers: dict[str, Server] = {}
        self.yunikorn_version = yunikorn
        self.rest = Api(REST)
        self.api: Api = Api("")

    # --- start and end ---------------------------------------------------------------------------

    def __enter__(self) -> Rig:
        """Raises RigError, which says what the program that failed said."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None,
    ) -> None:  # fmt: skip
        self.stop()

    def start(self) -> None:
        (self.directory / "log").mkdir()
        addresses = ["127.0.0.1", OWN_ADDRESS, *HOST_ADDRESSES]
        make_keys(self.keys, addresses, f"https://127.0.0.1:{PORT}")
        self.make_path()
        self.api = Api(f"https://127.0.0.1:{PORT}", self.keys)
        self.add("etcd", self.etcd_command(), lambda: Api(ETCD).answers("/health"))
        self.add(
            "kube-apiserver", self.apiserver_command(), lambda: self.api.answers("/readyz"),
        )  # fmt: skip
        self.add("kube-controller-manager", self.controllers_command(), self.has_default_account)
        self.add("kwok", self.kwok_command(), lambda: True)
        self.add_yunikorn()
        for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kwok"):
            self.servers[name].start()
        self.make_namespaces()
        self.write_queues(QUEUES)
        for number in (1, 2):
            self.add_node(f"k{number}")
        self.servers["yunikorn"].start()
        self.wait_for(lambda: self.ready_nodes() >= {"k1", "k2"}, "k1 and k2 are Ready")

    def stop(self) -> None:
        for server in reversed(self.servers.values()):
            server.stop()

    def add(
        self, name: str, command: Sequence[str], is_ready: Callable[[], bool], **more: str
    ) -> None:
        log = self.directory / "log" / f"{name}.log"
        self.servers[name] = Server(name, command, log, is_ready, more)

    def add_yunikorn(self) -> None:
        self.add(
            "yunikorn", [str(program("yunikorn", self.yunikorn_version))],
            lambda: self.rest.answers("/ws/v1/partition/default/queues"),
            NAMESPACE="yunikorn", KUBECONFIG=self.kubeconfig("yunikorn"),
        )  # fmt: skip

    def use_yunikorn(self, version: str) -> None:
        """Restarts the scheduler in another version, where it is another."""
        if version == self.yunikorn_version and self.servers["yunikorn"].is_up:
            return
        self.servers["yunikorn"].stop()
        self.yunikorn_version = version
        self.add_yunikorn()
        self.servers["yunikorn"].start()

    # --- the programs ----------------------------------------------------------------------------

    def kubeconfig(self, name: str = "admin") -> str:
        return str(self.keys / f"{name}.kubeconfig")

    def etcd_command(self) -> list[str]:
        peer = "http://127.0.0.1:2380"
        return [
            str(program("etcd")), "--name", "rig", "--data-dir", f"{self.directory}/etcd",
            "--listen-client-urls", ETCD, "--advertise-client-urls", ETCD,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"rig={peer}", "--unsafe-no-fsync",
            "--quota-backend-bytes", str(4 * 2**30),
        ]  # fmt: skip

    def apiserver_command(self) -> list[str]:
        keys = self.keys
        return [
            str(program("kube-apiserver")), "--etcd-servers", ETCD, "--secure-port", str(PORT),
            "--bind-address", "0.0.0.0", "--advertise-address", "127.0.0.1",
            "--endpoint-reconciler-type", "none", "--authorization-mode", "RBAC",
            "--tls-cert-file", f"{keys}/apiserver.crt",
            "--tls-private-key-file", f"{keys}/apiserver.key",
            "--client-ca-file", f"{keys}/ca.crt",
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--service-account-key-file", f"{keys}/sa.pub",
            "--service-account-signing-key-file", f"{keys}/sa.key",
            "--service-cluster-ip-range", "10.96.0.0/16",
        ]  # fmt: skip

    def controllers_command(self) -> list[str]:
        own = self.kubeconfig("controller-manager")
        return [
            str(program("kube-controller-manager")), "--kubeconfig", own,
            "--authentication-kubeconfig", own, "--authorization-kubeconfig", own,
            "--service-account-private-key-file", f"{self.keys}/sa.key",
            "--root-ca-file", f"{self.keys}/ca.crt", "--use-service-account-credentials",
            "--leader-elect=false", "--bind-address", "127.0.0.1",
        ]  # fmt: skip

    def kwok_command(self) -> list[str]:
        return [
            str(program("kwok")), "--kubeconfig", self.kubeconfig("kwok"), "--manage-all-nodes",
            "--cidr", "10.0.0.1/16", "--node-ip", "127.0.0.1",
            "--node-lease-duration-seconds", "40",
        ]  # fmt: skip

    def has_default_account(self) -> bool:
        return self.api.answers("/api/v1/namespaces/default/serviceaccounts/default")

    def make_path(self) -> None:
        """bin/ of the rig has the kubectl that was built and the dnm of this checkout."""
        (self.directory / "bin").mkdir()
        (self.directory / "bin" / "kubectl").symlink_to(program("kubectl"))

    @property
    def environment(self) -> dict[str, str]:
        """For commands of the administrator: kubectl, and dnm as it was installed."""
        bins = f"{self.directory}/bin:{Path(sys.executable).parent}"
        return {
            **os.environ,
            "PATH": f"{bins}:{os.environ['PATH']}",
            "KUBECONFIG": self.kubeconfig(),
        }

    def shell(self, script: str, **more: str) -> str:
        """What a script of the administrator prints. Raises RigError where it fails."""
        answer = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True,
            env={**self.environment, **more}, timeout=120,
        )  # fmt: skip
        if answer.returncode:
            raise RigError(f"{script}\n  exit code {answer.returncode}: {answer.stderr}")
        return answer.stdout

    # --- what is in it ---------------------------------------------------------------------------

    def wait_for(self, is_so: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
        """Raises RigError when it has not come true, or a program has died meanwhile."""
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                raise RigError(f"not after {seconds:.0f} s: {what}")
            time.sleep(0.1)

    def make_namespaces(self) -> None:
        for name in NAMESPACES:
            self.create("/api/v1/namespaces", {"metadata": {"name": name}})

    def create(self, path: str, body: Json) -> Any:
        """The object; one that is there already stays as it is."""
        try:
            return self.api.post(path, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        return self.api.get(f"{path}/{body['metadata']['name']}")

    def add_node(self, name: str, cpu: int = CPU, memory: str = MEMORY, **labels: str) -> None:
        """A Node as a kubelet registers it; kwok makes it Ready and keeps its Lease."""
        amounts = {"cpu": str(cpu), "memory": memory, "pods": "250"}
        self.create(
            "/api/v1/nodes",
            {
                "metadata": {
                    "name": name,
                    "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
                    | {key.replace("__", "/"): value for key, value in labels.items()},
                },
                "status": {"allocatable": amounts, "capacity": amounts},
            },
        )

    def ready_nodes(self) -> set[str]:
        return {
            node["metadata"]["name"]
            for node in self.api.get("/api/v1/nodes")["items"]
            for condition in node["status"].get("conditions", ())
            if condition["type"] == "Ready" and condition["status"] == "True"
        }

    def nodes(self) -> set[str]:
        return {node["metadata"]["name"] for node in self.api.get("/api/v1/nodes")["items"]}

    def pods(self, namespace: str) -> list[Json]:
        return list(self.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"])

    def running(self, namespace: str) -> int:
        return sum(1 for pod in self.pods(namespace) if pod["status"].get("phase") == "Running")

    # --- YuniKorn --------------------------------------------------------------------------------

    config_map = "/api/v1/namespaces/yunikorn/configmaps/yunikorn-configs"

    def mend_queues(self) -> None:
        """The ConfigMap as it was at the start; one that is so is not written."""
        found, wanted = self.api.get(self.config_map), self.queues_map(QUEUES)
        is_same = found["data"] == wanted["data"] and not found.get("immutable")
        if not is_same or self.has_ledger():
            self.write_queues(QUEUES)

    def queues_map(self, text: str) -> Json:
        return {
            "metadata": {"name": "yunikorn-configs", "labels": {"app": "yunikorn"}},
            "data": {"service.schedulingInterval": "1s", "queues.yaml": text},
        }

    def write_queues(self, text: str) -> None:
        """Replaces the ConfigMap as a whole, its annotations too; also an immutable one."""
        body = self.queues_map(text)
        try:
            self.api.put(self.config_map, body)
        except ApiError as error:
            if error.code not in (404, 422):
                raise
            self.api.delete(self.config_map)
            self.api.post(self.config_map.rpartition("/")[0], body)

    def queues_text(self) -> str:
        return str(self.api.get(self.config_map)["data"]["queues.yaml"])

    def queue(self, path: str) -> Json:
        """The scheduler's own account of a queue; {} where it has none of that name."""
        found: list[Json] = [self.rest.get("/ws/v1/partition/default/queues")]
        while found:
            queue = found.pop()
            if queue["queuename"] == path:
                return queue
            found += queue.get("children") or []
        return {}

    def versions(self) -> dict[str, str]:
        """What each server says of itself."""
        built = self.rest.get("/ws/v1/clusters")[0]["rmBuildInformation"][0]
        return {
            "kube-apiserver": self.api.get("/version")["gitVersion"],
            "etcd": Api(ETCD).get("/version")["etcdserver"],
            "YuniKorn": built["buildVersion"],
        }

    # --- between two tests -----------------------------------------------------------------------

    def reset(self) -> None:
        """Puts everything back as it was after the start, whatever a test has left."""
        for server in self.servers.values():
            if server.is_up:
                server.send(signal.SIGCONT)
            else:
                server.start()
        self.remove_guards()
        self.remove_work()
        for name in self.nodes() - {"k1", "k2"}:
            self.api.delete(f"/api/v1/nodes/{name}")
        for name in ("k1", "k2"):
            self.mend_node(name)
        self.mend_queues()
        self.wait_for(self.is_empty, "YuniKorn counts nothing after everything was removed", 90)

    def remove_guards(self) -> None:
        """What may be in the way of removing: webhooks, policies, flow schemas of a test."""
        for path in (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        ):
            self.api.ask("DELETE", path)
        flows = "/apis/flowcontrol.apiserver.k8s.io/v1"
        self.api.delete(f"{flows}/flowschemas/rig")
        self.api.delete(f"{flows}/prioritylevelconfigurations/rig")

    def namespaces(self) -> list[str]:
        """All but those that belong to the servers."""
        found = self.api.get("/api/v1/namespaces")["items"]
        names = [namespace["metadata"]["name"] for namespace in found]
        return [one for one in names if one not in SERVERS_OWN and not one.startswith("kube-")]

    def remove_work(self) -> None:
        for namespace in self.namespaces():
            for kind in (
                f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
                f"/apis/apps/v1/namespaces/{namespace}/deployments",
                f"/apis/apps/v1/namespaces/{namespace}/replicasets",
                f"/apis/apps/v1/namespaces/{namespace}/daemonsets",
                f"/apis/batch/v1/namespaces/{namespace}/jobs",
            ):
                self.api.ask("DELETE", kind + "?propagationPolicy=Background")
            self.remove_pods(namespace)
        for pod in self.api.get("/api/v1/pods")["items"]:
            metadata = pod["metadata"]
            raise RigError(f"pod {metadata['namespace']}/{metadata['name']} is not of a test")

    def remove_pods(self, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods"
        deadline = time.monotonic() + 30
        while pods := self.pods(namespace):
            for pod in pods:
                if pod["metadata"].get("finalizers"):
                    name = pod["metadata"]["name"]
                    self.api.patch(f"{path}/{name}", {"metadata": {"finalizers": None}})
            self.api.ask("DELETE", path, {"gracePeriodSeconds": 0, "kind": "DeleteOptions",
                                          "apiVersion": "v1"})  # fmt: skip
            if time.monotonic() > deadline:
                raise RigError(f"namespace {namespace} still has {len(pods)} pods")

    def mend_node(self, name: str) -> None:
        """Uncordoned, without taints and annotations of a test, of its size."""
        self.add_node(name)
        amounts = {"cpu": str(CPU), "memory": MEMORY, "pods": "250"}
        self.api.patch(
            f"/api/v1/nodes/{name}",
            {"spec": {"unschedulable": None, "taints": None}, "metadata": {"annotations": None}},
        )
        self.api.patch(
            f"/api/v1/nodes/{name}/status", {"status": {"allocatable": amounts}}, "strategic"
        )

    def has_ledger(self) -> bool:
        return bool(self.api.get(self.config_map)["metadata"].get("annotations"))

    def is_empty(self) -> bool:
        root = self.queue("root")
        capacity = root.get("maxResource", {})
        return (
            not any((root.get("allocatedResource") or {}).values())
            and not any((root.get("pendingResource") or {}).values())
            and capacity.get("vcore") == 2 * CPU * 1000
        )
