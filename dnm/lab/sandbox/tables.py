"""Server-side tables, so that `kubectl get` shows more than names (meta.k8s.io/v1, Table)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from dnm.lab.sandbox.http_values import Answer, Request, is_asked_for, json_answer
from dnm.lab.sandbox.kinds import Kind
from dnm.lab.sandbox.store import Entry, Object, Store

_Row = Callable[[Object], list[Any]]


def wants_table(request: Request) -> bool:
    """kubectl names it first among what it accepts; a watch is answered with plain objects."""
    accept = request.headers.get("accept", "")
    return "as=Table" in accept and not is_asked_for(request.query, "watch")


def table_answer(store: Store, kind: Kind, entries: Sequence[Entry]) -> Answer:
    names, row = _COLUMNS.get(kind.plural, ((), lambda item: []))
    now = store.clock.now()
    definitions = [_column("Name", "name")]
    definitions += [_column(name.lstrip("+"), "", int(name.startswith("+"))) for name in names]
    definitions.append(_column("Age", ""))
    rows = []
    for entry in entries:
        meta = entry.data["metadata"]
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                   "metadata": meta}  # fmt: skip
        cells = [meta["name"], *row(entry.data), _age(meta["creationTimestamp"], now)]
        rows.append({"cells": cells, "object": partial})
    return json_answer({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": str(store.version)},
        "columnDefinitions": definitions, "rows": rows,
    })  # fmt: skip


def _column(name: str, form: str, priority: int = 0) -> Object:
    return {"name": name, "type": "string", "format": form, "priority": priority, "description": ""}


def _age(created: str, now: float) -> str:
    seconds = max(0, int(now - datetime.fromisoformat(created).timestamp()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _pod_row(pod: Object) -> list[Any]:
    containers = pod["status"].get("containerStatuses") or []
    ready = sum(1 for container in containers if container.get("ready"))
    node = pod["spec"].get("nodeName", "")
    return [f"{ready}/{len(pod['spec']['containers'])}", pod_status(pod), "0",
            pod["status"].get("podIP", "<none>"), node or "<none>"]  # fmt: skip


def pod_status(pod: Object) -> str:
    """The word that kubectl prints in the column STATUS."""
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = pod["status"]
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return str(waiting.get("reason", "Waiting"))
    if status.get("reason"):
        return str(status["reason"])
    return "Completed" if status.get("phase") == "Succeeded" else str(status.get("phase"))


def _node_row(node: Object) -> list[Any]:
    conditions = node.get("status", {}).get("conditions") or []
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    words = ["Ready" if ready else "NotReady"]
    words += ["SchedulingDisabled"] if node.get("spec", {}).get("unschedulable") else []
    return [",".join(words), node_roles(node),
            node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", "")]  # fmt: skip


def node_roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return (
        ",".join(key.removeprefix(prefix) for key in labels if key.startswith(prefix)) or "<none>"
    )


_COLUMNS: dict[str, tuple[tuple[str, ...], _Row]] = {
    "pods": (("Ready", "Status", "Restarts", "+IP", "+Node"), _pod_row),
    "nodes": (("Status", "Roles", "Version"), _node_row),
}
