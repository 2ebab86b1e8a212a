"""`dnm state`: where the registry is."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from dnm.cli.options import ConfigOption, NamesOutput, NamesOutputOption, ReasonOption
from dnm.cli.verbs import load_named_config, sub_app

state_app = sub_app("Where the registry is: in a file, or in Kubernetes.")


class Kind(StrEnum):
    file = "file"
    kubernetes = "kubernetes"


@state_app.command("move")
def move(
    to: Annotated[Kind, typer.Option("--to", help="file or kubernetes.")],
    config_path: ConfigOption = None,
    output: NamesOutputOption = NamesOutput.text,
    reason: ReasonOption = "",
) -> None:
    """Move the registry; refused while a run is at work."""
    from dnm.cli import admin
    from dnm.cli.output import print_answer

    print_answer([admin.move_state(load_named_config(config_path), to.value, reason)], output)
