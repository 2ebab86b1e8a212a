"""The hooks through which a rule (an option of the planner) changes plans, and their parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from dnm.model.config import Config, NamespacePolicy
from dnm.model.lent import ConversionRequest, LentNode, Phase
from dnm.model.registry import Registry
from dnm.model.value import Value

if TYPE_CHECKING:
    from dnm.model.batch import BatchNode
    from dnm.model.close_look import FactsRequest
    from dnm.model.node import Node
    from dnm.model.plan import Action, RelabelNode
    from dnm.model.reason import ReasonText
    from dnm.model.verdict import NodeVerdict
    from dnm.plan.facts import Facts, NodeTransition
    from dnm.plan.findings import Findings
    from dnm.plan.inputs import Inputs
    from dnm.plan.limits import CurrentLimits
    from dnm.sizing.caps import Bound

    Rows = Mapping[str, BatchNode] | None  # None: the state in Slurm is unknown


class CountedFrom(Value):
    """The inputs from which a rule computes its bounds on lent nodes. `resumable` has the number of
    claimed nodes by type. `is_move`: the bounds are for moves, which take no node from Slurm."""

    config: Config
    registry: Registry
    facts: Facts
    resumable: Mapping[str, int] = {}
    is_move: bool = False


class Look(Value):
    """The inputs of decisions about nodes. `nodes` has the transition of each node in this run,
    `current` the limits before any node is cordoned."""

    inputs: Inputs
    nodes: Mapping[str, NodeTransition]
    current: CurrentLimits


class Exclusion(Value):
    """The reason why a node is excluded from lending, and whether it is returned if it is lent."""

    why: str
    must_return: bool


class NodeFloor(Value):
    """A minimum of nodes for a namespace, whether or not pods need them: `nodes` in all, among them
    those in `of_type`. `why` is a clause for messages. The highest of several minimums applies.
    Demand may exceed it, and every cap applies."""

    namespace: str
    nodes: int
    why: str
    of_type: Mapping[str, int] = {}


class Moves(Value):
    """The moves of nodes to another queue in this run. `begun` nodes are cordoned now. `relabels`
    exchanges the labels and taints of nodes that were cordoned before."""

    registry: Registry
    verdicts: Mapping[str, NodeVerdict] = {}
    begun: tuple[str, ...] = ()
    relabels: tuple[RelabelNode, ...] = ()


class Additions(Value):
    """The additions of a rule to the plan after all decisions. `registry` has its new records."""

    registry: Registry
    actions: tuple[Action, ...] = ()
    notes: tuple[str, ...] = ()


class Leave(Value):
    """A reason of a rule to return nodes although their queue uses them. `word` is stored in the
    registry (`Departure.reason`), `reason` is a clause for messages."""

    word: str
    reason: str
    find_nodes: Callable[[Inputs, Registry], Iterable[str]] | None = None
    is_over: Callable[[Inputs, Registry, str], bool] | None = None  # None: never
    needs_lent_since: bool = False


class Edit(Value):
    """A change of the registry, passed to the hook `records`. `inputs` is None in a command."""

    config: Config
    before: Registry
    after: Registry
    now: datetime
    inputs: Inputs | None = None


def in_a_run(record: Callable[[Inputs, Registry], Registry]) -> Callable[[Edit], Registry]:
    """Returns a hook `records` that calls `record` in runs, and does nothing in commands."""
    return lambda change: (
        change.after if change.inputs is None else record(change.inputs, change.after)
    )


class Rule(Value):
    """The hooks of one option of the planner, each None if the option does not need it. `reasons`
    are the reasons for decisions that only this option gives, in the order of the documentation."""

    reasons: tuple[ReasonText, ...] = ()
    # Needs that no pod requests: before the snapshot, and after it.
    wants: Callable[[Config, Registry, datetime], Config] | None = None
    prepares: Callable[[Inputs], Inputs] | None = None
    excuses: Callable[[Inputs, LentNode], bool] | None = None  # a node that no pod used
    # Bounds, and nodes that must not be lent.
    bounds: Callable[[CountedFrom], Iterable[Bound]] | None = None
    excludes: Callable[[Config, Registry, Rows, datetime], Mapping[str, Exclusion]] | None = None
    refuses: Callable[[Config, Registry, Mapping[str, LentNode], Facts], Findings] | None = None
    # Transitions of a lent node.
    looks_at: Callable[[Config, Registry, Sequence[Node]], Iterable[FactsRequest]] | None = None
    phases: Mapping[Phase, Callable[[Config, str, LentNode, Facts], NodeTransition]] = {}
    is_foreign: Callable[[Config, LentNode, Node], bool] | None = None
    annotates: (
        Callable[[Inputs, Mapping[str, NodeTransition]], dict[str, NodeTransition]] | None
    ) = None
    records: Callable[[Edit], Registry] | None = None
    leave: Leave | None = None
    # Actions.
    asks: Callable[[Inputs, ConversionRequest], ConversionRequest] | None = None
    moves: Callable[[Look, Registry], Moves] | None = None
    adds: Callable[[Inputs, Registry, Registry], Additions] | None = None


def raise_floors(config: Config, floors: Iterable[NodeFloor]) -> Config:
    """Returns the configuration in which `min_nodes` of each namespace and type is raised to the
    highest of these minimums, but at most to `max_nodes`."""
    namespaces = dict(config.namespaces)
    for floor in floors:
        if floor.namespace in namespaces:
            namespaces[floor.namespace] = _raised(namespaces[floor.namespace], floor)
    return msgspec.structs.replace(config, namespaces=namespaces)


def _raised(policy: NamespacePolicy, floor: NodeFloor) -> NamespacePolicy:
    most = min(floor.nodes, policy.max_nodes) if isinstance(policy.max_nodes, int) else floor.nodes
    of_type = dict(policy.min_of_type)
    left = most
    for name, count in floor.of_type.items():
        of_type[name] = max(of_type.get(name, 0), min(count, left))
        left -= min(count, left)
    policy = msgspec.structs.replace(policy, min_of_type=of_type)
    if most <= policy.min_nodes:
        return policy
    return msgspec.structs.replace(policy, min_nodes=most, min_nodes_by=floor.why)
