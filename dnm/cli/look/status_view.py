"""The text of `dnm status`: tables for eighty columns, or with `--wide` tables with all columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dnm.cli.terminal.output import (
    briefly,
    low_use_lines,
    merge_sentences,
    order_progress,
    print_line,
    print_table,
    print_title,
    shown,
    waiting_lines,
)
from dnm.model.amounts import order_resources, shown_amount
from dnm.model.departure import Leaving
from dnm.model.errors import ExitCode
from dnm.model.hostlist import fold_hostlist
from dnm.model.lent import Phase
from dnm.model.orders import Pause
from dnm.model.printable import Meanings, count_of, duration
from dnm.model.reason import Reason
from dnm.model.registry import NodePods
from dnm.model.verdict import QUEUE_WORDS

Row = dict[str, str]
_NARROW = ("node", "phase", "for", "idle for", "back in", "type", "namespace", "queue", "reason")
_MOST_NAMES = 3  # namespaces of pods that hold a node
_OPTIONAL = ("queue", "reason")
_MEANINGS: Meanings = {
    "phase": {"serving": "ok", "failed": "error", "given up": "error", "claimed": "warning"}
}
NODE_COLUMNS = (
    "node", "type", "namespace", "queue", "phase", "for", "idle for", "back in", "reason",
)  # fmt: skip


def print_status(
    document: Mapping[str, Any],
    now: datetime,
    is_wide: bool = False,
    zone: str = "UTC",
) -> None:
    """Prints the document of `status_document` with times in `zone`. With `is_wide`, it prints all
    columns, and the pods of each node."""
    _print_nodes(node_rows(document, now, zone), is_wide)
    for node in document["nodes"] if is_wide else ():
        if node["pods"] is not None:
            print_line(f"{node['node']}: {holders_text(node['pods'])}", indent=2)
    failed = {name for name, _ in _troubles(document)}
    for name, trouble in (*_troubles(document), *_cordoned(document), *_elsewhere(document)):
        print_line((f"{name}: ", "error" if name in failed else "warning"), trouble, indent=2)
    if lines := list(manual_lines(document, now, zone)):
        print_title("Manual changes")
        for line in lines:
            print_line(line, indent=2)
    print_title("Queues")
    for queue in document["queues"]:
        _print_queue(queue)
    for line in low_use_lines(document["low_utilization"], zone):
        print_line(line, indent=2)
    if not document["queues"]:
        print_line("no run has read the queues yet", indent=2)
    if document["waiting_jobs"]:
        print_title("Waiting jobs")
        for line in waiting_lines(document["waiting_jobs"], now):
            print_line(line, indent=2)
    print_title("Restrictions")
    for line in restriction_lines(document["restrictions"], now, zone):
        print_line(line, indent=2)
    print_title("Last run")
    _print_run(document["last_run"], now, zone)
    for warning in document["warnings"]:
        print_line(("warning: ", "warning"), warning)
    for error in document["errors"]:
        print_line(("error: ", "error"), error)
    if steps := list(to_do_lines(document)):
        print_title("To do now")
        for line in steps:
            print_line(line, indent=2)


def to_do_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yields the problems that an administrator must solve, each with its command."""
    run, pause = document["last_run"], document["restrictions"]["pause"]
    if failed := [
        node["node"] for node in document["nodes"] if node["phase"] == Phase.FAILED.value
    ]:
        names = fold_hostlist(failed)
        yield f"{names} failed: fix the error above, then `dnm reset {names}` returns it to Slurm"
    for queue, breaker in document["restrictions"]["breakers"].items():
        if breaker["tripped_at"]:
            yield (
                f"pods of {queue} did not use its nodes: `dnm explain {queue}` shows the reason, "
                f"`dnm reset {queue}` allows lending again"
            )
    if pause and pause["is_after_loss"]:
        yield str(pause["reason"])
    for name in document["manual"]:
        yield f"{name} is not recorded: `dnm adopt {name} --namespace NAMESPACE`"
    if run["errors"] and run["exit_code"] == ExitCode.NEEDS_PERSON and not failed:
        yield "fix the error of the last run above, then `dnm run`"


# --- nodes -----------------------------------------------------------------------------------


def _print_nodes(rows: Iterable[Row], is_wide: bool) -> None:
    shown = NODE_COLUMNS if is_wide else _NARROW
    cells = [[row.get(name, "") for name in shown] for row in rows]
    optional = () if is_wide else _OPTIONAL
    print_table("Lent nodes", shown, cells, "no node is lent", _MEANINGS, optional)


def node_rows(document: Mapping[str, Any], now: datetime, zone: str = "UTC") -> Iterator[Row]:
    """Yields the table rows of lent nodes, requests, and claimed nodes that are not lent."""
    for node in document["nodes"]:
        yield {
            **_place(node),
            "node": node["node"] + _kept(node, zone),
            "phase": node["phase"],
            "for": duration(now - node["since"]),
            "idle for": _span(node["idle_seconds"]),
            "back in": _span(node["return_in_seconds"]),
            "reason": node["reason"],
        }
    for request in document["requests"]:
        yield {
            **_place(request),
            "node": f"{request['missing']} {'missing' if request['is_given_up'] else 'coming'}",
            "phase": "given up" if request["is_given_up"] else "requested",
            "for": duration(now - request["since"]),
        }
    for item in document["claimed"]:
        since = duration(now - item["since"]) if item["since"] else "?"
        yield {**_place(item), "node": item["node"], "phase": "claimed", "for": since}


def _kept(node: Mapping[str, Any], zone: str) -> str:
    if node["held"] or node["leaves"]:
        return " (held)" if node["held"] else " (leaves)"
    if node["stays_until"]:
        return f" (until {briefly(node['stays_until'], zone)})"
    return " (min_nodes)" if node["code"] == Reason.KEPT_READY.name else ""


def _describe_return(eviction: Mapping[str, Any] | None, now: datetime, zone: str) -> str:
    if eviction is None:
        return "dnm returns it when its pods have ended"
    if now < eviction["since"]:
        return f"dnm evicts its pods from {shown(eviction['since'], zone, seconds=True)} on"
    reason = f"; {eviction['reason']}" if eviction["reason"] else ""
    return f"{count_of(eviction['evicted'], 'pod')} evicted so far{reason}"


def manual_lines(document: Mapping[str, Any], now: datetime, zone: str = "UTC") -> Iterator[str]:
    """Yields lines about administrators' returns and orders, and about nodes that joined without
    dnm."""
    for node in document["nodes"]:
        if node["leaves"] == Leaving.MANUAL and not node["held"]:
            progress = _describe_return(node["eviction"], now, zone)
            yield f"{node['node']} is returned manually: {progress}"
    for order in document["orders"]:
        nodes = fold_hostlist(order["nodes"]) or f"{order['count']} of type {order['node_type']}"
        reason = f" ({order['reason']})" if order["reason"] else ""
        yield (
            f"{order['id']}: {nodes} for {order['namespace']} until "
            f"{shown(order['until'], zone)}, by {order['requester']}{reason}: "
            + order_progress(order)
        )
    for name in document["manual"]:
        yield (
            f"{name} was moved to Kubernetes manually and is not recorded: "
            f"`dnm adopt {name} --namespace NAMESPACE` records it"
        )


def _place(entry: Mapping[str, Any]) -> Row:
    return {
        "type": entry["node_type"],
        "namespace": entry["namespace"],
        "queue": entry.get("queue", ""),
    }


def _span(seconds: float | None) -> str:
    """Returns a duration as text, or an empty cell if there is none."""
    return "" if seconds is None else duration(timedelta(seconds=seconds))


def _troubles(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns (node or request, error) with the full errors, which are too long for the table."""
    nodes = [(node["node"], node["error"]) for node in document["nodes"] if node["error"]]
    requests = [(f"request {r['id']}", r["error"]) for r in document["requests"] if r["error"]]
    claimed = [(item["node"], item["reason"]) for item in document["claimed"]]
    return nodes + requests + claimed


def _cordoned(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns nodes that an administrator has cordoned, with the reason. dnm does not uncordon such
    nodes."""
    return [
        (node["node"], node["reason"])
        for node in document["nodes"]
        if node["code"] == Reason.HELD_BY_ADMIN.name
    ]


def _elsewhere(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns (node or request, sentence) for each one with a converter that was started on another
    host."""
    nodes = [(node["node"], node["converter_host"]) for node in document["nodes"]]
    requests = [(f"request {r['id']}", r["converter_host"]) for r in document["requests"]]
    return [
        (name, f"its converter was started on {host}; its output is there")
        for name, host in nodes + requests
        if host
    ]


# --- queues ----------------------------------------------------------------------------------


def _print_queue(queue: Mapping[str, Any]) -> None:
    """Prints the decision about a queue, and a line for each of its resources. `?` means unknown, 0
    none."""
    from dnm.cli.terminal.screen import verdict_part

    pods = count_of(queue["pending_pods"], "pod") if queue["is_demand_read"] else "? pods"
    pods += f", {queue['young_pods']} in their grace" if queue["young_pods"] else ""
    word = QUEUE_WORDS.get(queue["verdict"], queue["verdict"])
    print_line(
        f"{queue['queue']}: ", verdict_part(word or "?"),
        f": {queue['reason'] or 'no run has decided yet'}", indent=2,
    )  # fmt: skip
    header = ["resource", "limit", "baseline", "lent", "used", f"pending ({pods})"]
    of_limits = {*queue["limit"], *queue["baseline"]}
    names = order_resources(of_limits | queue["used"].keys() | queue["pending"].keys())
    if not names:
        is_unlimited = queue["is_judged"] and queue["is_demand_read"]
        limits = "no pods" if is_unlimited else "its limits are unknown"
        print_line(f"{limits}; {pods} pending", indent=4)
        return
    rows = [header, *([name, *_numbers(queue, name)] for name in names)]
    if queue["is_judged"] and not of_limits:  # it has no quota
        rows = [[resource, used, pending] for resource, _, _, _, used, pending in rows]
    print_table("", rows[0], rows[1:], "", indent=4)


def _numbers(queue: Mapping[str, Any], resource: str) -> Iterator[str]:
    limit = queue["limit"].get(resource)
    is_read = queue["is_judged"] or limit is not None
    yield _amount(resource, limit) if limit is not None else "no limit" if is_read else "?"
    baseline = queue["baseline"].get(resource)
    if not queue["is_judged"]:
        yield from "??"
    else:
        yield _amount(resource, baseline) if baseline is not None else "no limit"
        yield _amount(resource, queue["lent"].get(resource, 0))
    for name in ("used", "pending"):
        has_demand = queue["is_demand_read"]
        yield _amount(resource, queue[name].get(resource, 0)) if has_demand else "?"


def _amount(resource: str, amount: int) -> str:
    return shown_amount(resource, amount) if amount else "0"


# --- restrictions and the last run --------------------------------------------------------------


def restriction_lines(
    restrictions: Mapping[str, Any], now: datetime, zone: str = "UTC"
) -> Iterator[str]:
    """Yields a line for each restriction that is active: caps, floors, cooldown, back-offs,
    breakers, pause, holds."""
    for cap in restrictions["caps"]:
        yield f"{cap['cap']}: {cap['lent']} of {count_of(cap['max'], 'node')} lent"
    for cap in restrictions["cap_shares"]:
        nodes = "unknown yet" if cap["nodes"] is None else count_of(cap["nodes"], "node")
        yield f"{cap['cap']}: at most {cap['percent']:g} % of the nodes that Slurm has, {nodes}"
    for floor in restrictions["floors"]:
        most = count_of(floor["nodes"], "node")
        stay = f"{floor['percent']:g} % of its nodes" if floor["percent"] else most
        yield f"batch_floor of {floor['scope']}: {stay} stay in Slurm"
    if restrictions["cooldown_seconds"]:
        yield f"cooldown: {restrictions['cooldown_seconds']:.0f} s left"
    for name, backoff in restrictions["backoffs"].items():
        left = duration(backoff["until"] - now)
        error = f": {backoff['last_error']}" if backoff["last_error"] else ""
        tries = count_of(backoff["failures"], "failed attempt")
        yield (
            f"type {name} is in back-off after {tries} to lend: "
            f"{left} left, then {backoff['ask_at_most']} at most{error}; `dnm reset {name}` ends it"
        )
    for queue, breaker in restrictions["breakers"].items():
        if breaker["tripped_at"]:
            since = duration(now - breaker["tripped_at"])
            yield f"breaker of {queue} is open for {since}: `dnm reset {queue}` closes it"
    for name, budget in restrictions["budgets"].items():
        left, most = max(budget["node_hours_left"], 0.0), budget["node_hours_per_week"]
        yield f"namespace {name}: {left:g} of {most:g} node-hours left this week"
    if restrictions["pause"]:
        yield pause_line(restrictions["pause"], zone)
    if restrictions["held"]:
        yield "held: " + fold_hostlist(restrictions["held"])
    if restrictions["excluded"]:
        yield "excluded: " + ", ".join(_excluded(restrictions["excluded"], zone))


def pause_line(pause: Mapping[str, Any], zone: str = "UTC") -> str:
    """Returns a text about a pause: who paused what, since when, until when, and why."""
    until = shown(pause["until"], zone, seconds=True) if pause["until"] else "`dnm resume`"
    by = f" by {pause['requester']}" if pause["requester"] else ""
    reason = f": {pause['reason']}" if pause["reason"] else ""
    state = f"{half.value} is paused" if (half := pause["half"]) else "paused"
    since = shown(pause["since"], zone, seconds=True)
    return f"{state}{by} since {since} until {until}{reason}"


def print_pause(pause: Pause, zone: str) -> None:
    """Prints that dnm, or only its lending or returning, is paused."""
    subject = "" if pause.half else "dnm is "
    print_line(f"{subject}{pause_line(msgspec.structs.asdict(pause), zone)}")


def _print_run(run: Mapping[str, Any], now: datetime, zone: str) -> None:
    """Prints begin and errors of the last run, and the actions of the last run that made any."""
    print_line(describe_run(run, now, zone), indent=2)
    if run["began"] is None:
        return
    for error in run["errors"]:
        print_line(("error: ", "error"), error, indent=2)
    if run["acted_at"]:
        print_line(f"last action {duration(now - run['acted_at'])} ago:", indent=2)
        for action in run["actions"]:
            print_line(action, indent=4)


def describe_run(run: Mapping[str, Any], now: datetime, zone: str = "UTC") -> str:
    """Returns begin, duration and exit code of the last run."""
    if run["began"] is None:
        return "none yet"
    if run["process"] is not None:
        since = shown(run["began"], zone, seconds=True)
        return f"a run is at work since {since} (process {run['process']})"
    end = "and has not ended"
    if run["seconds"] is not None:
        end = f"took {run['seconds']:.1f} s, exit code {run['exit_code']}"
    return f"began {duration(now - run['began'])} ago, {end}"


def _excluded(nodes: Mapping[str, Mapping[str, Any]], zone: str) -> list[str]:
    """Returns sentences about the excluded nodes. Nodes with the same end and reason share a host
    list."""
    sentences = []
    for name, keeping in nodes.items():
        until = f" until {shown(keeping['until'], zone)}" if keeping["until"] else ""
        reason = f" ({keeping['reason']})" if keeping["reason"] else ""
        sentences.append((name, f"NODE{until}{reason}"))
    return merge_sentences(sentences, "")


def holders_text(listed: dict[str, Any]) -> str:
    """Returns a sentence about the pods for which a node stays lent."""
    pods = msgspec.convert(listed, NodePods)
    daemon_text = f"{count_of(pods.daemon_pods, 'pod')} of DaemonSets or static"
    if not pods.count:
        return f"no pod keeps it; {daemon_text}" if pods.daemon_pods else "no pod keeps it"
    first = sorted(pods.namespaces.items(), key=lambda namespace: (-namespace[1], namespace[0]))
    shown = ", ".join(f"{number} of {name}" for name, number in first[:_MOST_NAMES])
    further = len(first) - _MOST_NAMES
    more = f" and {count_of(further, 'more namespace')}" if further > 0 else ""
    unnamed = pods.count - len(pods.names)
    rest = f" and {unnamed} more" if unnamed > 0 else ""
    return (
        f"{count_of(pods.count, 'pod')} on it: {shown}{more}; {', '.join(pods.names)}{rest}; the "
        f"oldest since {pods.oldest}" + (f"; also {daemon_text}" if pods.daemon_pods else "")
    )
