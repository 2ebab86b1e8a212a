"""`dnm explain`: the state of a node, queue or pod as a run would see it now, and its last
transitions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import msgspec
import typer

from dnm.calendar.in_force import list_events
from dnm.cli.look.history import QuestionError, describe_line, last_lines
from dnm.cli.look.report import as_recorded, explained, explained_node
from dnm.cli.look.status_view import holders_text
from dnm.cli.terminal import completion
from dnm.cli.terminal.options import ConfigOption, OutputOption
from dnm.cli.terminal.output import (
    decision_numbers,
    order_progress,
    order_row,
    pods_lacking,
    print_document,
    print_line,
    print_title,
    shown,
    waiting_lines,
    waiting_rows,
)
from dnm.kube.client import KubeClient
from dnm.kube.questions import read_pod_end
from dnm.model.amounts import amounts
from dnm.model.config import Config
from dnm.model.errors import ExitCode
from dnm.model.history import Decision, HistoryLine
from dnm.model.hostlist import fold_hostlist
from dnm.model.lent import LentNode, Phase
from dnm.model.plan import Plan
from dnm.model.printable import count_of, duration, printable
from dnm.model.value import Unreadable
from dnm.model.verdict import QUEUE_WORDS, VERDICT_WORDS
from dnm.plan.conversions import Decided
from dnm.plan.explain import (
    describe_differences,
    describe_unlent_node,
    explain_pod,
)
from dnm.plan.lease import judge_actor
from dnm.plan.planner import fold_plan
from dnm.run.looking import decide_now

_LAST = 5  # transitions shown


def explain(
    config: ConfigOption,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A node, queue, namespace, event or order, or NAMESPACE/POD. With Kueue or "
            "ResourceQuotas also NAMESPACE/NAME of a Job or Deployment, with Kueue of a Workload.",
            autocompletion=completion.explainable,
        ),
    ],
    output: OutputOption = "text",
    wide: Annotated[
        bool, typer.Option("--wide", "-w", help="Show numbers and last transitions too.")
    ] = False,
) -> int:
    """Explain the decision about a node, queue or pod, and what would change it."""
    return explain_name(config, name, output, wide)


def explain_name(config: Config, name: str, output: str = "text", is_wide: bool = False) -> int:
    """Reads the cluster as a run does, and writes nothing. Returns the exit code."""
    is_node = config.type_of(name.removeprefix("node/")) is not None
    decided = decide_now(config, os.environ, asks_batch=is_node)
    plan = fold_plan(decided)
    document = _explain(decided, plan, name)
    about = (
        document.get("queue", "")
        if document["kind"] in ("pod", "namespace", "workload")
        else document["object"]
    )
    lines = last_lines(config, about, _LAST) if about and (is_wide or output != "text") else []
    if output != "text":
        history = [msgspec.to_builtins(line) for line in lines]
        full = {"schema": "dnm.explain/1", "name": name, **document, "history": history}
        print_document(full, output)
    else:
        for text in _sentences(document, is_wide, config.events_zone):
            print_line(text.lstrip(), indent=2 if text.startswith(" ") else 0)
        _print_past(lines, config.events_zone) if is_wide else None
    refused = _refusal(decided)
    errors = refused or plan.other_errors
    for error in errors:
        print_line(("error: ", "error"), error) if output == "text" else None
    if refused or plan.needs_person:
        return ExitCode.NEEDS_PERSON
    return ExitCode.FAILED if errors else ExitCode.OK


def _print_past(lines: Sequence[HistoryLine], zone: str) -> None:
    from dnm.cli.terminal.screen import draw

    print_title("Last transitions")
    draw(part for line in lines for part in describe_line(line, zone, indent=2))
    if not lines:
        print_line("none is recorded", indent=2)


def _refusal(decided: Decided) -> list[str]:
    """Returns why a run of this dnm would do nothing, if another dnm acts for the instance."""
    inputs = decided.inputs
    judged = judge_actor(inputs.config, inputs.registry, inputs.snapshot)
    return [judged.refusal] if judged.refusal else []


_MOST_NAMED = 5
_KINDS = ("node", "queue", "pod", "namespace", "event", "order", "workload")


def _explain(decided: Decided, plan: Plan, name: str) -> dict[str, Any]:
    """Returns the explanation of the object with this name. Tries all kinds of object in order,
    unless the name begins with a kind, as in `node/a001`."""
    kind, slash, rest = name.partition("/")
    is_of_kind = bool(slash) and kind in _KINDS and kind not in decided.inputs.config.namespaces
    bare = rest if is_of_kind else name
    finders = {
        "node": _find_node, "queue": _find_queue, "namespace": _find_namespace,
        "event": _find_event, "order": _find_order, "workload": _find_workload, "pod": _find_pod,
    }  # fmt: skip
    for item in (kind,) if is_of_kind else finders:
        explanation = finders[item](decided, plan, bare)
        if explanation is not None:
            return {"kind": item, "object": bare, **explanation}
    config = decided.inputs.config
    monitored = dict.fromkeys([*config.queues, *config.namespaces])  # one name may be both
    names = [*(verdict.node for verdict in plan.nodes), *monitored]
    raise QuestionError(
        f"{name!r} was not found: it is not a node, monitored queue or namespace, event, order or "
        f"pod. Existing names: {', '.join(names_like(bare, names))}. Write a pod as NAMESPACE/POD "
        f"or pod/POD; `dnm history {bare}` shows the past"
    )


def names_like(name: str, names: Sequence[str]) -> list[str]:
    """Returns the names that are similar to `name`. If no name is similar, returns the first names,
    and how many more there are."""
    if close := get_close_matches(name, names, n=3):
        return close
    more = len(names) - _MOST_NAMED
    return [*sorted(names)[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])]


def _find_node(decided: Decided, plan: Plan, name: str) -> dict[str, Any] | None:
    verdict = next((node for node in plan.nodes if node.node == name), None)
    if verdict is None:
        return _find_other_node(decided, name)
    # The current entry, not the planned one; from the plan only for nodes that it would adopt.
    entry = decided.inputs.registry.nodes.get(name) or plan.registry.nodes.get(name)
    document: dict[str, Any] = {
        **explained_node(plan, verdict), "remedy": verdict.reason.change
    }  # fmt: skip
    if entry is not None:
        holders = plan.pods.get(name)
        pods = msgspec.structs.asdict(holders) if holders else None
        document |= {
            "phase": entry.phase.value, "since": entry.since, "queue": entry.queue,
            "node_type": entry.node_type, "pods": pods, "opening": _opening(decided, entry),
            "differences": _differences(decided, name, entry),
            "waiting_jobs": _waiting(plan, {entry.node_type}),
        }  # fmt: skip
    return document


def _differences(decided: Decided, name: str, entry: LentNode) -> list[str]:
    """Returns how a serving node differs from the configuration of its type, as sentences."""
    node = decided.inputs.facts.node(name)
    node_type = decided.inputs.config.node_types.get(entry.node_type)
    if node is None or node_type is None or entry.phase is not Phase.SERVING or not node.is_ready:
        return []
    return describe_differences(node, node_type, entry.namespace)


def _opening(decided: Decided, entry: LentNode) -> dict[str, Any] | None:
    """Returns how long each passed readiness check of a joining node took, and the missing ones."""
    if entry.opening is None:
        return None
    node_type = decided.inputs.config.node_types.get(entry.node_type)
    took = entry.took
    checks = node_type.readiness_checks if node_type else ()
    missing = [step.text for step in checks if step.text not in took]
    return {"took_seconds": took, "missing": missing, "is_open": entry.opening.is_open}


def _find_other_node(decided: Decided, name: str) -> dict[str, Any] | None:
    """Returns the explanation of a node that is not lent, from what Slurm and Kubernetes report."""
    inputs = decided.inputs
    batch, nodes = inputs.facts.batch or {}, inputs.facts.nodes or {}
    node_type = inputs.config.type_of(name) or ""
    exists = name in batch or name in nodes or name in inputs.registry.excluded
    if not exists and not (node_type and inputs.facts.batch is None):
        return None
    is_listed = node_type or name not in nodes
    reasons = [describe_unlent_node(decided, name, node_type)] if is_listed else []
    if name in nodes:
        lender = (inputs.facts.lenders or {}).get(name)
        clause = f"instance {printable(lender, 80)} has lent" if lender else "dnm has not lent"
        reasons.append(f"Kubernetes has a Node of this name, which {clause}")
    return {"phase": "not lent", "node_type": node_type, "reason": "; ".join(reasons)}


def _find_queue(decided: Decided, plan: Plan, name: str) -> dict[str, Any] | None:
    queue = name.lower()
    if all(verdict.queue != queue for verdict in plan.queues):
        return None
    policies = decided.inputs.config.namespaces.values()
    types = {node_type for p in policies if p.queue == queue for node_type in p.node_types}
    return {**_queue(plan, queue), "waiting_jobs": _waiting(plan, types)}


def _find_namespace(decided: Decided, plan: Plan, name: str) -> dict[str, Any] | None:
    policy = decided.inputs.config.namespaces.get(name)
    if policy is None:
        return None
    lent = [node for node, entry in sorted(plan.registry.nodes.items()) if entry.namespace == name]
    return {**(_find_queue(decided, plan, policy.queue) or {"queue": policy.queue}), "lent": lent,
            "node_types": list(policy.node_types)}  # fmt: skip


def _find_event(decided: Decided, plan: Plan, name: str) -> dict[str, Any] | None:
    events = list_events(decided.inputs.config, plan.registry)
    event = next((event for event in events if event.name == name), None)
    if event is None:
        return None
    needs = count_of(event.pods, "pod") if event.pods else count_of(event.nodes, "node")
    when = f"{event.begins:%Y-%m-%d %H:%M} to {event.ends:%Y-%m-%d %H:%M} {event.zone}"
    weekly = ", weekly" if event.weekly else ""
    return {"reason": f"{needs} for namespace {event.namespace}, {when}{weekly}"}  # fmt: skip


def _find_order(decided: Decided, plan: Plan, name: str) -> dict[str, Any] | None:
    order = next((order for order in plan.registry.orders if order.id == name), None)
    if order is None:
        return None
    row = order_row(order, as_recorded(plan))
    there = f": {fold_hostlist(row['serving'])}" if row["serving"] else ""
    return {
        "reason": f"{count_of(order.count, 'node')} for namespace {order.namespace} until "
        f"{order.until:%Y-%m-%d %H:%M} UTC, by {order.requester}; {order_progress(row)}{there}"
    }


def _find_workload(decided: Decided, plan: Plan, name: str) -> dict[str, Any] | None:
    """Returns the explanation of a Job, a Deployment or another object whose pods wait for quota,
    if its queue system has one. A pod with reserved quota is explained as a pod."""
    namespace, _, rest = name.partition("/")
    inputs = decided.inputs
    policy, pods = inputs.config.namespaces.get(namespace), inputs.snapshot.pods
    module = f"dnm.queues.{policy.queue_system}.admin.explain" if policy and rest else ""
    if policy is None or not (module and find_spec(module)):
        return None
    incomplete = decided.conversions.sizing.of(policy.queue).incomplete
    with closing(KubeClient.connect(inputs.config)) as kube:
        found = import_module(module).explain_workload(
            kube.requests, inputs.snapshot.queue_facts, (namespace, rest), incomplete
        )
    titles = (
        () if isinstance(pods, Unreadable) else ((pod.namespace, pod.name) for pod in pods.pods)
    )
    if found is None or not (found["is_waiting"] or (namespace, rest) not in titles):
        return None
    document: dict[str, Any] = found
    return document | (_queue(plan, policy.queue) if document.pop("is_waiting") else {})


def _find_pod(decided: Decided, plan: Plan, name: str) -> dict[str, Any] | None:
    namespace, slash, pod = name.partition("/")
    if not slash:
        pods = decided.inputs.snapshot.pods
        every = () if isinstance(pods, Unreadable) else pods.pods
        spaces = sorted({pod.namespace for pod in every if pod.name == name})
        if len(spaces) > 1:
            raise QuestionError(f"pods of this name are in {', '.join(spaces)}: NAMESPACE/{name}")
        if not spaces:
            return None
        namespace, pod = spaces[0], name
    if not (namespace and pod):
        return None
    explained_pod = explain_pod(decided, namespace, pod)
    if explained_pod is not None:
        state = "on a node" if explained_pod.node else explained_pod.state
        queue = _queue(plan, explained_pod.queue) if explained_pod.queue else {}
        return {"pod": explained_pod.pod, "node": explained_pod.node, "state": state,
                "obstacles": list(explained_pod.obstacles),
                "helpful_node_types": list(explained_pod.helpful_node_types), **queue}  # fmt: skip
    with closing(KubeClient.connect(decided.inputs.config)) as kube:
        end = read_pod_end(kube.requests, namespace, pod)
    if end is None:
        return None
    cause = ": ".join(filter(None, (end.reason, printable(end.message, 300))))
    return {"pod": f"{namespace}/{pod}", "node": "", "state": end.phase.lower() or "finished",
            "obstacles": [cause] if cause else [], "helpful_node_types": []}  # fmt: skip


def _waiting(plan: Plan, types: set[str]) -> list[dict[str, Any]] | None:
    """Returns the jobs that wait for nodes of these types. Returns None if Slurm reports no queue
    of jobs."""
    rows = waiting_rows(plan.waiting_jobs)
    return None if rows is None else [row for row in rows if row["node_type"] in types]


def _queue(plan: Plan, queue: str) -> dict[str, Any]:
    verdict = next(verdict for verdict in plan.queues if verdict.queue == queue)
    numbers = msgspec.to_builtins(plan.decisions.get(queue, Decision()))
    return {"queue": queue, **explained(verdict), "remedy": verdict.reason.change,
            "numbers": numbers}  # fmt: skip


def _sentences(document: Mapping[str, Any], is_wide: bool, zone: str) -> Iterator[str]:
    kind, name = document["kind"], document["object"]
    if kind == "pod":
        yield from _pod_lines(document)
    elif kind == "workload":
        yield f"workload {document['workload']} {document['state']}"
        yield from (f"  {obstacle}" for obstacle in document["obstacles"])
    elif kind == "namespace":
        lent = ", ".join(document["lent"]) or "no node"
        yield f"namespace {name} has queue {document['queue']}; lent to it: {lent}"
    elif "since" in document:
        since = shown(document["since"], zone, seconds=True)
        yield f"node {name} is {document['phase']} since {since}"
    elif "verdict" not in document:
        state = f" is {document['phase']}" if "phase" in document else ""
        yield f"{kind} {name}{state}: {document['reason']}"
    if "verdict" in document:
        about = "decision now" if kind == "node" else f"queue {document['queue']}"
        words = VERDICT_WORDS if kind == "node" else QUEUE_WORDS
        word = words.get(document["verdict"], document["verdict"])
        yield f"{about}: {word}: {document['reason']}"
        if document["remedy"]:
            yield f"  what would change that: {document['remedy']}"
    if document.get("pods"):
        yield f"  {holders_text(document['pods'])}"
    yield from (f"  {difference}" for difference in document.get("differences", ()))
    if opening := document.get("opening"):
        took = (f"{step} {duration(timedelta(seconds=seconds))}"
                for step, seconds in opening["took_seconds"].items())  # fmt: skip
        state = "passed" if opening["is_open"] else "so far"
        yield f"  readiness checks {state}: {', '.join(took)}"
        if opening["missing"] and not opening["is_open"]:
            yield f"  still missing: {', '.join(opening['missing'])}"
    if is_wide:
        yield from _number_lines(document.get("numbers", {}))
        now = datetime.now(UTC)
        yield from (f"  {line}" for line in waiting_lines(document.get("waiting_jobs") or (), now))


def _pod_lines(document: Mapping[str, Any]) -> Iterator[str]:
    state = f"on node {document['node']}" if document["node"] else document["state"]
    words = {"rejected": "was rejected", "failed": "has failed", "succeeded": "has succeeded",
             "unknown": "could not be read"}  # fmt: skip
    yield f"pod {document['pod']} {words.get(state, f'is {state}')}"
    yield from (f"  {obstacle}" for obstacle in document["obstacles"])
    if document["helpful_node_types"]:
        yield f"  an empty node of type {' or '.join(document['helpful_node_types'])} could run it"


def _number_lines(numbers: Mapping[str, Any]) -> Iterator[str]:
    if numbers.get("pending_pods"):
        pods = count_of(numbers["pending_pods"], "pod")
        yield f"  pending: {pods}, {amounts(numbers.get('pending', {}))}"
    yield from (f"  {key}: {text}" for key, text in decision_numbers(numbers))
    if numbers.get("pods"):
        yield f"  pods that lack capacity or quota: {pods_lacking(numbers)}"
