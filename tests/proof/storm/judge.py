"""Checks for violations, after each run and at the end. They read the sandbox's state, the registry
as JSON and the output of commands, and use none of dnm's code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import yaml

from tests.proof.storm.world import (
    BASELINE,
    BOUND,
    BROKEN,
    CAP,
    NOTE,
    PERMANENT,
    QUEUE_OF,
    SIZES,
    Ended,
    World,
)  # fmt: skip

EXIT_CODES = (0, 1, 2, 75)
_LEDGER = "dynamic-node-manager/ledger"
_STRUCK = (-9, -15, -2, 130)
TOLERANCE = 1.1  # dnm accepts a node up to so much above the declared size


def judge_run(ended: Ended) -> Iterator[str]:
    """Yields what no command may do under any fault, such as a traceback or a hang."""
    subject = " ".join(ended.words)
    if ended.seconds >= BOUND:
        yield f"`dnm {subject}` took longer than {BOUND} s"
    elif ended.code not in EXIT_CODES and not (ended.is_struck and ended.code in _STRUCK):
        yield f"`dnm {subject}` ended with {ended.code}: {ended.err[-300:]}"
    for text in (ended.out, ended.err):
        if "Traceback" in text and not _is_interpreter_interrupt(text, ended):
            yield f"`dnm {subject}` left a traceback: {text[-1500:]}"
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", text):
            yield f"`dnm {subject}` printed unprintable characters: {text!r:.300}"
    # A run reports a lasting error once an hour at first, then daily.
    is_silent = not (ended.out + ended.err).strip()
    if ended.code in (1, 2) and ended.words != ("run",) and is_silent:
        yield f"`dnm {subject}` ended with {ended.code} and printed nothing"


def _is_interpreter_interrupt(text: str, ended: Ended) -> bool:
    """Returns whether a Ctrl-C arrived before the interpreter started dnm."""
    return ended.is_struck and text.rstrip().endswith("KeyboardInterrupt") and "/dnm/" not in text


def judge_always(world: World) -> Iterator[str]:
    """Yields what must never be so, such as a node offered to both clusters."""
    sandbox = world.sandbox
    yield from map(str, sandbox.violations)
    yield from world.doubled
    with sandbox.lock:
        machines = list(sandbox.batch.machines.values())
        away = sorted(m.name for m in machines if m.place != "batch")
        drains = dict(sandbox.batch.machines[BROKEN].drains)
    if len(away) > CAP:
        yield f"{len(away)} machines are lent, the cap is {CAP}: {away}"
    if drains != {"root": "bad fan"} and not drains.keys() & {"root"}:
        yield f"an administrator's drain of {BROKEN} is gone: {drains}"
    if BROKEN in away:
        yield f"{BROKEN} is lent, which an administrator had drained"
    names = world.node_names()
    yield from (f"{name} is gone from Kubernetes" for name in PERMANENT if name not in names)
    config_map = sandbox.get("configmaps", "yunikorn-configs", "yunikorn") or {"metadata": {}}
    if (config_map["metadata"].get("annotations") or {}).get(NOTE) != "ops":
        yield f"the annotation {NOTE} of another client is gone"
    yield from _limits_within_bounds(world)
    for path in world.directory.rglob("state*/**/*.err"):
        with suppress(FileNotFoundError):  # a run has just deleted it
            if b"Traceback" in (message := path.read_bytes()):
                yield f"a converter's keeper left a traceback: {message[-500:]!r}"


def _limits_within_bounds(world: World) -> Iterator[str]:
    """Yields limits below their baseline, or above it by more than the cap allows."""
    most = [CAP * max(size[part] for size in SIZES.values()) * TOLERANCE for part in (0, 1)]
    for (queue, kind), amounts in limits(world.sandbox.queues_text()).items():
        baseline = BASELINE.get(queue, {}).get(kind)
        if baseline is None:
            yield f"{queue} has a {kind} now"
            continue
        for part, name in enumerate(("cpu", "memory")):
            if not baseline[part] <= amounts[part] <= baseline[part] + most[part]:
                yield f"{queue} {kind}.{name} is {amounts[part]}, its baseline {baseline[part]}"


def limits(text: str) -> dict[tuple[str, str], tuple[float, float]]:
    """Parses a queue document: (queue, `max` or `guaranteed`) -> cores and GB."""
    results: dict[tuple[str, str], tuple[float, float]] = {}

    def walk(queue: Any, above: str) -> None:
        path = f"{above}.{queue['name']}" if above else queue["name"]
        for kind, amounts in (queue.get("resources") or {}).items():
            results[path, kind] = (_amount(amounts["vcore"], 1), _amount(amounts["memory"], 10**9))
        for child in queue.get("queues") or ():
            walk(child, path)

    for queue in yaml.safe_load(text)["partitions"][0]["queues"]:
        walk(queue, "")
    return results


def _amount(text: Any, unit: int) -> float:
    """Parses a quantity of YuniKorn into a multiple of `unit`."""
    match = re.fullmatch(r"(\d+)([a-zA-Z]*)", str(text).strip())
    assert match is not None, text
    factors = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
               "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}  # fmt: skip
    return int(match[1]) * factors[match[2]] / unit


def judge_limits(world: World) -> Iterator[str]:
    """Yields wrong limits once nothing changes and pods run: each limit is its baseline plus the
    declared size of each lent machine. A kubelet may have forged dnm's mark of its Node."""
    wanted = {
        (queue, kind): list(amounts)
        for queue, kinds in BASELINE.items()
        for kind, amounts in kinds.items()
    }
    with world.sandbox.lock:
        lent = [m for m in world.sandbox.batch.machines.values() if m.place == "kubernetes"]
    for machine in lent:
        namespace = machine.drains.get("dnm", "").rpartition(" ")[2]
        for (queue, _), amounts in wanted.items():
            if queue == QUEUE_OF.get(namespace):
                for part in (0, 1):
                    amounts[part] += SIZES[machine.type][part]
    results = limits(world.sandbox.queues_text())
    for key, amounts in wanted.items():
        if tuple(amounts) != results[key]:
            yield f"{key[0]} {key[1]} is {results[key]}, baseline and nodes make {tuple(amounts)}"
    if not lent:
        yield "nothing is lent although pods wait"


def judge_end(world: World) -> Iterator[str]:
    """Yields what differs from the beginning once nothing changes and no pods exist."""
    sandbox = world.sandbox
    if sandbox.queues_text() != world.queues:
        yield f"the queue document has changed:\n{sandbox.queues_text()}"
    with sandbox.lock:
        for machine in sandbox.batch.machines.values():
            own = {"root": "bad fan"} if machine.name == BROKEN else {}
            if machine.place != "batch" or machine.reserved or machine.drains != own:
                yield f"{machine}"
    for node in sandbox.objects("nodes"):
        if node["metadata"]["name"] not in PERMANENT:
            yield f"{node['metadata']['name']} is still in Kubernetes"
    config_map = sandbox.get("configmaps", "yunikorn-configs", "yunikorn") or {}
    ledger = json.loads((config_map["metadata"].get("annotations") or {}).get(_LEDGER) or "{}")
    held = {
        node
        for instance in (ledger.get("instances") or {}).values()
        for nodes in (instance.get("queues") or {}).values()
        for node in nodes
    }
    if held:
        yield f"the ledger has {sorted(held)} still"
    registry = world.read_registry()
    if not registry:
        yield "there is no registry"
    for key in ("nodes", "requests"):
        if registry.get(key):
            yield f"the registry has {key} still: {registry[key]}"
