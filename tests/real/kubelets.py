"""A real kubelet on a simulated machine, started until its managers run or it refuses to start.

It runs in mount and network namespaces of its own, with a container runtime that runs nothing. They
have the desired /proc/meminfo and NUMA nodes of /sys. The kubelet's managers write their state when
they have started; with wrong settings it exits before that."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.real.build import program
from tests.real.versions import JUDGE

HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
# The minimum that a kubelet without a cluster needs to start.
ALONE = {
    "authentication": {"webhook": {"enabled": False}, "anonymous": {"enabled": True}},
    "authorization": {"mode": "AlwaysAllow"},
    "failSwapOn": False,
}
SCRIPT = """\
set -eu
ip link set lo up
mount --bind {at}/meminfo /proc/meminfo
mount --bind {at}/node /sys/devices/system/node
mount --bind {at}/online /sys/devices/system/cpu/online
{runtime} {at}/cri.sock &
while [ ! -S {at}/cri.sock ]; do sleep 0.02; done
exec {kubelet} --config {at}/config.yaml --root-dir {at}/root --cert-dir {at}/certs \
    --hostname-override n1 --cgroups-per-qos=false --enforce-node-allocatable= {more} >{at}/log 2>&1
"""
_LONGEST = 30.0  # seconds


class Boot:
    """The result of a kubelet's start. `error` is its last message, or empty if it stays up."""

    def __init__(self, error: str, state: dict[str, Any], log: str) -> None:
        self.error = error
        self.state = state  # memory_manager_state
        self.log = log

    @property
    def reserved(self) -> dict[str, int]:
        """Returns NUMA node -> bytes of memory that the memory manager reserves there."""
        nodes = self.state.get("machineState") or {}
        return {node: item["memoryMap"]["memory"]["systemReserved"] for node, item in nodes.items()}


def boot(
    directory: Path,
    version: str,
    config: str,
    machine: dict[str, Any],
    drop_ins: Sequence[str] = (),
    state: str = "",
) -> Boot:
    """Starts a kubelet with this configuration on a simulated machine, and waits until it exits or
    stays up. `drop_ins` are files of its drop-in directory, in order; `state` is the
    memory_manager_state of an earlier start."""
    shutil.rmtree(directory, ignore_errors=True)
    write_machine(directory, machine)
    full = yaml.safe_load(config) or {}
    full = {**HEAD, **ALONE, **full, "containerRuntimeEndpoint": f"unix://{directory}/cri.sock"}
    (directory / "config.yaml").write_text(json.dumps(full))
    path = directory / "root" / "memory_manager_state"
    if state:
        path.parent.mkdir()
        path.write_text(state)
    more = ""
    if drop_ins:
        (directory / "conf.d").mkdir()
        for number, text in enumerate(drop_ins):
            (directory / "conf.d" / f"{number}.conf").write_text(text)
        more = f"--config-dir {directory}/conf.d"
    script = SCRIPT.format(
        at=directory, more=more, kubelet=program("kubelet", version),
        runtime=program("no-runtime", str(JUDGE)),
    )  # fmt: skip
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork",
         "--kill-child", "--mount-proc", "bash", "-c", script],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + _LONGEST
        while process.poll() is None and not (is_up(directory / "log", path) and path.exists()):
            assert time.monotonic() < deadline, (directory / "log").read_text()[-2000:]
            time.sleep(0.02)
        # The step that starts the managers compares the capacity, in the next message.
        wait_until = time.monotonic() + 0.3
        while process.poll() is None and time.monotonic() < wait_until:
            time.sleep(0.02)
        has_ended = process.poll() is not None
    finally:
        process.kill()
        message = process.communicate()[1]
    log = (directory / "log").read_text() if (directory / "log").exists() else message
    error = (log.strip().splitlines() or ["it said nothing"])[-1] if has_ended else ""
    return Boot(error, json.loads(path.read_text()) if path.exists() else {}, log)


def is_up(log: Path, state: Path) -> bool:
    """Returns whether a kubelet's managers have started and written their state."""
    is_written = state.exists() and log.exists()
    return is_written and "Starting Kubelet Plugin Manager" in log.read_text()


def write_machine(directory: Path, machine: dict[str, Any]) -> None:
    """Writes those files of /proc and /sys that cadvisor reads, for the simulated machine."""
    nodes = machine["numa"]
    root = directory / "node"
    root.mkdir(parents=True)
    kilobytes = machine["memory"] // 1024
    (directory / "meminfo").write_text(
        "".join(f"{name}: {kilobytes} kB\n" for name in ("MemTotal", "MemFree", "MemAvailable"))
        + "SwapTotal: 0 kB\nSwapFree: 0 kB\n"
    )
    cpus = [cpu for node in nodes for cpu in node["cpus"]]
    (directory / "online").write_text(f"0-{max(cpus)}\n")
    for name in ("online", "possible", "has_cpu", "has_memory"):
        (root / name).write_text(f"0-{len(nodes) - 1}\n" if len(nodes) > 1 else "0\n")
    for number, node in enumerate(nodes):
        place = root / f"node{number}"
        place.mkdir()
        (place / "meminfo").write_text(f"Node {number} MemTotal: {node['memory'] // 1024} kB\n")
        distances = ("10" if other == number else "20" for other in range(len(nodes)))
        (place / "distance").write_text(" ".join(distances) + "\n")
        for size in ("2048", "1048576"):
            pages = place / "hugepages" / f"hugepages-{size}kB"
            pages.mkdir(parents=True)
            (pages / "nr_hugepages").write_text(f"{node['hugepages'].get(size, 0)}\n")
        for cpu in node["cpus"]:
            topology = place / f"cpu{cpu}" / "topology"
            topology.mkdir(parents=True)
            (place / f"cpu{cpu}" / "cache").mkdir()
            (place / f"cpu{cpu}" / "online").write_text("1\n")
            for name, value in (("core_id", cpu), ("physical_package_id", number), ("die_id", 0)):
                (topology / name).write_text(f"{value}\n")
            (topology / "thread_siblings_list").write_text(f"{cpu}\n")
