"""`dnm sandbox`: its verbs and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dnm.cli.verbs import sub_app

sandbox_app = sub_app("An embedded cluster to try dnm on.")
DirectoryOption = Annotated[
    Path | None, typer.Option("--dir", help="Its directory; else one below ~/.local/state.")
]


@sandbox_app.command("up")
def up(
    directory: DirectoryOption = None,
    nodes_: Annotated[int, typer.Option("--nodes", help="Batch nodes.")] = 12,
    workshop: Annotated[bool, typer.Option("--workshop", help="With 75 pending pods.")] = False,
    port: Annotated[int, typer.Option(help="0: a free one.")] = 0,
    speed: Annotated[float, typer.Option(help="How much faster its time passes.")] = 1.0,
) -> None:
    """Start an embedded cluster and say how to use it."""
    from dnm.lab.sandbox import commands

    raise typer.Exit(
        commands.up(directory, nodes=nodes_, workshop=workshop, port=port, speed=speed)
    )


@sandbox_app.command("down")
def down(
    directory: DirectoryOption = None,
    keep: Annotated[bool, typer.Option("--keep", help="The next `up` goes on from here.")] = False,
) -> None:
    """Stop the embedded cluster."""
    from dnm.lab.sandbox import commands

    raise typer.Exit(commands.down(directory, keep=keep))
