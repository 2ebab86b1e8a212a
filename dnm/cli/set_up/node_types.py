"""`dnm node-types`: what the configuration says of each node type, whether its kubelets would
start, and the file that they get. Asks no cluster and reads nothing but the ini."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dnm.cli.set_up.findings import Finding, doubtful, fine, print_findings, wrong
from dnm.cli.terminal.output import amounts, print_document, print_table
from dnm.config.load import load_node_types
from dnm.config.values import suggest
from dnm.kubelet.check import check_node_type
from dnm.kubelet.render import Format, cautions, render
from dnm.kubelet.reservation import computed_allocatable
from dnm.model.errors import ConfigError, ExitCode
from dnm.model.kubelet import KubeletSettings
from dnm.model.node_type import NodeType
from dnm.model.printable import count_of
from dnm.model.quantity import format_amount

_LONGEST_ANSWER = 1024 * 1024  # bytes; a configuration has some thousand
_FACTS = ("numa_memory", "hugepages_2mi", "hugepages_1gi")


class _Configz(msgspec.Struct):
    kubeletconfig: dict[str, Any]


def node_types_document(
    types: Mapping[str, NodeType], problems: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns what `dnm node-types list` and `check` print as JSON, schema dnm.node-types/1."""
    found = {name: check_node_type(one) for name, one in types.items()}
    return {
        "schema": "dnm.node-types/1",
        "ok": not problems and not any(one.is_error for many in found.values() for one in many),
        "problems": list(problems),
        "types": [
            {
                "name": name,
                "size": dict(one.size),
                "allocatable_memory": computed_allocatable(one.kubelet) if one.kubelet else None,
                "settings": _settings(one.kubelet),
                "problems": msgspec.to_builtins(found[name]),
            }
            for name, one in types.items()
        ],
    }


def _settings(kubelet: KubeletSettings | None) -> dict[str, Any]:
    """The keys that are named, without the machine's facts; reserved_memory as it is written."""
    if kubelet is None:
        return {}
    named: dict[str, Any] = {
        key: getattr(kubelet, key)
        for key in kubelet.__struct_fields__
        if key not in (*_FACTS, "reserved_memory") and getattr(kubelet, key) is not None
    }
    for part in ("kube_reserved", "system_reserved"):  # one key each in the ini
        kept = {name: named.pop(f"{part}_{name}", None) for name in ("cpu", "memory")}
        if text := ", ".join(f"{name}={amount}" for name, amount in kept.items() if amount):
            named[part] = text
    if kubelet.reserved_memory:
        named["reserved_memory"] = ", ".join(
            f"{one.numa_node}: "
            + (one.amount if one.resource == "memory" else f"{one.resource}={one.amount}")
            for one in kubelet.reserved_memory
        )
    return named


def list_node_types(path: Path | None, environ: Mapping[str, str], output: str) -> int:
    """Prints the types; returns the exit code. Raises ConfigError where a section is wrong."""
    types = _types_without_problems(path, environ)
    document = node_types_document(types)
    if output != "text":
        print_document(document, output, types)
        return ExitCode.OK
    rows = []
    for one in document["types"]:
        memory = one["allocatable_memory"]
        gets = "" if memory is None else f"{format_amount('memory', memory)} memory"
        settings = ", ".join(f"{key} = {value}" for key, value in one["settings"].items())
        errors = sum(problem["is_error"] for problem in one["problems"])
        warnings = len(one["problems"]) - errors
        words = [f"{errors} wrong: not lent"] if errors else []
        words += [f"{warnings} to look at"] if warnings else []
        found = ", ".join(words)
        rows.append([one["name"], amounts(one["size"]), gets, found, settings or "none named"])
    header = ["type", "size", "pods get about", "check", "kubelet settings"]
    print_table("Node types", header, rows, "none")
    return ExitCode.OK


def check_node_types(
    path: Path | None, environ: Mapping[str, str], names: Sequence[str], output: str
) -> int:
    """Prints every problem of these types, by default of all; returns 1 if one of them is an error,
    else 0."""
    _, types, problems = load_node_types(path, environ)
    types = {name: _named(types, name) for name in names} if names else types
    document = node_types_document(types, problems)
    if output != "text":
        print_document(document, output)
    else:
        findings = [wrong(problem, check="configuration") for problem in problems]
        findings += [one for node_type in types.values() for one in judge(node_type)]
        print_findings(findings)
    return ExitCode.OK if document["ok"] else ExitCode.FAILED


def judge(node_type: NodeType) -> list[Finding]:
    """Returns a finding for each problem of a type, or one that says that there is none."""
    check = f"node type {node_type.name}"
    problems = check_node_type(node_type)
    if problems:
        return [
            (wrong if one.is_error else doubtful)(one.sentence, check=check) for one in problems
        ]
    named = len(_settings(node_type.kubelet))
    memory = computed_allocatable(node_type.kubelet) if node_type.kubelet else None
    gets = "" if memory is None else f"; pods get about {format_amount('memory', memory)} memory"
    settings = count_of(named, "kubelet setting") if named else "no kubelet settings"
    return [fine(f"{settings}{gets}", check)]


def render_node_type(path: Path | None, environ: Mapping[str, str], name: str, form: Format) -> int:
    """Prints the file on stdout, nothing where nothing is named, and cautions on stderr. Raises
    ConfigError."""
    node_type = _named(_types_without_problems(path, environ), name)
    if node_type.kubelet is None:
        return ExitCode.OK
    sys.stdout.write(render(node_type.kubelet, form))
    for caution in cautions(node_type.kubelet, form):
        print(f"dnm: {caution}", file=sys.stderr)
    errors = sum(problem.is_error for problem in check_node_type(node_type))
    if errors:
        print(f"dnm: {errors} wrong: `dnm node-types check {name}` says what", file=sys.stderr)
    return ExitCode.FAILED if errors else ExitCode.OK


def _types_without_problems(path: Path | None, environ: Mapping[str, str]) -> dict[str, NodeType]:
    file, types, problems = load_node_types(path, environ)
    if problems:
        raise ConfigError("\n  ".join((f"{file}: `dnm node-types check` says it all", *problems)))
    return types


def _named(types: Mapping[str, NodeType], name: str) -> NodeType:
    if name not in types:
        hint = suggest(name, types) or f"; there are {', '.join(types)}"
        raise ConfigError(f"there is no node type {name}{hint}")
    return types[name]
