"""Workloads whose pods a queue system admits together.

The rule: a Workload gets nodes only if all of its pods get capacity and quota, on existing nodes
and on those that the budget allows; with partial admission, at least its minimum. Workloads are
tried in the order of their queue, and queues of equal priority in turns. Pods of a Workload that
cannot be completed request nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from dnm.demand.demand import Demand, pending_fingerprint
from dnm.demand.pending import NotCounted, PendingGroup, Uncounted
from dnm.model.cluster import QueueLimits, RefusedPods
from dnm.model.config import Config
from dnm.model.pod import Pod
from dnm.model.reason import Reason
from dnm.model.value import Value
from dnm.model.verdict import Verdict
from dnm.sizing.caps import ConversionBudget, describe_bounds
from dnm.sizing.node_supply import NodeSupply
from dnm.sizing.queue_sizing import QueueSizing, Sizing, count_by_type
from dnm.sizing.workload_bounds import WorkloadBounds

_MOST_TRIALS = 80  # sizings of one decision
_MOST_FAILURES = 40  # of one queue, so that its Workloads leave trials to the other queues
_MOST_ADMITTED_LATE = 10  # Workloads of one queue that have their nodes and wait for admission
_UNTRIED = "comes after more kinds of Workloads than dnm tries in a run"

Size = Callable[[Demand], Sizing]
SizePart = Callable[
    [Config, Demand, Mapping[str, QueueLimits], NodeSupply, ConversionBudget], Sizing
]


class _Workload(Value):
    """A Workload of Kueue with pending pods. `pods`: pairs of a group of equal pending pods, by its
    fingerprint, and the pods of this Workload in it. `is_counted`: these are all of its pods."""

    key: str
    queue: str
    pods: tuple[tuple[str, RefusedPods], ...]
    least: Mapping[str, int]  # by group: the smallest number of pods that is admitted
    is_strict: bool
    is_counted: bool

    @property
    def is_single_pod(self) -> bool:
        return self.is_counted and [pods.count for _, pods in self.pods] == [1]

    def is_hopeless_after(self, failed: _Workload) -> bool:
        """Returns whether `failed`, which is before it and cannot be completed, rules it out: it
        waits behind that in a strict queue, or it needs as many equal pods."""
        if self.queue != failed.queue:
            return False
        least = self.least
        return failed.is_strict or all(least.get(name, 0) >= n for name, n in failed.least.items())


def size_workloads(
    size_part: SizePart,
    config: Config,
    demand: Demand,
    queues_before: Mapping[str, QueueLimits],
    node_supply: NodeSupply,
    budget: ConversionBudget,
) -> Sizing:
    """Returns the sizing without Workloads that cannot be completed, and the reason for each.
    `size_part` returns the sizing for a part of the demand, as if pods were admitted one by one."""
    workloads = list(_list_workloads(config, demand))
    demand = replace(demand, workloads=())
    rest = queues_before, node_supply, budget

    def size(part: Demand) -> Sizing:
        return size_part(config, part, *rest)

    if all(item.is_single_pod and not item.is_strict for item in workloads):
        return size(demand)
    names = {name for item in workloads for name in item.least}
    bounds = WorkloadBounds(config, demand, *rest, names)
    choice = _Choice(demand, workloads, bounds, size)
    is_possible = all(item.is_counted for item in workloads)
    is_possible = is_possible and bounds.allow([item.least for item in workloads])
    sizing = size(demand) if is_possible else None
    if sizing is None or not choice.has_places(sizing, demand):
        sizing = size(choice.without(choice.find_incomplete()))
    queues, verdicts = dict(sizing.queues), dict(sizing.verdicts)
    for queue in {item.queue for item in workloads} & queues.keys():
        texts = {item.key: choice.texts[item.key] for item in workloads
                 if item.queue == queue and item.key in choice.texts}  # fmt: skip
        queues[queue] = replace(
            queues[queue],
            incomplete=texts,
            first_lacks=choice.count_first_lacks(queue) if queues[queue].wanted else 0,
            fingerprint=pending_fingerprint(demand, queue),
        )
        verdict = verdicts[queue]
        if texts and not queues[queue].wanted and verdict.reason is not Reason.ON_THE_WAY:
            verdicts[queue] = replace(
                verdict, verdict=Verdict.WAIT, reason=Reason.INCOMPLETE,
                detail=next(iter(texts.values())),
            )  # fmt: skip
    return Sizing(queues=queues, verdicts=verdicts)


def drop_incomplete(demand: Demand, sizing: Sizing) -> Demand:
    """Returns the demand without the Workloads that cannot be completed according to `sizing`.
    Without one of the nodes they cannot be completed either, and are not tried again."""
    keys = {key for queue in sizing.queues.values() for key in queue.incomplete}
    removed: dict[str, Counter[str]] = {}
    find_group = _index_groups(demand)
    for pods in demand.workloads:
        if pods.workload in keys and (name := find_group(pods.pod)):
            removed.setdefault(name, Counter())[pods.pod.created] += pods.count
    kept = tuple(pods for pods in demand.workloads if pods.workload not in keys)
    return replace(demand, groups=_without(demand.groups, removed, ()), workloads=kept)


def _list_workloads(config: Config, demand: Demand) -> Iterator[_Workload]:
    """Yields the Workloads with counted pods, and all of strict queues, in the order in which they
    are tried: the order of their queue, and queues of equal priority in turns."""
    by_key: dict[str, list[RefusedPods]] = {}
    for pods in demand.workloads:
        by_key.setdefault(pods.workload, []).append(pods)
    priorities: dict[str, int] = {}
    for policy in config.namespaces.values():
        priorities[policy.queue] = max(
            policy.priority, priorities.get(policy.queue, policy.priority)
        )
    find_group = _index_groups(demand)
    ranks: Counter[str] = Counter()
    ranked = []
    for key, listed in by_key.items():
        queue = config.namespaces[listed[0].pod.namespace].queue
        ranks[queue] += 1
        order = (-priorities[queue], ranks[queue], listed[0].pod.created, key)
        counted = [(name, pods) for pods in listed if (name := find_group(pods.pod))]
        least: Counter[str] = Counter()
        for name, pods in counted:
            least[name] += pods.least
        if counted or listed[0].is_strict:
            item = _Workload(
                key=key, queue=queue, pods=tuple(counted), least=dict(least),
                is_strict=listed[0].is_strict, is_counted=len(counted) == len(listed),
            )  # fmt: skip
            ranked.append((order, item))
    yield from (item for _, item in sorted(ranked, key=lambda pair: pair[0]))


def _index_groups(demand: Demand) -> Callable[[Pod], str]:
    """Returns a function that returns the group of a pod, or an empty text if it does not count."""
    by_request: dict[tuple[str, frozenset[tuple[str, int]]], list[PendingGroup]] = {}
    for group in demand.groups:
        if group.count and not group.volumes:
            place = group.namespace, frozenset(group.shape.request.items())
            by_request.setdefault(place, []).append(group)
    created = {group.fingerprint: {at for at, _ in group.created} for group in demand.groups}
    names: dict[tuple[str, int], str] = {}

    def find(pod: Pod) -> str:
        place = pod.namespace, id(pod.shape)
        if place not in names:
            groups = by_request.get((pod.namespace, frozenset(pod.shape.request.items())), ())
            names[place] = next(
                (group.fingerprint for group in groups if group.shape == pod.shape), ""
            )
        name = names[place]
        return name if name and pod.created in created[name] else ""

    return find


class _Choice:
    """The choice of the Workloads that can be completed together. `texts`: by key, why one of the
    others cannot be, unless no node type fits its pods."""

    def __init__(
        self, demand: Demand, workloads: Sequence[_Workload], bounds: WorkloadBounds, size: Size
    ) -> None:
        self._demand, self._workloads, self._bounds = demand, workloads, bounds
        self._size = size
        self._names = {name for item in workloads for name in item.least}
        self._trials: dict[frozenset[str], Sizing] = {}  # by the keys of the chosen Workloads
        self._incomplete: set[str] = set()
        self.texts: dict[str, str] = {}
        self._misfits: set[str] = set()  # groups that no node type fits

    def has_places(self, sizing: Sizing, demand: Demand) -> bool:
        """Returns whether all pods of Workloads in `demand` get capacity and quota."""
        served: Counter[str] = Counter()
        for queue in sizing.queues.values():
            served |= Counter({**queue.fits, **queue.served})
        return all(
            served[group.fingerprint] >= group.count
            for group in demand.groups
            if group.fingerprint in self._names
        )

    def count_first_lacks(self, queue: str) -> int:
        """Returns how many nodes the first Workload of a queue lacks that can be completed and
        lacks any; earlier ones have their nodes, and the queue system has yet to admit them."""
        own = [item for item in self._workloads
               if item.queue == queue and item.key not in self._incomplete]  # fmt: skip
        for count in range(1, 1 + min(len(own), _MOST_ADMITTED_LATE)):
            sizing = self._try(own[:count]).of(queue)
            if lacks := sum(sizing.granted.values()):
                return lacks
        return 0

    def find_incomplete(self) -> list[_Workload]:
        """Returns the Workloads that cannot be completed. Workloads that are hopeless because of a
        bound or an earlier one are not tried."""
        kept: list[_Workload] = []
        incomplete: list[_Workload] = []
        rest = self._exclude(self._workloads, incomplete)
        failures: Counter[str] = Counter()  # by queue
        while rest:
            if count := self._count_completable(kept, rest):
                for item in rest[:count]:
                    self._bounds.take(item.least)
                kept, rest = [*kept, *rest[:count]], self._exclude(rest[count:], incomplete)
                continue
            spent = rest if self._has_no_trial() else []
            if not spent:
                failed = [rest[0], *(x for x in rest[1:] if x.is_hopeless_after(rest[0]))]
                self._explain(kept, failed)
                incomplete += failed
                rest = _minus(rest, failed)
                failures[failed[0].queue] += 1
                spent = [item for item in rest if failures[item.queue] >= _MOST_FAILURES]
            self.texts |= dict.fromkeys((item.key for item in spent), _UNTRIED)
            incomplete += spent
            rest = _minus(rest, spent)
        self._incomplete = {item.key for item in incomplete}
        return incomplete

    def _exclude(self, rest: Sequence[_Workload], incomplete: list[_Workload]) -> list[_Workload]:
        """Returns the Workloads that the bounds allow. Adds the others to `incomplete`, and those
        that wait behind one of them in a strict queue."""
        allowed: list[_Workload] = []
        behind: dict[str, str] = {}  # by strict queue
        for item in rest:
            if item.queue in behind:
                text = behind[item.queue]
            elif not item.is_counted:
                text = "has pods that dnm does not count"
            elif self._bounds.allow([item.least]):
                allowed.append(item)
                continue
            elif misfits := self._bounds.find_misfits(item.least):
                self._misfits |= misfits
                text = ""
            else:
                text = self._bounds.describe_lack(item.least)
            incomplete.append(item)
            if text and item.pods:
                self.texts[item.key] = text
            if item.is_strict:
                behind.setdefault(item.queue, _describe_behind(text))
        return allowed

    def _has_no_trial(self) -> bool:
        return len(self._trials) >= _MOST_TRIALS

    def _count_completable(self, kept: Sequence[_Workload], rest: Sequence[_Workload]) -> int:
        """Returns how many of `rest`, in order, can be completed along with `kept`."""
        count, step, is_growing = 0, 1, True
        while count < len(rest) and not self._has_no_trial():
            step = min(step, len(rest) - count)
            if self._can_complete(kept, rest[: count + step]):
                count += step
                step = step * 2 if is_growing else step
            elif step == 1:
                break
            else:
                step, is_growing = step // 2, False
        return count

    def _can_complete(self, kept: Sequence[_Workload], more: Sequence[_Workload]) -> bool:
        if not self._bounds.allow([item.least for item in more]):
            return False
        part = self._least_of([*kept, *more])
        return self.has_places(self._try([*kept, *more]), part)

    def _try(self, chosen: Sequence[_Workload]) -> Sizing:
        """Returns the sizing with the least pods of these Workloads, each at most once."""
        keys = frozenset(item.key for item in chosen)
        if keys not in self._trials:
            self._trials[keys] = self._size(self._least_of(chosen))
        return self._trials[keys]

    def _explain(self, kept: Sequence[_Workload], failed: Sequence[_Workload]) -> None:
        first, queue = failed[0], failed[0].queue
        before, sizing = self._try(kept).of(queue), self._try([*kept, first]).of(queue)
        misfits = {item.group.fingerprint for item in sizing.unschedulable} & first.least.keys()
        text = "" if misfits else _describe_lack(before, sizing)
        self._misfits |= misfits
        self.texts |= dict.fromkeys((item.key for item in failed[1:]), _describe_behind(text))
        if text:
            self.texts[first.key] = text

    def _least_of(self, kept: Sequence[_Workload]) -> Demand:
        """Returns the demand with the least pods of these Workloads, and no others."""
        keys = {item.key for item in kept}
        removed: dict[str, Counter[str]] = {name: Counter() for name in self._names}
        for item in self._workloads:
            for name, pods in item.pods:
                count = pods.count - pods.least if item.key in keys else pods.count
                removed[name][pods.pod.created] += count
        return replace(self._demand, groups=_without(self._demand.groups, removed, ()))

    def without(self, incomplete: Sequence[_Workload]) -> Demand:
        """Returns the demand without these Workloads, which are reported as not counted. Groups
        that no node type fits stay, since they request no node and are reported as such."""
        removed: dict[str, Counter[str]] = {name: Counter() for name in self._names}
        listed: dict[tuple[str, str], list[RefusedPods]] = {}
        for item in incomplete:
            for name, pods in item.pods:
                if name not in self._misfits:
                    removed[name][pods.pod.created] += pods.count
                if item.key in self.texts:
                    listed.setdefault((item.queue, pods.pod.namespace), []).append(pods)
        uncounted = [
            Uncounted(queue=queue, namespace=namespace, why=NotCounted.INCOMPLETE,
                      count=sum(pods.count for pods in items),
                      names=tuple(dict.fromkeys(pods.pod.name for pods in items[:10])))
            for (queue, namespace), items in listed.items()
        ]  # fmt: skip
        names = {pods.pod.name for item in incomplete for _, pods in item.pods}
        return replace(
            self._demand,
            groups=_without(self._demand.groups, removed, names),
            uncounted=(*self._demand.uncounted, *uncounted),
        )


def _without(
    groups: Sequence[PendingGroup], removed: Mapping[str, Counter[str]], names: Collection[str]
) -> tuple[PendingGroup, ...]:
    """Returns the groups without `removed`, numbers of pods by group and creation time. `names`:
    pods that must not stand for their group."""
    kept = []
    for group in groups:
        less = removed.get(group.fingerprint, Counter())
        created = tuple((at, n - less[at]) for at, n in group.created if n > less[at])
        if created:
            total = sum(n for _, n in created)
            shown = tuple(name for name in group.names if name not in names) or group.names
            kept.append(replace(group, created=created, total=total, names=shown,
                                count=min(group.count, total)))  # fmt: skip
    return tuple(kept)


def _describe_lack(before: QueueSizing, sizing: QueueSizing) -> str:
    """Returns how many nodes a Workload needs besides those of `before`, and why it cannot get
    them."""
    more = count_by_type(Counter(sizing.wanted) - Counter(before.wanted))
    needed = ", ".join(f"{count} of type {name}" for name, count in more.items()) or "more nodes"
    granted = sum(sizing.granted.values()) - sum(before.granted.values())
    return f"needs {needed}; {describe_bounds(sizing.spent, max(granted, 0))}"


def _describe_behind(text: str) -> str:
    """Returns why a Workload gets no node that is behind one with this text (empty: a misfit)."""
    return f"is behind one that {text or 'no node type fits'}"


def _minus(items: Sequence[_Workload], removed: Sequence[_Workload]) -> list[_Workload]:
    keys = {item.key for item in removed}
    return [item for item in items if item.key not in keys]
