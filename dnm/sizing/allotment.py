"""Handing out nodes, one queue after the other: the next queue finds what the last one left.

The rule: a `Desk` holds the free rooms, the limits and the budgets of one decision and is thrown
away with it. `serve` answers for one queue and books what it granted: rooms that are taken, quota
that is used, limits that the granted nodes raise (for siblings too, through shared ancestors).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import TypeAlias

import msgspec

from dnm.demand.constraints import needs_one_domain
from dnm.demand.demand import Demand
from dnm.demand.pending import PendingGroup
from dnm.model.cluster import QueueLimits
from dnm.model.config import Config, NamespacePolicy
from dnm.model.value import Value
from dnm.sizing.node_supply import Expected, Fleet, Supply
from dnm.sizing.packing import Kind, Packing, Problem, Room, least_nodes
from dnm.sizing.packing_input import Survey
from dnm.sizing.quota import Groups, Quota, Shortage

Beyond: TypeAlias = tuple[PendingGroup, int, str]
"""So many pods of a group that no new node helps, and why."""

BATCH_NODES = "batch nodes"
_UNLIMITED = 10**9


class Helped(Value):
    """A group of pending pods and the nodes that would help it (indexes of Case.kinds)."""

    group: PendingGroup
    kinds: tuple[int, ...]


class Case(Value):
    """One monitored queue: its policies, the nodes it may get, its pending pods. Groups that no
    node would help come with the reason; they still use what room and quota there is."""

    queue: str
    policies: tuple[NamespacePolicy, ...]
    kinds: tuple[Expected, ...]
    helped: tuple[Helped, ...] = ()
    unhelped: tuple[tuple[PendingGroup, str], ...] = ()

    @property
    def priority(self) -> int:
        return max(policy.priority for policy in self.policies)


class Answer(Value):
    """What one queue gets (`opened`, as indexes of Case.kinds) and why.

    `for_room`: nodes that room alone asks for. `no_room`, `no_quota`: pods that lack it as things
    are, nodes on their way included. `short`: the limit that is too low. `too_few`: namespaces
    below min_nodes, once per node that is missing. `relies_on_coming`: without the nodes on their
    way it would lack something. `since`: the oldest pod that lacks something was created then.
    `fits`: per group how many pods have room and quota on nodes that are there. `beyond`: pods
    that no node helps, with the reason. `spent`: budgets of its nodes that have run out.
    """

    opened: tuple[int, ...]
    for_room: int
    no_room: int
    no_quota: int
    short: Shortage | None
    too_few: tuple[str, ...]
    relies_on_coming: bool
    since: str
    fits: Mapping[str, int]
    beyond: tuple[Beyond, ...]
    spent: tuple[str, ...] = ()


def budgets_of(supply: Supply) -> dict[str, int]:
    """How many nodes each bound of the supply still allows, under its name for people."""
    budgets = {}
    if supply.total is not None:
        budgets["max_converted_nodes"] = supply.total
    for name, left in supply.per_type.items():
        budgets[f"max_nodes of node type {name}"] = left
    for name, left in supply.per_namespace.items():
        budgets[f"max_nodes of namespace {name}"] = left
    for name, at_hand in supply.batch.items():
        if at_hand is not None:
            budgets[f"{BATCH_NODES} of type {name}"] = at_hand
    return budgets


class Desk:
    """The state of one decision."""

    def __init__(
        self,
        config: Config,
        demand: Demand,
        queues: Mapping[str, QueueLimits],
        fleet: Fleet,
        ground: Survey,
    ) -> None:
        self._ground = ground
        self._rooms = list(ground.rooms)
        self._quota = Quota(config, demand, queues)
        for coming, size in zip(fleet.incoming, ground.coming, strict=True):
            self._quota.grow(coming.queue, size)
        self._lent = Counter(entry.namespace for entry in fleet.lent.values())
        self._lent.update(coming.namespace for coming in fleet.incoming)
        self._budgets: dict[str, int] = {}

    def limit(self, supply: Supply) -> None:
        """From now on, grant no more than this."""
        self._budgets = budgets_of(supply)

    def ask(self, case: Case) -> Answer:
        """What the queue would get now if there were no bounds; nothing is booked."""
        twin = copy(self)
        twin._budgets = {}
        twin._rooms = list(self._rooms)
        twin._quota = self._quota.twin()
        twin._lent = Counter(self._lent)
        return twin.serve(case)

    def serve(self, case: Case) -> Answer:
        """Decide for one queue, and book it."""
        fits: dict[str, int] = {}
        beyond = self._seat_unhelped(case, fits)
        groups = self._helpable(case, beyond)
        packing = least_nodes(self._problem(case, groups))
        groups = _without_lonely(groups, packing, beyond)
        has_quota_now = self._quota.admit(groups, self._quota.now)
        has_quota = self._quota.admit(groups, self._quota.limits)
        for (group, _), admitted, placed in zip(groups, has_quota_now, packing.placed, strict=True):
            there = sum(count for room, count in placed if room < self._ground.there)
            fits[group.fingerprint] = min(admitted, there)
        shortages = list(self._quota.shortages(case.queue, groups))
        opened = list(packing.opened)
        self._add_for_quota(case, groups, shortages, opened)
        self._add_for_min_nodes(case, opened)
        count = sum(count for _, count in groups)
        answer = Answer(
            opened=tuple(opened),
            for_room=len(packing.opened),
            no_room=count - self._seated(packing),
            no_quota=count - sum(has_quota),
            short=min(shortages, key=lambda short: short.is_early, default=None),
            too_few=self._below_min_nodes(case, ()),
            relies_on_coming=has_quota_now != has_quota or self._uses_coming(packing),
            since=_since(groups, fits),
            fits=fits,
            beyond=tuple(beyond),
        )
        self._book(case, groups, packing, opened)
        return msgspec.structs.replace(answer, spent=self._spent(case))

    def _helpable(self, case: Case, beyond: list[Beyond]) -> Groups:
        """The pods that nodes can help, as far as no limit is in the way that nodes don't raise."""
        groups = [(helped.group, helped.group.count) for helped in case.helped]
        raised = [
            frozenset(
                resource
                for kind in helped.kinds
                for resource, amount in case.kinds[kind].size.items()
                if amount > 0
            )
            for helped in case.helped
        ]
        answers = self._quota.admit_below_walls(case.queue, groups, raised)
        for (group, whole), (count, why) in zip(groups, answers, strict=True):
            if count < whole:
                beyond.append((group, whole - count, why))
        return [(group, count) for (group, _), (count, _) in zip(groups, answers, strict=True)]

    # --- quota -------------------------------------------------------------------------------

    def _add_for_quota(
        self, case: Case, groups: Groups, shortages: Sequence[Shortage], opened: list[int]
    ) -> None:
        """Further nodes until no limit is too low, of the best-liked kind that raises it."""
        for short in shortages:
            resource = short.resource
            missing = short.missing
            missing -= sum(case.kinds[kind].size.get(resource, 0) for kind in opened)
            for kind in _kinds_for(case, groups, resource):
                size = case.kinds[kind].size.get(resource, 0)
                if size > 0 and missing > 0:
                    count = min(-(-missing // size), self._left_of(case.kinds[kind], case, opened))
                    opened += [kind] * count
                    missing -= size * count

    # --- min_nodes ---------------------------------------------------------------------------

    def _below_min_nodes(self, case: Case, opened: Iterable[int]) -> tuple[str, ...]:
        """Namespaces of the queue that have fewer nodes than they should, each once per node."""
        have = self._lent + Counter(case.kinds[kind].namespace for kind in opened)
        return tuple(
            policy.name
            for policy in case.policies
            for _ in range(policy.min_nodes - have[policy.name])
        )

    def _add_for_min_nodes(self, case: Case, opened: list[int]) -> None:
        for namespace in self._below_min_nodes(case, opened):
            for kind, expected in enumerate(case.kinds):
                if expected.namespace == namespace and self._left_of(expected, case, opened) > 0:
                    opened.append(kind)
                    break

    # --- budgets -----------------------------------------------------------------------------

    def _budget_names(self, expected: Expected) -> list[str]:
        names = (
            "max_converted_nodes",
            f"max_nodes of node type {expected.node_type}",
            f"max_nodes of namespace {expected.namespace}",
            f"{BATCH_NODES} of type {expected.node_type}",
        )
        return [name for name in names if name in self._budgets]

    def _spent(self, case: Case) -> tuple[str, ...]:
        names = {name for expected in case.kinds for name in self._budget_names(expected)}
        return tuple(sorted(name for name in names if self._budgets[name] <= 0))

    def _left_of(self, expected: Expected, case: Case, opened: Sequence[int]) -> int:
        """How many more of a kind can be had beside those of this queue that are not booked yet."""
        left = _UNLIMITED
        for name in self._budget_names(expected):
            spent = sum(name in self._budget_names(case.kinds[kind]) for kind in opened)
            left = min(left, self._budgets[name] - spent)
        return left

    # --- room --------------------------------------------------------------------------------

    def _seat_unhelped(self, case: Case, fits: dict[str, int]) -> list[Beyond]:
        """Let groups that no node would help use what there is; the rest of them is the result."""
        if not case.unhelped:
            return []
        whole = [(group, group.count) for group, _ in case.unhelped]
        admitted = self._quota.admit(whole, self._quota.limits)
        groups = [(group, count) for (group, _), count in zip(whole, admitted, strict=True)]
        alone = msgspec.structs.replace(
            case, kinds=(), helped=tuple(Helped(group=group, kinds=()) for group, _ in groups)
        )
        packing = least_nodes(self._problem(alone, groups))
        self._book(alone, groups, packing, [])
        beyond = []
        for (group, why), placed in zip(case.unhelped, packing.placed, strict=True):
            there = (count for room, count in placed if room < self._ground.there)
            fits[group.fingerprint] = sum(there)
            missing = group.count - sum(count for _, count in placed)
            if missing:
                beyond.append((group, missing, why))
        return beyond

    def _problem(self, case: Case, groups: Groups, opened: Sequence[int] | None = None) -> Problem:
        """The packing problem of a queue; with `opened`, exactly these new nodes and no other."""
        is_fixed = opened is not None
        names = list(self._budgets)
        return Problem(
            items=tuple(
                msgspec.structs.replace(
                    self._ground.items[group.fingerprint], count=count, kinds=helped.kinds
                )
                for helped, (group, count) in zip(case.helped, groups, strict=True)
            ),
            rooms=tuple(self._rooms),
            kinds=tuple(
                Kind(
                    room=self._ground.vector(expected.room),
                    budgets=(0,)
                    if is_fixed
                    else tuple(names.index(name) for name in self._budget_names(expected)),
                )
                for expected in case.kinds
            ),
            budgets=(0,) if is_fixed else tuple(self._budgets.values()),
            opened=tuple(opened or ()),
        )

    def _seated(self, packing: Packing) -> int:
        """Pods that have room without a new node."""
        here = len(self._rooms)
        return sum(count for placed in packing.placed for room, count in placed if room < here)

    def _uses_coming(self, packing: Packing) -> bool:
        coming = range(self._ground.there, len(self._rooms))
        return any(room in coming for placed in packing.placed for room, _ in placed)

    # --- booking -----------------------------------------------------------------------------

    def _book(self, case: Case, groups: Groups, packing: Packing, opened: Sequence[int]) -> None:
        """Take the granted nodes from the budgets, raise the limits, fill the rooms."""
        for kind in opened:
            expected = case.kinds[kind]
            for name in self._budget_names(expected):
                self._budgets[name] -= 1
            self._quota.grow(case.queue, expected.size)
            self._lent[expected.namespace] += 1
        admitted = self._quota.admit(groups, self._quota.limits)
        if any(packing.left) or admitted != [count for _, count in groups]:
            groups = [(group, count) for (group, _), count in zip(groups, admitted, strict=True)]
            packing = least_nodes(self._problem(case, groups, opened))
        self._rooms += [
            Room(
                free=self._ground.vector(case.kinds[kind].room),
                place=self._ground.place_number(case.kinds[kind].place),
            )
            for kind in opened
        ]
        for (group, _), placed in zip(groups, packing.placed, strict=True):
            request = self._ground.items[group.fingerprint].request
            for room, count in placed:
                free = self._rooms[room].free
                self._rooms[room] = Room(
                    free=tuple(have - ask * count for have, ask in zip(free, request, strict=True)),
                    place=self._rooms[room].place,
                )
        self._quota.use(
            [
                (group, sum(count for _, count in placed))
                for (group, _), placed in zip(groups, packing.placed, strict=True)
            ]
        )


def _kinds_for(case: Case, groups: Groups, resource: str) -> list[int]:
    """Nodes to raise a limit with: of use to the pods that ask for the resource, if any do."""
    asking = {
        kind
        for helped, (group, count) in zip(case.helped, groups, strict=True)
        if count and group.request.get(resource, 0)
        for kind in helped.kinds
    }
    return sorted(asking) if asking else list(range(len(case.kinds)))


def _without_lonely(groups: Groups, packing: Packing, beyond: list[Beyond]) -> Groups:
    """Without the pods of which only so many can be on new nodes, whatever their number."""
    left = []
    for (group, count), missing in zip(groups, packing.left, strict=True):
        if missing and needs_one_domain(group.shape, group.namespace):
            beyond.append((group, missing, "has an affinity that one more node can't satisfy"))
            count -= missing
        left.append((group, count))
    return left


def _since(groups: Groups, fits: Mapping[str, int]) -> str:
    """When the oldest pod was created that lacks something."""
    lacking = (group.oldest for group, count in groups if count > fits[group.fingerprint])
    return min(lacking, default="")
