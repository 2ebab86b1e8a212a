"""The verbs that try dnm out: `dnm sandbox`, `dnm demo`; `cli` offers them where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SpeedOption = Annotated[
    float, typer.Option(help="How much faster its time passes.", min=0.1, max=1000)
]
DirectoryOption = Annotated[
    Path | None, typer.Option("--dir", help="Its directory; else one below ~/.local/state.")
]


def up(
    directory: DirectoryOption = None,
    nodes_: Annotated[int, typer.Option("--nodes", help="Batch nodes.", min=0)] = 12,
    workshop: Annotated[bool, typer.Option("--workshop", help="With 75 pending pods.")] = False,
    port: Annotated[int, typer.Option(help="0: a free one.", min=0, max=65535)] = 0,
    speed: SpeedOption = 1.0,
) -> None:
    """Start an embedded cluster and print how to use it."""
    from dnm.lab.sandbox import commands

    raise typer.Exit(
        commands.up(directory, nodes=nodes_, workshop=workshop, port=port, speed=speed)
    )


def down(directory: DirectoryOption = None) -> None:
    """Stop the embedded cluster."""
    from dnm.lab.sandbox import commands

    raise typer.Exit(commands.down(directory))


def demo(speed: SpeedOption = 1.0) -> None:
    """Play a workshop on an embedded cluster."""
    from dnm.lab.demo.workshop import demo as play

    raise typer.Exit(play(speed=speed))
