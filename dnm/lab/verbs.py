"""The commands to try dnm, `dnm sandbox` and `dnm demo`, which `cli` offers if installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

SpeedOption = Annotated[
    float, typer.Option(help="Run its clock this many times faster.", min=0.1, max=1000)
]
DirectoryOption = Annotated[
    Path | None,
    typer.Option("--dir", help="Use this directory; default: ~/.local/state/dnm/sandbox."),
]


def up(
    directory: DirectoryOption = None,
    nodes_: Annotated[int, typer.Option("--nodes", help="Number of Slurm nodes.", min=0)] = 12,
    workshop: Annotated[bool, typer.Option("--workshop", help="Add 75 pending pods.")] = False,
    port: Annotated[int, typer.Option(help="Port; 0: any free port.", min=0, max=65535)] = 0,
    speed: SpeedOption = 1.0,
    queue_system: Annotated[
        Literal["yunikorn", "resource_quota", "none"],
        typer.Option(help="Queue system that limits the namespaces, or none."),
    ] = "yunikorn",
) -> None:
    """Start an embedded cluster and print how to use it."""
    from dnm.lab.sandbox import commands

    raise typer.Exit(
        commands.up(
            directory,
            nodes=nodes_,
            workshop=workshop,
            port=port,
            speed=speed,
            queue_system=queue_system,
        )
    )


def down(directory: DirectoryOption = None) -> None:
    """Stop the embedded cluster."""
    from dnm.lab.sandbox import commands

    raise typer.Exit(commands.down(directory))


def demo(speed: SpeedOption = 1.0) -> None:
    """Show a workshop of 75 people on an embedded cluster."""
    from dnm.lab.demo.workshop import demo as play

    raise typer.Exit(play(speed=speed))
