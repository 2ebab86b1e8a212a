"""`dnm nodes`: the nodes of Slurm, and which of them could be lent now."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from dnm.cli.terminal.commands import show_activity
from dnm.cli.terminal.options import ConfigOption, NamesOption
from dnm.cli.terminal.output import print_document, print_line, print_table
from dnm.converter.node_convert import NodeConvert
from dnm.model.batch import BatchNode
from dnm.model.config import Config
from dnm.model.errors import ConverterError
from dnm.model.value import Unreadable
from dnm.plan.rule import excluded_nodes
from dnm.plan.supply import supply_now
from dnm.run.registry import load_registry


def nodes(
    config: ConfigOption,
    output: NamesOption = "text",
    node_type: Annotated[str, typer.Option("--type", help="Show only nodes of this type.")] = "",
) -> None:
    """Show for each Slurm node whether it could be lent now."""
    if node_type and node_type not in config.node_types:
        types = ", ".join(config.node_types)
        raise typer.BadParameter(
            f"there is no node type {node_type!r}; node types: {types}", param_hint="--type"
        )
    with show_activity("reading nodes"):
        listed = NodeConvert(config, os.environ).list_nodes()
    if isinstance(listed, Unreadable):
        raise ConverterError(listed.error)
    shown = [node for name, node in listed.nodes.items() if node_type in ("", config.type_of(name))]
    now = datetime.now(UTC)
    registry = load_registry(config, now)
    out = excluded_nodes(config, registry, listed.nodes, now)
    supplies = supply_now(config, registry, listed.nodes, now)
    asked = [
        supply.sentence
        for supply in supplies
        if supply.bounds and node_type in ("", supply.node_type)
    ]
    print_batch_nodes(config, shown, out, output, asked)


def print_batch_nodes(
    config: Config,
    shown: Iterable[BatchNode],
    out: Mapping[str, str],
    output: str,
    bounds: Iterable[str] = (),
) -> None:
    """Prints Slurm's nodes, first those that may be lent. `out` maps each excluded node to the
    reason. `bounds` are sentences about how many nodes may be lent."""
    rows = [_with_exclusion(node, out.get(node.name)) for node in shown]
    rows.sort(key=lambda node: (node.verdict, node.name))
    if output != "text":
        documents: list[dict[str, object]] = [msgspec.to_builtins(node) for node in rows]
        for entry in documents:
            if not entry.pop("reports_claim"):
                del entry["claim"]
            entry["exclusion"] = out.get(str(entry["name"]), "")
        document = {"schema": "dnm.nodes/1", "nodes": documents}
        print_document(document, output, (node.name for node in rows))
        return
    header = ["node", "type", "state", "verdict", "reason"]
    cells = [[n.name, config.type_of(n.name) or "", n.state, n.verdict, n.reason] for n in rows]
    print_table("Batch nodes", header, cells, "none", {"verdict": {"OK": "ok", "SKIP": "muted"}})
    for sentence in bounds:
        print_line(sentence)


def _with_exclusion(node: BatchNode, reason: str | None) -> BatchNode:
    """Returns the node. If dnm excludes it from lending for `reason`, its verdict becomes SKIP, and
    `reason` precedes its own reason."""
    if reason is None:
        return node
    besides = f"; {node.reason}" if node.verdict == "SKIP" and node.reason else ""
    return msgspec.structs.replace(node, verdict="SKIP", reason=f"excluded: {reason}{besides}")
