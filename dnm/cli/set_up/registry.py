"""`dnm registry move`, which moves the registry to a file on this host, or to Kubernetes."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from dnm.cli.terminal.logs import log_operation
from dnm.cli.terminal.operation import new_operation
from dnm.cli.terminal.options import ConfigOption, NamesOption, ReasonOption
from dnm.model.printable import count_of
from dnm.run.verbs import move_registry_to


def move(
    config: ConfigOption,
    to: Annotated[
        Literal["file", "kubernetes"], typer.Option("--to", help="Move the registry there.")
    ],
    output: NamesOption = "text",
    reason: ReasonOption = "",
) -> str:
    """Move the registry while no run is active."""
    operation = new_operation("registry", f"move to {to}", reason)
    moved, where = move_registry_to(config, to, operation)
    if moved is not None:
        log_operation(operation, config.instance_id)
    nodes = "" if moved is None else f" with {count_of(len(moved.nodes), 'lent node')}"
    text = f"the registry is in {where}{nodes}"
    if moved is None:
        text = f"the registry was already in {where}"
    if config.registry_storage == to:
        return text
    hosts = "on every host" if to == "kubernetes" else "on this host"
    return f"{text}; now set registry = {to} in [settings] of {config.path} {hosts}"
