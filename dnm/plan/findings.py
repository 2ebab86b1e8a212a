"""Nodes in Kubernetes that the registry lacks: those with this instance's annotations (its mark),
those converted manually, and those that a converter has claimed for this instance. Pure.

A mark alone is a hint, which the ledger or Slurm must confirm. A manual conversion is reported, and
only `dnm adopt` records it. Claims count under the caps. An interrupted return, or a claim that
must not be resumed, is recorded at once.

An interrupted lend is useful to a queue that needs a node of its namespace and type, within caps
and restrictions: the conversion is requested by the node's name (`new_requests.py`). If no queue
needs it, the node is recorded as returning, and the next run calls the converter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
from datetime import datetime

import msgspec

from dnm.model.batch import BatchClaim, BatchNode
from dnm.model.config import Config, NamespacePolicy
from dnm.model.lent import ClaimedNode, ConversionRequest, LentNode
from dnm.model.lent_state import Failed, Joining, LentState, Returning
from dnm.model.node import Mark, Node
from dnm.model.orders import Way
from dnm.model.printable import printable
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.model.verdict import NodeVerdict, Verdict
from dnm.plan.breaker import ConversionResult
from dnm.plan.facts import Facts, node_verdict
from dnm.plan.inputs import Inputs
from dnm.sizing.caps import NodePool


class Findings(Value):
    """The findings of a check of nodes. `nodes` are entries to record (of `advance_requests`: all),
    `claimed` only count under caps, `requests` are open, `failures` are failed conversions."""

    nodes: Mapping[str, LentNode] = {}
    claimed: Mapping[str, ClaimedNode] = {}
    requests: tuple[ConversionRequest, ...] = ()
    failures: tuple[ConversionResult, ...] = ()
    request_errors: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    node_errors: tuple[str, ...] = ()  # of nodes in phase failed


def adopt_marked(config: Config, recorded: Container[str], facts: Facts) -> Findings:
    """Records Nodes with this instance's annotations again, if their namespace is monitored and the
    ledger or Slurm confirms that they are lent. Reports the others."""
    nodes, notes, errors = {}, [], []
    for name, node in sorted((facts.nodes or {}).items()):
        mark = node.mark
        if name in recorded or mark is None or mark.instance != config.instance_id:
            continue
        is_lent = facts.is_lent_by(name, config.instance_id)
        if is_lent is None:
            notes.append(
                f"{name} has this instance's mark and is not recorded: it waits until Slurm and "
                "the ledger can be read"
            )
        elif not is_lent:
            errors.append(
                f"{name} has this instance's mark, but neither ledger nor Slurm confirms it: the "
                "mark has no effect. Remove the dynamic-node-manager/ annotations from the Node"
            )
        elif mark.namespace in config.namespaces:
            nodes[name] = _from_mark(config, name, mark, facts.now)
            notes.append(f"node={name} has this instance's mark and is recorded again")
        else:
            errors.append(
                f"{name} has this instance's mark for namespace {printable(mark.namespace, 80)!r}, "
                "which is not monitored: add it to monitored_namespaces, or remove the "
                "dynamic-node-manager/ annotations from the Node"
            )
    return Findings(nodes=nodes, notes=tuple(notes), errors=tuple(errors))


def _from_mark(config: Config, name: str, mark: Mark, now: datetime) -> LentNode:
    """Returns an entry for a Node with dnm's annotations; its queue and type are as configured."""
    policy = config.namespaces[mark.namespace]
    node_type = config.type_of(name) or policy.node_types[0]
    return _newly_recorded(config, node_type, mark.namespace, Joining(since=now))


def _newly_recorded(config: Config, node_type: str, namespace: str, state: LentState) -> LentNode:
    """Returns a new entry in this state for a node that this instance has lent before."""
    policy = config.namespaces.get(namespace)
    return LentNode(
        node_type=node_type,
        namespace=namespace,
        queue=policy.queue if policy else "",
        owner=config.instance_id,
        state=state,
    )


def find_manual(inputs: Inputs, registry: Registry, named: Iterable[str]) -> tuple[str, ...]:
    """Returns the Nodes of `named`, all without a registry entry, that an administrator converted:
    they have no mark or claim of dnm, and are not in service in Slurm. If Slurm was not read, those
    of the last run stay."""
    facts, config = inputs.facts, inputs.config
    coming = {request.node_type for request in registry.requests}
    return tuple(
        name
        for name in named
        if name not in registry.claimed
        and config.type_of(name) not in coming
        and not _has_owner(inputs, name)
        and (facts.batch is None or facts.is_in_service(name) is False)
    )


def _has_owner(inputs: Inputs, name: str) -> bool:
    """Returns whether annotations, the ledger or a converter's claim name an owner of the Node."""
    facts, instance = inputs.facts, inputs.config.instance_id
    mark = (facts.nodes or {})[name].mark
    claim = facts.claim_of(name, instance) or facts.claimed_by_another(name, instance)
    return bool((mark and mark.instance) or name in (facts.lenders or {}) or claim)


def manual_verdict(inputs: Inputs, name: str) -> NodeVerdict:
    """Returns the report on a manually converted node, with the command that adopts it."""
    labels = (inputs.facts.nodes or {})[name].labels if inputs.facts.nodes else {}
    named = [namespace for namespace in inputs.config.namespaces if labels.get(namespace) == "true"]
    detail = (
        f"`dnm adopt {name} --namespace {named[0] if named else 'NAMESPACE'}` starts managing it"
    )
    return node_verdict(name, Verdict.WAIT, Reason.MANUAL, detail)


def complete_claim(
    config: Config, claim: BatchClaim, entry: LentNode | None, node: Node | None
) -> BatchClaim:
    """Returns a converter's claim, corrected by the node's registry entry or else by its Node."""
    if entry is not None and entry.owner == config.instance_id:
        return msgspec.structs.replace(claim, namespace=entry.namespace, node_type=entry.node_type)
    return claim if claim.direction == "batch" else _complete_from_node(config, claim, node)


def _complete_from_node(config: Config, claim: BatchClaim, node: Node | None) -> BatchClaim:
    """Returns the claim with the namespace in the Node's annotations, or of its label if those are
    lost. The converter's journal has the namespace of the lend, but the node may have moved since.
    As long as the lend has not ended, the node cannot have moved, and the claim is unchanged."""
    if node is None or claim.direction:
        return claim
    if node.mark is not None and node.is_marked_by(config.instance_id):
        return msgspec.structs.replace(claim, namespace=printable(node.mark.namespace, 80))
    labelled = [name for name in config.namespaces if node.labels.get(name) == "true"]
    has_moved = claim.namespace in config.namespaces and claim.namespace not in labelled
    if not has_moved or len(labelled) != 1:
        return claim
    return msgspec.structs.replace(claim, namespace=labelled[0])


class ClaimCase(Value):
    """A converter's claim on a node, with the facts for the decision about it."""

    config: Config
    name: str
    row: BatchNode
    claim: BatchClaim
    facts: Facts
    exclusion: str | None = None  # its reason
    hold: str = ""  # how to end the hold that keeps it as it is

    @property
    def node_type(self) -> str:
        return self.config.type_of(self.name) or self.claim.node_type

    @property
    def policy(self) -> NamespacePolicy | None:
        return self.config.namespaces.get(self.claim.namespace)

    @property
    def is_there(self) -> bool:
        """Returns whether Kubernetes has a Node with the name of the claimed node."""
        return self.name in (self.facts.nodes or {})

    def counts(self, why: str, *, can_resume: bool = False, error: str = "") -> Findings:
        node = ClaimedNode(
            node_type=self.node_type,
            namespace=self.claim.namespace,
            since=self.claim.since,
            why=why,
            can_resume=can_resume,
        )
        return Findings(claimed={self.name: node}, errors=(error,) if error else ())

    def lent(self, state: LentState, note: str) -> Findings:
        node = _newly_recorded(self.config, self.node_type, self.claim.namespace, state)
        return Findings(nodes={self.name: node}, notes=(f"node={self.name} {note}",))

    def failed(self, error: str) -> Findings:
        state = Failed(since=self.facts.now, error=error)
        node = _newly_recorded(self.config, self.node_type, self.claim.namespace, state)
        return Findings(nodes={self.name: node}, node_errors=(error,))


def judge_claim(case: ClaimCase) -> Findings:
    """Decides whether a claimed node only counts under caps, or is recorded, and in which phase."""
    name, claim, in_service = case.name, case.claim, case.row.in_service
    returning = Returning(since=case.facts.now)
    if claim.is_at_work:
        return case.counts("a converter that no run of dnm has started is at work on it")
    if in_service is None:
        return case.counts("Slurm can't report whether it has it in service")
    if in_service and claim.error and not claim.direction:
        return Findings(notes=(f"{name} is not available: {claim.error}",))
    if in_service:
        why = (
            f"Slurm has it in service ({case.row.state}), so dnm does not change it; when its jobs "
            f"have ended, 'node-convert --resume --node-name {name}' ends its conversion"
        )
        return case.counts(why, error=f"{name} is claimed: {why}")
    if claim.direction == "batch":
        note = "was being returned when its converter died: the return continues"
        return case.lent(returning, note)
    if claim.error:
        error = (
            f"the conversion of {name} was interrupted: {claim.error}; fix that, then "
            f"`dnm reset {name}` returns it to Slurm"
        )
        return case.failed(error)
    if claim.direction == "k8s" and case.exclusion:
        note = f"was being lent and is excluded ({case.exclusion}): it is returned"
        return case.lent(returning, note)
    is_valid = case.policy is not None and case.node_type in case.config.node_types
    if claim.direction == "k8s" and is_valid:
        return case.counts(f"its conversion was interrupted{case.hold}", can_resume=not case.hold)
    if claim.direction == "k8s" and not case.is_there:
        return case.lent(returning, "was being lent for no queue: it is returned")
    if is_valid:
        state = Joining(since=case.facts.now)
        return case.lent(state, "is lent and was not recorded: it is recorded now")
    return _judge_ended(case)


def _judge_ended(case: ClaimCase) -> Findings:
    """Decides about a claimed node if the claim's namespace is missing or not configured."""
    name, claim, config = case.name, case.claim, case.config
    until = (claim.since or case.facts.now) + config.convert_timeout + config.join_timeout
    if claim.since is not None and not claim.namespace and case.facts.now < until:
        return case.counts(f"another host's converter may be at work on it until {until:%H:%M} UTC")
    if not case.is_there:
        error = (
            f"{name} is claimed in Slurm for '{config.instance_id}', no conversion runs, and "
            "Kubernetes has no such Node: make sure that kubeconfig_path still names the cluster "
            f"it was lent to, then `dnm reset {name}` returns it to Slurm"
        )
        return case.failed(error)
    target = f"namespace '{claim.namespace}'" if claim.namespace else "an unknown namespace"
    why = (
        f"it is lent for {target} of type '{case.node_type}', which this configuration does not "
        f"have: '{config.node_convert_path} --set batch --node-name {name}' returns it"
    )
    return case.counts(why, error=f"{name} is claimed: {why}")


def claim_verdict(name: str, node: ClaimedNode) -> NodeVerdict:
    """Returns the report on a claimed node that is not lent: it only counts under the caps."""
    return node_verdict(name, Verdict.WAIT, Reason.CLAIMED, node.why)


# --- interrupted lends -------------------------------------------------------------------------

_NOT_WANTED = "its conversion was interrupted and no queue needs it: it is returned"


def resumable_nodes(config: Config, registry: Registry) -> dict[NodePool, list[str]]:
    """Returns, by pool (queue, namespace, type), the nodes with an interrupted lend to resume."""
    by_pool: dict[NodePool, list[str]] = defaultdict(list)
    for name, claim in sorted(registry.claimed.items()):
        policy = config.namespaces.get(claim.namespace)
        if claim.can_resume and policy is not None:
            by_pool[NodePool(policy.queue, claim.namespace, claim.node_type)].append(name)
    return dict(by_pool)


def return_unwanted(
    inputs: Inputs,
    registry: Registry,
    wanted: Mapping[NodePool, int],
    undecided: Collection[str],
    named: Collection[tuple[NodePool, str]] = (),
) -> tuple[Registry, dict[str, NodeVerdict]]:
    """Starts to return nodes of interrupted lends that no request needs any more. `wanted` has the
    number of nodes that waiting requests need, by pool. Queues in `undecided` are skipped. If Slurm
    was not read, or returns are paused, nothing changes."""
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
            state = Returning(since=inputs.now)
            nodes[name] = _newly_recorded(inputs.config, pool.node_type, pool.namespace, state)
            verdicts[name] = node_verdict(name, Verdict.REVERT, Reason.CLAIMED, _NOT_WANTED)
    return msgspec.structs.replace(registry, nodes=nodes, claimed=claimed), verdicts
