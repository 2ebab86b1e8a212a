"""`dnm status`: the recorded state as a document for machines and as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dnm.cli.output import amounts, print_line, print_table
from dnm.model.config import Config
from dnm.model.printable import bold, count_of, duration
from dnm.model.registry import LentNode, Registry
from dnm.plan.brakes import backoffs_in_force, cooldown_end, counted_as_lent
from dnm.run.recorded import idle_time, read_last_run, time_to_return, warn_of_last_run
from dnm.sizing.budget import count_caps


def status_document(
    config: Config, registry: Registry, now: datetime, errors: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns what `dnm status --output json` prints, schema dnm.status/1: instants in RFC 3339,
    spans in seconds. `errors` are those of asking the cluster now."""
    times, run = read_last_run(config), registry.last_run
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
        "claimed": [
            {
                "node": name,
                "node_type": one.node_type,
                "namespace": one.namespace,
                "since": one.since,
                "reason": registry.last_run.nodes.get(name, one.why),
            }
            for name, one in sorted(registry.claimed.items())
        ],
        "queues": [
            {"queue": queue, **msgspec.to_builtins(status)}
            for queue, status in sorted(run.queues.items())
        ],
        "brakes": _brakes(config, registry, now),
        "last_run": {
            "began": times.began,
            "ended": times.ended,
            "seconds": _seconds(times.took),
            "exit_code": run.exit_code,
            "acted_at": run.acted_at,
            "actions": list(run.actions),
            "errors": list(run.errors),
        },
        "warnings": warn_of_last_run(config, times, now),
        "errors": list(errors),
    }


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _node_row(config: Config, registry: Registry, name: str, now: datetime) -> dict[str, Any]:
    entry: LentNode = registry.nodes[name]
    return {
        "node": name,
        "node_type": entry.node_type,
        "namespace": entry.namespace,
        "queue": entry.queue,
        "phase": entry.phase.value,
        "since": entry.since,
        "idle_seconds": _seconds(idle_time(entry, now)),
        "goes_back_in_seconds": _seconds(time_to_return(config, entry, now)),
        "counted": entry.counted,
        "held": name in registry.held,
        "error": entry.error,
        "reason": registry.last_run.nodes.get(name, ""),
    }


def _brakes(config: Config, registry: Registry, now: datetime) -> dict[str, Any]:
    cooldown = (cooldown_end(config, registry, now) or now) - now
    caps = count_caps(config, counted_as_lent(config, registry))
    return {
        "cooldown_seconds": cooldown.total_seconds(),
        "caps": [{"cap": one.cap, "lent": one.lent, "max": one.max} for one in caps],
        "backoffs": {
            name: msgspec.structs.asdict(backoff)
            for name, backoff in backoffs_in_force(registry, now).items()
        },
        "breakers": {
            queue: {"strikes": max(b.strikes, 0), "tripped_at": b.tripped_at}
            for queue, b in registry.breakers.items()
        },
        "pause": msgspec.structs.asdict(registry.pause) if registry.pause else None,
        "held": list(registry.held),
    }


def print_status(document: Mapping[str, Any], now: datetime) -> None:
    """Prints tables for people; blocks of lines where the terminal is narrow."""
    print_table("Lent nodes", *_node_table(document, now), "no node is lent")
    for name, error in _troubles(document):
        print_line(f"{name}: {error}", "  ")
    print_table("Queues", *_queue_table(document), "no run has looked at the queues yet")
    print(bold("Brakes"))
    for line in _brake_lines(document["brakes"], now):
        print_line(line, "  ")
    print(bold("Last run"))
    for line in _run_lines(document["last_run"], now):
        print_line(line, "  ")
    for warning in document["warnings"]:
        print_line(f"warning: {warning}")
    for error in document["errors"]:
        print_line(f"error: {error}")


def _troubles(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What went wrong with a node or a request, in full: the table has no room for it."""
    nodes = [(node["node"], node["error"]) for node in document["nodes"] if node["error"]]
    requests = [(f"request {r['id']}", r["error"]) for r in document["requests"] if r["error"]]
    claimed = [(one["node"], one["reason"]) for one in document["claimed"]]
    return nodes + requests + claimed


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
    rows += [
        [one["node"], one["node_type"], one["namespace"], "", "claimed",
         duration(now - one["since"]) if one["since"] else "", "", ""]
        for one in document["claimed"]
    ]  # fmt: skip
    return header, rows


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
