"""What becomes of nodes that somebody has lent and nobody has recorded: those that carry this
instance's mark, those that came by hand, and those that are claimed for it. Pure.

A mark alone is a hint, which the ledger or Slurm must confirm. What came by hand is seen, named,
and taken in by `dnm adopt` alone. Claims count under the caps. What was on its way back, or may not
be gone on with, joins the record at once.

A lending that stopped in the middle is worth a node to whoever wants one of its namespace and type,
within caps and brakes: it is asked for by name (`new_requests.py`). What nobody wants is taken into
the record as on its way back, and the next run calls the converter for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
from datetime import datetime

import msgspec

from dnm.model.batch import BatchClaim, BatchNode
from dnm.model.config import Config, NamespacePolicy
from dnm.model.lent import ClaimedNode, ConversionRequest, LentNode, Phase
from dnm.model.node import Mark, Node
from dnm.model.orders import Way
from dnm.model.printable import printable
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.model.verdict import NodeVerdict, Verdict
from dnm.plan.breaker import ConversionResult
from dnm.plan.facts import Facts, changed, node_verdict
from dnm.plan.inputs import Inputs
from dnm.sizing.caps import NodePool


class Found(Value):
    """`nodes`: taken into the record, or all that are in it now; `claimed`: those that only count;
    `requests`: those that still wait for nodes; `failures`: conversions that failed. `notes` and
    `errors` tell of what is new, or needs a person."""

    nodes: Mapping[str, LentNode] = {}
    claimed: Mapping[str, ClaimedNode] = {}
    requests: tuple[ConversionRequest, ...] = ()
    failures: tuple[ConversionResult, ...] = ()
    notes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def adopt_marked_nodes(config: Config, recorded: Container[str], facts: Facts) -> Found:
    """Records again what carries our mark, has a monitored namespace, and is lent by more than the
    mark's word; what is said of the others."""
    nodes, notes, errors = {}, [], []
    for name, node in sorted((facts.nodes or {}).items()):
        mark = node.mark
        if name in recorded or mark is None or mark.instance != config.instance_id:
            continue
        is_lent = facts.is_lent_by(name, config.instance_id)
        if is_lent is None:
            notes.append(
                f"{name} carries our mark and is not recorded: it waits until Slurm and the ledger "
                "can be asked"
            )
        elif not is_lent:
            errors.append(
                f"{name} carries our mark, but neither ledger nor Slurm knows it as lent by us: "
                "the mark changes nothing. Take the dynamic-node-manager/ annotations off the Node"
            )
        elif mark.namespace in config.namespaces:
            nodes[name] = _from_mark(config, name, mark, facts.now)
            notes.append(f"node={name} carries our mark and is recorded again")
        else:
            errors.append(
                f"{name} carries our mark for namespace {printable(mark.namespace, 80)!r}, which "
                "is not monitored: add it to monitored_namespaces, or take the "
                "dynamic-node-manager/ annotations off the Node"
            )
    return Found(nodes=nodes, notes=tuple(notes), errors=tuple(errors))


def _from_mark(config: Config, name: str, mark: Mark, now: datetime) -> LentNode:
    """Its queue is the namespace's and its type that of its name, whatever the mark says."""
    policy = config.namespaces[mark.namespace]
    node_type = config.type_of(name) or policy.node_types[0]
    return _newly_recorded(config, node_type, mark.namespace, Phase.JOINING, now)


def _newly_recorded(
    config: Config, node_type: str, namespace: str, phase: Phase, now: datetime
) -> LentNode:
    """Returns the record of a node that this instance has lent before, and that enters a phase."""
    policy = config.namespaces.get(namespace)
    return LentNode(
        node_type=node_type,
        namespace=namespace,
        queue=policy.queue if policy else "",
        owner=config.instance_id,
        phase=phase,
        since=now,
    )


def find_by_hand(inputs: Inputs, registry: Registry, named: Iterable[str]) -> tuple[str, ...]:
    """Returns those Nodes, `named` like a type and not recorded, that Slurm does not have in
    service, and that nobody has marked or claimed: an administrator has converted them. While Slurm
    is not asked those stay that were known."""
    facts, config = inputs.facts, inputs.config
    coming = {request.node_type for request in registry.requests}
    return tuple(
        name
        for name in named
        if name not in registry.claimed
        and config.type_of(name) not in coming
        and not _is_anothers(inputs, name)
        and (facts.batch is None or facts.is_in_service(name) is False)
    )


def _is_anothers(inputs: Inputs, name: str) -> bool:
    """Whether a mark, the ledger or a claim names somebody."""
    facts, instance = inputs.facts, inputs.config.instance_id
    mark = (facts.nodes or {})[name].mark
    claim = facts.claim_of(name, instance) or facts.claimed_by_another(name, instance)
    return bool((mark and mark.instance) or name in (facts.lenders or {}) or claim)


def by_hand_verdict(inputs: Inputs, name: str) -> NodeVerdict:
    """What is said of such a node, with the namespace whose label it carries."""
    labels = (inputs.facts.nodes or {})[name].labels if inputs.facts.nodes else {}
    named = [namespace for namespace in inputs.config.namespaces if labels.get(namespace) == "true"]
    detail = f"`dnm adopt {name} --namespace {named[0] if named else 'NAMESPACE'}` takes it in"
    return node_verdict(name, Verdict.WAIT, Reason.BY_HAND, detail)


def claim_as_known(
    config: Config, claim: BatchClaim, entry: LentNode | None, node: Node | None
) -> BatchClaim:
    """Returns the claim with what the record, or else its Node, knows better."""
    if entry is not None and entry.owner == config.instance_id:
        return msgspec.structs.replace(claim, namespace=entry.namespace, node_type=entry.node_type)
    return claim if claim.direction == "batch" else _as_its_node_says(config, claim, node)


def _as_its_node_says(config: Config, claim: BatchClaim, node: Node | None) -> BatchClaim:
    """Without a record its Node tells which namespace it serves: a journal tells for which it was
    lent, and it may have moved since. By its mark; where that is lost, by its label. As long as its
    lending has not ended it can't have moved, and its journal knows."""
    if node is None or claim.direction:
        return claim
    if node.mark is not None and node.is_marked_by(config.instance_id):
        return msgspec.structs.replace(claim, namespace=printable(node.mark.namespace, 80))
    worn = [name for name in config.namespaces if node.labels.get(name) == "true"]
    has_moved = claim.namespace in config.namespaces and claim.namespace not in worn
    if not has_moved or len(worn) != 1:
        return claim
    return msgspec.structs.replace(claim, namespace=worn[0])


class Case(Value):
    """Holds one claim, and what is known beside it."""

    config: Config
    name: str
    row: BatchNode
    claim: BatchClaim
    facts: Facts
    kept_out: str | None = None  # why
    hold: str = ""  # how that of a person ends, which keeps it as it is

    @property
    def node_type(self) -> str:
        return self.config.type_of(self.name) or self.claim.node_type

    @property
    def policy(self) -> NamespacePolicy | None:
        return self.config.namespaces.get(self.claim.namespace)

    @property
    def is_there(self) -> bool:
        """Whether Kubernetes has its Node."""
        return self.name in (self.facts.nodes or {})

    def counts(self, why: str, *, can_resume: bool = False, error: str = "") -> Found:
        node = ClaimedNode(
            node_type=self.node_type,
            namespace=self.claim.namespace,
            since=self.claim.since,
            why=why,
            can_resume=can_resume,
        )
        return Found(claimed={self.name: node}, errors=(error,) if error else ())

    def lent(self, phase: Phase, *, note: str = "", error: str = "") -> Found:
        now, namespace = self.facts.now, self.claim.namespace
        node = _newly_recorded(self.config, self.node_type, namespace, phase, now)
        node = changed(node, error=error)
        return Found(
            nodes={self.name: node},
            notes=(f"node={self.name} {note}",) if note else (),
            errors=(error,) if error else (),
        )


def judge_claim(case: Case) -> Found:
    """Says what becomes of it."""
    name, claim, in_service = case.name, case.claim, case.row.in_service
    if claim.is_at_work:
        return case.counts("a converter that no run of dnm has started is at work on it")
    if in_service is None:
        return case.counts("Slurm can't say whether it has it in service")
    if in_service and claim.error and not claim.direction:
        return Found(notes=(f"{name} is not to be had: {claim.error}",))
    if in_service:
        why = (
            f"Slurm has it in service ({case.row.state}), so nothing is done to it; when its work "
            f"has ended, 'node-convert --resume --node-name {name}' ends its conversion"
        )
        return case.counts(why, error=f"{name} is claimed: {why}")
    if claim.direction == "batch":
        return case.lent(
            Phase.RETURNING, note="was on its way back when its converter died: that goes on"
        )
    if claim.error:
        error = (
            f"{name} stands in the middle of a conversion: {claim.error}; mend that, then "
            f"`dnm reset {name}` returns it to Slurm"
        )
        return case.lent(Phase.FAILED, error=error)
    if claim.direction == "k8s" and case.kept_out:
        note = f"was being lent and is kept out ({case.kept_out}): it goes back"
        return case.lent(Phase.RETURNING, note=note)
    is_known = case.policy is not None and case.node_type in case.config.node_types
    if claim.direction == "k8s" and is_known:
        return case.counts(f"its conversion was interrupted{case.hold}", can_resume=not case.hold)
    if claim.direction == "k8s" and not case.is_there:
        return case.lent(Phase.RETURNING, note="was being lent for nobody: it goes back")
    if is_known:
        return case.lent(Phase.JOINING, note="is lent, and was not recorded: it is from now on")
    return _judge_ended(case)


def _judge_ended(case: Case) -> Found:
    """Claimed, and nothing here knows for whom, or the configuration does not have it any more."""
    name, claim, config = case.name, case.claim, case.config
    until = (claim.since or case.facts.now) + config.convert_timeout + config.join_timeout
    if claim.since is not None and not claim.namespace and case.facts.now < until:
        return case.counts(f"another host's converter may be at work on it until {until:%H:%M} UTC")
    if not case.is_there:
        error = (
            f"{name} is claimed in Slurm for '{config.instance_id}', nothing is under way, and "
            "Kubernetes has no such Node: make sure that kubeconfig_path still names the cluster "
            f"it was lent to, then `dnm reset {name}` returns it to Slurm"
        )
        return case.lent(Phase.FAILED, error=error)
    whom = f"namespace '{claim.namespace}'" if claim.namespace else "a namespace that is not known"
    why = (
        f"it is lent for {whom} of type '{case.node_type}', which this configuration does not "
        f"have: '{config.node_convert_path} --set batch --node-name {name}' returns it"
    )
    return case.counts(why, error=f"{name} is claimed: {why}")


def claim_verdict(name: str, node: ClaimedNode) -> NodeVerdict:
    """What is said of a node that only counts."""
    return node_verdict(name, Verdict.WAIT, Reason.CLAIMED, node.why)


# --- interrupted lendings ----------------------------------------------------------------------

_NOT_WANTED = "its conversion was interrupted and is not wanted any more: it goes back"


def resumable_nodes(config: Config, registry: Registry) -> dict[NodePool, list[str]]:
    """Returns the nodes that can be gone on with, by what they would be lent as."""
    found: dict[NodePool, list[str]] = defaultdict(list)
    for name, claim in sorted(registry.claimed.items()):
        policy = config.namespaces.get(claim.namespace)
        if claim.can_resume and policy is not None:
            found[NodePool(policy.queue, claim.namespace, claim.node_type)].append(name)
    return dict(found)


def give_back_unwanted(
    inputs: Inputs,
    registry: Registry,
    wanted: Mapping[NodePool, int],
    undecided: Collection[str],
    named: Collection[tuple[NodePool, str]] = (),
) -> tuple[Registry, dict[str, NodeVerdict]]:
    """Takes those that are wanted no more into the record as returning; `wanted`: how many of each
    pool are, by requests that wait. Nothing is decided for `undecided` queues, nor without the
    batch side or in a pause."""
    if inputs.facts.batch is None or inputs.paused(Way.RETURNING):
        return registry, {}
    nodes, claimed = dict(registry.nodes), dict(registry.claimed)
    verdicts = {}
    for pool, names in resumable_nodes(inputs.config, registry).items():
        if pool.queue in undecided:
            continue
        free = [name for name in names if (pool, name) not in named]
        for name in free[wanted.get(pool, 0) :]:
            del claimed[name]
            nodes[name] = _newly_recorded(
                inputs.config, pool.node_type, pool.namespace, Phase.RETURNING, inputs.now
            )
            verdicts[name] = node_verdict(name, Verdict.REVERT, Reason.CLAIMED, _NOT_WANTED)
    return msgspec.structs.replace(registry, nodes=nodes, claimed=claimed), verdicts
