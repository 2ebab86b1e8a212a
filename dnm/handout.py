"""Handing out nodes, one queue after the other: the next queue finds what the last one left.

The rule: a `Desk` holds the free rooms, the limits and the budgets of one decision and is thrown
away with it. `serve` answers for one queue and books what it granted: rooms that are taken, quota
that is used, limits that the granted nodes raise (for siblings too, through shared ancestors).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from fractions import Fraction
from math import ceil

import msgspec

from dnm.constraints import needs_one_domain
from dnm.demand import Demand, QueueDemand, ancestors
from dnm.fleet import Expected, Fleet, Supply
from dnm.model import Config, NamespacePolicy, QueueLimits, Resources, Value
from dnm.pending import PendingGroup
from dnm.placement import Kind, Packing, Problem, Room, least_nodes
from dnm.survey import Survey

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


class Shortage(Value):
    """A limit that is too low: what `path` has of a resource, what is used of it, what the pending
    pods ask for, and by how much it must grow. `is_early`: only the headroom mark asks for it."""

    path: str
    resource: str
    limit: int
    used: int
    asked: int
    missing: int
    is_early: bool


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
    beyond: tuple[tuple[PendingGroup, int, str], ...]
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
        self._headroom = Fraction(config.headroom).limit_denominator(10**6)
        self._demand = demand
        self._queues = queues
        self._ground = ground
        self._rooms = list(ground.rooms)
        self._limits = {path: dict(one.max) for path, one in queues.items() if path != "root"}
        self._used = {
            path: dict(demand.queues.get(path, QueueDemand(queue=path)).used) for path in queues
        }
        self._lent: dict[str, int] = {}
        namespaces = [entry.namespace for entry in fleet.lent.values()]
        namespaces += [coming.namespace for coming in fleet.incoming]
        for namespace in namespaces:
            self._lent[namespace] = self._lent.get(namespace, 0) + 1
        self._now = {path: dict(limit) for path, limit in self._limits.items()}
        for coming, size in zip(fleet.incoming, ground.coming, strict=True):
            self._grow(coming.queue, size)
        self._budgets: dict[str, int] = {}

    def limit(self, supply: Supply) -> None:
        """From now on, grant no more than this."""
        self._budgets = budgets_of(supply)

    def ask(self, case: Case) -> Answer:
        """What the queue would get now if there were no bounds; nothing is booked."""
        twin = copy(self)
        twin._budgets = {}
        twin._rooms = list(self._rooms)
        twin._limits = {path: dict(limit) for path, limit in self._limits.items()}
        twin._used = {path: dict(used) for path, used in self._used.items()}
        twin._lent = dict(self._lent)
        return twin.serve(case)

    def serve(self, case: Case) -> Answer:
        """Decide for one queue, and book it."""
        fits: dict[str, int] = {}
        beyond = self._seat_unhelped(case, fits)
        counts = self._within_fixed_limits(case, beyond)
        packing = least_nodes(self._problem(case, counts))
        _leave_lonely(case, counts, packing, beyond)
        has_quota_now = self._admit(case, counts, self._now)
        has_quota = self._admit(case, counts, self._limits)
        for helped, admitted, placed in zip(
            case.helped, has_quota_now, packing.placed, strict=True
        ):
            there = sum(count for room, count in placed if room < self._ground.there)
            fits[helped.group.fingerprint] = min(admitted, there)
        opened = self._with_quota(case, counts, list(packing.opened))
        self._add_for_min_nodes(case, opened)
        answer = Answer(
            opened=tuple(opened),
            for_room=len(packing.opened),
            no_room=self._without_room(packing, counts),
            no_quota=sum(counts) - sum(has_quota),
            short=self._shortest(case, counts),
            too_few=self._below_min_nodes(case, ()),
            relies_on_coming=has_quota_now != has_quota or self._uses_coming(packing),
            since=_since(case, counts, fits),
            fits=fits,
            beyond=tuple(beyond),
        )
        self._book(case, counts, packing, opened)
        return msgspec.structs.replace(answer, spent=self._spent(case))

    # --- quota -------------------------------------------------------------------------------

    def _levels(self, queue: str) -> Iterable[tuple[str, dict[str, int]]]:
        for path in ancestors(queue, self._queues):
            yield path, self._limits[path]

    def _grow(self, queue: str, size: Resources) -> None:
        """A node that serves a queue raises its limit and all limits above it."""
        for _, limit in self._levels(queue):
            for resource in limit:
                limit[resource] += size.get(resource, 0)

    def _admit(
        self, case: Case, counts: Sequence[int], limits: Mapping[str, Resources]
    ) -> list[int]:
        """How many pods of each group these limits let in, the longest waiting groups first."""
        taken: dict[tuple[str, str], int] = {}
        admitted = []
        for helped, count in zip(case.helped, counts, strict=True):
            group = helped.group
            for path in ancestors(group.queue, self._queues):
                for resource, limit in limits[path].items():
                    ask = group.request.get(resource, 0)
                    if ask:
                        used = self._used[path].get(resource, 0)
                        left = limit - used - taken.get((path, resource), 0)
                        count = max(0, min(count, left // ask))
            admitted.append(count)
            for path in ancestors(group.queue, self._queues):
                for resource in limits[path]:
                    key = (path, resource)
                    taken[key] = taken.get(key, 0) + count * group.request.get(resource, 0)
        return admitted

    def _within_fixed_limits(
        self, case: Case, beyond: list[tuple[PendingGroup, int, str]]
    ) -> list[int]:
        """How many pods of each group new nodes can help at all: no node raises a limit below the
        queue that it serves, nor one of a resource that it does not bring."""
        counts = []
        taken: dict[tuple[str, str], int] = {}
        for helped in case.helped:
            group, count, why = helped.group, helped.group.count, ""
            fixed = [
                (path, resource)
                for path, limit in self._levels(group.queue)
                for resource in limit
                if group.request.get(resource, 0)
                and (
                    path.startswith(f"{case.queue}.")
                    or not any(case.kinds[kind].size.get(resource, 0) for kind in helped.kinds)
                )
            ]
            for path, resource in fixed:
                left = self._limits[path][resource] - self._used[path].get(resource, 0)
                left = max(0, left - taken.get((path, resource), 0))
                if left // group.request[resource] < count:
                    count = left // group.request[resource]
                    why = f"no new node raises the {resource} limit of {path}, which is used up"
            for path, resource in fixed:
                key = (path, resource)
                taken[key] = taken.get(key, 0) + count * group.request[resource]
            if count < group.count:
                beyond.append((group, group.count - count, why))
            counts.append(count)
        return counts

    def _asked(self, case: Case, counts: Sequence[int]) -> dict[str, int]:
        asked: dict[str, int] = {}
        for helped, count in zip(case.helped, counts, strict=True):
            for resource, amount in helped.group.request.items():
                asked[resource] = asked.get(resource, 0) + amount * count
        return asked

    def _shortages(self, case: Case, counts: Sequence[int]) -> Iterable[Shortage]:
        """Every limit that is too low: for what is pending, at each level; for the headroom mark,
        at the nearest level that limits the resource, if the queue itself has any demand for it."""
        asked = self._asked(case, counts)
        own = self._demand.queues.get(case.queue, QueueDemand(queue=case.queue)).used
        marked: set[str] = set()
        for path, limit in self._levels(case.queue):
            for resource, amount in limit.items():
                wants = asked.get(resource, 0)
                used = self._used[path].get(resource, 0)
                is_marked = resource not in marked and (own.get(resource, 0) > 0 or wants > 0)
                marked.add(resource)
                lack = used + wants - amount if wants else 0
                early = 0
                if is_marked and (wants or self._headroom < 1):
                    early = ceil((used + wants) / self._headroom) - amount
                if max(lack, early) > 0:
                    yield Shortage(
                        path=path,
                        resource=resource,
                        limit=amount,
                        used=used,
                        asked=wants,
                        missing=max(lack, early),
                        is_early=lack <= 0,
                    )

    def _shortest(self, case: Case, counts: Sequence[int]) -> Shortage | None:
        """The shortage to tell people about: a real one before an early one, the nearest first."""
        return min(self._shortages(case, counts), key=lambda one: one.is_early, default=None)

    def _with_quota(self, case: Case, counts: Sequence[int], opened: list[int]) -> list[int]:
        """Further nodes until no limit is too low, of the best-liked kind that raises it."""
        for short in self._shortages(case, counts):
            liked = [
                kind
                for kind in self._kinds_for(case, counts, short.resource)
                if case.kinds[kind].size.get(short.resource, 0) > 0
            ]
            missing = short.missing - sum(
                case.kinds[kind].size.get(short.resource, 0) for kind in opened
            )
            for kind in liked:
                size = case.kinds[kind].size[short.resource]
                count = min(
                    max(0, -(-missing // size)), self._left_of(case.kinds[kind], case, opened)
                )
                opened += [kind] * count
                missing -= size * count
        return opened

    def _kinds_for(self, case: Case, counts: Sequence[int], resource: str) -> list[int]:
        """Nodes to raise a limit with: of use to the pods that ask for the resource, if any do."""
        asking = {
            kind
            for helped, count in zip(case.helped, counts, strict=True)
            if count and helped.group.request.get(resource, 0)
            for kind in helped.kinds
        }
        return sorted(asking) if asking else list(range(len(case.kinds)))

    # --- min_nodes ---------------------------------------------------------------------------

    def _below_min_nodes(self, case: Case, opened: Iterable[int]) -> tuple[str, ...]:
        """Namespaces of the queue that have fewer nodes than they should, each once per node."""
        have = dict(self._lent)
        for kind in opened:
            namespace = case.kinds[kind].namespace
            have[namespace] = have.get(namespace, 0) + 1
        return tuple(
            policy.name
            for policy in case.policies
            for _ in range(policy.min_nodes - have.get(policy.name, 0))
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

    def _seat_unhelped(
        self, case: Case, fits: dict[str, int]
    ) -> list[tuple[PendingGroup, int, str]]:
        """Let groups that no node would help use what there is; the rest of them is the result."""
        if not case.unhelped:
            return []
        alone = Case(
            queue=case.queue,
            policies=case.policies,
            kinds=(),
            helped=tuple(Helped(group=group, kinds=()) for group, _ in case.unhelped),
        )
        counts = self._admit(alone, [group.count for group, _ in case.unhelped], self._limits)
        packing = least_nodes(self._problem(alone, counts))
        self._book(alone, counts, packing, [])
        beyond = []
        for (group, why), placed in zip(case.unhelped, packing.placed, strict=True):
            seated = sum(count for _, count in placed)
            fits[group.fingerprint] = sum(
                count for room, count in placed if room < self._ground.there
            )
            if seated < group.count:
                beyond.append((group, group.count - seated, why))
        return beyond

    def _problem(
        self, case: Case, counts: Sequence[int], opened: Sequence[int] | None = None
    ) -> Problem:
        """The packing problem of a queue; with `opened`, exactly these new nodes and no other."""
        names = list(self._budgets) if opened is None else [""]
        budgets = tuple(self._budgets.values()) if opened is None else (0,)
        return Problem(
            items=tuple(
                msgspec.structs.replace(
                    self._ground.items[helped.group.fingerprint], count=count, kinds=helped.kinds
                )
                for helped, count in zip(case.helped, counts, strict=True)
            ),
            rooms=tuple(self._rooms),
            kinds=tuple(
                Kind(
                    room=self._ground.vector(expected.room),
                    budgets=(0,)
                    if opened is not None
                    else tuple(names.index(name) for name in self._budget_names(expected)),
                )
                for expected in case.kinds
            ),
            budgets=budgets,
            opened=tuple(opened or ()),
        )

    def _without_room(self, packing: Packing, counts: Sequence[int]) -> int:
        seated = sum(
            count for placed in packing.placed for room, count in placed if room < len(self._rooms)
        )
        return sum(counts) - seated

    def _uses_coming(self, packing: Packing) -> bool:
        coming = range(self._ground.there, len(self._rooms))
        return any(room in coming for placed in packing.placed for room, _ in placed)

    # --- booking -----------------------------------------------------------------------------

    def _book(
        self, case: Case, counts: Sequence[int], packing: Packing, opened: Sequence[int]
    ) -> None:
        """Take the granted nodes from the budgets, raise the limits, fill the rooms."""
        for kind in opened:
            expected = case.kinds[kind]
            for name in self._budget_names(expected):
                self._budgets[name] -= 1
            self._grow(case.queue, expected.size)
            self._lent[expected.namespace] = self._lent.get(expected.namespace, 0) + 1
        admitted = self._admit(case, counts, self._limits)
        if admitted != list(counts) or any(packing.left):
            packing = least_nodes(self._problem(case, admitted, opened))
        self._rooms += [
            Room(
                free=self._ground.vector(case.kinds[kind].room),
                place=self._ground.place_number(case.kinds[kind].place),
            )
            for kind in opened
        ]
        for helped, placed in zip(case.helped, packing.placed, strict=True):
            group = helped.group
            request = self._ground.items[group.fingerprint].request
            for room, count in placed:
                free = self._rooms[room].free
                self._rooms[room] = Room(
                    free=tuple(have - ask * count for have, ask in zip(free, request, strict=True)),
                    place=self._rooms[room].place,
                )
            seated = sum(count for _, count in placed)
            for path in ancestors(group.queue, self._queues):
                used = self._used[path]
                for resource, amount in group.request.items():
                    used[resource] = used.get(resource, 0) + amount * seated


def _leave_lonely(
    case: Case,
    counts: list[int],
    packing: Packing,
    beyond: list[tuple[PendingGroup, int, str]],
) -> None:
    """Pods of which only so many can be on new nodes, whatever their number."""
    for number, (helped, left) in enumerate(zip(case.helped, packing.left, strict=True)):
        if left and needs_one_domain(helped.group.shape, helped.group.namespace):
            beyond.append((helped.group, left, "has an affinity that one more node can't satisfy"))
            counts[number] -= left


def _since(case: Case, counts: Sequence[int], fits: Mapping[str, int]) -> str:
    """When the oldest pod was created that lacks something."""
    return min(
        (
            helped.group.oldest
            for helped, count in zip(case.helped, counts, strict=True)
            if count > fits[helped.group.fingerprint]
        ),
        default="",
    )
