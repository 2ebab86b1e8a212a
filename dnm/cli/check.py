"""`dnm check`: everything that could go wrong at 3 a.m., now. Reads only, changes nothing.

A check yields findings; one that fails never stops the others. What is a finding here would be an
error or a reason in a run, so the same functions judge it in both places.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from shlex import quote

from dnm.cli.report import count_of, print_json, status_document
from dnm.config.files import read_ini
from dnm.config.load import find_config_path, load_config
from dnm.converter.contract import converter_environment
from dnm.converter.node_list import list_batch_nodes
from dnm.model.cluster import BatchNode
from dnm.model.config import Config
from dnm.model.errors import DnmError, ExitCode
from dnm.model.printable import printable
from dnm.model.registry import Phase, Registry
from dnm.model.trust import find_distrust
from dnm.model.value import Unreadable, Value
from dnm.run.registry import load_registry

_LEAST_ROOM = 64 * 1024 * 1024  # bytes; the registry, its predecessor and a temporary one
_SYSLOG = Path("/dev/log")


class Result(Enum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


_SIGNS = {Result.OK: "✓", Result.WARNING: "!", Result.FAILED: "✗", Result.SKIPPED: "-"}
_WORDS = {Result.OK: "ok  ", Result.WARNING: "warn", Result.FAILED: "FAIL", Result.SKIPPED: "skip"}
_FOR_A_PERSON = ("configuration", "state directory", "registry")  # exit code 2 if one fails


class Finding(Value, frozen=True):
    """One line: what was looked at, how it is, and what to do unless it is fine."""

    check: str
    result: Result
    text: str
    remedy: str = ""


def fine(check: str, text: str) -> Finding:
    return Finding(check=check, result=Result.OK, text=text)


def doubtful(check: str, text: str, remedy: str = "") -> Finding:
    return Finding(check=check, result=Result.WARNING, text=text, remedy=remedy)


def wrong(check: str, text: str, remedy: str = "") -> Finding:
    return Finding(check=check, result=Result.FAILED, text=text, remedy=remedy)


def all_wrong(check: str, error: DnmError) -> Iterator[Finding]:
    """An error may list several problems, a line each behind one that says how many."""
    head, *problems = str(error).splitlines()
    return (wrong(check, line.strip()) for line in problems or [head])


def skipped(check: str, text: str) -> Finding:
    return Finding(check=check, result=Result.SKIPPED, text=text)


def run_checks(path: Path | None, environ: Mapping[str, str], output: str = "text") -> int:
    """Looks, prints (`--output json` is schema dnm.check/1), and returns the exit code: 2 where the
    configuration or the state is wrong, 1 where anything else is, 0 for warnings or nothing."""
    findings = list(find_everything(path, environ))
    if output == "json":
        _print_document(findings)
    else:
        _print_lines(findings)
    failed = {finding.check for finding in findings if finding.result is Result.FAILED}
    if failed & set(_FOR_A_PERSON):
        return ExitCode.NEEDS_PERSON
    return ExitCode.FAILED if failed else ExitCode.OK


def find_everything(path: Path | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """All findings, in the order in which a person mends them."""
    try:
        config = load_config(path, environ)
    except DnmError as error:
        yield from all_wrong("configuration", error)
        file = find_config_path(path, environ)
        yield skipped("all others", f"they need a configuration that is right: {file}")
        return
    now = datetime.now(UTC)
    yield fine(
        "configuration",
        f"{config.path}: instance {config.instance_id}, "
        f"namespaces {', '.join(config.namespaces)}, types {', '.join(config.node_types)}",
    )
    yield from guarded("state directory", lambda: check_state_directory(config))
    registry = Registry()
    try:
        registry = load_registry(config, now)
        yield from check_registry(config, registry, now)
    except DnmError as error:
        yield from all_wrong("registry", error)
    yield from guarded("syslog", lambda: check_syslog(config))
    yield from guarded("converter", lambda: check_converter(config, environ))
    yield from guarded("batch nodes", lambda: check_batch_nodes(config, environ))
    from dnm.cli.check_cluster import check_cluster  # its imports are most of the time it takes

    yield from guarded("Kubernetes", lambda: check_cluster(config, registry, environ))


def guarded(check: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """What `look` finds, and what stopped it."""
    try:
        yield from look()
    except DnmError as error:
        yield from all_wrong(check, error)
    except OSError as error:
        yield wrong(check, f"{error.filename or 'it'} can't be looked at ({error.strerror})")


# --- this host -------------------------------------------------------------------------------


def check_state_directory(config: Config) -> Iterator[Finding]:
    """Where the registry and the lock are: there, ours, writable, with room on its disk."""
    check = "state directory"
    for path in dict.fromkeys((config.converted_nodes_path.parent, config.state_dir)):
        try:
            info = os.stat(path)
        except FileNotFoundError:
            yield wrong(check, f"{path} is missing", f"mkdir -p -m 755 {quote(str(path))}")
            continue
        if not path.is_dir():
            yield wrong(check, f"{path} is no directory", "move the file away, or set state_dir")
        elif distrust := find_distrust(path, info):
            yield wrong(check, *distrust.rsplit(": ", 1))
        elif not os.access(path, os.W_OK | os.X_OK):
            yield wrong(
                check,
                f"{path} can't be written by user id {os.geteuid()}",
                "run dnm as its owner, or mount it writable",
            )
        else:
            disk = os.statvfs(path)
            free = disk.f_bavail * disk.f_frsize
            if free < _LEAST_ROOM:
                yield doubtful(
                    check,
                    f"{path} has only {free // 1024**2} MiB left",
                    "free some space: a run that can't record a step does not take it",
                )
            else:
                yield fine(check, f"{path} is writable, by its owner alone")


def check_registry(config: Config, registry: Registry, now: datetime) -> Iterator[Finding]:
    """What is recorded, what of it needs a person, and whether the runs come as they should."""
    yield fine(
        "registry",
        f"{config.converted_nodes_path}: {len(registry.nodes)} lent nodes, "
        f"{sum(request.count for request in registry.requests)} requested",
    )
    for name, entry in sorted(registry.nodes.items()):
        if entry.phase is Phase.FAILED:
            yield doubtful(
                "registry",
                f"{name} has failed: {entry.error}",
                f"mend it, then 'dnm reset {name}'; 'dnm forget {name}' once it is back "
                "in Slurm by hand",
            )
        if entry.owner != config.instance_id:
            yield doubtful(
                "registry",
                f"{name} was lent by the instance {entry.owner}, this one is {config.instance_id} "
                "and leaves it alone",
                "if instance_id was changed, change it back until the node is back in Slurm",
            )
        elif entry.namespace not in config.namespaces:
            yield doubtful(
                "registry",
                f"{name} serves {entry.namespace}, which is not monitored",
                "it is given back when it is idle; monitor the namespace to keep it",
            )
    document = status_document(config, registry, now)
    for name, backoff in document["brakes"]["backoffs"].items():
        failed = count_of(backoff["failures"], "failed conversion")
        error = f": {backoff['last_error']}" if backoff["last_error"] else ""
        yield doubtful(
            "back-off",
            f"the type {name} gets no conversion until {backoff['until']:%Y-%m-%d %H:%M:%S} UTC, "
            f"after {failed}{error}",
            f"mend it, then 'dnm reset {name}'",
        )
    run = document["last_run"]
    for warning in document["warnings"]:
        yield doubtful("last run", warning)
    if run["began"] is not None and run["exit_code"] != ExitCode.OK:
        errors = "; ".join(run["errors"]) or "no error is recorded"
        yield doubtful("last run", f"it ended with code {run['exit_code']}: {errors}")
    elif run["began"] is not None and not document["warnings"]:
        yield fine("last run", f"began {run['began']:%Y-%m-%d %H:%M:%S} UTC and ended well")


def check_syslog(config: Config) -> Iterator[Finding]:
    if _SYSLOG.exists():
        yield fine("syslog", f"{_SYSLOG} is there")
    elif config.log_console:
        yield fine("syslog", f"there is no {_SYSLOG}, but log_console = true: stderr has the log")
    else:
        yield doubtful(
            "syslog",
            f"there is no {_SYSLOG}: what dnm does is not logged",
            "start syslog or journald, or set log_console = true",
        )


def check_converter(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """There, a program, and nobody else's to change: it power-cycles machines. Where the shipped
    one has a section of its own, that too is right."""
    path = config.node_convert_path
    if not path.exists():
        yield wrong("converter", f"{path} is missing", "install it, or set node_convert_path")
    elif not (path.is_file() and os.access(path, os.X_OK)):
        yield wrong("converter", f"{path} is not executable", f"chmod +x {quote(str(path))}")
    elif distrust := find_distrust(path, os.stat(path)):
        yield wrong("converter", *distrust.rsplit(": ", 1))
    else:
        yield fine("converter", f"{path} is executable")
    if "node_convert" in read_ini(config.path, []):
        from dnm.convert.settings import load_settings

        load_settings({}, environ, config.path)
        yield fine("converter", f"its section [node_convert] in {config.path} is right")


def check_batch_nodes(config: Config, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether `--list` answers, and what could be lent now of each type."""
    if not config.node_convert_path.exists():
        yield skipped("batch nodes", "they need the converter")
        return
    listed = list_batch_nodes(config, converter_environment(config, environ))
    if isinstance(listed, Unreadable):
        yield wrong(
            "batch nodes",
            f"{listed.what}: {listed.error}",
            f"run '{quote(str(config.node_convert_path))} --list' by hand",
        )
        return
    for name in config.node_types:
        yield _judge_supply(
            name, [node for node in listed.values() if config.type_of(node.name) == name]
        )


def _judge_supply(name: str, nodes: list[BatchNode]) -> Finding:
    lendable = [node for node in nodes if node.verdict != "SKIP"]
    if not nodes:
        return doubtful(
            "batch nodes",
            f"the converter lists no node of the type {name}",
            "correct the type or its name_prefix; 'node-convert --list' shows all",
        )
    if not lendable:
        return doubtful(
            "batch nodes",
            f"none of {len(nodes)} nodes of the type {name} can be lent now",
            "'dnm nodes' shows why not",
        )
    return fine(
        "batch nodes", f"{len(lendable)} of {len(nodes)} nodes of the type {name} can be lent now"
    )


# --- printing --------------------------------------------------------------------------------


def _print_document(findings: list[Finding]) -> None:
    print_json({
        "schema": "dnm.check/1",
        "ok": not any(finding.result is Result.FAILED for finding in findings),
        "checks": [
            {"check": finding.check, "result": finding.result.value, "text": finding.text,
             "remedy": finding.remedy}
            for finding in findings
        ],
    })  # fmt: skip


def _print_lines(findings: list[Finding]) -> None:
    """A sign a line, in words where the terminal has no ticks."""
    can_tick = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    signs = _SIGNS if can_tick else _WORDS
    arrow = "→" if can_tick else "->"
    for finding in findings:
        remedy = f" {arrow} {finding.remedy}" if finding.remedy else ""
        line = f"{signs[finding.result]} {finding.check}: {finding.text}{remedy}"
        print(printable(line) if can_tick else printable(line).encode("ascii", "replace").decode())
    counts = [(Result.OK, "fine"), (Result.WARNING, "to look at"), (Result.FAILED, "wrong"),
              (Result.SKIPPED, "not looked at")]  # fmt: skip
    numbers = ((sum(f.result is result for f in findings), word) for result, word in counts)
    print(", ".join(f"{number} {word}" for number, word in numbers if number))
