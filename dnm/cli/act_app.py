"""The verbs that stop, go on, and mend what is recorded: options, and which deed they are."""

from __future__ import annotations

from typing import Annotated

import typer

from dnm.cli import completion
from dnm.cli.by_hand_app import ForOption, UntilOption, deadline_of
from dnm.cli.options import ConfigOption, NamesOutput, NamesOutputOption, ReasonOption
from dnm.cli.verbs import ACT, load_named_config

NodeArgument = Annotated[str, typer.Argument(autocompletion=completion.nodes)]


def add_verbs(app: typer.Typer) -> None:
    """Adds them to the app, in the order in which its help shows them."""
    for verb in (pause, resume, reset, forget, takeover):
        app.command(rich_help_panel=ACT)(verb)


def pause(
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    length: ForOption = "",
    until: UntilOption = "",
    reason: Annotated[str, typer.Option(help="Shown by status; kept in the history.")] = "",
    lending: Annotated[
        bool, typer.Option("--lending", help="Lend nothing; go on returning.")
    ] = False,
    returning: Annotated[
        bool, typer.Option("--returning", help="Return nothing; go on lending.")
    ] = False,
    is_forced: Annotated[
        bool, typer.Option("--force", help="In place of a pause that stops more, or for longer.")
    ] = False,
) -> None:
    """Stop lending and returning until resumed or for a while, or one of them."""
    from dnm.cli import admin
    from dnm.cli.output import print_answer
    from dnm.model.orders import Way

    config = load_named_config(config_path)
    half = None if lending is returning else Way.LENDING if lending else Way.RETURNING
    end = deadline_of(config, length, until)
    print_answer([admin.pause(config, end, reason, half, is_forced=is_forced)], output)


def resume(
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    reason: ReasonOption = "",
) -> None:
    """End the pause."""
    from dnm.cli import admin
    from dnm.cli.output import print_answer

    print_answer([admin.resume(load_named_config(config_path), reason)], output)


def reset(
    name: Annotated[str, typer.Argument(autocompletion=completion.resettable)],
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    reason: ReasonOption = "",
) -> None:
    """Reset a breaker, a back-off or a failed node.

    NAME is a queue (closes its breaker), a node type (ends its back-off), or a failed node (tries
    to give it back again).
    """
    from dnm.cli import admin
    from dnm.cli.output import print_answer

    print_answer([admin.reset(load_named_config(config_path), name, reason)], output)


def forget(
    node: NodeArgument,
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    reason: ReasonOption = "",
) -> None:
    """Drop a node that a person has returned to Slurm."""
    from dnm.cli import admin
    from dnm.cli.output import print_answer

    config = load_named_config(config_path)
    print_answer(
        [admin.forget(config, node, lambda text: yes or typer.confirm(text, err=True), reason)],
        output,
    )


def takeover(
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    reason: ReasonOption = "",
) -> None:
    """Act for the instance from here, in another host's place.

    Only one host's record acts for an instance_id. Stop dnm on the other host first.
    """
    from dnm.cli import admin
    from dnm.cli.output import print_answer

    config = load_named_config(config_path)
    print_answer(
        [admin.take_over(config, lambda text: yes or typer.confirm(text, err=True), reason)], output
    )


def convert_test(
    node: Annotated[str, typer.Argument(help="Drained in Slurm by a person.")],
    rounds: Annotated[int, typer.Option(help="How often.", min=1, max=1000)] = 1,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="That hooks are told.")] = "",
    config_path: ConfigOption = None,
) -> None:
    """Move a node that is out of service to Kubernetes and back, and name what is left over."""
    from dnm.cli import convert_test

    raise typer.Exit(convert_test.convert_test(config_path, node, rounds, namespace))
