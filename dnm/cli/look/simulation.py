"""`dnm simulate`: the simulation of the history or of a workload, and its cost under each
configuration. It accesses no cluster and changes nothing."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
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
from dnm.simulate.compare import NO_LENDING, Comparison, merge_configs, play_under, side_by_side
from dnm.simulate.measure import Figures
from dnm.simulate.replay import Reader, make_workload
from dnm.simulate.values import Workload
from dnm.simulate.workload_file import parse_workload

_LARGEST = 256 * 1024 * 1024  # bytes of an input file
_WIDEST_HEAD = 27  # characters of a heading; longer names are printed below the table
_KINDS = frozenset({"node", "request"})
_PR_SET_PDEATHSIG = 1  # prctl(2)


DRAWS = 5  # if conversions fail: which ones do is chance, and a few decide much
_Played: TypeAlias = tuple[Figures, tuple[str, ...]]


class Question(NamedTuple):
    """The options of a simulation."""

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
        Path | None, typer.Option(help="Simulate with this configuration too, and compare.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Compare with KEY=VALUE in [settings]; repeatable."),
    ] = None,
    since: Annotated[
        str, typer.Option(help="Simulate the history since: 30d, 52w, or a time in events_zone.")
    ] = "30d",
    workload: Annotated[
        Path | None, typer.Option(help="Simulate this workload instead of the history.")
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(help="Read Slurm's jobs of that time from a file with output of sacct."),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Use this seed for the random durations of conversions.")
    ] = 1,
    output: OutputOption = "text",
) -> None:
    """Simulate the history or a workload, and compare configurations."""
    question = Question(config_path, against, tuple(changes or ()), since, workload, jobs, seed)
    configs = _configs(question)
    played, notes = _workload(question, merge_configs(configs))
    _check_size(played)
    draws = _play(played, {**configs, NO_LENDING: None})
    compared = side_by_side(played, {name: some[0] for name, some in draws.items()})
    ranges = {name: _range([figures for figures, _ in some]) for name, some in draws.items()}
    document = simulation_document(compared, played, notes, ranges)
    if output != "text":
        print_document(document, output)
    else:
        print_simulation(document)


def _configs(question: Question) -> dict[str, Config]:
    """Returns the configurations by name: the site's, and the one to compare it with, if any."""
    configs = {"configured": load_named_config(question.config)}
    if question.against is None and not question.changes:
        return configs
    parts = [question.against.stem] if question.against else []
    changes = {}
    for text in question.changes:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise QuestionError(f"--set {text!r} is not a change: write e.g. headroom=0.8")
        changes[key.strip().lower()] = value.strip()
        parts.append(f"{key.strip()}={value.strip()}")
    path = question.against or question.config
    try:
        configs[" ".join(parts)] = load_config(path, os.environ, changes)
    except ConfigError as error:
        load_config(path, os.environ)  # raises the file's own errors
        raise QuestionError(_errors_of_changes(str(error), changes)) from error
    return configs


def _errors_of_changes(problems: str, changes: Mapping[str, str]) -> str:
    """Returns the errors that `--set` has caused, with each key in the form `--set KEY=VALUE`."""
    _, *lines = problems.splitlines()
    for key, text in changes.items():
        written = f"[settings] {shown(key)}"
        for value, meant in ((f" = {shown(text)}: ", f"={text}: "), (": unknown", ": unknown")):
            lines = [line.strip().replace(written + value, f"--set {key}{meant}") for line in lines]
    return "\n".join(line if line.startswith("--set ") else f"--set: {line}" for line in lines)


def _play(workload: Workload, configs: Mapping[str, Config | None]) -> dict[str, list[_Played]]:
    """Simulates each configuration in a process of its own, because a year takes minutes on one
    core. These processes end when this one does, however it ends."""
    fork = get_context("fork")  # the workload is shared until a process changes it
    ends = {}
    # Only the command handles Ctrl-C and ends these processes, so they start with SIGINT blocked.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for name, config in configs.items():
            ends[name], there = fork.Pipe(duplex=False)
            words = (there, os.getpid(), workload, config)
            fork.Process(target=_play_alone, args=words, daemon=True).start()
            there.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return _collect_results(ends)
    except EOFError:
        raise SimulationError(
            "a simulation process ended early. If it printed no error, it was killed, probably for "
            "lack of memory: use a shorter --since"
        ) from None
    finally:
        for child in active_children():
            child.kill()
            child.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _collect_results(ends: Mapping[str, Connection]) -> dict[str, list[_Played]]:
    """Waits for the result of each process, and shows the progress. Raises EOFError if a process
    ended without a result."""
    from dnm.cli.terminal.paint import progress

    done = dict.fromkeys(ends, 0.0)
    played: dict[str, list[_Played]] = {}
    with progress("simulating") as show_progress:
        while pending := {end: name for name, end in ends.items() if name not in played}:
            ready = wait(list(pending))
            for end, name in pending.items():
                message: Any = end.recv() if end in ready else done[name]
                if isinstance(message, float):
                    done[name] = message
                    show_progress(min(done.values()))
                else:
                    played[name], done[name] = message, 1.0
    return {name: played[name] for name in ends}


def _play_alone(there: Connection, parent: int, workload: Workload, config: Config | None) -> None:
    """Simulates one configuration and sends the result to the parent. Freezes existing objects, so
    that the garbage collector examines only new ones."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    sent = 0.0

    def send_progress(done: float) -> None:
        nonlocal sent
        if done - sent > 0.01:
            sent = done
            there.send(done)

    draws = DRAWS if config is not None and workload.fails else 1
    played: list[_Played] = []
    for number in range(draws):
        drawn = replace(workload, seed=workload.seed + number) if number else workload
        played.append(
            play_under(drawn, config, lambda done: send_progress((len(played) + done) / draws))
        )
    there.send(played)


# --- the workload ----------------------------------------------------------------------------


def _workload(question: Question, config: Config) -> tuple[Workload, tuple[str, ...]]:
    """Returns the workload from the file or from the history, with notes on what the history
    lacks."""
    if question.workload is not None:
        if question.jobs is not None:
            raise QuestionError("--jobs is for the history: a workload file has its own jobs")
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
        nothing = f"the history has no pods and no lent nodes since {question.since}"
        if recorded.nodes:
            lent = count_of(sum(map(len, recorded.nodes.values())), "node")
            nothing = f"since {question.since}, pods used none of {lent} lent for a minute"
        raise SimulationError(f"{nothing}: use a longer --since, or --workload")
    accounting = _accounting(question, config, recorded.since, now)
    notes = recorded.notes
    if accounting.left_out:
        left_out = f"{count_of(accounting.left_out, 'line')} of --jobs ignored"
        notes = (*notes, f"{left_out}: not a job of that time on nodes that may be lent")
    if not accounting.jobs:
        notes = (*notes, _without_jobs(config, since, now))
    return make_workload(recorded, config, registry, accounting, question.seed), notes


def _without_jobs(config: Config, since: datetime, now: datetime) -> str:
    """Returns a note that no jobs are simulated, and what lending in that time really cost jobs."""
    seen = seen_sentence(make_accounts(config, since, now).prices)
    idle = "without --jobs, Slurm always has idle nodes in the simulation"
    return (
        f"{idle}; {seen}" if seen else f"{idle}; no run saw waiting jobs, so their cost is unknown"
    )


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
        cause = error.strerror or str(error)
        raise QuestionError(f"{option}: cannot read {path}: {cause}") from error


def _check_size(workload: Workload) -> None:
    if not workload.namespaces:
        raise SimulationError(
            "the limits of all monitored queues are unknown: make a run first (see `dnm status`), "
            "or write them into `queues` of a --workload"
        )


# --- output ----------------------------------------------------------------------------------


_Range: TypeAlias = dict[str, tuple[float, float]] | None


def _range(draws: list[Figures]) -> _Range:
    """Returns the minimum and maximum of waits and node-hours over several seeds. Returns None if
    there was one seed."""
    if len(draws) == 1:
        return None
    ranges = {key: [find(draw) for draw in draws] for _, key, find in _ROWS if key in _RANGED}
    return {key: (min(values), max(values)) for key, values in ranges.items()}


def simulation_document(
    compared: Comparison,
    workload: Workload,
    notes: tuple[str, ...],
    ranges: Mapping[str, _Range],
) -> dict[str, Any]:
    """Returns the document of `dnm simulate --output json`, schema dnm.simulate/1, in minutes and
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
            {"name": name, **_figures(figures_), **_price(compared, name), "range": ranges[name]}
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


# Title, key, and a function that returns the figure.
_Rows: TypeAlias = tuple[tuple[str, str, Callable[[Figures], float]], ...]
_ROWS: _Rows = (
    ("pods waited, minutes", "pods_waited_minutes", lambda figures: round(figures.pods.total, 1)),
    ("  95th percentile", "pods_p95_minutes", lambda figures: round(figures.pods.late, 1)),
    ("  longest", "pods_longest_minutes", lambda figures: round(figures.pods.longest, 1)),
    ("  never started", "pods_unserved", lambda figures: figures.unserved),
    ("node-hours lent", "lent_node_hours", lambda figures: round(figures.lent, 1)),
    ("  idle", "idle_node_hours", lambda figures: round(figures.idle, 1)),
    ("  joining or leaving", "converting_node_hours", lambda figures: round(figures.booting, 1)),
    ("conversions", "conversions", lambda figures: figures.conversions),
    ("  failed", "failed_conversions", lambda figures: figures.failures),
    ("  returned within 30 min", "returned_within_30_min", lambda figures: figures.short),
)
_JOB_ROWS: _Rows = (
    ("jobs waited, minutes", "jobs_waited_minutes", lambda figures: round(figures.jobs.total, 1)),
    ("  95th percentile", "jobs_p95_minutes", lambda figures: round(figures.jobs.late, 1)),
    ("  longest", "jobs_longest_minutes", lambda figures: round(figures.jobs.longest, 1)),
)
_RANGED = ("pods_waited_minutes", "lent_node_hours")
_PRICE_ROWS = (
    ("job-minutes lost by lending", "jobs_paid_minutes"),
    ("pod-minutes saved by it", "pods_saved_minutes"),
    ("  saved per lost job-minute", "saved_per_paid"),
)


def print_simulation(document: Mapping[str, Any]) -> None:
    """Prints a table of the results, with a column for each configuration."""
    shown = document["configurations"]
    print_line(
        f"{document['days']:g} days from {document['begins']:%Y-%m-%d %H:%M} UTC, "
        f"{document['pods']:,} pods, {document['jobs']:,} jobs, seed {document['seed']}"
    )
    print_line()
    rows = []
    for title, key, _ in _ROWS:
        rows.append([title, *(_shown(item[key]) for item in shown)])
        if key in _RANGED and any(item["range"] for item in shown):
            spans = ((item["range"] or {}).get(key) for item in shown)
            cells = ("-" if span is None else f"{span[0]:,.1f} to {span[1]:,.1f}" for span in spans)
            rows.append([f"  of {DRAWS} seeds", *cells])
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
        print_line(_between(*(item for item in shown if item["name"] != NO_LENDING)))
    for note in document["notes"]:
        print_line(f"note: {note}")
    for error in document["errors"]:
        print_line(f"dnm would have reported: {error}")


def _between(entry: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Returns a sentence that compares the waits in two simulated configurations."""
    pods = other["pods_waited_minutes"] - entry["pods_waited_minutes"]
    jobs = entry["jobs_waited_minutes"] - other["jobs_waited_minutes"]
    text = (
        f"{other['name']}: pods wait {abs(pods):,.0f} minutes {'more' if pods > 0 else 'less'}, "
        f"jobs {abs(jobs):,.0f} minutes {'less' if jobs > 0 else 'more'}"
    )
    if pods > 0 and jobs > 0:
        text += f": {pods / jobs:.1f} pod-minutes lost for each job-minute saved"
    if pods < 0 and jobs < 0:
        text += f": {pods / jobs:.1f} pod-minutes saved for each job-minute lost"
    return text


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
