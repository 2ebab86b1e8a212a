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
from dnm.model.cluster import RefusedPods
from dnm.model.config import Config
from dnm.model.reason import Reason
from dnm.model.value import Value
from dnm.model.verdict import Verdict
from dnm.sizing.caps import describe_bounds
from dnm.sizing.queue_sizing import QueueSizing, Sizing, count_by_type

_MOST_TRIALS = 80  # sizings of one decision
_MOST_FAILURES = 40  # of one queue, so that its Workloads leave trials to the other queues
_MOST_ADMITTED_LATE = 10  # Workloads of one queue that have their nodes and wait for admission
_UNTRIED = "comes after more kinds of Workloads than dnm tries in a run"

Size = Callable[[Demand], Sizing]


class _Workload(Value):
    """A Workload of Kueue with pending pods. `pods`: pairs of a group of equal pending pods, by its
    fingerprint, and the pods of this Workload in it."""

    key: str
    queue: str
    pods: tuple[tuple[str, RefusedPods], ...]

    @property
    def is_strict(self) -> bool:
        return self.pods[0][1].is_strict

    @property
    def least(self) -> Counter[str]:
        """Returns group -> the smallest number of pods there that is admitted."""
        counts: Counter[str] = Counter()
        for name, pods in self.pods:
            counts[name] += pods.least
        return counts

    def is_hopeless_after(self, failed: _Workload) -> bool:
        """Returns whether `failed`, which is before it and cannot be completed, rules it out: it
        waits behind that in a strict queue, or it needs as many equal pods."""
        if self.queue != failed.queue:
            return False
        least = self.least
        return failed.is_strict or all(least[name] >= n for name, n in failed.least.items())


def size_workloads(config: Config, demand: Demand, size: Size) -> Sizing:
    """Returns the sizing without Workloads that cannot be completed, and the reason for each.
    `size` returns the sizing for a part of the demand, as if all pods were admitted one by one."""
    workloads = list(_list_workloads(config, demand))
    demand = replace(demand, workloads=())
    if all(item.pods[0][1].count == len(item.pods) == 1 and not item.is_strict
           for item in workloads):  # fmt: skip
        return size(demand)
    choice = _Choice(demand, workloads, size)
    part = demand
    sizing = size(demand)
    if not choice.has_places(sizing, demand):
        part = choice.without(choice.find_incomplete())
        sizing = size(part)
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


def _list_workloads(config: Config, demand: Demand) -> Iterator[_Workload]:
    """Yields the Workloads with counted pods, in the order in which they are tried."""
    by_key: dict[str, list[tuple[str, RefusedPods]]] = {}
    names: dict[tuple[str, int], str] = {}
    for pods in demand.workloads:
        place = pods.pod.namespace, id(pods.pod.shape)
        if place not in names:
            names[place] = next(
                (group.fingerprint for group in demand.groups
                 if group.namespace == place[0] and group.count and not group.volumes
                 and group.shape == pods.pod.shape), "",
            )  # fmt: skip
        if names[place]:
            by_key.setdefault(pods.workload, []).append((names[place], pods))
    ranks: Counter[str] = Counter()
    ranked = []
    for key, listed in by_key.items():
        policy = config.namespaces[listed[0][1].pod.namespace]
        ranks[policy.queue] += 1
        order = (-policy.priority, ranks[policy.queue], listed[0][1].pod.created, key)
        ranked.append((order, _Workload(key=key, queue=policy.queue, pods=tuple(listed))))
    yield from (item for _, item in sorted(ranked, key=lambda pair: pair[0]))


class _Choice:
    """The choice of the Workloads that can be completed together. `texts`: by key, why one of the
    others cannot be, unless no node type fits its pods."""

    def __init__(self, demand: Demand, workloads: Sequence[_Workload], size: Size) -> None:
        self._demand, self._workloads, self._size = demand, workloads, size
        self._names = {name for item in workloads for name, _ in item.pods}
        self._trials = 0
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
            sizing = self._size(self._least_of(own[:count])).of(queue)
            if lacks := sum(sizing.granted.values()):
                return lacks
        return 0

    def find_incomplete(self) -> list[_Workload]:
        """Returns the Workloads that cannot be completed. Workloads that are hopeless because of an
        earlier one are not tried."""
        kept: list[_Workload] = []
        incomplete: list[_Workload] = []
        rest = list(self._workloads)
        failures: Counter[str] = Counter()  # by queue
        while rest:
            count = self._count_completable(kept, rest)
            kept, rest = [*kept, *rest[:count]], rest[count:]
            if rest and self._trials >= _MOST_TRIALS:
                self.texts |= dict.fromkeys((item.key for item in rest), _UNTRIED)
                incomplete += rest
                break
            if rest:
                failed = [rest[0], *(x for x in rest[1:] if x.is_hopeless_after(rest[0]))]
                self._explain(kept, failed)
                incomplete += failed
                rest = [item for item in rest if item not in failed]
                failures[failed[0].queue] += 1
            spent = [item for item in rest if failures[item.queue] >= _MOST_FAILURES]
            self.texts |= dict.fromkeys((item.key for item in spent), _UNTRIED)
            incomplete += spent
            rest = [item for item in rest if item not in spent]
        self._incomplete = {item.key for item in incomplete}
        return incomplete

    def _count_completable(self, kept: Sequence[_Workload], rest: Sequence[_Workload]) -> int:
        """Returns how many of `rest`, in order, can be completed along with `kept`."""
        count, step, is_growing = 0, 1, True
        while count < len(rest) and self._trials < _MOST_TRIALS:
            step = min(step, len(rest) - count)
            part = self._least_of([*kept, *rest[: count + step]])
            self._trials += 1
            if self.has_places(self._size(part), part):
                count += step
                step = step * 2 if is_growing else step
            elif step == 1:
                break
            else:
                step, is_growing = step // 2, False
        return count

    def _explain(self, kept: Sequence[_Workload], failed: Sequence[_Workload]) -> None:
        first, queue = failed[0], failed[0].queue
        before = self._size(self._least_of(kept)).of(queue)
        sizing = self._size(self._least_of([*kept, first])).of(queue)
        misfits = {item.group.fingerprint for item in sizing.unschedulable} & first.least.keys()
        if misfits:
            self._misfits |= misfits
            return
        text = _describe_lack(before, sizing)
        self.texts |= dict.fromkeys((item.key for item in failed), f"is behind one that {text}")
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
