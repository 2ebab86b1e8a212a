"""How many nodes each queue gets: quota and room asked together.

The rule: the least number of nodes after which every pending pod that a node can help has both, and
no trigger holds any more. Pods are first packed onto what is there and on its way, within what the
queues have left up the tree; each further node brings its room, and raises its queue and every
limited ancestor by its size.

    size_queues(config, demand, queues, fleet, supply) -> Sizing
    counting_young(demand) -> Demand      the same, with pods that are too young to ask for nodes

`queues` are the limits that stand after this run's edits: baseline plus the serving nodes. Nodes on
their way (fleet.incoming) are added here. The result says what is wanted, and what of it `supply`
grants; limits per run, cooldown, back-off, breaker and pause are the planner's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dnm.demand.constraints import why_not
from dnm.demand.demand import Demand, ancestors, pending_fingerprint
from dnm.demand.pending import PendingGroup
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config, NamespacePolicy
from dnm.model.plan import QueueVerdict, Reason, Verdict
from dnm.model.value import Value
from dnm.sizing.allotment import Answer, Case, Desk, Helped, budgets_of
from dnm.sizing.node_supply import Expected, Fleet, Supply
from dnm.sizing.packing_input import Survey, survey
from dnm.sizing.verdicts import amount_text, queue_verdict


class Need(Value):
    """Nodes of one type for one namespace of a queue: wanted, and granted by the supply now."""

    queue: str
    namespace: str
    node_type: str
    wanted: int
    granted: int = 0


class Unhelped(Value):
    """Pending pods that no new node would help."""

    queue: str
    namespace: str
    count: int
    names: tuple[str, ...]
    why: str


class QueueSizing(Value):
    """The answer for one monitored queue. `for_pods`: the nodes are for pending pods (else only for
    `headroom` or `min_nodes`), so nodes that go unused count against the queue. `fingerprint`
    changes when the pending pods do."""

    verdict: QueueVerdict
    needs: tuple[Need, ...] = ()
    unhelped: tuple[Unhelped, ...] = ()
    for_pods: bool = False
    fingerprint: str = ""
    priority: int = 0
    waits_since: str = ""


class Sizing(Value):
    """`needs` in the order in which nodes are handed out: by priority, then by the longest wait.
    `fits`: per group of pending pods (by fingerprint) how many have room and quota on nodes that
    are there, as it is."""

    queues: Mapping[str, QueueSizing]
    needs: tuple[Need, ...]
    fits: Mapping[str, int] = {}

    def wanted(self) -> dict[tuple[str, str, str], int]:
        """(queue, namespace, node type) -> nodes wanted."""
        return {(one.queue, one.namespace, one.node_type): one.wanted for one in self.needs}

    def granted(self) -> dict[tuple[str, str, str], int]:
        """The same of the nodes that can be had."""
        return {(one.queue, one.namespace, one.node_type): one.granted for one in self.needs}


def counting_young(demand: Demand) -> Demand:
    """The same demand, as if every pending pod had waited long enough."""
    groups = tuple(
        msgspec.structs.replace(group, count=len(group.created)) if group.young else group
        for group in demand.groups
    )
    return msgspec.structs.replace(demand, groups=groups)


def size_queues(
    config: Config,
    demand: Demand,
    queues: Mapping[str, QueueLimits],
    fleet: Fleet,
    supply: Supply | None = None,
) -> Sizing:
    """What every monitored queue needs, and who gets what there is.

    Scarce nodes go to the queue of the highest priority, then to the one whose pods have lacked
    something for the longest time.
    """
    ground = survey(config, demand, fleet)
    cases = _cases(config, demand, queues, ground)
    desk = Desk(config, demand, queues, fleet, ground)
    wanted = {case.queue: desk.serve(case) for case in cases}
    granted = wanted
    if supply is not None and not _covers(supply, cases, wanted):
        cases.sort(key=lambda case: (-case.priority, wanted[case.queue].since or "~", case.queue))
        desk = Desk(config, demand, queues, fleet, ground)
        desk.limit(supply)
        wanted, granted = {}, {}
        for case in cases:
            wanted[case.queue] = desk.ask(case)
            granted[case.queue] = desk.serve(case)
    sizing = _sizing(demand, supply, cases, wanted, granted)
    missing = {queue: _not_there(queue) for queue in config.queues if queue not in queues}
    return msgspec.structs.replace(sizing, queues={**missing, **sizing.queues})


def _not_there(queue: str) -> QueueSizing:
    reason = Reason.QUEUE_UNREADABLE
    detail = f"{queue} is not in it; `dnm queues show` lists what is"
    verdict = QueueVerdict(queue=queue, verdict=Verdict.WAIT, reason=reason, detail=detail)
    return QueueSizing(verdict=verdict)


def _cases(
    config: Config, demand: Demand, queues: Mapping[str, QueueLimits], ground: Survey
) -> list[Case]:
    """The monitored queues that are configured, each with the pods that are its concern."""
    groups: dict[str, list[PendingGroup]] = {}
    for group in demand.groups:
        if group.count:
            for path in ancestors(group.queue, queues):
                if path in ground.kinds:
                    groups.setdefault(path, []).append(group)
                    break
    cases = []
    for queue in config.queues:
        if queue in queues:
            policies = (one for one in config.namespaces.values() if one.queue == queue)
            cases.append(_case(queue, policies, ground, groups.get(queue, ())))
    cases.sort(key=lambda case: (-case.priority, _oldest(case), case.queue))
    return cases


def _oldest(case: Case) -> str:
    return min((helped.group.oldest for helped in case.helped), default="~")


def _case(
    queue: str,
    policies: Iterable[NamespacePolicy],
    ground: Survey,
    groups: Iterable[PendingGroup],
) -> Case:
    kinds = ground.kinds[queue]
    helped, unhelped = [], []
    for group in groups:
        reasons = [_why_no_help(group, expected) for expected in kinds]
        useful = [number for number, why in enumerate(reasons) if not why]
        useful.sort(key=lambda number: kinds[number].namespace != group.namespace)
        if useful:
            helped.append(Helped(group=group, kinds=tuple(useful)))
        else:
            unhelped.append((group, "; ".join(dict.fromkeys(reasons)) or "no node type is given"))
    return Case(
        queue=queue,
        policies=tuple(sorted(policies, key=lambda one: (-one.priority, one.name))),
        kinds=kinds,
        helped=tuple(helped),
        unhelped=tuple(unhelped),
    )


def _why_no_help(group: PendingGroup, expected: Expected) -> str:
    """Why an empty node of a type would not take one of the pods; empty: it would."""
    refused = why_not(group.shape, group.volumes, expected.place)
    if refused:
        return f"{refused}, unlike node type {expected.node_type}"
    for resource, amount in sorted(group.request.items()):
        room = expected.room.get(resource, 0)
        if amount > room:
            return (
                f"asks for {amount_text(resource, amount)}, an empty node of type "
                f"{expected.node_type} has {amount_text(resource, max(room, 0))}"
            )
    return ""


# --- the answer -----------------------------------------------------------------------------


def _covers(supply: Supply, cases: Sequence[Case], answers: Mapping[str, Answer]) -> bool:
    """Whether all that is wanted can be had."""
    types: Counter[str] = Counter()
    namespaces: Counter[str] = Counter()
    for case in cases:
        for kind in answers[case.queue].opened:
            types[case.kinds[kind].node_type] += 1
            namespaces[case.kinds[kind].namespace] += 1
    if supply.total is not None and types.total() > supply.total:
        return False
    for name, count in types.items():
        at_hand = supply.batch.get(name)
        if count > supply.per_type.get(name, count):
            return False
        if at_hand is not None and count > at_hand:
            return False
    return all(count <= supply.per_namespace.get(name, count) for name, count in namespaces.items())


def _sizing(
    demand: Demand,
    supply: Supply | None,
    cases: Sequence[Case],
    wanted: Mapping[str, Answer],
    granted: Mapping[str, Answer],
) -> Sizing:
    bounds = budgets_of(supply) if supply is not None else {}
    answers: dict[str, QueueSizing] = {}
    fits: dict[str, int] = {}
    for case in cases:
        want = wanted[case.queue]
        needs = _needs(case, want, granted[case.queue])
        fits.update(want.fits)
        answers[case.queue] = QueueSizing(
            verdict=queue_verdict(demand, case, want, granted[case.queue], bounds),
            needs=needs,
            unhelped=tuple(
                Unhelped(
                    queue=case.queue,
                    namespace=group.namespace,
                    count=count,
                    names=group.names,
                    why=why,
                )
                for group, count, why in want.beyond
            ),
            for_pods=want.no_room > 0 or want.no_quota > 0,
            fingerprint=pending_fingerprint(demand, case.queue),
            priority=case.priority,
            waits_since=want.since,
        )
    return Sizing(
        queues=answers,
        needs=tuple(need for case in cases for need in answers[case.queue].needs),
        fits=fits,
    )


def _needs(case: Case, want: Answer, grant: Answer) -> tuple[Need, ...]:
    wanted, granted = Counter(want.opened), Counter(grant.opened)
    return tuple(
        Need(
            queue=case.queue,
            namespace=case.kinds[kind].namespace,
            node_type=case.kinds[kind].node_type,
            wanted=wanted[kind],
            granted=granted[kind],
        )
        for kind in sorted(wanted.keys() | granted.keys())
    )
