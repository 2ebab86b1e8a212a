"""The table of all faults, and the faults of the API, of the site's converter and of
administrators.

A fault is a function of the world and of a random generator of its own. Its draws do not depend on
the state of the world, so that a seed repeats its choices."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.proof.storm import processes
from tests.proof.storm.world import BROKEN, DEV, LAB, PERMANENT, SETTINGS, World

Strikes = Callable[[World, random.Random], str]


class Blow(NamedTuple):
    """A fault; `strike` injects it and returns its log line."""

    name: str
    weight: int
    strike: Strikes


BLOWS: list[Blow] = []


def fault(weight: int) -> Callable[[Strikes], Strikes]:
    def enter(strike: Strikes) -> Strikes:
        BLOWS.append(Blow(strike.__name__, weight, strike))
        return strike

    return enter


def choose(rng: random.Random) -> list[Blow]:
    """Chooses none to three faults from the table, by their weights."""
    count = rng.choice((0, 1, 1, 1, 2, 2, 3))
    return rng.choices(BLOWS, [pair.weight for pair in BLOWS], k=count)


def pick(rng: random.Random, things: list[Any]) -> Any:
    """Picks one of the things, or None; always draws one random value, so that seeds repeat."""
    share = rng.random()
    return things[int(share * len(things))] if things else None


# --- the API -----------------------------------------------------------------------------------

PATHS = (
    "/api/v1/pods", "/api/v1/nodes", "/configmaps/", "/ws/v1", "/ws/v1/validate-conf", "/version",
    "", "/namespaces/dev", "/api/v1/nodes/", "/sandbox/node-convert/begin",
    "/sandbox/node-convert/finish",
)  # fmt: skip
BODIES = (
    "{}", "[]", "null", '{"error": "no upstream"}', '{"kind": "List", "items": []}', "", "0",
    '{"kind":"Status","apiVersion":"v1","status":"Success","code":200}',
    '{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"etcd"}',
    '{"kind":"PodList","apiVersion":"v1","items":[]}', '{"kind":"NodeList","items":null}',
    '{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"other"}}', '{"nodes": {}}',
    '{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{}]}',
    "<html><body>Sign in to the network</body></html>", "\x00\x01\x02", '{"kind":"PodList"',
)  # fmt: skip


@fault(10)
def api_fault(world: World, rng: random.Random) -> str:
    kind = rng.choice(
        ("status", "status", "status", "busy", "cut", "lost", "down", "garbage", "garbage",
         "garbage", "empty", "empty", "slow", "trickle")
    )  # fmt: skip
    details = {
        "path": rng.choice(PATHS), "times": rng.choice((1, 1, 2, 4, 12, -1)),
        "skip": rng.choice((0, 0, 0, 1, 2)), "chance": rng.choice((1.0, 1.0, 0.5)),
        "code": rng.choice((500, 500, 503, 429, 409, 410, 404, 403, 401)),
        "body": rng.choice(BODIES), "seconds": rng.choice((0.05, 0.3, 1.0, 2.0)),
    }  # fmt: skip
    if str(details["path"]).startswith("/sandbox"):  # not dnm's: the converter waits long
        details["seconds"], kind = 0.3, rng.choice(("status", "down", "lost", "slow"))
    if kind == "empty":  # dnm accepts a consistent wrong answer in the end
        details["times"] = 1
    world.sandbox.fault(kind, **details)
    shown = {"status": details["code"], "garbage": str(details["body"])[:40]}.get(kind, "")
    return f"{kind} {shown} at {details['path']!r} x{details['times']}"


@fault(1)
def scheduler_restarts(world: World, rng: random.Random) -> str:
    with world.sandbox.lock:
        world.sandbox.yunikorn.restart()
    return ""


# --- the site's converter ----------------------------------------------------------------------

LISTINGS = (
    "", "{}", "[]", "null", '{"nodes": []}', '{"nodes": null}', "<html></html>", "Usage: ...",
    '{"schema": "node-convert.list/1", "nodes": []}', "NODE STATE IDLE VERDICT REASON\n",
    '{"schema":"node-convert.list/1","nodes":[{"node":"a001","state":"?","verdict":"OK"}]}',
    '{"kind":"Status","status":"Failure"}', "\x00" * 100,
)  # fmt: skip
SPOKEN = (None, None, None, "", "a001\n", "k001\n", "../../etc\n", "a999\n", "\x1b[2Jx\n" * 50)


@fault(5)
def converter_fails(world: World, rng: random.Random) -> str:
    how: dict[str, Any] = rng.choice((
        {"act": False, "exit_code": 1}, {"act": False, "exit_code": 0}, {"exit_code": 1},
        {"exit_code": 7}, {"short": 1}, {"late_seconds": 1.5}, {"late_seconds": 6.0},
        {"seconds": 1.5}, {"seconds": 3.0}, {"seconds": 3.0, "detached": True}, {"hang": "before"},
        {"hang": "after"}, {"stderr": "\x1b]0;x\x07 token=abc\n" * 40},
    ))  # fmt: skip
    message = rng.choice(SPOKEN)
    details = {**how, "direction": rng.choice(("k8s", "batch")), "times": rng.choice((1, 1, 2))}
    if message is not None:
        details["stdout"] = message
    world.sandbox.behave(**details)
    return str(details)


@fault(3)
def falsify_list(world: World, rng: random.Random) -> str:
    details = {"stdout": rng.choice(LISTINGS), "exit_code": rng.choice((0, 0, 1)),
               "times": rng.choice((1, 2, 4))}  # fmt: skip
    world.sandbox.behave(direction="list", **details)
    return str(details)


# --- an administrator -----------------------------------------------------------------------


@fault(2)
def drain_machine(world: World, rng: random.Random) -> str:
    name = pick(rng, sorted(set(world.sandbox.batch.machines) - {BROKEN}))
    with world.sandbox.lock:
        world.sandbox.batch.drain(name, "look at it")
    world.undo.append(lambda: world.sandbox.batch.resume(name))
    return str(name)


@fault(2)
def resume_machine(world: World, rng: random.Random) -> str:
    name = pick(rng, sorted(set(world.sandbox.batch.machines) - {BROKEN}))
    with world.sandbox.lock:
        world.sandbox.batch.resume(name)
    return str(name)


@fault(1)
def machine_down(world: World, rng: random.Random) -> str:
    name = pick(rng, sorted(world.sandbox.batch.machines))
    with world.sandbox.lock:
        world.sandbox.batch.set_down(name)
    world.undo.append(lambda: world.sandbox.batch.set_down(name, False))
    return str(name)


@fault(2)
def submit_jobs(world: World, rng: random.Random) -> str:
    count, seconds = rng.choice((1, 1, 2, 4)), rng.choice((0.5, 2.0, 6.0))
    with world.sandbox.lock:
        world.sandbox.batch.submit(count, run_seconds=seconds)
    return f"{count} nodes for {seconds} s"


@fault(2)
def cordon_node(world: World, rng: random.Random) -> str:
    name = pick(rng, world.node_names())
    is_on = rng.random() < 0.6
    world.set_unschedulable(name, is_on)
    return f"{name} {is_on}"


@fault(1)
def return_manually(world: World, rng: random.Random) -> str:
    """Returns a lent node without pods manually, as an administrator may."""
    name = pick(rng, [name for name in world.node_names() if name not in PERMANENT])
    if name is None or world.pods_on(name):
        return "none"
    world.sandbox.return_manually(name)
    return str(name)


@fault(2)
def node_deleted(world: World, rng: random.Random) -> str:
    """Deletes the Node of a lent machine, although nothing returns the machine to Slurm."""
    name = pick(rng, [name for name in world.node_names() if name not in PERMANENT])
    if name is None or world.pods_on(name):
        return "none"
    world.sandbox.delete("nodes", name)
    return str(name)


@fault(3)
def verb(world: World, rng: random.Random) -> str:
    """Runs commands of an administrator, right ones and wrong ones."""
    node = pick(rng, ["a001", "a002", "b001", "k001", "nosuch", "../x", ""])
    words = rng.choice((
        ("pause", "--for", "0.05m", "--reason", "storm"), ("resume",), ("hold", node),
        ("unhold", node), ("reset", node), ("reset", "a"), ("reset", "b"), ("reset", DEV),
        ("reset", LAB), ("forget", "--yes", node), ("plan",), ("status",), ("status", "--live"),
        ("check",), ("nodes",), ("queues", "check"), ("queues", "show"), ("plan", "-o", "json"),
        ("status", "-o", "json"), ("queues", "rebase", "--as", "total", "--yes"), ("run", "-n"),
    ))  # fmt: skip
    if words[0] == "forget" and world.node_names().count(str(node)):
        return "none"  # the administrator has checked that it still exists
    world.verbs.append(world.run(*(str(word) for word in words)))
    return " ".join(map(str, words))


@fault(2)
def manifest_applied_again(world: World, rng: random.Random) -> str:
    """Plays `kubectl apply` of the site's manifest with the queue document."""
    world.sandbox.set_queues(world.queues)
    return ""


@fault(1)
def ledger_lost(world: World, rng: random.Random) -> str:
    def change(item: Any) -> None:
        (item["metadata"].get("annotations") or {}).pop("dynamic-node-manager/ledger", None)

    world.sandbox.edit("configmaps", "yunikorn-configs", change, "yunikorn")
    return ""


@fault(2)
def config_edited(world: World, rng: random.Random) -> str:
    """Makes the configuration invalid for a run; it is restored before the run after that."""
    old, new = rng.choice((
        ("instance_id = storm", "instance_id = st orm"), ("[settings]", "[setting]"),
        ("monitored_namespaces", "monitored_namespace"), ("queues.json", "nosuch.json"),
        (f"max_converted_nodes = {SETTINGS['max_converted_nodes']}", "max_converted_nodes = many"),
        ("kubeconfig_path = /", "kubeconfig_path = /nosuch/"), ("node_type = a", "node_type = z"),
        ("node_convert_path = /", "node_convert_path = /nosuch/"), ("\n", "\n\x00\n"),
    ))  # fmt: skip
    world.write(world.config, world.right_config.replace(old, new, 1))
    return f"{old!r} -> {new!r}"


@fault(1)
def caps_edited(world: World, rng: random.Random) -> str:
    """Sets valid caps that may be below the number of lent nodes."""
    cap, runs = rng.choice((0, 1, 3, 5)), rng.choice((1, 2, 3))
    text = world.right_config.replace("max_converted_nodes = 5", f"max_converted_nodes = {cap}")
    text = text.replace("max_conversions_per_run = 3", f"max_conversions_per_run = {runs}")
    world.write(world.config, text)
    return f"cap {cap}"


@fault(1)
def registry_damaged(world: World, rng: random.Random) -> str:
    """Damages the registry file. A later run's administrator restores it or dnm's copy of it."""
    how = rng.choice(("deleted", "truncated", "emptied", "garbage", "of another version"))
    uses_copy = rng.random() < 0.5
    if not world.registry.exists():
        return "none"
    content = world.registry.read_bytes()
    if how == "deleted":
        world.registry.unlink()
    else:
        world.registry.write_bytes({
            "truncated": content[: len(content) // 2], "emptied": b"",
            "garbage": b"\x00\xff" * 40, "of another version": b'{"version": 99}',
        }[how])  # fmt: skip

    def repair() -> None:
        previous = world.registry.with_name("converted_nodes.json.previous")
        is_there = uses_copy and previous.exists()
        world.registry.write_bytes(previous.read_bytes() if is_there else content)
        world.registry.chmod(0o644)

    world.repair = world.repair or repair
    return f"{how}, {'as advised' if uses_copy else 'as it was'}"


@fault(1)
def registry_forgotten(world: World, rng: random.Random) -> str:
    """Deletes the registry and its copy, as a lost disk does."""
    world.repair = None
    for path in world.registry.parent.glob("converted_nodes.json*"):
        path.unlink()
    return ""


@fault(2)
def keepers_die(world: World, rng: random.Random) -> str:
    """Kills converters or their parents (keepers) between two runs, or restarts the host."""
    text = rng.choice(("keeper", "converter", "group", "reboot"))
    for process in processes.descendants():
        if text == "reboot":
            processes.reboot()
            break
        if process.role == text:
            processes.kill([process], signal.SIGKILL)
        elif text == "group" and process.role == "keeper":
            processes.kill_group(process)
    return text
