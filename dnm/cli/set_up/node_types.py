"""`dnm node-types`: the settings of each node type, whether its kubelets would start with them, and
the kubelet configuration file. These commands read only the ini, and access no cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from dnm.checks.findings import wrong
from dnm.checks.kubelets import judge, settings_of
from dnm.cli.set_up.check import print_findings
from dnm.cli.terminal.options import OutputOption, PathOption
from dnm.cli.terminal.output import print_document
from dnm.config.files import read_ini
from dnm.config.keys import SETTINGS
from dnm.config.load import find_config_path, parse_node_types
from dnm.config.sections import parse_section, select_entries
from dnm.config.values import suggest
from dnm.kubelet import render as kubelet
from dnm.kubelet.check import check_node_type
from dnm.kubelet.render import Format
from dnm.kubelet.reservation import computed_allocatable
from dnm.model.errors import ConfigError, ExitCode
from dnm.model.node_type import NodeType


def load_node_types(
    path: Path | None, environ: Mapping[str, str]
) -> tuple[Path, dict[str, NodeType], list[str]]:
    """Returns the path of the ini, its node types and all problems of their sections. Ignores all
    other sections and the queue map, so that a file can be checked alone, e.g. in a site's Git.
    Raises ConfigError if it can't be read."""
    file = find_config_path(path, environ)
    problems: list[str] = []
    sections = read_ini(file, problems)
    own = ("node_type", "node_cpu_capacity", "node_memory_capacity")
    keys = {key: SETTINGS[key] for key in own}
    entries = select_entries(sections.get("settings", {}), keys)
    settings = parse_section("settings", entries, keys, problems)
    return file, parse_node_types(sections, settings, {}, problems), problems


def node_types_document(
    types: Mapping[str, NodeType], problems: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the document of `dnm node-types check --output json`, schema dnm.node-types/1."""
    by_type = {name: check_node_type(node_type) for name, node_type in types.items()}
    return {
        "schema": "dnm.node-types/1",
        "ok": not problems
        and not any(problem.is_error for items in by_type.values() for problem in items),
        "problems": list(problems),
        "types": [
            {
                "name": name,
                "size": dict(node_type.size),
                "allocatable_memory": computed_allocatable(node_type.kubelet)
                if node_type.kubelet
                else None,
                "settings": settings_of(node_type.kubelet),
                "problems": msgspec.to_builtins(by_type[name]),
            }
            for name, node_type in types.items()
        ],
    }


def check(
    types: Annotated[
        list[str] | None,
        typer.Argument(metavar="TYPE...", help="Node types to check; default: all."),
    ] = None,
    config_path: PathOption = None,
    output: OutputOption = "text",
) -> int:
    """Check kubelet settings without a cluster; print all problems (exit code 1).

    The command reads only the ini, so that it can run in CI before a change is rolled out."""
    _, configured, problems = load_node_types(config_path, os.environ)
    chosen = {name: _named(configured, name) for name in types} if types else configured
    document = node_types_document(chosen, problems)
    if output != "text":
        print_document(document, output)
    else:
        findings = [wrong(problem, check="configuration") for problem in problems]
        findings += [finding for node_type in chosen.values() for finding in judge(node_type)]
        print_findings(findings)
    return ExitCode.OK if document["ok"] else ExitCode.FAILED


def render(
    node_type: Annotated[
        str, typer.Argument(metavar="TYPE", help="Node type, by its name in the configuration.")
    ],
    form: Annotated[
        Literal["kubelet", "dropin", "kubeadm-patch"],
        typer.Option("--format", help="Print this kind of file."),
    ] = "dropin",
    config_path: PathOption = None,
) -> int:
    """Print the kubelet configuration file for a node of this type."""
    file, types, problems = load_node_types(config_path, os.environ)
    if problems:
        summary = f"{file}: `dnm node-types check` shows every problem"
        raise ConfigError("\n  ".join((summary, *problems)))
    chosen = _named(types, node_type)
    if chosen.kubelet is None:
        return ExitCode.OK
    sys.stdout.write(kubelet.render(chosen.kubelet, Format(form)))
    for caution in kubelet.cautions(chosen.kubelet, Format(form)):
        print(f"dnm: {caution}", file=sys.stderr)
    errors = sum(problem.is_error for problem in check_node_type(chosen))
    if errors:
        print(f"dnm: {errors} wrong: see `dnm node-types check {node_type}`", file=sys.stderr)
    return ExitCode.FAILED if errors else ExitCode.OK


def _named(types: Mapping[str, NodeType], name: str) -> NodeType:
    if name not in types:
        hint = suggest(name, types) or f"; node types: {', '.join(types)}"
        raise ConfigError(f"there is no node type {name}{hint}")
    return types[name]
