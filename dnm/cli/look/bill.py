"""The usage report, `dnm report --format`: one row for each lend, for spreadsheets and programs."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

from dnm.cli.look.history import QuestionError, lines_since, parse_moment
from dnm.cli.terminal.output import print_document, print_line
from dnm.model.config import Config
from dnm.model.errors import ExitCode, SlurmError
from dnm.model.printable import printable
from dnm.record.bill import Biller, Lend, Sum, sums_of
from dnm.run.registry import load_registry

FORMS = ("csv", "json")
_KINDS = frozenset({"node", "request", "verb"})
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = (
    "account", "namespace", "queue", "node", "node_type", "request", "line", "from", "until",
    "lent_hours", "booting_hours", "used_hours", "idle_hours", "used", "billed",
)  # fmt: skip


def bill_of(config: Config, times: tuple[str, str], form: str) -> int:
    """Prints the usage report in the format `form` and returns the exit code."""
    now = datetime.now(UTC)
    since = parse_moment(times[0], now, "--since", config.events_zone)
    until = parse_moment(times[1], now, "--until", config.events_zone) if times[1] else now
    if form not in FORMS:
        raise QuestionError(f"--format {form!r} is unknown; write {' or '.join(FORMS)}")
    if since >= until:
        raise QuestionError("--until is not after --since")
    return show_bill(config, (since, until), form)


def make_bill(config: Config, since: datetime, until: datetime) -> tuple[Lend, ...]:
    """Returns the lends of nodes between two times, each cut to that span. Raises DnmError."""
    biller = Biller(since, until)
    for line in lines_since(config, _LONG_AGO, _KINDS):
        biller.add(line)
    now = datetime.now(UTC)
    return biller.close(load_registry(config, now), now)


def _read_weights() -> dict[str, float]:
    """Returns for each node Slurm's billing units of an hour; empty if Slurm does not answer."""
    if not find_spec("dnm.converters"):
        return {}
    from dnm.converters.sreport import read_weights

    try:
        return read_weights(os.environ)
    except SlurmError as error:
        print_line(f"note: the report has no billing weights: {error.cause}", to=sys.stderr)
        return {}


def show_bill(config: Config, span: tuple[datetime, datetime], form: str) -> int:
    """Prints the usage report as csv or json. Returns the exit code."""
    since, until = span
    weights = _read_weights()
    lends = make_bill(config, since, until)
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for row in (lend_row(lend, weights) for lend in lends):
            row["used"] = ";".join(f"{name}={amount}" for name, amount in row["used"].items())
            writer.writerow(
                "" if row[name] is None else printable(str(row[name])) for name in _COLUMNS
            )
        return ExitCode.OK
    sums = [_sum_row(total) for total in sums_of(lends, weights)]
    document = {"schema": "dnm.bill/1", "since": since, "until": until, "accounts": sums,
                "lends": [lend_row(lend, weights) for lend in lends]}  # fmt: skip
    print_document(document, "json")
    return ExitCode.OK


def _sum_row(total: Sum) -> dict[str, Any]:
    return {
        "account": total.account, "namespace": total.namespace, "queue": total.queue,
        "lends": total.lends, "lent_hours": round(total.lent, 3),
        "booting_hours": round(total.booting, 3), "used_hours": round(total.used, 3),
        "idle_hours": round(total.idle, 3),
        "billed": None if total.billed is None else round(total.billed, 3),
    }  # fmt: skip


def lend_row(row: Lend, weights: Mapping[str, float]) -> dict[str, Any]:
    """Returns a lend as a flat JSON object. `used`: the requests of its pods, times their hours."""
    weight = weights.get(row.node)
    return {
        "account": row.account, "namespace": row.namespace, "queue": row.queue, "node": row.node,
        "node_type": row.node_type, "request": row.request, "line": row.line,
        "from": f"{row.begin:%Y-%m-%dT%H:%M:%SZ}", "until": f"{row.until:%Y-%m-%dT%H:%M:%SZ}",
        "lent_hours": round(row.hours, 4), "booting_hours": round(row.booting, 4),
        "used_hours": round(row.used_hours, 4), "idle_hours": round(row.idle, 4),
        "used": _in_hours(row.used or {}),
        "billed": None if weight is None else round(row.hours * weight, 3),
    }  # fmt: skip


def _in_hours(amounts: Mapping[str, float]) -> dict[str, float]:
    return {name: round(amount / 3600, 3) for name, amount in amounts.items()}


def bill_table(lends: Sequence[Lend]) -> tuple[str, list[str], list[list[str]], str]:
    """Returns title, header and rows of the table of node-hours by account, and the text to print
    if there are no rows."""
    rows = [
        [total.account or "nobody", total.namespace, total.queue, str(total.lends),
         *(f"{hours:.1f}" for hours in (total.lent, total.booting, total.used, total.idle))]
        for total in sums_of(lends, {})
    ]  # fmt: skip
    header = ["account", "namespace", "queue", "lends", "lent", "booting", "used", "idle"]
    return "Node-hours by account", header, rows, "no node was lent"
