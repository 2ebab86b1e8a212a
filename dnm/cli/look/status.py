"""`dnm status`: the state that the registry records, as text, document or metrics."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
import typer
from msgspec.structs import replace

from dnm.cli.look.status_view import print_status
from dnm.cli.terminal.options import ConfigOption
from dnm.cli.terminal.output import low_use_rows, order_row, print_document, waiting_rows
from dnm.converter.processes import is_elsewhere
from dnm.model.config import Config
from dnm.model.errors import ExitCode
from dnm.model.lent import Phase
from dnm.model.lent_state import ConverterProcess
from dnm.model.printable import count_of
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.share import Share
from dnm.plan.breaker import active_backoffs, cooldown_end
from dnm.plan.cap_shares import list_node_caps, resolve_recorded_shares
from dnm.plan.idle_times import idle_times
from dnm.plan.rules.node_hours import hours_left
from dnm.run.health import at_work, print_health, warn_of_last_run, warn_of_quiet
from dnm.run.recorded import read_last_run
from dnm.run.registry import load_registry
from dnm.sizing.caps import count_caps, lent_in

# The reasons for which an idle node stays, however long it is idle.
_KEPT = (Reason.KEPT_READY, Reason.HELD, Reason.HELD_BY_ADMIN, Reason.NEEDED)


def status(
    config: ConfigOption,
    output: Annotated[
        Literal["text", "json", "yaml", "name", "prometheus"],
        typer.Option(
            "--output", "-o", help="Print text, json, yaml, names or metrics (prometheus)."
        ),
    ] = "text",
    live: Annotated[
        bool, typer.Option("--live", help="Read the clusters too, not only the registry.")
    ] = False,
    wide: Annotated[bool, typer.Option("--wide", "-w", help="Show all columns.")] = False,
    health: Annotated[
        bool, typer.Option("--health", help="Print one line for a monitor; exit with 0, 1 or 2.")
    ] = False,
) -> int:
    """Show lent nodes, queues, restrictions and last run."""
    now = datetime.now(UTC)
    if health:
        if output != "text":
            raise typer.BadParameter("it prints only text", param_hint="--health")
        return print_health(config, now)
    if live:
        registry, exit_code, errors = _live_registry(config, os.environ)
    else:
        registry, exit_code, errors = load_registry(config, now), int(ExitCode.OK), ()
    if output == "prometheus":
        from dnm.run.publish import metrics_text, recorded_times

        times = recorded_times(config, registry)
        sys.stdout.write(metrics_text(config, registry, now, times))
        return exit_code
    document = status_document(config, registry, now, errors)
    if output == "text":
        print_status(document, now, wide, config.events_zone)
    else:
        print_document(document, output, (node["node"] for node in document["nodes"]))
    return exit_code


def status_document(
    config: Config, registry: Registry, now: datetime, errors: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the document of `dnm status --output json`, schema dnm.status/1: times in RFC 3339,
    spans in seconds. `errors` are those of reading the cluster now."""
    times, run = read_last_run(config), registry.last_run
    holder = at_work(config, times)
    left = times_to_return(config, registry, now)
    return {
        "schema": "dnm.status/1",
        "nodes": [
            _node_row(registry, name, left.get(name), now) for name in sorted(registry.nodes)
        ],
        "requests": [
            {
                "id": request.id,
                "node_type": request.node_type,
                "namespace": request.namespace,
                "queue": request.queue,
                "missing": request.count,
                "since": request.since,
                "is_given_up": request.is_abandoned,
                "error": request.error,
                "converter_host": _converter_host(None if request.end else request.converter),
            }
            for request in registry.requests
        ],
        "claimed": [
            {
                "node": name,
                "node_type": claim.node_type,
                "namespace": claim.namespace,
                "since": claim.since,
                "reason": registry.last_run.nodes.get(name, claim.why),
            }
            for name, claim in sorted(registry.claimed.items())
        ],
        "manual": list(registry.manual),
        "orders": [order_row(order, registry) for order in registry.orders if now < order.until],
        "queues": [
            {"queue": queue, **msgspec.to_builtins(status)}
            for queue, status in sorted(run.queues.items())
        ],
        "low_utilization": low_use_rows(registry.low_utilization),
        "restrictions": _restrictions(config, registry, now),
        "waiting_jobs": waiting_rows(run.waiting_jobs),
        "last_run": {
            "began": times.began,
            "ended": times.ended,
            "seconds": _seconds(times.took),
            "process": holder.pid if holder else None,
            "exit_code": None if times.took is None else run.exit_code,
            "acted_at": run.acted_at,
            "actions": list(run.actions),
            "errors": list(run.errors),
        },
        "warnings": [
            *warn_of_last_run(config, times, now, holder),
            *_warn_of_caps(config, registry),
            *warn_of_quiet(config, registry, now),
        ],
        "errors": list(errors),
    }


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _node_row(
    registry: Registry, name: str, left: timedelta | None, now: datetime
) -> dict[str, Any]:
    entry = registry.nodes[name]
    return {
        "node": name,
        "node_type": entry.node_type,
        "namespace": entry.namespace,
        "queue": entry.queue,
        "phase": entry.phase.value,
        "since": entry.since,
        "idle_seconds": _seconds(now - entry.idle_since if entry.idle_since else None),
        "return_in_seconds": _seconds(left),
        "counted": entry.counted,
        "pods": msgspec.structs.asdict(pods)
        if (pods := registry.last_run.pods.get(name))
        else None,
        "held": name in registry.held,
        "stays_until": entry.stays_until if entry.is_kept_at(now) else None,
        "leaves": entry.leaves or "",
        "eviction": msgspec.structs.asdict(entry.eviction) if entry.eviction else None,
        "error": entry.failed_attempts or entry.error,
        "code": registry.last_run.codes.get(name, ""),
        "reason": registry.last_run.nodes.get(name, ""),
        "converter_host": _converter_host(
            entry.converter if entry.phase is Phase.RETURNING else None
        ),
    }


def _converter_host(process: ConverterProcess | None) -> str:
    """Returns the host on which a converter and its output are, or "" if that is this host."""
    return process.host if process is not None and is_elsewhere(process) else ""


def times_to_return(config: Config, registry: Registry, now: datetime) -> dict[str, timedelta]:
    """Returns idle node -> time until dnm returns it. Omits nodes of namespaces that dnm does not
    monitor, nodes that are kept, and nodes that are returned for another reason."""
    kept = {reason.name for reason in _KEPT}
    left = {}
    for name, idle_time in idle_times(config, registry, now).items():
        entry = registry.nodes[name]
        is_monitored = entry.namespace in config.namespaces
        if entry.idle_since is None or not is_monitored or entry.phase is not Phase.SERVING:
            continue
        is_kept = registry.last_run.codes.get(name, "") in kept
        if not (is_kept or entry.leaves or name in registry.held or entry.is_kept_at(now)):
            left[name] = max(timedelta(0), idle_time - (now - entry.idle_since))
    return left


def _warn_of_caps(config: Config, registry: Registry) -> list[str]:
    return [
        f"{cap.cap}: {count_of(cap.lent, 'node')} lent or joining, and the cap is {cap.max}: dnm "
        "returns those above the cap when they are idle"
        for cap in count_caps(resolve_recorded_shares(config, registry), lent_in(registry))
        if cap.lent > cap.max
    ]


def _floors(config: Config) -> Iterator[dict[str, Any]]:
    """Yields the number or percentage of nodes that must stay in Slurm, by node type and
    partition."""
    floors = {f"type {name}": config.floor_of(name) for name in config.node_types}
    floors |= {f"partition {name}": floor for name, floor in config.partition_floors.items()}
    for scope, floor in floors.items():
        if floor is not None:
            yield {"scope": scope, **msgspec.structs.asdict(floor)}


def _restrictions(config: Config, registry: Registry, now: datetime) -> dict[str, Any]:
    cooldown = (cooldown_end(config, registry, now) or now) - now
    resolved = resolve_recorded_shares(config, registry)
    caps = count_caps(resolved, lent_in(registry))
    return {
        "cooldown_seconds": cooldown.total_seconds(),
        "caps": [{"cap": cap.cap, "lent": cap.lent, "max": cap.max} for cap in caps],
        "cap_shares": [
            {
                "cap": node_cap.line.partition(" = ")[0],
                "percent": node_cap.cap.percent,
                "nodes": now.cap if isinstance(now.cap, int) else None,
            }
            for node_cap, now in zip(list_node_caps(config), list_node_caps(resolved), strict=True)
            if isinstance(node_cap.cap, Share)
        ],
        "floors": list(_floors(config)),
        "backoffs": {
            name: msgspec.structs.asdict(backoff)
            for name, backoff in active_backoffs(registry, now).items()
        },
        "breakers": {
            queue: {"strikes": max(b.unused, 0), "tripped_at": b.tripped_at}
            for queue, b in registry.breakers.items()
        },
        "pause": msgspec.structs.asdict(registry.pause)
        if registry.pause and registry.paused(now)
        else None,
        "held": [
            name
            for name in registry.held
            if name not in registry.holds or registry.holds[name].is_in_force(now)
        ],
        "excluded": {
            name: msgspec.structs.asdict(keeping)
            for name, keeping in sorted(registry.excluded.items())
            if keeping.is_in_force(now)
        },
        "budgets": {
            name: {
                "node_hours_left": round(left, 1),
                "node_hours_per_week": config.namespaces[name].options["node_hours_per_week"],
            }
            for name, left in hours_left(config, registry, now).items()
        },
    }


def _live_registry(
    config: Config, environ: Mapping[str, str]
) -> tuple[Registry, int, tuple[str, ...]]:
    """Returns the registry with the queues as they are now, and the exit code and errors that a run
    would have now. `dnm status --live` shows no actions; `dnm plan` does."""
    from dnm.run.looking import plan_pass
    from dnm.run.planning import wall_clock

    result = plan_pass(config, environ)
    registry = load_registry(config, wall_clock())
    seen = replace(registry.last_run, queues=dict(result.plan.seen))
    registry = replace(registry, last_run=seen)
    return registry, result.exit_code, result.plan.errors
