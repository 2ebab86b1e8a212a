"""The command line of `node-convert`, `nodeset-convert` and `bridge-convert`. It exits with 0 if
everything requested is done, with 1 if not, and with 2 for wrong usage.

It uses argparse, not typer, and imports nothing of Kubernetes: every run of dnm may call `--list`,
so it must start fast."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dnm.config import names, numbers, values
from dnm.converter.contract import CHARGE, LEAVE_DRAINED, LEAVE_OUT, RESERVE, UNRESERVE
from dnm.converters import listing
from dnm.converters.claimed import Judge, describe_claims, judge_all
from dnm.converters.settings import Machines, Settings, load_settings
from dnm.converters.slurm.commands import SlurmRefused
from dnm.host.shortage import describe_shortage
from dnm.model.errors import DnmError, ExitCode
from dnm.model.printable import printable

_EPILOG = """\
Settings are in [node_convert] of dnm's configuration file. An environment variable with the key's
name in capitals (RES_NAME, MIN_IDLE_SECONDS, PREEMPT_USER, ...) overrides a key, and an option
overrides both. docs/configuration.md describes every key; etc/hooks/ has examples of hooks."""
_DESCRIPTIONS = {
    Machines.OWN: "Moves nodes between Slurm and Kubernetes, stage by stage.",
    Machines.PODS: "Moves Kubernetes nodes on which slurm-operator runs slurmd in a pod: to the "
    "pods of a namespace, and back to Slurm.",
    Machines.BRIDGED: "Moves Kubernetes nodes that slurm-bridge has registered in Slurm: to the "
    "pods of a namespace, and back to Slurm.",
}


def _argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Returns a parser for argparse, which shows the text of a ValueError that `parse` raises."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} {error}") from error

    return convert


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("has no zone; write e.g. 2026-12-01T09:00:00Z")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("is out of range; write a date of this century") from error


_WITH_A_VALUE: tuple[tuple[str, str, Callable[[str], Any], str], ...] = (
    ("--node-name", "NODE", names.object_name, "choose one node by its name"),
    (
        "--node-type", "TYPE", names.node_type_name,
        "choose nodes of a type, by its name prefix (with --num-nodes)",
    ),
    ("--num-nodes", "N", numbers.integer(1, 100_000), "move N nodes of the type"),
    ("--namespace", "NS", values.namespace, "lend nodes to this namespace (Node label NS=true)"),
    (
        LEAVE_OUT, "NODES", names.host_list,
        "do not choose these nodes, e.g. a[001-004],b007 (with --set k8s --node-type)",
    ),
    (
        CHARGE, "ACCOUNT", names.charged_account,
        "charge this Slurm account; - for none, so that Slurm counts planned time (with --set k8s)",
    ),
    (LEAVE_DRAINED, "REASON", str, "leave a faulty node drained (with --set batch)"),
    (
        RESERVE, "NAME", str,
        "reserve nodes for an event (with --node-type, --num-nodes, --from and --until)",
    ),
    (UNRESERVE, "NAME", str, "delete the reservations of --reserve NAME"),
    ("--until", "TIME", _moment, "end the reservations then, in ISO 8601 with Z (for --reserve)"),
)  # fmt: skip
_FLAGS = {
    "--list": "show which nodes can be lent, and why the others cannot",
    "--resume": "finish interrupted returns, and return the nodes of interrupted lends",
    "--allow-preempt": "requeue jobs that may be preempted if too few nodes are idle",
    "--force": "evict pods that no controller recreates, and do not wait for pods that never end",
}


def make_parser(machines: Machines = Machines.OWN) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=machines.value,
        allow_abbrev=False,
        description=_DESCRIPTIONS[machines],
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--set", choices=("k8s", "batch"), dest="direction", help="move nodes to this side")
    for option, metavar, parse, help_text in _WITH_A_VALUE:
        if option != CHARGE or machines is not Machines.BRIDGED:  # Slurm accounts for none of them
            add(option, metavar=metavar, type=_argument(parse), help=help_text)
    parser.set_defaults(exclude=frozenset())
    add("--from", dest="begins", type=_argument(_moment), metavar="TIME", help="reserve from then")
    for option, help_text in _FLAGS.items():
        add(option, action="store_true", help=help_text)
    add("-n", "--dry-run", action="store_true", help="show stages and commands, change nothing")
    add("--output", choices=("text", "json"), default="text", help="choose the format of stdout")
    add("--config", metavar="FILE", type=Path, help="read this configuration (or $DNM_CONFIG)")
    add("--version", action="store_true", help="show the version")
    return parser


def parse_arguments(
    arguments: Sequence[str], machines: Machines = Machines.OWN
) -> argparse.Namespace:
    """Returns the parsed options. Exits with 2 and a message if they can't be combined."""
    parser = make_parser(machines)
    options = parser.parse_args(arguments)
    if options.version:
        print(f"{machines.value} {_version()}")
        parser.exit(0)
    values_of_modes = (options.direction, options.reserve, options.unreserve)
    modes = sum((options.list, options.resume, *(value is not None for value in values_of_modes)))
    if modes != 1:
        parser.error("write one of --set k8s|batch, --list, --resume, --reserve, --unreserve")
    if changes_reservations(options):
        needed = (options.node_type, options.num_nodes, options.begins, options.until)
        if options.unreserve is None and not all(needed):
            parser.error("--reserve needs --node-type, --num-nodes, --from and --until")
        if options.node_name or options.dry_run:
            parser.error("--node-name and --dry-run do not go with --reserve and --unreserve")
        return options
    if options.node_name and (options.node_type or options.num_nodes):
        parser.error("--node-name names the node; leave --node-type and --num-nodes out")
    if options.exclude and not (options.direction == "k8s" and options.node_type):
        parser.error("--exclude goes with --set k8s --node-type: nothing else chooses nodes")
    if options.direction is None:
        return options
    if bool(options.node_type) != bool(options.num_nodes):
        parser.error("--node-type and --num-nodes go together")
    if not options.node_name and not options.node_type:
        parser.error("--node-name, or --node-type with --num-nodes, is required")
    return options


def changes_reservations(options: argparse.Namespace) -> bool:
    """Returns whether the call has --reserve or --unreserve, even with an empty name."""
    return options.reserve is not None or options.unreserve is not None


def _version() -> str:
    from importlib.metadata import version  # costs 20 ms, which only this option needs

    return version("dnm")


def main(arguments: Sequence[str] | None = None, machines: Machines = Machines.OWN) -> None:
    """Runs the program and ends the process with its exit code."""
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments, machines)
    try:
        keys = ("allow_preempt", "force", "account", "leave_drained")
        overrides = {key: getattr(options, key, None) or None for key in keys}
        settings = load_settings(overrides, os.environ, options.config, machines)
        code = run(options, settings)
        print(end="", flush=True)
    except BrokenPipeError:  # the reader has closed the pipe, as head does
        os._exit(ExitCode.OK if options.list else ExitCode.FAILED)
    except (DnmError, OSError, MemoryError) as error:  # of this host: a full disk
        text = describe_shortage(error) or printable(str(error))
        print(f"{machines.value}: {text}", file=sys.stderr)
        code = getattr(error, "exit_code", ExitCode.FAILED)
    sys.exit(code)


def nodeset_main() -> None:
    """Runs nodeset-convert: the entry point of that program."""
    main(machines=Machines.PODS)


def bridge_main() -> None:
    """Runs bridge-convert: the entry point of that program."""
    main(machines=Machines.BRIDGED)


def run(options: argparse.Namespace, settings: Settings) -> int:
    if options.list:
        return show_list(options, settings)
    if changes_reservations(options):
        from dnm.converters.event_reservations import reserve, unreserve

        do = unreserve if options.reserve is None else reserve
        return do(options, settings, listing.connect_slurm(settings))
    # The import loads Kubernetes, for which --list has no time.
    from dnm.converters.convert_nodes import ConvertCall
    from dnm.converters.pool import program_of

    return ConvertCall(options, settings, program_of(settings.machines)).run()


def _judge_of(machines: Machines) -> Judge | None:
    """Returns the program's function that adjusts verdicts by Kubernetes' state, if it has one."""
    if machines is Machines.OWN:
        return None
    from dnm.converters.pool import program_of

    return program_of(machines).judge


def show_list(options: argparse.Namespace, settings: Settings) -> int:
    facts, judged, claimed = judge_all(
        settings, _judge_of(settings.machines), lambda text: print(printable(text), file=sys.stderr)
    )
    claims = claimed.claims
    judged = listing.with_reasons(judged, claims or {}, settings)
    of = ""
    if options.node_name:
        of = f" named '{options.node_name}'"
        judged = [node for node in judged if node.node.name == options.node_name]
    elif options.node_type:
        of = f" of type '{options.node_type}'"
        judged = [node for node in judged if settings.is_of_type(node.node.name, options.node_type)]
    types = {settings.type_of(node.node.name) for node in judged}
    jobs = listing.list_waiting_jobs(facts, settings.res_name, settings.type_of)
    waiting = [job for job in jobs if job.node_type in types]
    if options.output == "json":
        reserved = listing.reservations_of(facts, settings.res_name)
        print(listing.list_as_json(judged, claims, waiting, reserved, _further_options(settings)))
    else:
        shown = {node.node.name for node in judged}
        shown_claims = {node: claim for node, claim in (claims or {}).items() if node in shown}
        more = [
            *listing.describe_waiting(waiting, facts.read_at),
            *describe_claims(shown_claims, settings),
        ]
        print(listing.list_as_text(judged, facts.jobs, settings, of, more))
    if options.node_name and not judged:
        raise DnmError(f"Slurm knows no node {options.node_name}")
    return ExitCode.OK


def _further_options(settings: Settings) -> tuple[str, ...]:
    """Returns the options that `--list` reports as supported. Few work with slurmrestd."""
    if settings.slurmrestd_url:
        return (LEAVE_DRAINED,)
    charges = False
    if settings.machines is not Machines.BRIDGED:
        with suppress(SlurmRefused):
            charges = listing.connect_slurm(settings).keeps_accounts()
    optional = (RESERVE, LEAVE_DRAINED) if settings.machines is Machines.OWN else (LEAVE_DRAINED,)
    return (*optional, CHARGE) if charges else optional


if __name__ == "__main__":
    main()
