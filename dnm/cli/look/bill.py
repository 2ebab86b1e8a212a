"""`dnm report --format`: one row for each lend, for spreadsheets, programs and readers of sacct."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dnm.cli.look.history import QuestionError, lines_since, parse_moment
from dnm.cli.terminal.output import print_document, print_line
from dnm.model.config import Config
from dnm.model.errors import ExitCode, SlurmError
from dnm.model.printable import printable
from dnm.record.bill import Biller, Lend, Sum, sums_of
from dnm.run.registry import load_registry

if TYPE_CHECKING:
    from dnm.converters.sreport import Machine

FORMS = ("csv", "json", "sacct")
_KINDS = frozenset({"node", "request", "verb"})
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = (
    "account", "namespace", "queue", "node", "node_type", "request", "line", "from", "until",
    "lent_hours", "booting_hours", "used_hours", "idle_hours", "used", "billed",
)  # fmt: skip
# As XDMoD's shredder asks sacct for them (classes/OpenXdmod/Shredder/Slurm.php).
SACCT = (
    "jobid", "jobidraw", "cluster", "partition", "qos", "account", "group", "gid", "user", "uid",
    "submit", "eligible", "start", "end", "elapsed", "exitcode", "state", "nnodes", "ncpus",
    "reqcpus", "reqmem", "reqtres", "alloctres", "timelimit", "nodelist", "jobname",
)  # fmt: skip


def bill_of(config: Config, times: tuple[str, str], form: str) -> int:
    """Prints the usage report in the format `form` and returns the exit code."""
    now = datetime.now(UTC)
    since = parse_moment(times[0], now, "--since", config.events_zone)
    until = parse_moment(times[1], now, "--until", config.events_zone) if times[1] else now
    if form not in FORMS:
        raise QuestionError(f"--format {form!r} is not known; write {', '.join(FORMS)}")
    if since >= until:
        raise QuestionError("--until is not after --since")
    return show_bill(config, (since, until), form)


def make_bill(config: Config, since: datetime, until: datetime) -> tuple[Lend, ...]:
    """Returns the lends of a span, each cut to it. Raises DnmError."""
    biller = Biller(since, until)
    for line in lines_since(config, _LONG_AGO, _KINDS):
        biller.add(line)
    now = datetime.now(UTC)
    return biller.close(load_registry(config, now), now)


def machines() -> dict[str, Machine]:
    """Returns Slurm's own nodes where its programs are; else none, and nothing is weighed."""
    if not find_spec("dnm.converters"):
        return {}
    from dnm.converters.sreport import read_machines

    try:
        return read_machines(os.environ)
    except SlurmError as error:
        why = str(error).replace("; nothing is done", "")  # but the bill is
        print_line(f"note: nothing is weighed: {why}", to=sys.stderr)
        return {}


def show_bill(config: Config, span: tuple[datetime, datetime], form: str) -> int:
    """Prints it; returns the exit code. `sacct`: the lends that ended in the span, whole, so that
    months add up."""
    since, until = span
    known = machines()
    weights = {name: one.weight for name, one in known.items() if one.weight is not None}
    if form == "sacct":
        lends = make_bill(config, _LONG_AGO, until)
        for one in lends:
            if one.end is not None and since <= one.end < until:
                print_line("|".join(sacct_fields(config, one, known.get(one.node))))
        return ExitCode.OK
    lends = make_bill(config, since, until)
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for row in (lend_row(one, weights) for one in lends):
            row["used"] = ";".join(f"{name}={amount}" for name, amount in row["used"].items())
            writer.writerow(
                "" if row[name] is None else printable(str(row[name])) for name in _COLUMNS
            )
        return ExitCode.OK
    sums = [_sum_row(one) for one in sums_of(lends, weights)]
    document = {"schema": "dnm.bill/1", "since": since, "until": until, "accounts": sums,
                "lends": [lend_row(one, weights) for one in lends]}  # fmt: skip
    print_document(document, "json")
    return ExitCode.OK


def _sum_row(one: Sum) -> dict[str, Any]:
    return {
        "account": one.account, "namespace": one.namespace, "queue": one.queue,
        "lends": one.lends, "lent_hours": round(one.lent, 3),
        "booting_hours": round(one.booting, 3), "used_hours": round(one.used, 3),
        "idle_hours": round(one.idle, 3),
        "billed": None if one.billed is None else round(one.billed, 3),
    }  # fmt: skip


def lend_row(one: Lend, weights: Mapping[str, float]) -> dict[str, Any]:
    """Returns a lend as a flat document; hours, and what pods asked for times hours."""
    weight = weights.get(one.node)
    return {
        "account": one.account, "namespace": one.namespace, "queue": one.queue, "node": one.node,
        "node_type": one.node_type, "request": one.request, "line": one.line,
        "from": f"{one.begin:%Y-%m-%dT%H:%M:%SZ}", "until": f"{one.until:%Y-%m-%dT%H:%M:%SZ}",
        "lent_hours": round(one.hours, 4), "booting_hours": round(one.booting, 4),
        "used_hours": round(one.used_hours, 4), "idle_hours": round(one.idle, 4),
        "used": _in_hours(one.used or {}),
        "billed": None if weight is None else round(one.hours * weight, 3),
    }  # fmt: skip


def _in_hours(amounts: Mapping[str, float]) -> dict[str, float]:
    return {name: round(amount / 3600, 3) for name, amount in amounts.items()}


def sacct_fields(config: Config, one: Lend, machine: Machine | None) -> list[str]:
    """Returns a lend as sacct would print a job of a whole node."""
    assert one.end is not None
    begin, end = (f"{when:%Y-%m-%dT%H:%M:%S}" for when in (one.begin, one.end))
    cpus = str(machine.cpus if machine else one.size.get("vcore", 0) // 1000)
    memory = f"{one.size.get('memory', 0) // 1024**2}M"
    tres = f"{machine.tres},node=1" if machine else f"cpu={cpus},mem={memory},node=1"
    elapsed = _elapsed(one.end - one.begin)
    fields = {
        "jobid": str(one.line), "jobidraw": str(one.line), "cluster": config.instance_id,
        "partition": one.queue, "qos": "normal", "account": one.account, "group": one.account,
        "gid": "0", "user": one.namespace, "uid": "0", "submit": begin, "eligible": begin,
        "start": begin, "end": end, "elapsed": elapsed, "exitcode": "0:0", "state": "COMPLETED",
        "nnodes": "1", "ncpus": cpus, "reqcpus": cpus, "reqmem": memory, "reqtres": tres,
        "alloctres": tres, "timelimit": elapsed, "nodelist": one.node,
        "jobname": f"dnm {one.request}".strip(),
    }  # fmt: skip
    return [printable(fields[name]).replace("|", " ") for name in SACCT]


def _elapsed(span: timedelta) -> str:
    seconds = round(span.total_seconds())
    days = f"{seconds // 86_400}-" if seconds >= 86_400 else ""
    return f"{days}{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def bill_table(lends: Sequence[Lend]) -> tuple[str, list[str], list[list[str]], str]:
    """Returns the sums as a table of the report."""
    rows = [
        [one.account or "nobody", one.namespace, one.queue, str(one.lends),
         *(f"{hours:.1f}" for hours in (one.lent, one.booting, one.used, one.idle))]
        for one in sums_of(lends, {})
    ]  # fmt: skip
    header = ["account", "namespace", "queue", "lends", "lent", "booting", "used", "idle"]
    return "Node-hours by account", header, rows, "no node was lent"
