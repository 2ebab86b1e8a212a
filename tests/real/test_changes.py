"""Tests of runs that read only changes from a real API server, and of changes that it can no longer
report.

`dnm check --deep` compares what a run has stored with full lists, brought to the same moment by a
watch. So it finds a run that missed a change."""

from __future__ import annotations

import itertools
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.real.account import KUBECONFIG
from tests.real.conftest import MakeSite
from tests.real.programs import Server
from tests.real.proxy import write_kubeconfig
from tests.real.relay import relay
from tests.real.rig import PORT, Rig
from tests.real.site import DEV, PODS, Site, pod

GATES = [{"name": "example.org/later"}]
SECOND = PORT + 1


class Cluster:
    """Pods that are created, changed and deleted, and dnm's stored copy of them."""

    def __init__(self, rig: Rig, site: Site, metrics: Path) -> None:
        self.rig, self.site, self.metrics = rig, site, metrics
        self.made = 0

    def add(self, count: int = 3) -> None:
        for _ in range(count):
            self.made += 1
            manifest = pod(f"p{self.made:04}", DEV, "1", "1Gi", schedulingGates=GATES)
            self.rig.api.post(PODS, manifest)

    def change(self, times: int = 1) -> None:
        name = f"{PODS}/p{self.made:04}"
        for number in range(times):
            stamp = f"{time.monotonic()}-{number}"
            self.rig.api.patch(name, {"metadata": {"labels": {"stamp": stamp}}})

    def remove(self) -> None:
        name = sorted(entry["metadata"]["name"] for entry in self.rig.pods("dev"))[0]
        self.rig.api.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")

    def stir(self) -> None:
        """Changes pods and nodes, because a restarted server does not report changes before its
        restart, and without new ones dnm lists everything anyway."""
        stamp = f"{time.monotonic()}"
        self.rig.api.patch("/api/v1/nodes/k1", {"metadata": {"labels": {"stamp": stamp}}})
        self.add()
        self.change()
        self.remove()

    def read(self) -> tuple[str, str]:
        """Plays a run. Returns how it read the cluster (list or changes), and the reason."""
        self.site.dnm("run", code=None)
        result = re.search(r'reading_info{.*way="(.*?)",reason="(.*?)"', self.metrics.read_text())
        assert result is not None
        return result[1], result[2]

    def is_right(self, may_rest: bool = False) -> bool:
        """Returns whether dnm's stored copy equals full lists. `may_rest` also accepts that three
        checks in turn proved nothing."""
        for _ in range(12):  # a server with a younger cache can't tell
            checks = self.site.json("check", "--deep", code=None)["checks"]
            (result,) = [check for check in checks if check["check"] == "stored cluster state"]
            if result["result"] != "warning":
                break
        if may_rest and "(unproved)" in result["text"]:
            return True
        assert result["result"] in ("ok", "failed"), result
        return bool(result["result"] == "ok")


@pytest.fixture
def cluster(rig: Rig, make_site: MakeSite, tmp_path: Path) -> Cluster:
    metrics = tmp_path / "dnm.prom"
    site = make_site(relist_minutes=60, watch_from_pods=0, metrics_file=metrics)
    made = Cluster(rig, site, metrics)
    made.add(20)
    made.stir()
    assert made.read() == ("list", "first")
    return made


def test_changes_are_proved_in_each_run(cluster: Cluster) -> None:
    ways = []
    for _ in range(5):
        cluster.stir()
        ways.append(cluster.read())
        assert cluster.is_right()
    assert ways == [("changes", "")] * 5
    waited = re.search(r"watch_wait_seconds{.*} (.*)", cluster.metrics.read_text())
    assert waited is not None and float(waited[1]) < 4


def test_killed_api_server_causes_a_full_list(cluster: Cluster) -> None:
    server = cluster.rig.servers["kube-apiserver"]
    cluster.stir()
    server.stop(signal.SIGKILL)
    server.start()
    cluster.stir()
    assert cluster.read() == ("list", "expired")
    cluster.stir()
    assert cluster.read() == ("changes", "") and cluster.is_right()


@pytest.mark.parametrize("more", [0, 60], ids=["as restored", "grown past what was kept"])
def test_restored_etcd_backup_causes_a_full_list(cluster: Cluster, more: int) -> None:
    """Object versions restart below the ones that dnm has stored, and may exceed them later."""
    rig = cluster.rig
    data, backup = rig.directory / "etcd", rig.directory / "etcd-backup"
    with servers_down(rig):
        shutil.rmtree(backup, ignore_errors=True)
        shutil.copytree(data, backup)
    for _ in range(4):
        cluster.stir()
    assert cluster.read()[0] in ("list", "changes")
    cluster.stir()
    assert cluster.read() == ("changes", "")
    with servers_down(rig):
        shutil.rmtree(data)
        shutil.copytree(backup, data)
    cluster.made += 100
    cluster.stir()
    cluster.change(more)
    way, reason = cluster.read()
    assert way == "list" and reason in ("backwards", "expired", "inconsistent"), reason
    cluster.stir()
    assert cluster.read() == ("changes", "") and cluster.is_right()


@contextmanager
def servers_down(rig: Rig) -> Iterator[None]:
    """Stops the API server and etcd until the block ends; the other servers wait for them."""
    for name in ("kube-apiserver", "etcd"):
        rig.servers[name].stop()
    yield
    for name in ("etcd", "kube-apiserver"):
        rig.servers[name].start()


def test_full_watch_cache_causes_a_full_list(cluster: Cluster) -> None:
    """The API server's watch cache keeps a hundred changes, or those of the last 75 seconds."""
    cluster.change(30)
    assert cluster.read() == ("changes", "")
    time.sleep(80)
    cluster.change(250)
    assert cluster.read() == ("list", "expired")
    cluster.stir()
    assert cluster.read() == ("changes", "") and cluster.is_right()


def test_requests_spread_over_two_api_servers_give_right_changes(
    cluster: Cluster, make_site: MakeSite, tmp_path: Path
) -> None:
    """Each server has its own watch cache, and one cache began after dnm's last read."""
    with second_server(cluster.rig) as second, relay(PORT, SECOND) as spread:
        kubeconfig = write_kubeconfig(
            KUBECONFIG, tmp_path / "spread.kubeconfig", f"https://127.0.0.1:{spread.port}"
        )
        metrics = tmp_path / "spread.prom"
        site = make_site(
            "spread",
            kubeconfig_path=kubeconfig,
            relist_minutes=60,
            watch_from_pods=0,
            metrics_file=metrics,
        )
        behind = Cluster(cluster.rig, site, metrics)
        behind.made = 1000
        seen: list[tuple[str, str]] = []
        turns = itertools.count()
        while (turn := next(turns)) < 8 or (("changes", "") not in seen and turn < 24):
            behind.stir()
            seen.append(behind.read())
            assert behind.is_right(may_rest=True), seen
            if seen[-3:] == [("list", "unproved")] * 3:  # it waits until the next full list
                (site.directory / "state" / "converted_nodes.cluster").unlink()
            if turn == 4:
                second.stop(signal.SIGKILL)
                second.start()
        assert ("changes", "") in seen
        assert {reason for _, reason in seen} <= {"", "first", "expired", "unproved", "failed"}


@contextmanager
def second_server(rig: Rig) -> Iterator[Server]:
    """Yields a second API server, which is ready and has loaded the roles. Until it has, it forbids
    everything."""
    first = rig.servers["kube-apiserver"]
    command = [str(SECOND) if word == str(PORT) else word for word in first.command]
    log = rig.directory / "log" / "kube-apiserver-2.log"
    kubectl = ["kubectl", f"--kubeconfig={KUBECONFIG}", f"--server=https://127.0.0.1:{SECOND}"]
    asked = ["get --raw /readyz", "auth can-i watch pods -A", "get namespace kube-system"]

    def may(words: str) -> bool:
        command = [*kubectl, *words.split()]
        return subprocess.run(command, env=rig.environment, capture_output=True).returncode == 0

    server = Server(
        "kube-apiserver-2", command, log, lambda: all(map(may, asked)), first.environment
    )
    try:
        server.start()
        yield server
    finally:
        server.stop()
