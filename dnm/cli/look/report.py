"""`dnm plan`, and the JSON documents of a plan and a run, which docs/json.md describes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from dnm.cli.look.status_view import print_pause
from dnm.cli.terminal.commands import show_activity
from dnm.cli.terminal.options import ConfigOption, OutputOption
from dnm.cli.terminal.output import (
    low_use_lines,
    low_use_rows,
    order_progress,
    order_row,
    print_document,
    print_line,
    print_title,
    waiting_lines,
    waiting_rows,
)
from dnm.cli.terminal.screen import draw_diff, verdict_part
from dnm.config.events import moment_at
from dnm.model.errors import ExitCode
from dnm.model.hostlist import fold_hostlist
from dnm.model.orders import LendOrder
from dnm.model.plan import (
    Action,
    DropPods,
    EndConverter,
    EvictPods,
    Fence,
    HoldClosed,
    MarkNode,
    Pass,
    Plan,
    RelabelNode,
    ReserveNodes,
    ReturnNode,
    SetQueueLimits,
    StartConversion,
    StartPod,
    Unfence,
    UnreserveNodes,
)
from dnm.model.registry import Registry
from dnm.model.verdict import QUEUE_WORDS, VERDICT_WORDS, NodeVerdict, QueueVerdict
from dnm.record.recording import change_line


def plan(
    config: ConfigOption,
    output: OutputOption = "text",
    at: Annotated[
        str,
        typer.Option("--at", help="Plan with the events at this time, e.g. '2026-12-01 08:45'."),
    ] = "",
    is_detailed: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 3 if a run would act.")
    ] = False,
) -> int:
    """Show what a run would do and why; change nothing."""
    moment = None
    if at:
        try:
            moment = moment_at(at, config.events_zone)
        except ValueError as error:
            why = f"{at[:40]!r} {error}"
            raise typer.BadParameter(why, param_hint="--at") from error
    with show_activity("planning"):
        from dnm.run import looking  # the planner, which takes longer to load than the help

        result = looking.plan_pass(config, os.environ, events_at=moment)
    if output != "text":
        print_document(plan_document(result.plan), output)
    else:
        print_plan(result.plan, config.events_zone)
    would_act = is_detailed and result.plan.actions and result.exit_code == ExitCode.OK
    return ExitCode.WOULD_ACT if would_act else result.exit_code


def describe_action(action: Action) -> dict[str, Any]:
    """Returns an action as a flat JSON object: its kind and its fields."""
    fields = msgspec.to_builtins(action)
    kind = fields.pop("type")
    if kind == "StartConversion":
        request = fields["request"]
        fields = {k: request[k] for k in ("id", "node_type", "count", "namespace", "queue")}
    if kind == "SetQueueLimits":
        fields = {"queues": fields["wants"]["nodes"], "floors": fields["wants"]["floors"]}
    return {"action": kind, **fields}


# The format of a run's log lines.
_LINES: Mapping[type, str] = {
    MarkNode: "mark node={0.node} queue={0.mark.queue}",
    EndConverter: "end-converter of={0.key} pid={0.process.pid}",
    Fence: "fence node={0.node}",
    Unfence: "unfence node={0.node}",
    RelabelNode: "move node={0.node} to={0.mark.namespace}",
    EvictPods: "evict node={0.node}",
    ReturnNode: "return node={0.node}",
    HoldClosed: "{opens} node={0.node}",
    StartPod: "start-pod node={0.node} pod={0.pod.namespace}/{0.pod.name}",
    DropPods: "drop-pods node={0.node}",
    ReserveNodes: "reserve reservation={0.reservation.name} type={0.reservation.node_type} "
    "count={0.reservation.count}",
    UnreserveNodes: "unreserve reservation={0.name} reason={0.reason!r}",
    StartConversion: "convert type={0.request.node_type} count={0.request.count} "
    "namespace={0.request.namespace} queue={0.request.queue}",
}


def action_lines(action: Action) -> list[str]:
    """Returns an action as lines for the log: one line, or one for each limit that it changes."""
    if isinstance(action, SetQueueLimits):
        return [change_line(change) for change in action.edit.changes] or ["action=write-ledger"]
    words = {}
    if isinstance(action, HoldClosed):
        words["opens"] = "close" if action.is_closed else "open"
    return [f"action={_LINES[type(action)].format(action, **words)}"]


def explained(verdict: QueueVerdict | NodeVerdict) -> dict[str, str]:
    """Returns verdict, code and reason of a decision for a JSON document."""
    return {
        "verdict": verdict.verdict.value,
        "code": verdict.reason.name,
        "reason": verdict.sentence,
    }


def plan_document(plan: Plan) -> dict[str, Any]:
    """Returns the document of `dnm plan --output json`, schema dnm.plan/1."""
    return {
        "schema": "dnm.plan/1",
        "queues": [{"queue": queue.queue, **explained(queue)} for queue in plan.queues],
        "nodes": [{"node": node.node, **explained_node(plan, node)} for node in plan.nodes],
        "actions": [describe_action(action) for action in plan.actions],
        "to_lend": to_lend(plan),
        "to_return": to_return(plan),
        "notes": list(plan.notes),
        "errors": list(plan.errors),
        "diff": plan.diff,
        "orders": [order_row(order, as_recorded(plan)) for order in plan.registry.orders],
        "pause": msgspec.to_builtins(plan.pause),
        "waiting_jobs": waiting_rows(plan.waiting_jobs),
        "low_utilization": low_use_rows(plan.registry.low_utilization),
    }


def to_lend(plan: Plan) -> int:
    """Returns how many nodes a run would start to lend."""
    return sum(
        action.request.count for action in plan.actions if isinstance(action, StartConversion)
    )


def to_return(plan: Plan) -> int:
    """Returns how many nodes a run would start to return."""
    return sum(isinstance(action, ReturnNode) for action in plan.actions)


def order_lines(orders: Iterable[LendOrder], registry: Registry) -> Iterator[str]:
    """Yields a line with the progress of each lend order."""
    for order in orders:
        yield f"order {order.id}: {order_progress(order_row(order, registry))}"


def as_recorded(plan: Plan) -> Registry:
    """Returns the plan's registry without the conversion requests that only the plan adds."""
    planned = {action.request.id for action in plan.actions if isinstance(action, StartConversion)}
    requests = tuple(request for request in plan.registry.requests if request.id not in planned)
    return msgspec.structs.replace(plan.registry, requests=requests)


def print_plan(plan: Plan, zone: str = "UTC") -> None:
    """Prints a run's decisions and actions, a line each, and the diff of the queue document."""
    if plan.pause:
        print_pause(plan.pause, zone)
    for queue in plan.queues:
        word = QUEUE_WORDS.get(queue.verdict.value, queue.verdict.value)
        print_line(f"queue {queue.queue}: ", verdict_part(word), f": {queue.sentence}")
    for names, word, sentence in _merged_nodes(plan):
        print_line(f"node {names}: ", verdict_part(word), f": {sentence}")
    orders = order_lines(plan.registry.orders, as_recorded(plan))
    waiting = waiting_lines(waiting_rows(plan.waiting_jobs) or (), datetime.now(UTC))
    low_use = low_use_lines(low_use_rows(plan.registry.low_utilization), zone)
    for line in (*orders, *waiting, *low_use):
        print_line(line)
    for note in plan.notes:
        print_line(f"note: {note}")
    for error in plan.errors:
        print_line(("error: ", "error"), error)
    print_line()
    if plan.actions:
        print_title("Actions of a run now, in this order:")
        lines = [line for action in plan.actions for line in action_lines(action)]
        for number, line in enumerate(lines, start=1):
            print_line(f"{number}. {line}", indent=2)
    else:
        print_title("A run would do nothing now.")
    if plan.diff:
        print_line()
        draw_diff(plan.diff)
    print_line()
    fences = f", {count} to fence" if (count := len(_to_fence(plan))) else ""
    print_line(f"{to_lend(plan)} to lend{fences}, {to_return(plan)} to return")


def _to_fence(plan: Plan) -> set[str]:
    return {action.node for action in plan.actions if isinstance(action, Fence)}


def _merged_nodes(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Yields, for nodes with equal decisions, their host list, the decision's word and a
    sentence."""
    names: dict[tuple[str, str], list[str]] = {}
    for node in plan.nodes:
        word = VERDICT_WORDS.get(node.verdict.value, node.verdict.value)
        names.setdefault((word, explained_node(plan, node)["reason"]), []).append(node.node)
    for (word, sentence), of in names.items():
        yield fold_hostlist(of), word, sentence


def explained_node(plan: Plan, verdict: NodeVerdict) -> dict[str, str]:
    """Returns verdict, code and reason of a node's decision. If this plan fences the node, the
    reason is in the future tense."""
    planned = verdict.reason.planned_text
    if planned and verdict.node in _to_fence(plan):
        reason = msgspec.structs.replace(verdict.reason, text=planned)
        verdict = msgspec.structs.replace(verdict, reason=reason)
    return explained(verdict)


def run_document(result: Pass) -> dict[str, Any]:
    """Returns the document of `dnm run --output json`, schema dnm.run/1. It has the completed
    actions in the form of the plan's document, and their log lines."""
    outcome = result.outcome
    return {
        "schema": "dnm.run/1",
        "exit_code": int(result.exit_code),
        "actions": [describe_action(action) for action in outcome.done] if outcome else [],
        "lines": list(outcome.actions) if outcome else [],
        "errors": [*result.plan.errors, *(outcome.errors if outcome else ())],
        "notes": [*result.plan.notes, *(outcome.notes if outcome else ())],
    }
