"""`dnm report`: the costs and savings of lending in a span of time, as a document or as tables with
bars."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from dnm.cli.look.bill import bill_of, bill_table, make_bill
from dnm.cli.look.history import make_accounts, parse_moment
from dnm.cli.terminal.options import ConfigOption, OutputOption
from dnm.cli.terminal.output import low_use_rows, print_document, print_line, print_table
from dnm.model.config import Config
from dnm.model.errors import ExitCode
from dnm.model.printable import duration
from dnm.plan.explain import list_reasons
from dnm.record.accounts import Accounts, percentile
from dnm.record.price import SeenPrice

_BAR = 20  # characters of the longest


def report(
    config: ConfigOption,
    since: Annotated[
        str, typer.Option(help="Report since: 36h, 30d, 52w, or a time in events_zone.")
    ] = "30d",
    form: Annotated[
        str,
        typer.Option("--format", help="Print only node-hours of each account: csv or json."),
    ] = "",
    until: Annotated[str, typer.Option(help="End the report of --format at this time.")] = "",
    output: OutputOption = "text",
) -> int:
    """Report what was lent, how long pods waited, and what blocked lending."""
    if form:
        if output != "text":
            raise typer.BadParameter("write --format or --output, not both")
        return bill_of(config, (since, until), form)
    if until:
        raise typer.BadParameter("it needs --format", param_hint="--until")
    now = datetime.now(UTC)
    accounts = make_accounts(config, parse_moment(since, now, "--since", config.events_zone), now)
    if output != "text":
        print_document(report_document(accounts), output)
        return ExitCode.OK
    print_report(config, report_document(accounts))
    if charged := [lend for lend in make_bill(config, accounts.since, now) if lend.account]:
        print_line()
        print_table(*bill_table(charged))
    return ExitCode.OK


def report_document(accounts: Accounts) -> dict[str, Any]:
    """Returns the document of `dnm report --output json`, dnm.report/1: hours and seconds."""
    return {
        "schema": "dnm.report/1",
        "since": accounts.since,
        "until": accounts.until,
        "node_hours": [
            {"week": week, "queue": queue, "node_type": kind, "hours": _hours(seconds)}
            for (week, queue, kind), seconds in accounts.node_seconds().items()
        ],
        "nodes": list(_node_rows(accounts)),
        "to_serving": [
            {"node_type": kind, "nodes": len(spans), **_spread(spans)}
            for kind, spans in sorted(accounts.to_serving.items())
        ],
        "opening": [
            {"node_type": kind, "step": step, "nodes": len(spans), **_spread(spans)}
            for (kind, step), spans in accounts.steps.items()
        ],
        "low_utilization": low_use_rows(accounts.low_utilization),
        "waits": list(_wait_rows(accounts)),
        "refused": [
            {"queue": queue, "code": code, "times": times, "hours": _hours(seconds)}
            for (queue, code), (times, seconds) in sorted(accounts.refused.items())
        ],
        "longest_waits": [
            {"queue": wait.queue, "begin": wait.begin, "end": wait.end, "most_pods": wait.most_pods,
             "seconds": ((wait.end or accounts.until) - wait.begin).total_seconds(),
             "reasons": [{"code": code, "seconds": took} for code, took in wait.reasons.items()],
             "reason": wait.why}
            for wait in accounts.longest_waits
        ],
        "price_as_seen": [price_document(price) for price in accounts.prices],
    }  # fmt: skip


def price_document(seen_price: SeenPrice) -> dict[str, Any]:
    """Returns the minutes that lending nodes of one type has cost jobs (at most) and saved pods.
    The values are null if no run has read the queue of jobs."""
    paid, used = (seen_price.paid / 60, seen_price.used / 60) if seen_price.known else (None, None)
    return {
        "node_type": seen_price.node_type,
        "lent_node_minutes": round(seen_price.lent / 60, 1),
        "known_node_minutes": round(seen_price.known / 60, 1),
        "jobs_paid_node_minutes": None if paid is None else round(paid, 1),
        "pods_saved_minutes": None if used is None else round(used, 1),
        "saved_per_paid": round(used / paid, 2) if paid and used is not None else None,
    }


def _spread(spans: Sequence[float]) -> dict[str, float | None]:
    return {"median_seconds": percentile(spans, 0.5), "p95_seconds": percentile(spans, 0.95)}


def _hours(seconds: float) -> float:
    return round(seconds / 3600, 2)


def _node_rows(accounts: Accounts) -> Iterator[dict[str, Any]]:
    """Yields lent hours, conversions and returns for each queue and node type. Idle hours are those
    of the queue with all its types."""
    hours: defaultdict[tuple[str, str], float] = defaultdict(float)
    for (_, queue, kind), seconds in accounts.node_seconds().items():
        hours[queue, kind] += seconds
    kinds = {*hours, *accounts.conversions, *accounts.failures, *accounts.returns,
             *accounts.failed_returns}  # fmt: skip
    for queue, kind in sorted(kinds):
        key = (queue, kind)
        yield {
            "queue": queue,
            "node_type": kind,
            "hours": _hours(hours[key]),
            "conversions": accounts.conversions.get(key, 0),
            "failures": accounts.failures.get(key, 0),
            "returns": accounts.returns.get(key, 0),
            "failed_returns": accounts.failed_returns.get(key, 0),
            "queue_idle_hours": _hours(accounts.idle_seconds.get(queue, 0.0)),
        }


def _wait_rows(accounts: Accounts) -> Iterator[dict[str, Any]]:
    """Yields for each queue how often its pods waited, and for how long: until the first node
    served them, and from then to the end of the wait."""
    for queue in sorted({wait.queue for wait in accounts.waits}):
        waits = [wait for wait in accounts.waits if wait.queue == queue]
        before = [((w.served or w.end or accounts.until) - w.begin).total_seconds() for w in waits]
        after = [((w.end or accounts.until) - w.served).total_seconds() for w in waits if w.served]
        yield {
            "queue": queue,
            "waits": len(waits),
            "served": len(after),
            "before_median_seconds": percentile(before, 0.5),
            "before_p95_seconds": percentile(before, 0.95),
            "after_median_seconds": percentile(after, 0.5),
            "after_p95_seconds": percentile(after, 0.95),
        }


# --- text ------------------------------------------------------------------------------------


def print_report(config: Config, report: Mapping[str, Any]) -> None:
    """Prints the report as tables with small bars."""
    since, until = report["since"], report["until"]
    print_line(f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC, instance "
               f"{config.instance_id}")  # fmt: skip
    if not config.history_keep:
        print_line("no history is kept, because history_days = 0")
    for section, title, header, rows, empty in report_tables(report):
        if section == _WEEKS:
            header, rows = [*header, ""], _with_bars(rows)
        print_line()
        print_table(title, header, rows, empty)


_WEEKS = "node_hours"
Table = tuple[str, str, list[str], list[list[str]], str]
# Title, section of the document, heading -> key, and the text for a table without rows; if that
# text is empty, the table is omitted.
_TABLES: tuple[tuple[str, str, Mapping[str, str], str], ...] = (
    ("Node-hours lent, by week", _WEEKS,
     {"week": "week", "queue": "queue", "type": "node_type", "hours": "hours"},
     "no node was lent"),
    ("Nodes: hours lent, conversions and returns, idle hours before their return", "nodes",
     {"queue": "queue", "type": "node_type", "hours": "hours", "joined": "conversions",
      "failed": "failures", "back": "returns", "stuck": "failed_returns",
      "idle": "queue_idle_hours"},
     "no node was requested"),
    ("From request to serving", "to_serving",
     {"type": "node_type", "nodes": "nodes", "median": "median_seconds", "95th": "p95_seconds"},
     "no node joined"),
    ("Readiness checks of nodes: boot and join, then each check from Ready on", "opening",
     {"type": "node_type", "step": "step", "nodes": "nodes", "median": "median_seconds",
      "95th": "p95_seconds"}, ""),
    ("Queues with low utilization of lent nodes now, at most", "low_utilization",
     {"queue": "queue", "since": "since", "nodes": "nodes", "used": "percent"}, ""),
    ("How long pods waited, before and after a node served", "waits",
     {"queue": "queue", "waits": "waits", "with a node": "served",
      "before": "before_median_seconds", "95th": "before_p95_seconds",
      "after": "after_median_seconds"}, "no pod waited"),
    ("Reasons that blocked lending", "refused",
     {"queue": "queue", "times": "times", "hours": "hours", "reason": "code"}, "none"),
    ("The longest waits", "longest_waits",
     {"queue": "queue", "from": "begin", "for": "seconds", "pods": "most_pods", "why": "reason"},
     "no pod waited"),
)  # fmt: skip


def report_tables(report: Mapping[str, Any]) -> Iterator[Table]:
    """Yields for each table its section, title, header and rows, and the text to print if it has no
    rows."""
    for title, section, columns, empty in _TABLES:
        rows = [[_cell(key, item[key]) for key in columns.values()] for item in report[section]]
        if rows or empty:
            yield section, title, list(columns), rows, empty
    yield _seen_table(report["price_as_seen"])


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return f"{value:%m-%d %H:%M}"
    if key.endswith("seconds"):
        return duration(timedelta(seconds=value))
    if key.endswith("hours"):
        return f"{value:.1f}"
    return f"{value}%" if key == "percent" else reason_of(value) if key == "code" else str(value)


def reason_of(code: str) -> str:
    """Returns the sentence for a reason's code, or the code itself if another release of dnm wrote
    it."""
    return next((reason.text for reason in list_reasons() if reason.name == code), code)


def _seen_table(prices: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for price in prices:
        lent, seen = price["lent_node_minutes"], price["known_node_minutes"]
        share = _share(seen, lent) if seen else "unknown"
        rows.append([
            price["node_type"], f"{lent:,.0f}", share, _minutes(price["jobs_paid_node_minutes"]),
            _minutes(price["pods_saved_minutes"]), _minutes(price["saved_per_paid"], 1),
        ])  # fmt: skip
    return (
        "price_as_seen",
        "Node-minutes that jobs lacked at most, as far as runs saw the job queue",
        ["type", "lent", "seen", "jobs lacked", "pods had", "pods per job"],
        rows, "no node was lent",
    )  # fmt: skip


def seen_sentence(prices: Sequence[SeenPrice]) -> str:
    """Returns a sentence about what lending has cost Slurm's jobs, or an empty text if no run has
    read their queue."""
    lent, seen, paid, used = (
        sum(getattr(price, name) for price in prices) / 60
        for name in ("lent", "known", "paid", "used")
    )
    if not seen:
        return ""
    rate = f": {used / paid:,.1f} for each one" if paid else ""
    return (
        f"jobs lacked at most {paid:,.0f} of the {lent:,.0f} node-minutes that were lent (runs saw "
        f"the job queue for {_share(seen, lent)} of them); pods used {used:,.0f} node-minutes"
        f"{rate}"
    )


def _share(part: float, total: float) -> str:
    """Returns `part` of `total` as a percentage, rounded down, so that 100% means all."""
    return f"{int(100 * min(part / total, 1)) if total else 0}%"


def _minutes(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _with_bars(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    most = max((float(row[-1]) for row in rows), default=0.0)
    sign = "█" if (sys.stdout.encoding or "").lower().replace("-", "") == "utf8" else "#"
    return [[*row, sign * round(_BAR * float(row[-1]) / most) if most else ""] for row in rows]
