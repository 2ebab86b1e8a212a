"""Values with sensible defaults, for tests that set one part of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import msgspec

from dnm.host.faults import inject_faults
from dnm.model.batch import BatchNode
from dnm.model.config import Config, NamespacePolicy
from dnm.model.departure import Departure
from dnm.model.lent import ConversionRequest, LentNode, Phase, RequestEnd
from dnm.model.lent_state import LentState
from dnm.model.node import Mark, Node
from dnm.model.node_type import NodeType
from dnm.model.registry import Registry
from dnm.model.share import Share
from dnm.plan.facts import Facts
from dnm.run.registry import encode_registry
from dnm.run.state import FileState

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
SIZE = {"cpu": 128_000, "memory": 256 * 10**9}
COUNTED = {**SIZE, "pods": 110}  # the size of a_node
QUEUE = "root.anvil.services.dev"
MARK = Mark(instance="prod", node_type="a", namespace="dev", queue=QUEUE)
FENCED = msgspec.structs.replace(MARK, fenced=True)


@contextmanager
def struck_at(point: str, when: str, error: BaseException) -> Iterator[None]:
    """Raises the error when dnm passes the fault point within the block, and expects it to leave
    the block. KeyboardInterrupt acts like SIGKILL, since dnm does not catch it."""
    import pytest  # the benchmark does without pytest

    def strike(passed: str, at: str) -> None:
        if (passed, at) == (point, when):
            raise error

    with inject_faults(strike), pytest.raises(type(error)):
        yield


def a_policy(**changes: Any) -> NamespacePolicy:
    return NamespacePolicy(**{"name": "dev", "queue": QUEUE, "node_types": ("a",), **changes})


def a_config(state_dir: Path = Path("/nonexistent"), **changes: Any) -> Config:
    policy = a_policy()
    values: dict[str, Any] = {
        "path": state_dir / "dnm.ini",
        "namespaces": {"dev": policy},
        "node_types": {"a": NodeType(name="a", size=SIZE)},
        "state_dir": state_dir,
        "converted_nodes_path": state_dir / "converted_nodes.json",
    }
    return Config(**{**values, **changes})


def a_node(name: str = "a001", **changes: Any) -> Node:
    values: dict[str, Any] = {
        "name": name,
        "allocatable": COUNTED,
        "labels": {"dev": "true"},
        "mark": MARK,
        "resource_version": "1",
    }
    return Node(**{**values, **changes})


def a_lent_node(phase: Phase = Phase.SERVING, **changes: Any) -> LentNode:
    values: dict[str, Any] = {
        "node_type": "a",
        "namespace": "dev",
        "queue": QUEUE,
        "owner": "prod",
        "phase": phase,
        "since": NOW - timedelta(minutes=5),
        "counted": {} if phase is Phase.JOINING else dict(COUNTED),
    }
    return lent_of({**values, **changes})


_REQUIRED: dict[Phase, dict[str, Any]] = {
    Phase.MOVING: {"to": "notebook"},
    Phase.FAILED: {"error": "it failed"},
}
_STATES = {state.__struct_config__.tag: state for state in get_args(LentState)}


def lent_of(values: dict[str, Any]) -> LentNode:
    """Builds a lent node from field values. Fields that only its phase has are set in its state."""
    phase = values.pop("phase")
    state = _STATES[phase.value]
    of_phase = {name: values.pop(name) for name in state.__struct_fields__ if name in values}
    eviction = values.pop("eviction", None)
    if reason := values.pop("leaves", None):
        values["departure"] = Departure(reason=reason, eviction=eviction)
    return LentNode(state=state(**{**_REQUIRED.get(phase, {}), **of_phase}), **values)


def a_request(**changes: Any) -> ConversionRequest:
    values: dict[str, Any] = {
        "id": "r1",
        "node_type": "a",
        "namespace": "dev",
        "queue": QUEUE,
        "owner": "prod",
        "count": 1,
        "since": NOW - timedelta(minutes=1),
        "nodes_before": (),
    }
    values |= changes
    facts = {name: values.pop(name) for name in ("error", "is_abandoned") if name in values}
    if values.pop("ended", False) or any(facts.values()):
        values["end"] = RequestEnd(**facts)
    return ConversionRequest(**values)


def a_batch_node(name: str = "a001", in_service: bool | None = True, **changes: Any) -> BatchNode:
    state = {True: "IDLE", False: "DOWN+DRAIN", None: "UNKNOWN"}[in_service]
    values: dict[str, Any] = {"state": state, "verdict": "OK" if in_service else "SKIP"}
    return BatchNode(name=name, in_service=in_service, **{**values, **changes})


def facts(
    nodes: list[Node] | None = None,
    batch: list[BatchNode] | None = None,
    working_pods: dict[str, int] | None = None,
    **changes: Any,
) -> Facts:
    values: dict[str, Any] = {
        "now": NOW,
        "nodes": {node.name: node for node in nodes or []},
        "batch": {node.name: node for node in batch or []},
        "working_pods": working_pods if working_pods is not None else {},
        "running": frozenset(),
    }
    return Facts(**{**values, **changes})


def write_registry(path: Path, registry: Registry) -> bool:
    """Writes the registry to a file as a run does. Returns whether the content had to change."""
    state = FileState(a_config(path.parent))
    state.path = path
    return state.write(encode_registry(registry))


def count_of(cap: int | Share) -> int:
    """Asserts that a cap is a number, as in all simulated worlds, and returns it."""
    assert isinstance(cap, int)
    return cap
