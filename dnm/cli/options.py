"""The options that many verbs have, and the configuration that they name."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dnm.model.config import Config


class Output(StrEnum):
    """How a verb prints."""

    text = "text"
    json = "json"


class StatusOutput(StrEnum):
    """How `dnm status` prints."""

    text = "text"
    json = "json"
    prometheus = "prometheus"


class HistoryOutput(StrEnum):
    """How `dnm history` prints."""

    text = "text"
    json = "json"
    csv = "csv"


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The ini file; else $DNM_CONFIG, else the one in /etc."),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text or json.")]
HistoryOutputOption = Annotated[
    HistoryOutput, typer.Option("--output", "-o", help="text, json or csv.")
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept in the history.")]
ConsoleOption = Annotated[bool, typer.Option("--log-console", help="Log to stderr too.")]


def load_named_config(path: Path | None) -> Config:
    """Returns the configuration of the option, of $DNM_CONFIG or of /etc. Raises ConfigError."""
    from dnm.config.load import load_config

    return load_config(path, os.environ)
