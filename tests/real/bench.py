"""`make bench-real`: a run with nothing to do on 500 nodes and 15,000 pods of a real API server.

Against `kubectl get pods -A -o json` and the plain client, in turns; medians of `REPEAT`. The table
is the last part of docs/bench.md.
"""

from __future__ import annotations

import os
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.measure import Command, Sample, run_command
from tests.bench.report import REAL_SERVER, put_part
from tests.real.account import make_account
from tests.real.build import tell
from tests.real.http_api import Json
from tests.real.namespaces import OWN_ADDRESS, REPOSITORY, run_directory
from tests.real.proxy import write_kubeconfig
from tests.real.rig import PORT, Rig
from tests.real.site import Site, pod

NODES, PODS, REPEAT = 500, 15_000, 7
DEV = "root.research.services.dev"
PAGE = REPOSITORY / "docs" / "bench.md"
KUBECTL, PLAIN = "kubectl get pods -A -o json", "plain client"
NEAR, FAR = "dnm run", "dnm run, gzip"


def measure() -> int:
    """Fills a rig, measures, prints the table and writes it."""
    with Rig(run_directory()) as rig:
        fill(rig)
        commands = make_commands(rig, make_account(rig))
        samples: dict[str, list[Sample]] = {command.name: [] for command in commands}
        for turn in range(REPEAT + 1):
            for command in commands:
                sample = run_command(command)
                if turn:  # the first warms the caches of all sides
                    samples[command.name].append(sample)
        table = make_table(rig, samples)
    print(table)
    part = f"{REAL_SERVER}\n\n{table}"
    PAGE.write_text(put_part(PAGE.read_text(), REAL_SERVER, part))
    return 0


def fill(rig: Rig) -> None:
    """500 nodes, and 15,000 pods that run: kwok's kubelets start them."""
    # Each would be an ask of YuniKorn's first: it is not what is measured.
    rig.servers["yunikorn"].stop()

    def add_pod(number: int) -> None:
        manifest: Json = pod(f"p{number:05}", DEV, "100m", "256Mi", nodeName=node(number))
        rig.api.post("/api/v1/namespaces/dev/pods", manifest)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: rig.add_node(node(number)), range(NODES)))
        tell(f"{NODES} nodes")
        list(pool.map(add_pod, range(PODS)))
    tell(f"{PODS} pods; now kwok's kubelets start them")
    path = "/api/v1/pods?limit=1&fieldSelector=status.phase%3DPending"
    rig.wait_for(lambda: not rig.api.get(path)["items"], "every pod runs", 900)


def node(number: int) -> str:
    return f"n{number % NODES:03}"


def make_commands(rig: Rig, kubeconfig: Path) -> list[Command]:
    """dnm as it is installed, on loopback and with gzip off it; kubectl; the official client."""
    directory = run_directory()
    more = {"yunikorn_url": None, "request_timeout_seconds": 60}
    near = Site(rig, directory / "near", kubeconfig, **more)  # type: ignore[arg-type]
    far_config = write_kubeconfig(
        kubeconfig, directory / "far.kubeconfig", f"https://{OWN_ADDRESS}:{PORT}"
    )
    far = Site(rig, directory / "far", far_config, **more)  # type: ignore[arg-type]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    plain = REPOSITORY / "tests" / "bench" / "plain_client.py"
    dnm = str(Path(sys.executable).parent / "dnm")
    return [
        Command(NEAR, (dnm, "run"), near.environment),
        Command(FAR, (dnm, "run"), far.environment),
        Command(
            KUBECTL, (f"{rig.directory}/bin/kubectl", "get", "pods", "-A", "-o", "json"),
            environment,
        ),
        Command(PLAIN, (sys.executable, str(plain)), environment),
    ]  # fmt: skip


def make_table(rig: Rig, samples: dict[str, list[Sample]]) -> str:
    wall = {name: statistics.median(one.wall for one in all_) for name, all_ in samples.items()}
    server = rig.servers["kube-apiserver"].resident_mb()
    version = rig.api.get("/version")["gitVersion"]
    lines = [
        f"{NODES} nodes and {PODS:,} pods in kube-apiserver {version} ({server:,} MB resident), "
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, medians of {REPEAT}:",
        "",
        "| command | wall | CPU | peak memory | wall against the plain client |",
        "|---|---|---|---|---|",
    ]
    for name, all_ in samples.items():
        cpu = statistics.median(one.cpu for one in all_)
        peak = statistics.median(one.peak_bytes for one in all_) / 2**20
        lines.append(
            f"| {name} | {wall[name]:.2f} s | {cpu:.2f} s | {peak:.0f} MB | "
            f"{wall[name] / wall[PLAIN]:.2f} |"
        )
    return "\n".join(lines)
