"""The story that many tests interrupt: two nodes are lent to a queue and returned.

The cluster is full, a queue has too little quota, three pods need two nodes (one of them has a
volume). The pods run and end, the nodes idle and return. An administrator's cordon and drain, and
other keys of the ConfigMap, must stay. The story depends on the world alone (`play_events`), so it
continues from any state that a fault leaves."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dnm.model.lent import Phase
from dnm.queues.yunikorn.quantities import parse_yunikorn, yunikorn_amounts
from dnm.queues.yunikorn.tree import parse_tree
from tests.builders import count_of
from tests.processes import Ended
from tests.proof.harness import World
from tests.site import QUEUE, WORKSHOP_QUEUES, Site

CAP = 2
MINUTE = 60.0
USE_SECONDS = 90.0  # how long the pods run
LONGEST = 40  # minutes until everything is over, with any fault
_FOREIGN_NOTE = "site.example/owner"

SETTINGS: dict[str, Any] = {
    "max_converted_nodes": CAP,
    "join_timeout_seconds": 120,
    "convert_timeout_seconds": 60,
    "reversion_idle_seconds": 60,
}


def build(world: World, **settings: Any) -> Site:
    """Builds the site at the beginning of the story: pods wait, nothing is lent."""
    sandbox = world.sandbox
    sandbox.set_queues(WORKSHOP_QUEUES)
    sandbox.edit(
        "configmaps", "yunikorn-configs",
        lambda item: item["metadata"].setdefault("annotations", {}).update({_FOREIGN_NOTE: "ops"}),
        "yunikorn",
    )  # fmt: skip
    sandbox.add_node("k001", cpu="4", memory="16G")
    sandbox.add_node("k002", cpu="4", memory="16G")
    sandbox.cordon("k002")
    sandbox.add_machines(6)
    sandbox.batch.drain("a006", "bad fan")
    sandbox.add_namespace("dev")
    sandbox.add_namespace("dnm")
    _add_volume(world)
    site = world.make_site(**{**SETTINGS, **settings})
    add_demand(world)
    return site


def add_demand(world: World) -> None:
    """Adds two pods that fill a node each, and one with a volume beside them."""
    sandbox = world.sandbox
    big: dict[str, Any] = {"queue": QUEUE, "cpu": "100", "memory": "200G"}
    sandbox.add_pods(2, "dev", name="big", **big)
    volume = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    sandbox.add_pods(1, "dev", name="small", queue=QUEUE, cpu="8", memory="16G", spec=volume)
    world.tick()


def _add_volume(world: World) -> None:
    meta = {"name": "data", "namespace": "dev"}
    world.sandbox.create({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "data"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Bound"},
    })  # fmt: skip
    world.sandbox.create({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta,
        "spec": {"volumeName": "data", "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Bound"},
    })  # fmt: skip


def play_events(world: World) -> None:
    """Ends the story's pods, if all have run long enough, and advances the cluster."""
    now = world.sandbox.clock.now()
    pods = unfinished(world)
    started = [pod["status"].get("startTime") for pod in pods]
    if pods and all(started):
        seconds = [now - datetime.fromisoformat(str(text)).timestamp() for text in started]
        if min(seconds) >= USE_SECONDS:
            world.sandbox.finish_pods([pod["metadata"]["name"] for pod in pods], "dev")
    world.tick()


def unfinished(world: World) -> list[Any]:
    """Returns the pods of the story that have not ended."""
    pods = world.sandbox.objects("pods", "dev")
    return [pod for pod in pods if pod["status"].get("phase") in (None, "Pending", "Running")]


def is_over(world: World) -> bool:
    """Returns whether all pods have run and nothing is lent."""
    if unfinished(world):
        return False
    return all(
        not site.registry.nodes and not site.registry.requests for site in world.sites.values()
    )


def play_on(world: World, good: set[bytes] | None = None, longest: int = LONGEST) -> int:
    """Plays the story to its end and until nothing changes. Returns how many runs it took.

    `good` has digests of worlds from which the right end was reached before. The story stops at
    such a world, and adds the worlds that it has passed."""
    on_the_way: list[bytes] = []
    runs = world.runs
    for _ in range(longest):
        if good is not None:
            on_the_way.append(world.digest())
            if on_the_way[-1] in good:
                break
        if is_over(world):
            check_end(world)
            break
        play_minute(world)
    else:
        raise AssertionError(f"not over after {longest} minutes: {world.site.registry}")
    if good is not None:
        good.update(on_the_way)
    return world.runs - runs


def play_minute(world: World, **details: Any) -> Ended:
    """Plays the events of a minute, one run and its checks, and advances to the next minute."""
    play_events(world)
    ended = world.run(**details)
    world.settle()
    assert ended.code in (0, 1), ended
    check_always(world)
    if ended.code == 0:
        check_limits(world)
    world.tick(MINUTE)
    return ended


# --- what must be true -------------------------------------------------------------------------


def check_always(world: World) -> None:
    """Checks invariants 1 (cap), 3 (one owner) and 5 (own marks only) after a run with any fault.

    The sandbox itself records a node offered twice, killed jobs or pods, and a converter call for a
    node that Slurm has in service."""
    sandbox = world.sandbox
    assert not sandbox.violations, sandbox.violations
    away = [m.name for m in sandbox.batch.machines.values() if m.place != "batch"]
    caps = sum(count_of(site.config.max_converted_nodes) for site in world.sites.values())
    assert len(away) <= caps, f"{away} are lent, the caps allow {caps}"
    assert sandbox.batch.machines["a006"].drains == {"root": "bad fan"}
    assert (sandbox.get("nodes", "k002") or {})["spec"].get("unschedulable")
    config_map = sandbox.get("configmaps", "yunikorn-configs", "yunikorn") or {}
    assert config_map["metadata"]["annotations"].get(_FOREIGN_NOTE) == "ops"


def check_limits(world: World) -> None:
    """Checks invariant 2 (each limit is its baseline plus the serving nodes) after a good run."""
    site = world.site
    nodes = site.registry.nodes.values()
    serving = [e for e in nodes if e.phase is Phase.SERVING and e.queue == QUEUE]
    limits = parse_tree(world.sandbox.queues_text()).queues[QUEUE].max
    expected = {
        "vcore": parse_yunikorn("vcore", "80"), "memory": parse_yunikorn("memory", "320G"),
    }  # fmt: skip
    for entry in serving:
        for resource in expected:
            expected[resource] += yunikorn_amounts(entry.counted)[resource]
    assert dict(limits) == expected, (limits, expected, site.registry.nodes)


def check_end(world: World) -> None:
    """Checks all eight invariants at the end: the queue document is as before, every machine is
    returned, nothing of dnm is left, and runs change nothing."""
    sandbox = world.sandbox
    check_always(world)
    assert sandbox.queues_text() == WORKSHOP_QUEUES
    for machine in sandbox.batch.machines.values():
        assert machine.place == "batch" and not machine.reserved, machine
        assert set(machine.drains) <= {"root"}, machine
    nodes = sandbox.objects("nodes")
    assert [node["metadata"]["name"] for node in nodes] == ["k001", "k002"]
    assert not [n for n in nodes if "dynamic-node-manager" in str(n["metadata"])]
    check_rest(world)


def _kept(world: World) -> object:
    """Returns the content of all files and registries, without the copy of the previous registry,
    which each write replaces."""
    record = ("converted_nodes.json", ".previous")
    files = {name: text for name, text in world.state_files().items() if not name.endswith(record)}
    return files, [site.registry for site in world.sites.values()]


def check_rest(world: World) -> None:
    """Checks invariant 6: the next run writes nothing to the cluster. The run after it changes no
    stored state either (the first may still record what it reads), in a file or in Kubernetes."""
    for is_last in (False, True):
        world.sandbox.requests.clear()
        kept = _kept(world)
        world.tick(MINUTE)
        assert world.run().code == 0
        assert not is_last or _kept(world) == kept
        writes = world.sandbox.requests.writes()
        is_saved = any(
            write.resource == "secrets" for write in writes
        )  # the registry, by its Lease
        if is_saved and not is_last:
            writes = [write for write in writes if write.resource not in ("secrets", "leases")]
        assert not writes, writes


def cordoned(world: World) -> set[str]:
    return {
        node["metadata"]["name"]
        for node in world.sandbox.objects("nodes")
        if node["spec"].get("unschedulable")
    }


def calls(world: World, *words: str) -> int:
    """Counts the converter calls so far that have all of these words as arguments."""
    return sum(set(words) <= set(call.arguments) for call in world.sandbox.conversion.calls)


def succeeded(ended: Ended) -> Ended:
    assert ended.code == 0, ended
    return ended
