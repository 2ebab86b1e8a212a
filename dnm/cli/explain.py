"""`dnm explain`: one node, queue or pod as a run would see it now, and its last transitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from dnm.cli.history import QuestionError, describe_line, last_lines
from dnm.cli.output import (
    amounts,
    decision_numbers,
    print_document,
    print_line,
    shown,
    waiting_lines,
    waiting_rows,
)
from dnm.model.config import Config
from dnm.model.errors import ExitCode
from dnm.model.history import Decision
from dnm.model.hostlist import fold_hostlist
from dnm.model.plan import QUEUE_WORDS, VERDICT_WORDS, Plan, Reason, Verdict
from dnm.model.printable import bold, count_of, terminal_width
from dnm.plan.acting import judge_actor
from dnm.plan.conversions import Converted
from dnm.plan.explain import PodExplanation, explain_pod
from dnm.plan.planner import fold_plan
from dnm.run.planning import decide_now

_LAST = 5  # transitions shown

# What a person, or time, can change of a verdict. What is not here needs nothing.
_WHAT_CHANGES_IT = {
    Reason.CAPPED: "a node that goes back, or a higher cap in the configuration",
    Reason.NO_BATCH_NODE: "a batch node that falls idle; `dnm nodes` says why none can be lent",
    Reason.BATCH_FLOOR: "a node that goes back or falls idle, or a lower floor",
    Reason.BATCH_WAITS: "those jobs starting, a priority above 0, or when_batch_waits = lend",
    Reason.BRIDGE_EVICTS: "slurm-bridge kept off these names (docs/slinky.md)",
    Reason.HOURS_SPENT: "Monday, 00:00 UTC, or a higher node_hours_per_week",
    Reason.LEAVING: (
        "`dnm hold NODE` keeps it; `dnm return NODE --evict` asks its pods to go; it is never "
        "emptied by force"
    ),
    Reason.COOLDOWN: "time: global_cooldown_seconds after nodes were last lent",
    Reason.BACKOFF: "time, or `dnm reset TYPE` once the reason is mended",
    Reason.BREAKER: "other pods, or `dnm reset QUEUE` once the reason is mended",
    Reason.PAUSED: "`dnm resume`",
    Reason.QUEUE_UNREADABLE: "a queue document that can be used; `dnm queues check`",
    Reason.DEMAND_UNREADABLE: "an API server that can be read; `dnm check`",
    Reason.OTHERS_FIRST: "a higher priority of its namespace, or more nodes that can be lent",
    Reason.NOTHING_HELPS: "pods that ask for what a node type has; `dnm check` names them",
    Reason.TOO_YOUNG: "time: pending_grace_seconds",
    Reason.HELD: "`dnm unhold NODE`",
    Reason.HELD_BY_ADMIN: "`kubectl uncordon NODE`",
    Reason.KEPT_READY: "a lower min_nodes of its namespace",
    Reason.IDLE: "pods that land on it, or time: reversion_idle_seconds",
    Reason.UNBUFFERED: "pods that wait for a node, or `dnm reset QUEUE`",
    Reason.IN_USE: "its pods ending",
    Reason.NEEDED: "pending pods that end, or that get room elsewhere",
    Reason.MOVING: "`dnm hold NODE`, until its labels are exchanged",
    Reason.BUDGET: "the next run: max_reversions_per_run",
    Reason.EVICTS: "the taint coming off, or `dnm reset NODE`",
    Reason.LATE: "a look at the node, then `dnm reset NODE`",
    Reason.GAVE_UP: "a person: what the error says, then `dnm reset NODE` or `dnm forget NODE`",
}


def explain_name(config: Config, environ: Mapping[str, str], name: str, output: str) -> int:
    """Looks at the cluster as a run does, and writes nothing; returns the exit code."""
    decided = decide_now(config, environ)
    plan = fold_plan(decided)
    document = _explain(decided, plan, name)
    about = document.get("queue", "") if "/" in name else name
    lines = last_lines(config, about, _LAST) if about else []
    if output != "text":
        history = [msgspec.to_builtins(line) for line in lines]
        whole = {"schema": "dnm.explain/1", "name": name, **document, "history": history}
        print_document(whole, output)
    else:
        _print(document, name, config.events_zone)
        print(bold("Last transitions"))
        for line in lines:
            for text in describe_line(line, terminal_width() - 2, config.events_zone):
                print(f"  {text}")
        if not lines:
            print("  none is recorded")
    errors = (*_refusal(decided), *plan.errors)
    for error in errors:
        print_line(f"error: {error}") if output == "text" else None
    return ExitCode.FAILED if errors else ExitCode.OK


def _refusal(decided: Converted) -> list[str]:
    """That another dnm acts for this instance, so that nothing of all this is done."""
    known = decided.known
    judged = judge_actor(known.config, known.registry, known.snapshot)
    return [judged.refusal] if judged and judged.refusal else []


def _explain(decided: Converted, plan: Plan, name: str) -> dict[str, Any]:
    nodes = {verdict.node: verdict for verdict in plan.nodes}
    queues = {verdict.queue: verdict for verdict in plan.queues}
    if "/" in name:
        namespace, _, pod = name.partition("/")
        return _pod(explain_pod(decided, namespace, pod), plan)
    if name in nodes:
        verdict = nodes[name]
        entry = plan.registry.nodes.get(name) or decided.known.registry.nodes.get(name)
        found = {"kind": "node", **_verdict(verdict.verdict, verdict.reason, verdict.sentence)}
        if entry is not None:
            since: datetime = entry.since
            found |= {"phase": entry.phase.value, "since": since, "queue": entry.queue,
                      "node_type": entry.node_type,
                      "waiting_jobs": _waiting(plan, {entry.node_type})}  # fmt: skip
        return found
    if name.lower() in queues:
        policies = decided.known.config.namespaces.values()
        types = {one for p in policies if p.queue == name.lower() for one in p.node_types}
        waiting = _waiting(plan, types)
        return {"kind": "queue", **_queue(plan, name.lower()), "waiting_jobs": waiting}
    known = ", ".join(filter(None, [fold_hostlist(nodes), *sorted(queues)]))
    raise QuestionError(
        f"{name!r} is no lent node and no monitored queue; known are {known}. A pod is "
        f"NAMESPACE/POD; `dnm nodes` has the batch nodes, `dnm history {name}` the past"
    )


def _waiting(plan: Plan, types: set[str]) -> list[dict[str, Any]] | None:
    """The jobs that nodes of these types would start; None: nobody says what jobs wait for."""
    rows = waiting_rows(plan.waiting_jobs)
    return None if rows is None else [row for row in rows if row["node_type"] in types]


def _verdict(verdict: Verdict, reason: Reason, sentence: str) -> dict[str, Any]:
    return {
        "verdict": verdict.value,
        "code": reason.name,
        "reason": sentence,
        "changed_by": _WHAT_CHANGES_IT.get(reason, ""),
    }


def _queue(plan: Plan, queue: str) -> dict[str, Any]:
    verdict = next(one for one in plan.queues if one.queue == queue)
    decision = plan.decisions.get(queue, Decision())
    return {
        "queue": queue,
        **_verdict(verdict.verdict, verdict.reason, verdict.sentence),
        "numbers": msgspec.to_builtins(decision),
    }


def _pod(explained: PodExplanation, plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": "pod",
        "node": explained.node,
        "obstacles": list(explained.obstacles),
        "helped_by": list(explained.helped_by),
    }
    return {**found, **(_queue(plan, explained.queue) if explained.queue else {})}


def _print(document: Mapping[str, Any], name: str, zone: str) -> None:
    for text in _sentences(document, name, zone):
        print_line(text)


def _sentences(document: Mapping[str, Any], name: str, zone: str) -> Iterator[str]:
    if document["kind"] == "pod":
        if document["node"]:
            yield f"pod {name} is on node {document['node']}"
            return
        yield f"pod {name} is pending"
        yield from (f"  {obstacle}" for obstacle in document["obstacles"])
        if document["helped_by"]:
            yield f"  an empty node of type {' or '.join(document['helped_by'])} would take it"
    if "phase" in document:
        since = shown(document["since"], zone, seconds=True)
        yield f"node {name} is {document['phase']} since {since}"
    if "verdict" in document:
        about = f"queue {document['queue']}" if document["kind"] != "node" else "decided now"
        words = QUEUE_WORDS if document["kind"] != "node" else VERDICT_WORDS
        word = words.get(document["verdict"], document["verdict"])
        yield f"{about}: {word}: {document['reason']}"
        if document["changed_by"]:
            yield f"  what would change that: {document['changed_by']}"
    yield from _number_lines(document.get("numbers", {}))
    now = datetime.now(UTC)
    yield from (f"  {line}" for line in waiting_lines(document.get("waiting_jobs") or (), now))


def _number_lines(numbers: Mapping[str, Any]) -> Iterator[str]:
    if numbers.get("pending_pods"):
        pods = count_of(numbers["pending_pods"], "pod")
        yield f"  pending: {pods}, {amounts(numbers.get('pending', {}))}"
    yield from (f"  {key}: {text}" for key, text in decision_numbers(numbers))
    if numbers.get("pods"):
        yield f"  pods that lack something: {', '.join(numbers['pods'])}"
