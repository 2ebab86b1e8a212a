"""`dnm simulate`: reads the record or the workload, plays it, and shows what each configuration
would have cost. It asks no cluster and changes nothing."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from multiprocessing import active_children, get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer

from dnm.cli.look.history import QuestionError, lines_since, make_accounts, parse_moment, readable
from dnm.cli.look.lending_report import seen_sentence
from dnm.cli.terminal.commands import load_named_config
from dnm.cli.terminal.options import OutputOption, PathOption
from dnm.cli.terminal.output import print_document, print_line, print_table
from dnm.config.load import load_config
from dnm.config.problems import shown
from dnm.host.trust import read_regular
from dnm.model.config import Config
from dnm.model.errors import ConfigError
from dnm.model.printable import count_of
from dnm.record.demand_lines import demand_history
from dnm.record.history_file import read_history
from dnm.run.registry import load_registry
from dnm.simulate.accounting import Accounting, SimulationError, parse_jobs
from dnm.simulate.compare import NOBODY, Comparison, as_one, play_under, side_by_side
from dnm.simulate.measure import Figures
from dnm.simulate.replay import Reader, make_workload
from dnm.simulate.values import Workload
from dnm.simulate.workload_file import parse_workload

_LARGEST = 256 * 1024 * 1024  # bytes of a file that is given
_WIDEST_HEAD = 27  # of a column; a longer name stands below the table
_KINDS = frozenset({"node", "request"})
_PR_SET_PDEATHSIG = 1  # prctl(2)


class Question(NamedTuple):
    """What is to be played."""

    config: Path | None
    against: Path | None
    changes: tuple[str, ...]
    since: str
    workload: Path | None
    jobs: Path | None
    seed: int


def simulate(
    config_path: PathOption = None,
    against: Annotated[
        Path | None, typer.Option(help="Another configuration, played beside it.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE of [settings], in the other one; may be repeated."),
    ] = None,
    since: Annotated[
        str, typer.Option(help="Of the record: 30d, 52w, or a time in events_zone.")
    ] = "30d",
    workload: Annotated[
        Path | None, typer.Option(help="Play this workload instead of the record.")
    ] = None,
    jobs: Annotated[
        Path | None, typer.Option(help="What sacct has printed: the jobs beside the record.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn: how long conversions take.")] = 1,
    output: OutputOption = "text",
) -> None:
    """Play the record, or a workload, under this configuration and another one."""
    question = Question(config_path, against, tuple(changes or ()), since, workload, jobs, seed)
    configs = _configs(question)
    played, notes = _workload(question, as_one(configs))
    _check_size(played)
    compared = side_by_side(played, _play(played, {**configs, NOBODY: None}))
    document = simulation_document(compared, played, notes)
    if output != "text":
        print_document(document, output)
    else:
        print_simulation(document)


def _configs(question: Question) -> dict[str, Config]:
    """By name: the one that is named, and the other one where there is one."""
    configs = {"configured": load_named_config(question.config)}
    if question.against is None and not question.changes:
        return configs
    parts = [question.against.stem] if question.against else []
    changes = {}
    for text in question.changes:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise QuestionError(f"--set {text!r} is no change: write KEY=VALUE, e.g. headroom=0.8")
        changes[key.strip().lower()] = value.strip()
        parts.append(f"{key.strip()}={value.strip()}")
    path = question.against or question.config
    try:
        configs[" ".join(parts)] = load_config(path, os.environ, changes)
    except ConfigError as error:
        load_config(path, os.environ)  # what is wrong in the file itself is told as such
        raise QuestionError(_of_changes(str(error), changes)) from error
    return configs


def _of_changes(problems: str, changes: Mapping[str, str]) -> str:
    """What is wrong with the changes alone, as they were written."""
    _, *lines = problems.splitlines()
    for key, text in changes.items():
        written = f"[settings] {shown(key)}"
        for value, meant in ((f" = {shown(text)}: ", f"={text}: "), (": unknown", ": unknown")):
            lines = [line.strip().replace(written + value, f"--set {key}{meant}") for line in lines]
    return "\n".join(line if line.startswith("--set ") else f"--set: {line}" for line in lines)


def _play(
    workload: Workload, configs: Mapping[str, Config | None]
) -> dict[str, tuple[Figures, tuple[str, ...]]]:
    """Each in a process of its own: a year takes a minute or two of one core. They end with this
    one, whatever ends it."""
    fork = get_context("fork")  # the workload is there already, and isn't copied before it changes
    ends = {}
    # A Ctrl-C is for the command, which ends these: they are born deaf to it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for name, config in configs.items():
            ends[name], there = fork.Pipe(duplex=False)
            words = (there, os.getpid(), workload, config)
            fork.Process(target=_play_alone, args=words, daemon=True).start()
            there.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return _hear(ends)
    except EOFError:
        raise SimulationError(
            "a process that played it ended early. If it said nothing, it was ended from outside: "
            "is there memory for it? Ask for a shorter --since"
        ) from None
    finally:
        for child in active_children():
            child.kill()
            child.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _hear(ends: Mapping[str, Connection]) -> dict[str, tuple[Figures, tuple[str, ...]]]:
    """Waits for what each comes to; raises EOFError where one ended without."""
    from dnm.cli.terminal.paint import progress

    done = dict.fromkeys(ends, 0.0)
    played: dict[str, tuple[Figures, tuple[str, ...]]] = {}
    with progress("playing") as tell:
        while silent := {end: name for name, end in ends.items() if name not in played}:
            speaking = wait(list(silent))
            for end, name in silent.items():
                said: Any = end.recv() if end in speaking else done[name]
                if isinstance(said, float):
                    done[name] = said
                    tell(min(done.values()))
                else:
                    played[name], done[name] = said, 1.0
    return {name: played[name] for name in ends}


def _play_alone(there: Connection, parent: int, workload: Workload, config: Config | None) -> None:
    """Plays one and sends what it came to. What is there stays there: only what a plan makes is
    looked through for garbage."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    told = 0.0

    def tell(done: float) -> None:
        nonlocal told
        if done - told > 0.01:
            told = done
            there.send(done)

    there.send(play_under(workload, config, tell))


# --- what is played --------------------------------------------------------------------------


def _workload(question: Question, config: Config) -> tuple[Workload, tuple[str, ...]]:
    """The workload of the file, or of the record, and what it can't say."""
    if question.workload is not None:
        if question.jobs is not None:
            raise QuestionError("--jobs goes with the record: a workload file has jobs of its own")
        content = _read(question.workload, "--workload")
        try:
            return parse_workload(content, config, question.seed), ()
        except SimulationError as error:
            raise SimulationError(f"--workload {question.workload}: {error}") from error
    return _recorded(question, config)


def _recorded(question: Question, config: Config) -> tuple[Workload, tuple[str, ...]]:
    now = datetime.now(UTC)
    since = parse_moment(question.since, now, "--since", config.events_zone)
    reader = Reader()
    for line in lines_since(config, since, _KINDS):
        reader.add(line)
    with readable(demand_history(config)) as history:
        for line in read_history(history, since):
            reader.add(line)
    registry = load_registry(config, now)
    recorded = reader.close(registry, since, now)
    if not recorded.stays and not recorded.spans:
        nothing = f"the record has no pods and no nodes that were lent since {question.since}"
        if recorded.nodes:
            lent = count_of(sum(map(len, recorded.nodes.values())), "node")
            nothing = f"of {lent} lent since {question.since} pods have used none for a minute"
        raise SimulationError(f"{nothing}: ask for a longer --since, or give a --workload")
    accounting = _accounting(question, config, recorded.since, now)
    notes = recorded.notes
    if accounting.left_out:
        left_out = f"{count_of(accounting.left_out, 'line')} of --jobs left out"
        notes = (*notes, f"{left_out}: no job of that time and of nodes that may be lent")
    if not accounting.jobs:
        notes = (*notes, _without_jobs(config, since, now))
    return make_workload(recorded, config, registry, accounting, question.seed), notes


def _without_jobs(config: Config, since: datetime, now: datetime) -> str:
    """What is known of jobs that are not played: what the record's own lending took from them."""
    seen = seen_sentence(make_accounts(config, since, now).prices)
    why = "no run has seen what they waited for"
    idle = "without --jobs Slurm always has idle nodes"
    return f"{idle}; {seen}" if seen else f"{idle}, and what jobs pay is not known: {why}"


def _accounting(question: Question, config: Config, since: datetime, until: datetime) -> Accounting:
    if question.jobs is None:
        return Accounting()
    text = _read(question.jobs, "--jobs").decode(errors="replace")
    try:
        return parse_jobs(text, since, until, config.type_of)
    except SimulationError as error:
        raise SimulationError(f"--jobs {question.jobs}: {error}") from error


def _read(path: Path, option: str) -> bytes:
    try:
        return read_regular(path, _LARGEST)
    except OSError as error:
        why = error.strerror or str(error)
        raise QuestionError(f"{option} {path} can't be read ({why})") from error


def _check_size(workload: Workload) -> None:
    if not workload.namespaces:
        raise SimulationError(
            "no monitored queue has a limit that is known: `dnm status` shows what the last run "
            "knew, a --workload says it in queues"
        )


# --- what is shown ---------------------------------------------------------------------------


def simulation_document(
    compared: Comparison, workload: Workload, notes: tuple[str, ...]
) -> dict[str, Any]:
    """Returns what `dnm simulate --output json` prints, schema dnm.simulate/1: minutes and
    node-hours."""
    return {
        "schema": "dnm.simulate/1",
        "workload": compared.workload,
        "begins": workload.begins,
        "days": round(workload.lasts / 86_400, 2),
        "seed": workload.seed,
        "pods": len(workload.asks),
        "jobs": len(workload.jobs),
        "configurations": [
            {"name": name, **_figures(figures_), **_price(compared, name)}
            for name, figures_ in compared.figures.items()
        ],
        "notes": list(notes),
        "errors": list(compared.errors),
    }


def _figures(figures: Figures) -> dict[str, Any]:
    return {key: find(figures) for _, key, find in (*_ROWS, *_JOB_ROWS)}


def _price(compared: Comparison, name: str) -> dict[str, Any]:
    price = compared.prices.get(name)
    if price is None:
        return {"price": None}
    rate = price.pods_saved / price.jobs_paid if price.jobs_paid > 0 else None
    return {
        "price": {
            "pods_saved_minutes": round(price.pods_saved, 1),
            "jobs_paid_minutes": round(price.jobs_paid, 1),
            "saved_per_paid": None if rate is None else round(rate, 2),
        }
    }


# What stands before it, its key, and the figure.
_Rows: TypeAlias = tuple[tuple[str, str, Callable[[Figures], float]], ...]
_ROWS: _Rows = (
    ("pods waited, minutes", "pods_waited_minutes", lambda figures: round(figures.pods.total, 1)),
    ("  95th of a hundred", "pods_p95_minutes", lambda figures: round(figures.pods.late, 1)),
    ("  the longest", "pods_longest_minutes", lambda figures: round(figures.pods.longest, 1)),
    ("  never began", "pods_unserved", lambda figures: figures.unserved),
    ("node-hours lent", "lent_node_hours", lambda figures: round(figures.lent, 1)),
    ("  idle", "idle_node_hours", lambda figures: round(figures.idle, 1)),
    ("  on the way", "converting_node_hours", lambda figures: round(figures.booting, 1)),
    ("conversions", "conversions", lambda figures: figures.conversions),
    ("  failed", "failed_conversions", lambda figures: figures.failures),
    ("  back within 30 min", "returned_within_30_min", lambda figures: figures.short),
)
_JOB_ROWS: _Rows = (
    ("jobs waited, minutes", "jobs_waited_minutes", lambda figures: round(figures.jobs.total, 1)),
    ("  95th of a hundred", "jobs_p95_minutes", lambda figures: round(figures.jobs.late, 1)),
    ("  the longest", "jobs_longest_minutes", lambda figures: round(figures.jobs.longest, 1)),
)
_PRICE_ROWS = (
    ("job-minutes paid for lending", "jobs_paid_minutes"),
    ("pod-minutes saved by it", "pods_saved_minutes"),
    ("  saved for each one paid", "saved_per_paid"),
)


def print_simulation(document: Mapping[str, Any]) -> None:
    """Prints a column for each configuration."""
    shown = document["configurations"]
    print_line(
        f"{document['days']:g} days from {document['begins']:%Y-%m-%d %H:%M} UTC, "
        f"{document['pods']:,} pods, {document['jobs']:,} jobs, seed {document['seed']}"
    )
    print_line()
    rows = [[title, *(_shown(item[key]) for item in shown)] for title, key, _ in _ROWS]
    if document["jobs"]:
        rows += [[title, *(_shown(item[key]) for item in shown)] for title, key, _ in _JOB_ROWS]
        paid = [item["price"] or {} for item in shown]
        rows += [[title, *(_shown(item.get(key)) for item in paid)] for title, key in _PRICE_ROWS]
    names = [item["name"] for item in shown]
    heads = [name if len(name) <= _WIDEST_HEAD else "the other" for name in names]
    print_table(document["workload"], ["", *heads], rows, "nothing")
    for name in set(names) - set(heads):
        print_line(f"the other: {name}")
    if document["jobs"] and len(shown) > 2:
        print_line()
        print_line(_between(*(item for item in shown if item["name"] != NOBODY)))
    for note in document["notes"]:
        print_line(f"note: {note}")
    for error in document["errors"]:
        print_line(f"dnm would have said: {error}")


def _between(entry: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """What the second configuration trades against the first."""
    pods = other["pods_waited_minutes"] - entry["pods_waited_minutes"]
    jobs = entry["jobs_waited_minutes"] - other["jobs_waited_minutes"]
    text = (
        f"{other['name']}: pods wait {abs(pods):,.0f} minutes {'more' if pods > 0 else 'less'}, "
        f"jobs {abs(jobs):,.0f} minutes {'less' if jobs > 0 else 'more'}"
    )
    if pods > 0 and jobs > 0:
        text += f": {pods / jobs:.1f} pod-minutes paid for each job-minute saved"
    if pods < 0 and jobs < 0:
        text += f": {pods / jobs:.1f} pod-minutes saved for each job-minute paid"
    return text


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
