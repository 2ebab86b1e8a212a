"""The options that many commands share, and the loading of the configuration that they name."""

from __future__ import annotations

from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal

import typer

from dnm.cli.terminal import completion
from dnm.cli.terminal.commands import config_named_before, named_before
from dnm.model.config import Config

_CONFIG = "Read this file; default: $DNM_CONFIG, else /etc/dynamic-node/dynamic_node_config.ini."


DnmConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help=_CONFIG)]
PathOption = Annotated[
    Path | None, typer.Option("--config", "-c", callback=named_before, help=_CONFIG)
]
# The file is read before the command begins.
ConfigOption = Annotated[
    Config,
    typer.Option(
        "--config", "-c", callback=config_named_before, parser=Path, metavar="<path>",
        help=_CONFIG, default_factory=NoneType, show_default=False,
    ),
]  # fmt: skip
NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", help="Namespace that gets the nodes, one of monitored_namespaces.",
        autocompletion=completion.namespaces,
    ),
]  # fmt: skip
OutputOption = Annotated[
    Literal["text", "json", "yaml"],
    typer.Option("--output", "-o", help="Print text, json or yaml."),
]
NamesOption = Annotated[
    Literal["text", "json", "yaml", "name"],
    typer.Option("--output", "-o", help="Print text, json, yaml, or only names (name)."),
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Record this reason in the history.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
ForOption = Annotated[str, typer.Option("--for", help="Last for this time: 90m, 2h or 1d.")]
UntilOption = Annotated[
    str,
    typer.Option(
        "--until", help="Last until 17:00 (in events_zone), 17:00+01:00 or 2026-12-01T17:00."
    ),
]
NowOption = Annotated[bool, typer.Option("--now", help="Start a run now; do not wait for one.")]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", autocompletion=completion.nodes)]


def _nodes(text: str = "Names or host lists of nodes: a[001-004].", **more: Any) -> Any:
    return typer.Argument(metavar="NODE...", help=text, show_default=False, **more)


AnyNodes = Annotated[list[str], _nodes()]
LentNodes = Annotated[list[str], _nodes(autocompletion=completion.nodes)]
NodesOrOrders = Annotated[
    list[str],
    _nodes(
        "Lent nodes, host lists of them, or orders, by the names that `dnm lend` printed.",
        autocompletion=completion.nodes,
    ),
]
