"""`dnm convert-test`, which moves a node back and forth, and prints the time of each stage and what
is left on the node."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from dnm.cli.terminal.options import PathOption
from dnm.cli.terminal.output import print_line, print_table
from dnm.converters.convert_test import Round, play_rounds
from dnm.converters.settings import load_settings
from dnm.model.errors import ExitCode
from dnm.model.printable import count_of, printable

_LONGEST = 160


def convert_test(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Node that you have drained in Slurm.")
    ],
    rounds: Annotated[
        int, typer.Option(help="Move the node there and back this many times.", min=1, max=1000)
    ] = 1,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Pass this namespace to the hooks.")
    ] = "",
    config_path: PathOption = None,
) -> int:
    """Move a drained node to Kubernetes and back; report what this changed.

    Drain the node in Slurm first."""
    settings = load_settings({}, os.environ, config_path)
    played: list[Round] = []
    for play_round in play_rounds(settings, node, namespace, rounds, _print_progress):
        played.append(play_round)
        _print_round(play_round, f"Round {len(played)} of {rounds}")
    done = [item for item in played if item.result.result == "ok"]
    rests = [rest for item in played for rest in item.rests]
    print_line((f"{len(done)} of {count_of(rounds, 'round')} succeeded", "heading"))
    for label, things in (
        ("left over", {rest.thing for rest in rests if rest.hook}),
        ("not known whether left over", {rest.thing for rest in rests if not rest.hook}),
    ):
        print_line(f"{label}: {', '.join(sorted(things)) or 'nothing'}", indent=2)
    return ExitCode.FAILED if rests or len(done) < rounds else ExitCode.OK


def _print_progress(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)


def _print_round(item: Round, title: str) -> None:
    result = item.result
    rows = [(stage.stage, f"{stage.seconds:.1f}", stage.result) for stage in result.stages]
    rows.append(("all", f"{sum(stage.seconds for stage in result.stages):.1f}", result.result))
    print_table(f"{title}: {result.node}", ("STAGE", "SECONDS", "RESULT"), rows, "")
    if result.result != "ok":
        return print_line(result.error, indent=2)
    left = [(rest.thing, rest.text[:_LONGEST], rest.hook or "(not known)") for rest in item.rests]
    header = ("LEFT OVER", "WHAT", "HOOK THAT SHOULD CLEAR IT")
    print_table("", header, left, "nothing is left over")
