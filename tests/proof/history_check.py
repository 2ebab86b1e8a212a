"""A check that the history is complete: its lines explain the phase of every node.

It does not use dnm's code. It reads the lines on disk, and those that the registry still keeps.
Their numbers have no gap, and none is on disk twice. Each line of a node begins with the state in
which the previous one ended; the last equals the registry. So do the lines about waiting jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def lines_on_disk(directory: Path) -> list[dict[str, Any]]:
    """Returns all complete lines of the history files; omits a torn last line."""
    texts = []
    for path in [*sorted(directory.glob("history-*.jsonl")), directory / "history.jsonl"]:
        if path.exists():
            texts += path.read_bytes().split(b"\n")[:-1]
    return [json.loads(text) for text in texts]


def check_history(registry_path: Path) -> list[dict[str, Any]]:
    """Checks that the history lines explain the registry; returns the lines in order."""
    written = lines_on_disk(registry_path.parent)
    numbers = [line["number"] for line in written]
    assert numbers == sorted(set(numbers)), f"duplicate, or out of order: {numbers}"
    registry = json.loads(registry_path.read_bytes()) if registry_path.exists() else {}
    memory = registry.get("memory", {"unwritten": [], "last_number": 0})
    lines = {line["number"]: line for line in [*written, *memory["unwritten"]]}
    assert sorted(lines) == list(range(1, memory["last_number"] + 1)), "a line is lost"
    rows = [lines[number] for number in sorted(lines)]
    _check_nodes(rows, registry.get("nodes", {}))
    _check_jobs(rows, memory.get("jobs", {}))
    open_now = {q for q, item in registry.get("breakers", {}).items() if item["tripped_at"]}
    assert _find_unended(rows, "breaker", "opened") == open_now
    # The first failure is counted, but does not start a back-off.
    waiting = {name for name, item in registry.get("backoffs", {}).items() if item["failures"] > 1}
    assert _find_unended(rows, "backoff", "begun") == waiting
    return rows


def _check_nodes(lines: list[dict[str, Any]], nodes: dict[str, Any]) -> None:
    phases: dict[str, str] = {}
    for line in lines:
        name, before, after = line["object"], line.get("before", ""), line.get("after", "")
        if line["kind"] == "node" or (line["kind"] == "verb" and (before or after)):
            assert phases.get(name, "") == before, (phases.get(name, ""), line)
            phases[name] = after
    left = {name: phase for name, phase in phases.items() if phase}
    assert left == {name: entry["state"]["phase"] for name, entry in nodes.items()}


def _check_jobs(lines: list[dict[str, Any]], now: dict[str, str]) -> None:
    amounts: dict[str, str] = {}
    for line in lines:
        if line["kind"] == "jobs":
            name, before = line["object"], line.get("before", "")
            assert amounts.get(name, "") == before, (amounts.get(name, ""), line)
            amounts[name] = line.get("after", "")
    assert amounts == now


def _find_unended(lines: list[dict[str, Any]], kind: str, begun: str) -> set[str]:
    last = {line["object"]: line["event"] for line in lines if line["kind"] == kind}
    return {name for name, event in last.items() if event == begun}
