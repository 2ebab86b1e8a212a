"""A comparison of the forecast of `dnm simulate` with reality: eleven workloads are played in the
sandbox, which has its own scheduler and machines, with the real `dnm run` every minute.

    python -m tests.economy.played [HOURS [WORKLOAD ...]]

Then `dnm simulate` replays the history of those runs, under the same configuration."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from dnm.lab.sandbox import manifests
from dnm.lab.sandbox.clock import Timing
from dnm.lab.sandbox.cluster import Sandbox
from dnm.queues.yunikorn.simulated import queues_text
from dnm.record.demand_lines import DEMAND
from dnm.record.history_file import History, read_history
from dnm.simulate.accounting import Accounting
from dnm.simulate.compare import play_under
from dnm.simulate.replay import Reader, make_workload
from dnm.simulate.values import DAY, HOUR, Ask, Workload
from tests.economy.everyday import builds, small_pods, three_tenants
from tests.economy.public_shapes import heavy_tails, oscillation, roll_outs, workshop_breaks
from tests.economy.workloads import gpu_pods, nightly_batch, notebooks, workshops
from tests.site import Site

ELEVEN = (
    workshops, notebooks, nightly_batch, gpu_pods, workshop_breaks, heavy_tails, roll_outs,
    oscillation, builds, small_pods, three_tenants,
)  # fmt: skip
JOIN = 480.0  # seconds from the converter's end to a Node
NODE_HOURS, WAITS = 0.10, 0.25  # the largest accepted error of the forecast


class Outcome(NamedTuple):
    """The results of a play: lent node-hours, and minutes that pods waited."""

    lent: float
    waited: float


class Case(NamedTuple):
    """The figures of one workload: as played, and as `dnm simulate` replays its history."""

    name: str
    played: Outcome
    replayed: Outcome

    @property
    def is_close(self) -> bool:
        return self.is_near("lent", NODE_HOURS) and self.is_near("waited", WAITS)

    def is_near(self, field: str, share: float) -> bool:
        true, reported = getattr(self.played, field), getattr(self.replayed, field)
        # Less than half an hour of a node, or of all pods together, does not affect a decision.
        least = 0.5 if field == "lent" else 30.0
        return bool(abs(reported - true) <= max(share * true, least))


def busiest(workload: Workload, hours: float) -> Workload:
    """Returns the part of a day's workload, `hours` long, in which the most pods arrive."""
    starts = [hour * HOUR for hour in range(int((DAY - hours * HOUR) / HOUR) + 1)]
    begin = max(
        starts,
        key=lambda at: sum(at <= request.at < at + hours * HOUR for request in workload.asks),
    )
    asks = (
        replace(
            request,
            at=max(request.at - begin, 0.0),
            lasts=request.lasts - max(begin - request.at, 0.0),
        )
        for request in workload.asks
        if request.at + request.lasts > begin and request.at < begin + hours * HOUR
    )
    chosen = tuple(sorted(asks, key=lambda request: request.at))
    return replace(workload, asks=chosen, lasts=hours * HOUR, jobs=())


def play(workload: Workload, directory: Path) -> Case:
    """Plays a workload in the sandbox, then its history in the simulator; returns both figures."""
    sandbox = Sandbox(directory, timing=Timing(join=JOIN)).start()
    try:
        site = _site(workload, sandbox, directory)
        # A node stays for the default time.
        site.write(site.path, site.path.read_text().replace("reversion_idle_seconds = 60\n", ""))
        played = _Played(workload, site).play()
        return Case(workload.name, played, _replay(site))
    finally:
        sandbox.stop()


def _site(workload: Workload, sandbox: Sandbox, directory: Path) -> Site:
    sandbox.clock.set(workload.begins.timestamp())
    text = queues_text(workload.limits).replace(
        "    queues:\n", "    nodesortpolicy: {type: binpacking}\n    queues:\n", 1
    )
    text = text.replace("- name: root\n", "- name: root\n        submitacl: '*'\n", 1)
    sandbox.set_queues(text)
    for number, free in enumerate(workload.free):
        sandbox.add_node(f"k{number}", **_resources(free))  # type: ignore[arg-type]
    taints = [{"key": "dedicated", "value": "{namespace}", "effect": "NoSchedule"}]
    for name, kind in workload.classes.items():
        sandbox.add_machine_type(name, **_resources(dict(kind.size)), taints=taints)  # type: ignore[arg-type]
        sandbox.add_machines(kind.count, name)
    sections = "".join(
        f"[node_type:{name}]\ncpu = {dict(kind.size)['cpu'] // 1000}\n"
        f"memory = {dict(kind.size)['memory']}\ntaints = dedicated={{namespace}}:NoSchedule\n"
        + "".join(f"{key} = {size}\n" for key, size in kind.size if "/" in key)
        for name, kind in workload.classes.items()
    ) + "".join(
        f"[namespace:{name}]\nnode_type = {kind}\n"
        for name, (_, kind) in workload.namespaces.items()
    )
    site = Site(
        sandbox, directory / "site", sections=sections, pending_grace_seconds=20,
        global_cooldown_seconds=30, demand_days=90,
        monitored_namespaces=", ".join(workload.namespaces), max_converted_nodes=workload.cap,
    )  # fmt: skip
    paths = ", ".join(f'"{name}": "{path}"' for name, (path, _) in workload.namespaces.items())
    site.write(site.directory / "queues.json", f"{{{paths}}}\n")
    return site


def _resources(sizes: Mapping[str, int]) -> dict[str, object]:
    more = {name: str(amount) for name, amount in sizes.items() if "/" in name}
    return {"cpu": f"{sizes['cpu']}m", "memory": str(sizes["memory"]), "more": more}


class _Played:
    """The play of a workload: pods start and end, and dnm runs every minute."""

    def __init__(self, workload: Workload, site: Site) -> None:
        self._workload, self._site = workload, site
        self._sandbox = site.sandbox
        self._begins = workload.begins.timestamp()
        self._waits: list[float] = []
        self._lent = 0.0

    def play(self) -> Outcome:
        asks = list(reversed(self._workload.asks))
        for namespace in self._workload.namespaces:
            self._sandbox.add_namespace(namespace)
        number = 0
        for minute in range(int(self._workload.lasts / 60)):
            while asks and asks[-1].at < minute * 60:
                self._until(asks[-1].at)
                self._create(number := number + 1, asks.pop())
            self._until(minute * 60.0)
            self._site.run()
            self._note(60.0)
        self._sweep(is_over=True)
        assert not self._sandbox.violations
        return Outcome(self._lent / HOUR, sum(self._waits) / 60)

    def _until(self, at: float) -> None:
        self._sandbox.tick(max(self._begins + at - self._sandbox.clock.now(), 0.0))

    def _create(self, number: int, ask: Ask) -> None:
        namespace = self._workload.namespace_of(ask.queue)
        request = dict(ask.request)
        requests = {"cpu": f"{request['cpu']}m", "memory": str(request["memory"])}
        requests |= {name: str(amount) for name, amount in request.items() if "/" in name}
        toleration = {"key": "dedicated", "operator": "Equal", "value": namespace}
        self._sandbox.create(manifests.pod_manifest(
            f"p{number}", namespace, requests, queue=ask.queue, spec={"tolerations": [toleration]},
            annotations={manifests.RUN_SECONDS: str(ask.lasts)}, labels={},
        ))  # fmt: skip

    def _note(self, seconds: float) -> None:
        machines = self._sandbox.batch.machines.values()
        self._lent += seconds * sum(machine.place != "batch" for machine in machines)
        self._sweep()

    def _sweep(self, is_over: bool = False) -> None:
        """Notes how long each ended pod waited, and deletes the pod."""
        for pod in self._sandbox.objects("pods"):
            meta, has_ended = pod["metadata"], pod["status"].get("phase") == "Succeeded"
            if has_ended or is_over:
                bound = pod["status"].get("startTime") or self._sandbox.clock.stamp()
                self._waits.append(_seconds(meta["creationTimestamp"], bound))
                self._sandbox.delete("pods", meta["name"], meta["namespace"])


def _seconds(since: str, until: str) -> float:
    return (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()


def _replay(site: Site) -> Outcome:
    config, reader = site.config, Reader()
    since, path = site.now() - timedelta(days=30), config.converted_nodes_path
    for line in read_history(History(path, config.history_keep)):
        if line.kind in ("node", "request"):
            reader.add(line)
    for line in read_history(History(path, config.demand_keep, name=DEMAND)):
        reader.add(line)
    recorded = reader.close(site.registry, since, site.now())
    workload = make_workload(recorded, config, site.registry, Accounting(), seed=1)
    figures, errors = play_under(workload, config)
    assert not errors, errors
    return Outcome(figures.lent, figures.pods.total)


def main(hours: float, names: Iterable[str]) -> None:
    """Prints a line for each workload, and for how many the forecast is close to the play."""
    print(
        "| workload | node-hours played | simulated | minutes waited played | simulated | close |"
    )
    print("|---|---|---|---|---|---|")
    close = 0
    makes = [make for make in ELEVEN if not names or make.__name__ in names]
    for make in makes:
        with tempfile.TemporaryDirectory() as scratch:
            case = play(busiest(make(1, DAY), hours), Path(scratch))
        close += case.is_close
        print(
            f"| {case.name} | {case.played.lent:.1f} | {case.replayed.lent:.1f} | "
            f"{case.played.waited:,.0f} | {case.replayed.waited:,.0f} | "
            f"{'yes' if case.is_close else 'no'} |",
            flush=True,
        )
    print(f"{close} of {len(makes)}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 24.0, sys.argv[2:])
