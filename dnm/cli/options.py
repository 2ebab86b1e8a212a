"""The options that many verbs have, and the configuration that they name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dnm.cli import completion

if TYPE_CHECKING:
    from dnm.model.config import Config


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


def _named_before(ctx: typer.Context, path: Path | None) -> Path | None:
    """Of the verb, else what stands before it: `dnm --config FILE plan`."""
    before: Path | None = ctx.find_root().params.get("config_path")
    return path or before


DnmConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help=_CONFIG_HELP)]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", callback=_named_before, help=_CONFIG_HELP)
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


def load_named_config(path: Path | None) -> Config:
    """Returns the configuration of the option, of $DNM_CONFIG or of /etc. Raises ConfigError."""
    from dnm.config.load import load_config

    return load_config(path, os.environ)


def is_console_log_asked(environ: Mapping[str, str]) -> bool:
    """Whether $DNM_LOG_CONSOLE asks for the log on stderr, as --log-console does."""
    return environ.get("DNM_LOG_CONSOLE", "").strip().lower() in ("1", "true", "yes", "on")
