"""The hooks of a rule, and the values that pass through them."""

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
    from dnm.model.close_look import Asked
    from dnm.model.node import Node
    from dnm.model.plan import Action, RelabelNode
    from dnm.model.reason import Why
    from dnm.model.verdict import NodeVerdict
    from dnm.plan.facts import Facts, NodeTransition
    from dnm.plan.found import Found
    from dnm.plan.inputs import Inputs
    from dnm.plan.limits import StandingLimits
    from dnm.sizing.caps import Bound

    Rows = Mapping[str, BatchNode] | None  # None: what Slurm says of nodes is not known


class CountedFrom(Value):
    """What a rule counts its bounds from. `resumable`: nodes of a type that are claimed already.
    `is_move`: nothing is taken of Slurm."""

    config: Config
    registry: Registry
    facts: Facts
    resumable: Mapping[str, int] = {}
    is_move: bool = False


class Look(Value):
    """What the fates are decided from. `nodes`: what has become of each in this run. `standing`:
    the limits before anything is fenced."""

    inputs: Inputs
    nodes: Mapping[str, NodeTransition]
    standing: StandingLimits


class KeptOut(Value):
    """Why a node may not be lent; `goes_back`: nor serve, if it came all the same."""

    why: str
    goes_back: bool


class NodeFloor(Value):
    """What a namespace is to have at least, whatever its pods ask for now: so many nodes, of them
    so many `of_type`; `why` is a clause that people read. Floors are no demand: the highest holds,
    demand may go above it, and every cap stays in force."""

    namespace: str
    nodes: int
    why: str
    of_type: Mapping[str, int] = {}


class Moves(Value):
    """`begun`: nodes that are fenced now to change their queue. `relabels`: the exchange of labels
    and taints on the others."""

    registry: Registry
    verdicts: Mapping[str, NodeVerdict] = {}
    begun: tuple[str, ...] = ()
    relabels: tuple[RelabelNode, ...] = ()


class Additions(Value):
    """What a rule adds when all else is decided; `registry` is what is remembered of it."""

    registry: Registry
    actions: tuple[Action, ...] = ()
    notes: tuple[str, ...] = ()


class Leave(Value):
    """Why a node leaves although its queue uses it. `word` is what the registry records in
    `LentNode.leaves`, `reason` a clause that people read."""

    word: str
    reason: str
    find_nodes: Callable[[Inputs, Registry], Iterable[str]] | None = None
    is_over: Callable[[Inputs, Registry, str], bool] | None = None  # None: never
    needs_lent_since: bool = False


class Change(Value):
    """A change of the registry, by a run or by an administrator's command; `inputs` is None for a
    command."""

    config: Config
    before: Registry
    after: Registry
    now: datetime
    inputs: Inputs | None = None


def in_a_run(record: Callable[[Inputs, Registry], Registry]) -> Callable[[Change], Registry]:
    """Returns the hook `records` of a rule that records something in runs alone."""
    return lambda change: (
        change.after if change.inputs is None else record(change.inputs, change.after)
    )


class Rule(Value):
    """The hooks of one rule, each None if the rule does not need it. `reasons` are the rule's own,
    in the order in which pages list them."""

    reasons: tuple[Why, ...] = ()
    # What is desired before any pod requests it: before the snapshot, and after it.
    wants: Callable[[Config, Registry, datetime], Config] | None = None
    prepares: Callable[[Inputs], Inputs] | None = None
    excuses: Callable[[Inputs, LentNode], bool] | None = None  # a node that no pod used
    # How many nodes can be lent, and which cannot.
    bounds: Callable[[CountedFrom], Iterable[Bound]] | None = None
    keeps_out: Callable[[Config, Registry, Rows, datetime], Mapping[str, KeptOut]] | None = None
    refuses: Callable[[Config, Registry, Mapping[str, LentNode], Facts], Found] | None = None
    # What happens to a lent node.
    looks_at: Callable[[Config, Registry, Sequence[Node]], Iterable[Asked]] | None = None
    phases: Mapping[Phase, Callable[[Config, str, LentNode, Facts], NodeTransition]] = {}
    is_anothers: Callable[[Config, LentNode, Node], bool] | None = None
    tells: Callable[[Inputs, Mapping[str, NodeTransition]], dict[str, NodeTransition]] | None = None
    records: Callable[[Change], Registry] | None = None
    leave: Leave | None = None
    # What is done.
    asks: Callable[[Inputs, ConversionRequest], ConversionRequest] | None = None
    moves: Callable[[Look, Registry], Moves] | None = None
    adds: Callable[[Inputs, Registry, Registry], Additions] | None = None


def raise_floors(config: Config, floors: Iterable[NodeFloor]) -> Config:
    """Returns the configuration as it is in force now: `min_nodes` of each namespace is the highest
    of its floors, so is that of each node type, and both are at most its `max_nodes`."""
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
