"""A plan in the making: what one run knows and has decided so far. Pure; lives for one `make_plan`.

The steps of a plan (`adoption`, `reversions`, `conversions`) read what those before have settled
and write down what they decide; the planner turns the result into actions.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from dnm.demand.demand import Demand, DemandFacts, gather_demand
from dnm.model.cluster import PodList, QueueLimits, YunikornView
from dnm.model.config import Config
from dnm.model.errors import QueueError
from dnm.model.plan import NodeVerdict, QueueVerdict, Reason, SetQueueLimits, Snapshot, Verdict
from dnm.model.registry import (
    ConversionRequest,
    ConverterProcess,
    LentNode,
    Phase,
    QueueStatus,
    Registry,
    StalledPods,
)
from dnm.model.value import Unreadable
from dnm.plan.brakes import after_return
from dnm.plan.phases import Facts, Step, with_failure
from dnm.queues.document import SourceDocument, parse_document, resolve_document
from dnm.queues.edit import QueueEdit, QueueWants, plan_queue_edit
from dnm.queues.ledger import decode_ledger
from dnm.sizing.node_supply import IncomingNode, NodeSupply

_LEAVING = (Phase.RELEASING, Phase.RETURNING, Phase.FAILED)


def queue_wants(config: Config, registry: Registry, action: SetQueueLimits) -> QueueWants:
    """What the action asks of the queue document, with what the ledger may need to be rebuilt."""
    return QueueWants(
        instance_id=config.instance_id,
        nodes=action.queues,
        floors=action.floors,
        remembered={
            path: status for path, status in registry.last_run.queues.items() if status.is_judged
        },
        adjust_guaranteed=config.adjust_guaranteed,
        allowed_prefixes=config.allowed_queue_prefixes,
    )


class Draft:
    """What a run knows (`snapshot`, `facts`, `source`, `demand`) and has decided so far."""

    def __init__(self, config: Config, registry: Registry, snapshot: Snapshot) -> None:
        self.config = config
        self.snapshot = snapshot
        self.now = snapshot.taken_at
        self.entries: dict[str, LentNode] = dict(registry.nodes)
        self.requests: list[ConversionRequest] = list(registry.requests)
        self.new_requests: list[ConversionRequest] = []
        self.backoffs = dict(registry.backoffs)
        self.breakers = dict(registry.breakers)
        self.stalled = dict(registry.stalled)
        self.last_conversion = registry.last_conversion
        self.before = registry
        self.verdicts: dict[str, NodeVerdict] = {}
        self.queue_verdicts: dict[str, QueueVerdict] = {}
        self.wants_release: list[str] = []
        self.wants_return: list[str] = []
        self.returns: list[str] = []
        self.failed_types: set[str] = set()
        self.notes: list[str] = []
        self.errors: list[str] = []
        self.source: SourceDocument | None = None
        self.refusal = ""
        self.limits: Mapping[str, QueueLimits] = {}
        self.edit: QueueEdit | None = None
        self._edit_is_for: SetQueueLimits | None = None
        self._read_queues()
        self.demand = self._gather_demand()
        self.facts = self._facts()

    # --- what is known ------------------------------------------------------------------------

    def _read_queues(self) -> None:
        maps = self.snapshot.queue_maps
        if isinstance(maps, Unreadable):
            self.refusal = maps.error
            return
        try:
            asked = (self.config.yunikorn_cm_namespace, self.config.yunikorn_cm_name)
            self.source = resolve_document(*maps, asked)
            self.limits = parse_document(self.source.text).queues
        except QueueError as error:
            self.source, self.refusal = None, str(error)
            self.errors.append(self.refusal)

    def _gather_demand(self) -> Demand | None:
        pods, yunikorn = self.snapshot.pods, self.snapshot.yunikorn
        if isinstance(pods, Unreadable):
            return None
        known = DemandFacts(
            now=self.now,
            yunikorn=yunikorn if isinstance(yunikorn, YunikornView) else None,
            claims=self.snapshot.claims,
            stalled=self.stalled,
        )
        demand = gather_demand(pods.pods, self.config, self.limits, known)
        self.stalled = dict(demand.stalled)
        return demand

    def _facts(self) -> Facts:
        nodes, batch, pods = self.snapshot.nodes, self.snapshot.batch, self.snapshot.pods
        use = self.demand.nodes if self.demand else {}
        return Facts(
            now=self.now,
            nodes=None if isinstance(nodes, Unreadable) else {node.name: node for node in nodes},
            batch=None if isinstance(batch, Unreadable) else batch,
            working_pods=None if self.demand is None else {n: u.work_pods for n, u in use.items()},
            sees_all_pods=isinstance(pods, PodList) and pods.cluster_wide and not pods.unreadable,
            running=self.snapshot.running_converters,
            ended=self.snapshot.ended,
        )

    def unreadable_namespaces(self, queue: str) -> list[str]:
        """Monitored namespaces of a queue whose pods could not be read."""
        pods = self.snapshot.pods
        unread = {} if isinstance(pods, Unreadable) else pods.unreadable
        policies = self.config.namespaces.values()
        return sorted(p.name for p in policies if p.queue == queue and p.name in unread)

    # --- what is decided ----------------------------------------------------------------------

    def take(self, name: str, step: Step) -> None:
        """Books what the lifecycle made of a node."""
        before = self.entries[name]
        self.verdicts[name] = step.verdict
        if step.entry is None:
            self.breakers = after_return(self.breakers, before)
            del self.entries[name]
        else:
            self.entries[name] = step.entry
            if step.entry.phase is Phase.FAILED and before.phase is not Phase.FAILED:
                self.errors.append(step.entry.error)
            if step.entry.was_used and not before.was_used:
                self.breakers.pop(before.queue, None)
        if step.verdict.reason is Reason.JOINED:
            self.backoffs.pop(before.node_type, None)
        if step.conversion_failed:
            self.fail_conversion(before.node_type, 1, f"{name} {step.verdict.sentence}")
        if step.note:
            self.errors.append(step.note)
        if step.wants_release:
            self.wants_release.append(name)
        if step.wants_return:
            self.wants_return.append(name)

    def credit_quota_use(self) -> None:
        """A node whose quota is used has schedulable its queue, even if the pods run elsewhere."""
        for name, entry in self.own(Phase.SERVING).items():
            queue = self.demand.queues.get(entry.queue) if self.demand else None
            limit = self.limits.get(entry.queue)
            if entry.was_used or queue is None or limit is None:
                continue
            if any(
                queue.used.get(resource, 0) > limit.max[resource] - entry.counted.get(resource, 0)
                for resource in limit.max.keys() - limit.fixed
            ):
                self.entries[name] = msgspec.structs.replace(entry, was_used=True)
                self.breakers.pop(entry.queue, None)

    def remember_stalled(self, stalled: Mapping[str, StalledPods]) -> None:
        """Pods found out to wait for something else: from now on they ask for nothing."""
        if stalled:
            self.stalled |= stalled
            self.demand = self._gather_demand()

    def fail_conversion(self, node_type: str, count: int, error: str) -> None:
        """A conversion of this type failed: it backs off, once however many nodes it was."""
        if node_type in self.failed_types:
            return
        self.failed_types.add(node_type)
        self.backoffs[node_type] = with_failure(
            self.config, self.backoffs.get(node_type), count, self.now, error
        )

    def change(self, name: str, reason: Reason, verdict: Verdict, **changes: object) -> None:
        """A decision about one node: its record after it, and what is said of it."""
        self.entries[name] = msgspec.structs.replace(self.entries[name], **changes)
        self.say(name, reason, verdict)

    def say(self, name: str, reason: Reason, verdict: Verdict, detail: str = "") -> None:
        self.verdicts[name] = NodeVerdict(node=name, verdict=verdict, reason=reason, detail=detail)

    def own(self, *phases: Phase) -> dict[str, LentNode]:
        """The entries of this instance in these phases, by name."""
        return {
            name: entry
            for name, entry in sorted(self.entries.items())
            if entry.phase in phases and entry.owner == self.config.instance_id
        }

    def overdue_converters(self) -> list[tuple[str, ConverterProcess]]:
        """Converters at work for longer than any run would have let them: their runs are gone."""
        longest = self.config.convert_timeout
        began = [(one.id, one.converter, one.since + longest) for one in self.before.requests]
        began += [
            (name, entry.converter, entry.retry_after or entry.since + longest)
            for name, entry in self.own(Phase.RETURNING).items()
        ]
        return [
            (key, process)
            for key, process, until in began
            if process is not None and self.facts.is_running(process) and self.now > until
        ]

    def node_supply(self) -> NodeSupply:
        """The nodes as the decisions so far leave them."""
        nodes = self.facts.nodes or {}
        incoming = [
            IncomingNode(node_type=r.node_type, namespace=r.namespace, queue=r.queue)
            for r in self.requests
            if not r.is_given_up
            for _ in range(r.count)
        ]
        incoming += [
            IncomingNode(
                node_type=entry.node_type, namespace=entry.namespace, queue=entry.queue, name=name
            )
            for name, entry in self.own(Phase.JOINING).items()
        ]
        return NodeSupply(
            nodes=tuple(nodes[name] for name in sorted(nodes)),
            lent=self.own(Phase.SERVING),
            incoming=tuple(incoming),
            leaving=frozenset(self.own(*_LEAVING)),
        )

    # --- queues -------------------------------------------------------------------------------

    def serving(self) -> dict[str, dict[str, dict[str, int]]]:
        """Queue -> node -> recorded size, of exactly the nodes that serve now."""
        queues: dict[str, dict[str, dict[str, int]]] = {}
        for name, entry in self.own(Phase.SERVING).items():
            queues.setdefault(entry.queue, {})[name] = dict(entry.counted)
        return queues

    def set_queue_limits(self) -> SetQueueLimits:
        """The queue edit as an action."""
        return SetQueueLimits(queues=self.serving(), floors=self.floors())

    def floors(self) -> dict[str, dict[str, int]]:
        """What no limit may shrink below: allocated now, and the largest gang application."""
        if self.demand is None:
            return {}
        return {
            path: {
                name: max(queue.used.get(name, 0), queue.largest_gang.get(name, 0))
                for name in {*queue.used, *queue.largest_gang}
            }
            for path, queue in self.demand.queues.items()
        }

    def plan_queue_edit(self) -> None:
        """What the document must become for the nodes that serve now; `limits` follow it."""
        if self.source is None or self.demand is None:
            self.edit = None
            return
        self.edit = self._edit(self.source)
        self.refusal = self.edit.refusal
        if self.edit.is_changed:
            self.limits = parse_document(self.edit.text).queues
        self._fix_limits(self.edit)

    def look_at_limits(self) -> None:
        """Whether they can be changed, before anything is decided that needs it: a document that
        refuses to grow (its ledger is full) may still shrink."""
        if self.source is None or self.demand is None:
            return
        self.edit = self._edit(self.source)
        if self.edit.refusal:
            nothing_lent = SetQueueLimits(queues={}, floors=self.floors())
            wants = queue_wants(self.config, self.before, nothing_lent)
            self.refusal = plan_queue_edit(self.source, wants).refusal
        self._fix_limits(self.edit)

    def _edit(self, source: SourceDocument) -> QueueEdit:
        """Planned anew only where something else is wanted than before: it parses the document."""
        action = self.set_queue_limits()
        if self.edit is None or self._edit_is_for != action:
            self.edit = plan_queue_edit(source, queue_wants(self.config, self.before, action))
            self._edit_is_for = action
        return self.edit

    def _fix_limits(self, edit: QueueEdit) -> None:
        """Limits that a person set below what is lent: no node raises them, none lowers them."""
        fixed = {(place.queue, place.resource) for place in edit.frozen if place.kind == "max"}
        if fixed:
            self.limits = {
                path: msgspec.structs.replace(
                    one, fixed=frozenset(name for name in one.max if (path, name) in fixed)
                )
                for path, one in self.limits.items()
            }

    def is_shrunk(self, name: str) -> bool:
        """Whether the document that was read no longer counts the node."""
        if self.source is None:
            return False
        try:
            ledger = decode_ledger(self.source.ledger_text)
        except QueueError:
            return False  # `plan_queue_edit` says why
        section = ledger.sections.get(self.config.instance_id)
        return section is None or not any(name in nodes for nodes in section.queues.values())

    def diff(self) -> str:
        if self.edit is None or self.source is None or not self.edit.is_changed:
            return ""
        old, new = (text.splitlines(keepends=True) for text in (self.source.text, self.edit.text))
        return "".join(difflib.unified_diff(old, new, "queues.yaml", "queues.yaml (planned)"))

    def registry(self, status: Mapping[str, QueueStatus] | None = None) -> Registry:
        """The record as it is saved before the first action. It remembers the queues from then on,
        so that a first run that is killed leaves a baseline behind."""
        last_run = self.before.last_run
        if status is not None:
            last_run = msgspec.structs.replace(last_run, queues=dict(status))
        held = tuple(name for name in self.before.held if name in self.entries)
        return msgspec.structs.replace(
            self.before,
            nodes=self.entries,
            requests=(*self.requests, *self.new_requests),
            last_conversion=self.last_conversion,
            backoffs=self.backoffs,
            breakers=self.breakers,
            stalled=self.stalled,
            held=held,
            last_run=last_run,
        )
