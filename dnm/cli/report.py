"""Shows plans, passes and the recorded state, to people and to machines. Decides nothing.

Every JSON document carries `schema`, name and version; the README describes each.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from dnm.model.config import Config
from dnm.model.plan import (
    Action,
    EndConverter,
    Fence,
    MarkNode,
    Pass,
    Plan,
    ReturnNode,
    SetQueueLimits,
    StartConversion,
    Unfence,
)
from dnm.model.printable import bold, columns, printable, terminal_width, wrapped
from dnm.model.registry import LentNode, Phase, Registry
from dnm.model.value import Unreadable


def print_json(document: Mapping[str, Any]) -> None:
    """One document on stdout."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    sys.stdout.write(text + "\n")


def _say(text: str = "", indent: str = "") -> None:
    """A line for people, wrapped where a terminal is narrower."""
    for line in wrapped(text, terminal_width(), indent):
        print(line)


def count_of(number: int, thing: str) -> str:
    """`1 action`, `2 actions`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


# --- run and plan ----------------------------------------------------------------------------


def describe_action(action: Action) -> dict[str, Any]:
    """An action as a flat document: its kind and its fields."""
    fields = msgspec.to_builtins(action)
    kind = fields.pop("type")
    if kind == "StartConversion":
        request = fields["request"]
        fields = {k: request[k] for k in ("id", "node_type", "count", "namespace", "queue")}
    return {"action": kind, **fields}


def action_line(action: Action) -> str:
    """`key=value`, as the log will have it."""
    match action:
        case SetQueueLimits(queues=queues):
            lent = " ".join(f"{queue}={len(nodes)}" for queue, nodes in sorted(queues.items()))
            return f"action=set-limits lent-nodes: {lent or 'none'}"
        case MarkNode(node=node, mark=mark):
            return f"action=mark node={node} queue={mark.queue}"
        case EndConverter(key=key, process=process):
            return f"action=end-converter of={key} pid={process.pid}"
        case Fence(node=node):
            return f"action=fence node={node}"
        case Unfence(node=node):
            return f"action=unfence node={node}"
        case ReturnNode(node=node):
            return f"action=return node={node}"
        case StartConversion(request=request):
            return (
                f"action=convert type={request.node_type} count={request.count} "
                f"namespace={request.namespace} queue={request.queue}"
            )


def plan_document(plan: Plan) -> dict[str, Any]:
    """`dnm plan --output json`, schema dnm.plan/1."""
    return {
        "schema": "dnm.plan/1",
        "queues": [
            {
                "queue": v.queue,
                "verdict": v.verdict.value,
                "code": v.reason.name,
                "reason": v.sentence,
            }
            for v in plan.queues
        ],
        "nodes": [
            {
                "node": v.node,
                "verdict": v.verdict.value,
                "code": v.reason.name,
                "reason": v.sentence,
            }
            for v in plan.nodes
        ],
        "actions": [describe_action(action) for action in plan.actions],
        "notes": list(plan.notes),
        "errors": list(plan.errors),
        "diff": plan.diff,
    }


def print_plan(plan: Plan) -> None:
    """What a run would do and why, a line each; then the queue file as a diff."""
    for queue in plan.queues:
        _say(f"queue {queue.queue}: {queue.verdict.value}: {queue.sentence}")
    for node in plan.nodes:
        _say(f"node {node.node}: {node.verdict.value}: {node.sentence}")
    for note in plan.notes:
        _say(f"note: {note}")
    for error in plan.errors:
        _say(f"error: {error}")
    if plan.actions:
        print("\nA run would now do, in this order:")
        for number, action in enumerate(plan.actions, start=1):
            _say(f"{number}. {action_line(action)}", "  ")
    else:
        print("\nA run would now do nothing.")
    if plan.diff:
        print()
        sys.stdout.writelines(plan.diff)


def run_document(result: Pass) -> dict[str, Any]:
    """`dnm run --output json`, schema dnm.run/1."""
    outcome = result.outcome
    return {
        "schema": "dnm.run/1",
        "exit_code": int(result.exit_code),
        "actions": list(outcome.actions) if outcome else [],
        "errors": [*result.plan.errors, *(outcome.errors if outcome else ())],
        "notes": list(result.plan.notes),
    }


def print_run(result: Pass) -> None:
    """One line per action and a summary; nothing when nothing changed and nobody watches. A run
    that could do nothing is its errors: a line a minute while the cluster is away."""
    outcome = result.outcome
    actions = outcome.actions if outcome else ()
    errors = [*result.plan.errors, *(outcome.errors if outcome else ())]
    if not (actions or errors or sys.stdout.isatty()):
        return
    for line in actions:
        print(printable(line))
    for note in result.plan.notes:
        print(f"note: {printable(note)}")
    for error in errors:
        print(f"error: {printable(error)}", file=sys.stderr)
    if actions or sys.stdout.isatty():
        registry = outcome.registry if outcome else result.plan.registry
        counts = [(len(actions), "action"), (len(errors), "error"),
                  (len(registry.nodes), "lent node")]  # fmt: skip
        coming = sum(request.count for request in registry.requests if not request.is_given_up)
        said = [*(count_of(*one) for one in counts), *([f"{coming} coming"] if coming else [])]
        print(", ".join(said))


# --- status ----------------------------------------------------------------------------------


def last_run_times(config: Config) -> tuple[datetime | None, datetime | None]:
    """When the last run began and ended: the times of the lock file and of the registry."""

    def changed(path: os.PathLike[str]) -> datetime | None:
        try:
            return datetime.fromtimestamp(os.stat(path).st_mtime, UTC)
        except OSError:
            return None

    return changed(config.lock_path), changed(config.converted_nodes_path)


def status_document(
    config: Config, registry: Registry, now: datetime, errors: Sequence[str] = ()
) -> dict[str, Any]:
    """`dnm status --output json`, schema dnm.status/1: instants in RFC 3339, spans in seconds.
    `errors` are those of asking the cluster now."""
    began, ended = last_run_times(config)
    run = registry.last_run
    return {
        "schema": "dnm.status/1",
        "nodes": [_node_row(config, registry, name, now) for name in sorted(registry.nodes)],
        "requests": [
            {
                "id": request.id,
                "node_type": request.node_type,
                "namespace": request.namespace,
                "queue": request.queue,
                "missing": request.count,
                "since": request.since,
                "error": request.error,
            }
            for request in registry.requests
        ],
        "queues": [
            {"queue": queue, **msgspec.to_builtins(status)}
            for queue, status in sorted(run.queues.items())
        ],
        "brakes": _brakes(config, registry, now),
        "last_run": {
            "began": began,
            "ended": ended,
            "seconds": _seconds_between(began, ended),
            "exit_code": run.exit_code,
            "acted_at": run.acted_at,
            "actions": list(run.actions),
            "errors": list(run.errors),
        },
        "warnings": _warnings(config, began, ended, now),
        "errors": list(errors),
    }


def _seconds_between(began: datetime | None, ended: datetime | None) -> float | None:
    """None where the run has not ended."""
    return (ended - began).total_seconds() if began and ended and ended >= began else None


def _node_row(config: Config, registry: Registry, name: str, now: datetime) -> dict[str, Any]:
    entry: LentNode = registry.nodes[name]
    idle = (now - entry.idle_since).total_seconds() if entry.idle_since else None
    policy = config.namespaces.get(entry.namespace)
    goes_back_in = None
    if idle is not None and policy and entry.phase is Phase.SERVING:
        goes_back_in = max(0.0, policy.reversion_idle.total_seconds() - idle)
    return {
        "node": name,
        "node_type": entry.node_type,
        "namespace": entry.namespace,
        "queue": entry.queue,
        "phase": entry.phase.value,
        "since": entry.since,
        "idle_seconds": idle,
        "goes_back_in_seconds": goes_back_in,
        "counted": entry.counted,
        "held": name in registry.held,
        "error": entry.error,
        "reason": registry.last_run.nodes.get(name, ""),
    }


def _brakes(config: Config, registry: Registry, now: datetime) -> dict[str, Any]:
    missing = sum(request.count for request in registry.requests)
    lent = len(registry.nodes) + missing
    cooldown = 0.0
    if registry.last_conversion and registry.last_conversion <= now:  # later: of a wrong clock
        until = registry.last_conversion + config.global_cooldown
        cooldown = max(0.0, (until - now).total_seconds())
    caps: list[tuple[str, int, int | None]] = [("all", lent, config.max_converted_nodes)]
    for node_type in config.node_types.values():
        caps.append((f"type {node_type.name}", _lent_of(registry, node_type=node_type.name),
                     node_type.max_nodes))  # fmt: skip
    for policy in config.namespaces.values():
        caps.append((f"namespace {policy.name}", _lent_of(registry, namespace=policy.name),
                     policy.max_nodes))  # fmt: skip
    return {
        "cooldown_seconds": cooldown,
        "caps": [
            {"cap": name, "lent": used, "max": limit}
            for name, used, limit in caps
            if limit is not None
        ],
        "backoffs": {
            name: msgspec.structs.asdict(backoff)
            for name, backoff in registry.backoffs.items()
            if backoff.until > now
        },
        "breakers": {
            queue: {"strikes": max(b.strikes, 0), "tripped_at": b.tripped_at}
            for queue, b in registry.breakers.items()
        },
        "pause": msgspec.structs.asdict(registry.pause) if registry.pause else None,
        "held": list(registry.held),
    }


def _lent_of(registry: Registry, *, node_type: str = "", namespace: str = "") -> int:
    def is_of(entry: Any) -> bool:
        return (not node_type or entry.node_type == node_type) and (
            not namespace or entry.namespace == namespace
        )

    nodes = sum(1 for entry in registry.nodes.values() if is_of(entry))
    return nodes + sum(request.count for request in registry.requests if is_of(request))


def _warnings(
    config: Config, began: datetime | None, ended: datetime | None, now: datetime
) -> list[str]:
    if began is None:
        return ["no run yet: start `dnm run` by hand once, then by cron or the systemd timer"]
    warnings = []
    has_ended = ended is not None and ended >= began
    if has_ended and now - began > 3 * config.check_interval:
        warnings.append(
            f"the last run began {duration(now - began)} ago, more than three times "
            f"check_interval_seconds: is the timer on? (systemctl status dnm.timer, crontab -l)"
        )
    if not has_ended:
        warnings.append(
            f"the run that began {duration(now - began)} ago has not ended: it is at work or was "
            "killed; the next run goes on from where it was"
        )
    return warnings


def duration(span: timedelta) -> str:
    """Two units at most: 45 s, 12 min, 3 h 5 min, 2 d 4 h."""
    seconds = max(int(span.total_seconds()), 0)
    if seconds < 120:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 120:
        return f"{minutes} min"
    if hours < 48:
        return f"{hours} h {minutes % 60} min"
    return f"{days} d {hours % 24} h"


def print_status(document: Mapping[str, Any], now: datetime) -> None:
    """Tables for people; blocks of lines where the terminal is narrow."""
    _print_table("Lent nodes", *_node_table(document, now), "no node is lent")
    for name, error in _troubles(document):
        _say(f"{name}: {error}", "  ")
    _print_table("Queues", *_queue_table(document), "no run has looked at the queues yet")
    print(bold("Brakes"))
    for line in _brake_lines(document["brakes"], now):
        _say(line, "  ")
    print(bold("Last run"))
    for line in _run_lines(document["last_run"], now):
        _say(line, "  ")
    for warning in document["warnings"]:
        _say(f"warning: {warning}")
    for error in document["errors"]:
        _say(f"error: {error}")


def _troubles(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What went wrong with a node or a request, in full: the table has no room for it."""
    nodes = [(node["node"], node["error"]) for node in document["nodes"] if node["error"]]
    requests = [(f"request {r['id']}", r["error"]) for r in document["requests"] if r["error"]]
    return nodes + requests


def _ago(seconds: float | None) -> str:
    return "" if seconds is None else duration(timedelta(seconds=seconds))


def _node_table(document: Mapping[str, Any], now: datetime) -> tuple[list[str], list[list[str]]]:
    header = ["node", "type", "namespace", "queue", "phase", "since", "idle for", "goes back in"]
    rows = [
        [
            node["node"] + (" (held)" if node["held"] else ""),
            node["node_type"],
            node["namespace"],
            node["queue"],
            node["phase"],
            duration(now - node["since"]),
            _ago(node["idle_seconds"]),
            _ago(node["goes_back_in_seconds"]),
        ]
        for node in document["nodes"]
    ]
    rows += [
        [f"{request['missing']} coming", request["node_type"], request["namespace"],
         request["queue"], "requested", duration(now - request["since"]), "", ""]
        for request in document["requests"]
    ]  # fmt: skip
    return header, rows


def amounts(resources: Mapping[str, int]) -> str:
    """`128 vcore, 256G memory`: exact, in whole cores and decimal bytes where that is exact."""
    from dnm.model.quantity import format_yunikorn

    shown = sorted(resources.items(), key=lambda item: (item[0] != "vcore", item[0]))
    return ", ".join(
        f"{format_yunikorn(name, amount, '1G' if name == 'memory' else '1')} {name}"
        for name, amount in shown
        if name != "pods"
    )


def _queue_table(document: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    header = ["queue", "limit", "baseline", "lent", "used", "pending", "verdict"]
    rows = [
        [
            queue["queue"],
            amounts(queue["limit"]) or "none",
            amounts(queue["baseline"]) or "none",
            amounts(queue["lent"]),
            amounts(queue["used"]),
            f"{queue['pending_pods']} pods" if queue["pending_pods"] else "",
            f"{queue['verdict']}: {queue['reason']}",
        ]
        for queue in document["queues"]
    ]
    return header, rows


def _print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], empty: str
) -> None:
    print(bold(title))
    for line in columns(header, rows, terminal_width() - 2) if rows else (empty,):
        print(f"  {line}")


def _brake_lines(brakes: Mapping[str, Any], now: datetime) -> list[str]:
    lines = [f"{cap['cap']}: {cap['lent']} of {cap['max']} nodes lent" for cap in brakes["caps"]]
    if brakes["cooldown_seconds"]:
        lines.append(f"cooldown: {brakes['cooldown_seconds']:.0f} s left")
    for name, backoff in brakes["backoffs"].items():
        left = duration(backoff["until"] - now)
        error = f": {backoff['last_error']}" if backoff["last_error"] else ""
        lines.append(
            f"type {name} backs off after {count_of(backoff['failures'], 'failed conversion')}: "
            f"{left} left, then {backoff['ask_at_most']} at most{error}; `dnm reset {name}` ends it"
        )
    for queue, breaker in brakes["breakers"].items():
        if breaker["tripped_at"]:
            lines.append(f"breaker of {queue} is open: `dnm reset {queue}` closes it")
    if pause := brakes["pause"]:
        until = f"{pause['until']:%Y-%m-%d %H:%M:%S} UTC" if pause["until"] else "`dnm resume`"
        reason = f": {pause['reason']}" if pause["reason"] else ""
        lines.append(f"paused until {until}{reason}")
    if brakes["held"]:
        lines.append("held: " + ", ".join(brakes["held"]))
    return lines


def _run_lines(run: Mapping[str, Any], now: datetime) -> list[str]:
    if run["began"] is None:
        return ["none yet"]
    took = f", took {run['seconds']:.1f} s" if run["seconds"] is not None else ""
    lines = [f"began {duration(now - run['began'])} ago{took}, exit code {run['exit_code']}"]
    lines += [f"error: {error}" for error in run["errors"]]
    if run["acted_at"]:
        lines.append(f"last action {duration(now - run['acted_at'])} ago:")
        lines += [f"  {action}" for action in run["actions"]]
    return lines


# --- batch nodes -----------------------------------------------------------------------------


def print_batch_nodes(
    config: Config, environ: Mapping[str, str], node_type: str, as_json: bool
) -> int:
    """`dnm nodes`: the converter's `--list`, schema dnm.nodes/1; returns the exit code."""
    from dnm.converter.contract import converter_environment
    from dnm.converter.node_list import list_batch_nodes
    from dnm.model.errors import ConverterError, ExitCode

    listed = list_batch_nodes(config, converter_environment(config, environ))
    if isinstance(listed, Unreadable):
        raise ConverterError(listed.error)
    nodes = [
        node
        for node in sorted(listed.values(), key=lambda node: (node.verdict, node.name))
        if not node_type or config.type_of(node.name) == node_type
    ]
    if as_json:
        print_json({"schema": "dnm.nodes/1", "nodes": [msgspec.to_builtins(n) for n in nodes]})
    else:
        header = ["node", "type", "state", "verdict", "reason"]
        rows = [[n.name, config.type_of(n.name) or "", n.state, n.verdict, n.reason] for n in nodes]
        _print_table("Batch nodes", header, rows, "none")
    return int(ExitCode.OK)
