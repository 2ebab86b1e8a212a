"""A real cluster on this machine: etcd, kube-apiserver, controller-manager, kwok, a scheduler.

The scheduler is YuniKorn, or kube-scheduler without any queue system.

It listens on the loopback of a network namespace that `python -m tests.real` has entered. All its
processes die with that namespace's first one, so that a kill leaves none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.real.build import program
from tests.real.cluster import QUEUES, Cluster
from tests.real.http_api import Api
from tests.real.keys import make_keys
from tests.real.namespaces import OWN_ADDRESS
from tests.real.programs import RigError, Server
from tests.real.versions import YUNIKORNS

PORT = 6443
ETCD = "http://127.0.0.1:2379"
STAGES = Path(__file__).with_name("kwok.yaml")
SCHEDULER = "https://127.0.0.1:10259"
KUBE_SCHEDULER = "kube-scheduler"
HOST_ADDRESSES = ("10.77.1.1", "10.77.2.1")


class Rig(Cluster):
    """A real cluster, started by `with`. `scheduler` is a YuniKorn version or `kube-scheduler`."""

    def __init__(self, directory: Path, scheduler: str = YUNIKORNS[0]) -> None:
        super().__init__()
        self.directory = directory
        self.keys = directory / "keys"
        self.servers: dict[str, Server] = {}
        self.scheduler = scheduler
        self.met: dict[str, list[str]] = {}  # program -> versions that it reported

    # --- start and end ---------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Starts all servers. Raises RigError with the output of the program that failed."""
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
        for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kwok"):
            self.servers[name].start()
        self.make_namespaces()
        for number in (1, 2):
            self.add_node(f"k{number}")
        self.start_scheduler()
        self.wait_for(lambda: self.ready_nodes() >= {"k1", "k2"}, "k1 and k2 are Ready")

    def stop(self) -> None:
        for server in reversed(self.servers.values()):
            server.stop()

    def add(
        self, name: str, command: Sequence[str], is_ready: Callable[[], bool], **more: str
    ) -> None:
        log = self.directory / "log" / f"{name}.log"
        self.servers[name] = Server(name, command, log, is_ready, more)

    @property
    def has_yunikorn(self) -> bool:
        return self.scheduler != KUBE_SCHEDULER

    def start_scheduler(self) -> None:
        """Starts the scheduler; for YuniKorn, also creates its ConfigMap."""
        if self.has_yunikorn:
            self.write_queues(QUEUES)
            self.add(
                "yunikorn", [str(program("yunikorn", self.scheduler))],
                lambda: self.rest.answers("/ws/v1/partition/default/queues"),
                NAMESPACE="yunikorn", KUBECONFIG=self.kubeconfig("yunikorn"),
            )  # fmt: skip
            self.servers["yunikorn"].start()
        else:
            self.api.delete(self.config_map)
            self.start_kube_scheduler()
        self.note_versions(self.versions())

    def start_kube_scheduler(self) -> None:
        """Starts kube-scheduler, also if YuniKorn runs."""
        at = Api(SCHEDULER, self.keys)
        self.add(KUBE_SCHEDULER, self.scheduler_command(), lambda: at.answers("/readyz"))
        self.servers[KUBE_SCHEDULER].start()

    def use_scheduler(self, scheduler: str) -> None:
        """Replaces the scheduler by another one, unless it already runs."""
        name = "yunikorn" if self.has_yunikorn else KUBE_SCHEDULER
        if scheduler == self.scheduler and self.servers[name].is_up:
            return
        self.servers.pop(name).stop()
        self.scheduler = scheduler
        self.start_scheduler()

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
            "--allow-privileged",  # as usual: slurm-operator's slurmd is such a container
            # etc/admission-policy.yaml: beta in this release, and off by default.
            "--feature-gates", "MutatingAdmissionPolicy=true",
            "--runtime-config", "admissionregistration.k8s.io/v1beta1=true",
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

    def scheduler_command(self) -> list[str]:
        own, keys = self.kubeconfig("scheduler"), self.keys
        return [
            str(program(KUBE_SCHEDULER)), "--kubeconfig", own, "--authentication-kubeconfig", own,
            "--authorization-kubeconfig", own, "--leader-elect=false",
            "--bind-address", "127.0.0.1", "--tls-cert-file", f"{keys}/apiserver.crt",
            "--tls-private-key-file", f"{keys}/apiserver.key",
        ]  # fmt: skip

    def kwok_command(self) -> list[str]:
        return [
            str(program("kwok")), "--kubeconfig", self.kubeconfig("kwok"), "--manage-all-nodes",
            "--cidr", "10.0.0.1/16", "--node-ip", "127.0.0.1",
            "--node-lease-duration-seconds", "40", "--config", str(STAGES),
        ]  # fmt: skip

    def has_default_account(self) -> bool:
        return self.api.answers("/api/v1/namespaces/default/serviceaccounts/default")

    def make_path(self) -> None:
        """Makes a folder for PATH with the built kubectl and the dnm of this checkout."""
        (self.directory / "bin").mkdir()
        (self.directory / "bin" / "kubectl").symlink_to(program("kubectl"))

    @property
    def environment(self) -> dict[str, str]:
        """Returns the environment of an administrator, with the built kubectl and dnm on PATH."""
        bins = f"{self.directory}/bin:{Path(sys.executable).parent}"
        return {
            **os.environ,
            "PATH": f"{bins}:{os.environ['PATH']}",
            "KUBECONFIG": self.kubeconfig(),
        }

    def shell(self, script: str, **more: str) -> str:
        """Runs a script as an administrator. Returns its output. Raises RigError if it fails."""
        answer = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True,
            env={**self.environment, **more}, timeout=120,
        )  # fmt: skip
        if answer.returncode:
            raise RigError(f"{script}\n  exit code {answer.returncode}: {answer.stderr}")
        return answer.stdout

    # --- what it tells of itself -------------------------------------------------------------

    def versions(self) -> dict[str, str]:
        """Returns the version that each server reports."""
        versions = {
            "kube-apiserver": self.api.get("/version")["gitVersion"],
            "etcd": Api(ETCD).get("/version")["etcdserver"],
        }
        if self.has_yunikorn:
            built = self.rest.get("/ws/v1/clusters")[0]["rmBuildInformation"][0]
            return {**versions, "YuniKorn": built["buildVersion"]}
        answer = subprocess.run(
            [program(KUBE_SCHEDULER), "--version"], capture_output=True, text=True, check=True
        )
        return {**versions, KUBE_SCHEDULER: answer.stdout.split()[-1]}

    def note_versions(self, found: dict[str, str]) -> None:
        for name, version in found.items():
            if version not in self.met.setdefault(name, []):
                self.met[name].append(version)

    def versions_line(self) -> str:
        """Returns one line with all versions that were seen."""
        return "servers: " + ", ".join(
            f"{name} {' and '.join(versions)}" for name, versions in self.met.items()
        )

    def memory_line(self) -> str:
        """Returns one line with the servers' current memory."""
        used = {
            server.name: server.resident_mb() for server in self.servers.values() if server.is_up
        }
        parts = ", ".join(f"{name} {megabytes}" for name, megabytes in used.items())
        return f"memory: {sum(used.values())} MB ({parts})"

    # --- between two tests -----------------------------------------------------------------

    def reset(self, scheduler: str = "") -> None:
        """Restores the state that the cluster had after its start, with this scheduler or the
        current one."""
        for server in self.servers.values():
            if server.is_up:
                server.send(signal.SIGCONT)
            else:
                server.start()
        self.use_scheduler(scheduler or self.scheduler)
        self.remove_guards()
        self.remove_work()
        for name in self.nodes() - {"k1", "k2"}:
            self.api.delete(f"/api/v1/nodes/{name}")
        for name in ("k1", "k2"):
            self.restore_node(name)
        if self.has_yunikorn:
            self.restore_queues()
            self.wait_for(self.is_empty, "YuniKorn counts nothing after everything was removed", 90)
