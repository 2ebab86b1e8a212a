"""`make bench-real`: an idle run on 500 nodes and 15,000 pods of a real API server.

It measures runs that read full lists, in one answer and in pages, and runs that read changes.
`curl` of the same lists, `kubectl get pods -A -o json` and the plain client are measured in turns
with them, also what each costs the API server. The table has medians and is the last part of
docs/bench.md."""

from __future__ import annotations

import argparse
import base64
import os
import random
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tests.bench.__main__ import DNM
from tests.bench.changes import AS_BEFORE
from tests.bench.measure import Command, Sample, run_in_child
from tests.bench.pods import PODS_AN_APPLICATION, Application, Place
from tests.bench.report import REAL_SERVER, put_part
from tests.real.account import make_account
from tests.real.build import log_progress
from tests.real.namespaces import OWN_ADDRESS, REPOSITORY, run_directory
from tests.real.proxy import write_kubeconfig
from tests.real.relay import Relay, relay
from tests.real.rig import PORT, Rig
from tests.real.server_cost import Meter, ServerCost
from tests.real.site import PODS, Site

NODES, COUNT = 500, 15_000
UNFINISHED = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
PAGE = REPOSITORY / "docs" / "bench.md"
CURL = "`curl` of the same lists to nowhere"
LISTED, PAGED = "`dnm run`, full list", "`dnm run`, full list in pages of 500"
PACKED = "`dnm run`, full list, gzip"
KUBECTL, PLAIN = "`kubectl get pods -A -o json`", "plain client"
CHANGED = {"`dnm run`, 0 changed": 0, "`dnm run`, 100 changed": 100, "`dnm run`, 1 % changed": 150}


@dataclass(frozen=True)
class Turn:
    """A measured command. `way` is how a run read, `waited` how long it waited for a bookmark."""

    sample: Sample
    cost: ServerCost
    way: str = ""
    waited: float = 0.0


class BenchRig(Rig):
    """A real cluster with many pods, in which nothing changes."""

    pod_names: list[str]

    def fill(self, pods: int) -> None:
        """Creates 500 nodes and running pods; then stops scheduler, kubelets and controllers."""
        # YuniKorn would handle each of them, which is not measured.
        self.servers["yunikorn"].stop()
        # One of each application first: the server's refusals show at once.
        numbers = sorted(range(pods), key=lambda number: number % PODS_AN_APPLICATION)
        manifests = [manifest(number) for number in numbers]
        self.pod_names = [item["metadata"]["name"] for item in manifests]

        def add_pod(manifest: Any) -> None:
            self.api.post(PODS, manifest)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: self.add_node(f"n{number:03}"), range(NODES)))
            log_progress(f"{NODES} nodes")
            list(pool.map(add_pod, manifests))
        log_progress(f"{pods} pods; kwok's kubelets start them now")
        path = "/api/v1/pods?limit=1&fieldSelector=status.phase%3DPending"
        self.wait_for(lambda: not self.api.get(path)["items"], "every pod runs", 900)
        for name in ("kube-controller-manager", "kwok"):
            self.servers[name].stop()


class Bench:
    """A cluster filled with pods, and the commands that are measured on it."""

    def __init__(self, rig: BenchRig, kubeconfig: Path, directory: Path) -> None:
        self.rig, self.kubeconfig, self.directory = rig, kubeconfig, directory
        self.meter = Meter(rig)
        self.chance = random.Random(1)
        self.metrics = directory / "dnm.prom"
        self.stamp = 0

    def site(self, name: str, kubeconfig: Path, **settings: object) -> Site:
        more = {"yunikorn_url": None, "request_timeout_seconds": 60, **settings}
        return Site(self.rig, self.directory / name, kubeconfig, **more)  # type: ignore[arg-type]

    def commands(self, kubeconfig: Path) -> dict[str, Command]:
        """Returns the commands to measure at this kubeconfig's API server, each on its own site."""
        name = kubeconfig.stem
        listing = self.site(f"{name}-list", kubeconfig, watch_from_pods=10_000_000)
        url = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        far = write_kubeconfig(
            kubeconfig,
            self.directory / f"{name}-far.kubeconfig",
            f"https://{OWN_ADDRESS}:{url.rpartition(':')[2]}",
        )
        packing = self.site(f"{name}-far", far, watch_from_pods=10_000_000)
        seeing = self.site(
            f"{name}-changes",
            kubeconfig,
            relist_minutes=600,
            watch_from_pods=0,
            metrics_file=self.metrics,
        )
        dnm = str(Path(sys.executable).parent / "dnm")
        paging = (*DNM[:2], f"{AS_BEFORE}; {DNM[2]}", "run")
        plain = (sys.executable, str(REPOSITORY / "tests" / "bench" / "plain_client.py"))
        kubectl = (f"{self.rig.directory}/bin/kubectl", "get", "pods", "-A", "-o", "json")
        manual = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        made = [
            Command(CURL, self._curl(kubeconfig, url), manual),
            Command(LISTED, (dnm, "run"), listing.environment),
            Command(PAGED, paging, listing.environment),
            Command(PACKED, (dnm, "run"), packing.environment),
            *(Command(name, (dnm, "run"), seeing.environment) for name in CHANGED),
            Command(KUBECTL, kubectl, manual),
            Command(PLAIN, plain, manual),
        ]
        return {command.name: command for command in made}

    def _curl(self, kubeconfig: Path, url: str) -> Sequence[str]:
        document = yaml.safe_load(kubeconfig.read_text())
        trusted = self.directory / f"{kubeconfig.stem}.crt"
        trusted.write_bytes(
            base64.b64decode(document["clusters"][0]["cluster"]["certificate-authority-data"])
        )
        secret = self.directory / f"{kubeconfig.stem}.header"
        secret.write_text(f"Authorization: Bearer {document['users'][0]['user']['token']}")
        urls = [f"{url}/api/v1/nodes", f"{url}/api/v1/pods?{UNFINISHED}"]
        # For curl's own user agent the server indents its answers, twice as long.
        quiet = [
            "--user-agent",
            "bench",
            "--silent",
            "--fail",
            "--cacert",
            str(trusted),
            "--header",
            f"@{secret}",
        ]
        return ["curl", *quiet, *["--output", os.devnull] * len(urls), *urls]

    def change(self, count: int) -> None:
        """Changes a label of `count` pods, as a controller would."""
        self.stamp += 1
        patch = {"metadata": {"labels": {"stamp": str(self.stamp)}}}
        names = self.rig.pod_names[:]
        self.chance.shuffle(names)

        def write(name: str) -> None:
            self.rig.api.patch(f"/api/v1/namespaces/dev/pods/{name}", patch)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, names[:count]))

    def take(self, command: Command) -> Turn:
        self.change(CHANGED.get(command.name, 0))
        before = self.meter.begin()
        resident = self.rig.servers["kube-apiserver"].resident_mb() * 2**20
        sample = run_in_child(command)
        cost = self.meter.read().since(ServerCost(**{**vars(before), "memory": resident}))
        if command.name not in CHANGED:
            return Turn(sample, cost)
        output = self.metrics.read_text()
        way = re.search(r'reading_info{.*way="(.*?)",reason="(.*?)"', output)
        waited = re.search(r"watch_wait_seconds{.*} (.*)", output)
        assert way is not None
        return Turn(sample, cost, f"{way[1]} {way[2]}".strip(), float(waited[1]) if waited else 0.0)

    def count_bytes(self) -> dict[str, int]:
        """Counts the bytes of the server's answers to each command, by a relay between them."""
        with relay(PORT) as counting:
            url = f"https://127.0.0.1:{counting.port}"
            target = self.directory / "counted.kubeconfig"
            commands = self.commands(write_kubeconfig(self.kubeconfig, target, url))
            self.take(commands[LISTED])
            self.take(next(commands[name] for name in CHANGED))  # the first is a list
            return {name: self._count(command, counting) for name, command in commands.items()}

    def _count(self, command: Command, counting: Relay) -> int:
        before = counting.read
        self.take(command)
        return counting.read - before


def measure(arguments: list[str]) -> int:
    """Fills a real cluster, measures the commands, prints the table and writes it."""
    parser = argparse.ArgumentParser(prog="python -m tests.real bench", description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--pods", type=int, default=COUNT)
    parser.add_argument("--dry", action="store_true", help="writes no file")
    options = parser.parse_args(arguments)
    with BenchRig(run_directory()) as rig:
        kubeconfig = make_account(rig)
        rig.fill(options.pods)
        bench = Bench(rig, kubeconfig, run_directory())
        commands = bench.commands(bench.kubeconfig)
        turns: dict[str, list[Turn]] = {name: [] for name in commands}
        loads = []
        for turn in range(options.repeat + 1):
            for name, command in commands.items():
                taken = bench.take(command)
                if turn:  # the first warms all caches, and is a list
                    turns[name].append(taken)
            loads.append(os.getloadavg()[0])
        read = bench.count_bytes()
        part = f"{REAL_SERVER}\n\n{make_table(rig, turns, read, loads)}"
    print(part)
    if not options.dry:
        PAGE.write_text(put_part(PAGE.read_text(), REAL_SERVER, part))
    return 0


def manifest(number: int) -> Any:
    """Returns a pod of the benchmark's generator, as a controller posts it, with its node set."""
    application = Application("real", number // PODS_AN_APPLICATION, "dev")
    place = Place(number, f"n{number % NODES:03}", "Running")
    document = application.document(random.Random(number), place)
    metadata = {key: document["metadata"][key] for key in ("name", "labels", "annotations")}
    spec = {**document["spec"], "serviceAccountName": "default"}
    del spec["serviceAccount"]
    return {"metadata": metadata, "spec": spec}


def make_table(
    rig: BenchRig,
    turns: dict[str, list[Turn]],
    read: dict[str, int],
    loads: Sequence[float],
) -> str:
    server = rig.servers["kube-apiserver"].resident_mb()
    version = rig.api.get("/version")["gitVersion"]
    lines = [
        f"{NODES} nodes and {len(rig.pod_names):,} pods of the generator in "
        f"kube-apiserver {version} ({server:,} MB resident), {datetime.now(UTC):%Y-%m-%d}, "
        f"{os.cpu_count()} cores for client and server, medians of "
        f"{len(next(iter(turns.values())))}, load {min(loads):.1f} to {max(loads):.1f}.",
        "",
        "Seats: what priority and fairness charge.",
        "",
        "| command | wall | CPU | peak memory | read | seats |",
        "|---|" + "---:|" * 5,
    ]
    lines += [_row(name, all_, read[name]) for name, all_ in turns.items()]
    ways = {f"{name}: {turn.way}" for name, all_ in turns.items() for turn in all_ if turn.way}
    malformed = sorted(way for way in ways if not way.endswith(": changes"))
    if malformed:
        lines += ["", f"Not as meant: {'; '.join(malformed)}."]
    return "\n".join(lines)


def _row(name: str, turns: Sequence[Turn], read: int) -> str:
    def middle(figure: Callable[[Turn], float]) -> float:
        return statistics.median(figure(turn) for turn in turns)

    return (
        f"| {name} | {middle(lambda turn: turn.sample.wall):.2f} s | "
        f"{middle(lambda turn: turn.sample.cpu):.2f} s | "
        f"{middle(lambda turn: turn.sample.peak_bytes) / 1e6:.0f} MB | {read / 1e6:.2f} MB | "
        f"{middle(lambda turn: turn.cost.seats):.0f} |"
    )
