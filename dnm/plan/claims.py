"""Nodes that the batch side tells as claimed for this instance, and nobody has recorded. Pure.

A host was restarted in the middle of a conversion, or a converter was killed with its keeper.
Claims count under the caps. What was on its way back, or may not be gone on with, joins the record
at once; whether an interrupted lending is still wanted is decided with the other conversions
(`resumption.py`). Only the batch side's word makes a claim ours: its marks are out of a kubelet's
reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dnm.model.batch import BatchClaim, BatchNode
from dnm.model.config import Config, NamespacePolicy
from dnm.model.lent import ClaimedNode, ConversionRequest, LentNode, Phase
from dnm.model.node import Node
from dnm.model.printable import printable
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.value import Value
from dnm.model.verdict import NodeVerdict, Verdict
from dnm.plan.facts import Facts
from dnm.plan.rule import unwelcome_nodes


class Claims(Value):
    """`nodes`: taken into the record; `claimed`: those that only count. `notes` and `errors` tell
    of what is new, or needs a person."""

    nodes: Mapping[str, LentNode] = {}
    claimed: Mapping[str, ClaimedNode] = {}
    notes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def set_aside_interrupted(config: Config, registry: Registry, facts: Facts) -> Registry:
    """Returns the registry without the nodes that should be joining, but whose conversion was
    interrupted: they are claims like any other now."""
    nodes = {
        name: entry
        for name, entry in registry.nodes.items()
        if not (
            entry.phase is Phase.JOINING
            and entry.owner == config.instance_id
            and not facts.is_running(entry.converter)
            and facts.is_interrupted(name, config.instance_id)
        )
    }
    return msgspec.structs.replace(registry, nodes=nodes)


def take_in_claims(
    config: Config,
    before: Registry,
    nodes: Mapping[str, LentNode],
    requests: Sequence[ConversionRequest],
    facts: Facts,
) -> Claims:
    """Returns what becomes of each claim of this instance that neither `nodes` nor `requests` hold.
    `before`: as the last run left it. While the batch side can't be read all stays as it was."""
    remembered = {name: one for name, one in before.claimed.items() if name not in nodes}
    if facts.batch is None or facts.nodes is None:
        return Claims(claimed=remembered)
    held, running = (
        _held(requests),
        _held(one for one in requests if facts.is_running(one.converter)),
    )
    found = Claims(claimed=_untold(remembered, facts))
    out = unwelcome_nodes(config, before, facts)
    for name, row in sorted(facts.batch.items()):
        claim = row.claim
        if claim is None or claim.instance != config.instance_id or name in nodes:
            continue
        if not {name, claim.request} & (running if claim.is_interrupted else held):
            entry = before.nodes.get(name)
            if entry is None and claim.direction != "batch" and _is_marked(config, name, facts):
                continue  # it served, and is recorded again by its mark
            if entry is not None and entry.owner == config.instance_id:
                claim = _as_recorded(claim, entry)
            elif claim.direction != "batch":
                claim = _as_worn(config, claim, facts.nodes.get(name))
            case = _Case(
                config=config, name=name, row=row, claim=claim, facts=facts, kept_out=out.get(name)
            )
            found = _merged(found, _judge(case))
    return found


def _is_marked(config: Config, name: str, facts: Facts) -> bool:
    node = (facts.nodes or {}).get(name)
    if node is None or node.mark is None:
        return False
    return node.is_marked_by(config.instance_id) and node.mark.namespace in config.namespaces


def _held(requests: Iterable[ConversionRequest]) -> frozenset[str]:
    """The requests, and the nodes that they have named or are to go on with: what their converter
    has claimed and not left in the middle, they wait for."""
    return frozenset(text for one in requests for text in (one.id, *one.names, one.node) if text)


def _untold(remembered: Mapping[str, ClaimedNode], facts: Facts) -> dict[str, ClaimedNode]:
    """What a converter left behind that does not tell its claims: for as long as Slurm does not
    have it."""
    assert facts.batch is not None
    rows = facts.batch
    return {
        name: one
        for name, one in remembered.items()
        if name not in rows or not (rows[name].tells_claim or rows[name].in_service)
    }


def _as_recorded(claim: BatchClaim, entry: LentNode) -> BatchClaim:
    """For whom it was lent the record knows best."""
    return msgspec.structs.replace(claim, namespace=entry.namespace, node_type=entry.node_type)


def _as_worn(config: Config, claim: BatchClaim, node: Node | None) -> BatchClaim:
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


def _merged(found: Claims, more: Claims) -> Claims:
    return Claims(
        nodes={**found.nodes, **more.nodes},
        claimed={**found.claimed, **more.claimed},
        notes=found.notes + more.notes,
        errors=found.errors + more.errors,
    )


class _Case(Value):
    """One claim, and what is known beside it."""

    config: Config
    name: str
    row: BatchNode
    claim: BatchClaim
    facts: Facts
    kept_out: str | None = None  # why

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

    def counts(self, why: str, *, can_resume: bool = False, error: str = "") -> Claims:
        one = ClaimedNode(
            node_type=self.node_type,
            namespace=self.claim.namespace,
            since=self.claim.since,
            why=why,
            can_resume=can_resume,
        )
        return Claims(claimed={self.name: one}, errors=(error,) if error else ())

    def lent(self, phase: Phase, *, note: str = "", error: str = "") -> Claims:
        one = LentNode(
            node_type=self.node_type,
            namespace=self.claim.namespace,
            queue=self.policy.queue if self.policy else "",
            owner=self.config.instance_id,
            phase=phase,
            since=self.facts.now,
            error=error,
        )
        return Claims(
            nodes={self.name: one},
            notes=(f"node={self.name} {note}",) if note else (),
            errors=(error,) if error else (),
        )


def _judge(case: _Case) -> Claims:
    name, claim, in_service = case.name, case.claim, case.row.in_service
    if claim.is_at_work:
        return case.counts("a converter that no run of dnm has started is at work on it")
    if in_service is None:
        return case.counts("Slurm can't say whether it has it in service")
    if in_service and claim.error and not claim.direction:
        return Claims(notes=(f"{name} is not to be had: {claim.error}",))
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
        return case.counts("its conversion was interrupted", can_resume=True)
    if claim.direction == "k8s" and not case.is_there:
        return case.lent(Phase.RETURNING, note="was being lent for nobody: it goes back")
    if is_known:
        return case.lent(Phase.JOINING, note="is lent, and was not recorded: it is from now on")
    return _judge_ended(case)


def _judge_ended(case: _Case) -> Claims:
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


def claim_verdict(name: str, one: ClaimedNode) -> NodeVerdict:
    """What is said of a node that only counts."""
    return NodeVerdict(node=name, verdict=Verdict.WAIT, reason=Reason.CLAIMED, detail=one.why)
