"""One real cluster on this machine: etcd, kube-apiserver, controller-manager, kwok, YuniKorn.

It listens on the loopback of a network namespace that `python -m tests.real` has entered. All its
processes die with that namespace's first one, so that a kill leaves none.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

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
HOST_ADDRESSES = ("10.77.1.1", "10.77.2.1")


class Rig(Cluster):
    """A cluster that starts in `with`."""

    def __init__(self, directory: Path, yunikorn: str = YUNIKORNS[0]) -> None:
        super().__init__()
        self.directory = directory
        self.keys = directory / "keys"
        self.servers: dict[str, Server] = {}
        self.yunikorn_version = yunikorn
        self.met: dict[str, list[str]] = {}  # program -> versions that it reported

    # --- start and end ---------------------------------------------------------------------------

    def __enter__(self) -> Rig:
        """Raises RigError with the output of the program that failed."""
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
        self.note_versions(self.versions())

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
        """Restarts the scheduler in another version, unless it has that version."""
        if version == self.yunikorn_version and self.servers["yunikorn"].is_up:
            return
        self.servers["yunikorn"].stop()
        self.yunikorn_version = version
        self.add_yunikorn()
        self.servers["yunikorn"].start()
        self.note_versions(self.versions())

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
            "--node-lease-duration-seconds", "40", "--config", str(STAGES),
        ]  # fmt: skip

    def has_default_account(self) -> bool:
        return self.api.answers("/api/v1/namespaces/default/serviceaccounts/default")

    def make_path(self) -> None:
        """Makes bin/ of the rig, with the built kubectl and the dnm of this checkout."""
        (self.directory / "bin").mkdir()
        (self.directory / "bin" / "kubectl").symlink_to(program("kubectl"))

    @property
    def environment(self) -> dict[str, str]:
        """Returns the administrator's environment: built kubectl and installed dnm."""
        bins = f"{self.directory}/bin:{Path(sys.executable).parent}"
        return {
            **os.environ,
            "PATH": f"{bins}:{os.environ['PATH']}",
            "KUBECONFIG": self.kubeconfig(),
        }

    def shell(self, script: str, **more: str) -> str:
        """Returns the output of an administrator's script. Raises RigError if it fails."""
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
        built = self.rest.get("/ws/v1/clusters")[0]["rmBuildInformation"][0]
        return {
            "kube-apiserver": self.api.get("/version")["gitVersion"],
            "etcd": Api(ETCD).get("/version")["etcdserver"],
            "YuniKorn": built["buildVersion"],
        }

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

    def reset(self) -> None:
        """Restores the state after the start, whatever a test left."""
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
            self.restore_node(name)
        self.restore_queues()
        self.wait_for(self.is_empty, "YuniKorn counts nothing after everything was removed", 90)
