"""The options that many verbs have, and the configuration that they name."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnm.cli import completion
from dnm.cli.verbs import named_before

if TYPE_CHECKING:
    pass


class Output(StrEnum):
    """How a verb prints."""

    text = "text"
    json = "json"
    yaml = "yaml"


class NamesOutput(StrEnum):
    """How a verb prints that lists things with names."""

    text = "text"
    json = "json"
    yaml = "yaml"
    name = "name"


class StatusOutput(StrEnum):
    """How `dnm status` prints."""

    text = "text"
    json = "json"
    yaml = "yaml"
    name = "name"
    prometheus = "prometheus"


class HistoryOutput(StrEnum):
    """How `dnm history` prints."""

    text = "text"
    json = "json"
    yaml = "yaml"
    csv = "csv"


_CONFIG_HELP = "The ini file; else $DNM_CONFIG, else the one in /etc."


DnmConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help=_CONFIG_HELP)]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", callback=named_before, help=_CONFIG_HELP)
]
NamespaceOption = Annotated[
    str,
    typer.Option("--namespace", "-n", help="For whom.", autocompletion=completion.namespaces),
]
TypeOption = Annotated[str, typer.Option("--type", help="Only nodes of this type.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text, json or yaml.")]
NamesOutputOption = Annotated[
    NamesOutput, typer.Option("--output", "-o", help="text, json, yaml or name: a name a line.")
]
HistoryOutputOption = Annotated[
    HistoryOutput, typer.Option("--output", "-o", help="text, json, yaml or csv.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept in the history.")]
ConsoleOption = Annotated[bool, typer.Option("--log-console", help="Log to stderr too.")]
