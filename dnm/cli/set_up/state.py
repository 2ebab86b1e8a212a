"""`dnm state move`: the registry moves to a file of this host, or into Kubernetes."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from dnm.cli.terminal.logs import log_operation
from dnm.cli.terminal.operation import new_operation
from dnm.cli.terminal.options import ConfigOption, NamesOption, ReasonOption
from dnm.model.printable import count_of
from dnm.run.verbs import move_state


def move(
    config: ConfigOption,
    to: Annotated[Literal["file", "kubernetes"], typer.Option("--to", help="Where to.")],
    output: NamesOption = "text",
    reason: ReasonOption = "",
) -> str:
    """Move the registry; refused during a run."""
    operation = new_operation("state", f"move to {to}", reason)
    moved, where = move_state(config, to, operation)
    if moved is not None:
        log_operation(operation, config.instance_id)
    nodes = "" if moved is None else f" with {count_of(len(moved.nodes), 'lent node')}"
    said = f"the registry is in {where}{nodes}" if moved else f"the registry was in {where} before"
    if config.state == to:
        return said
    hosts = "on every host" if to == "kubernetes" else "here"
    return f"{said}; now set state = {to} in [settings] of {config.path}, {hosts}"
