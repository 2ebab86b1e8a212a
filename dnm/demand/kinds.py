"""How many pods of each kind wait and run, and the room that permanent nodes have for them: all
that the record of demand keeps, so that another configuration can be played over it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from dnm.demand.gangs import GangApp
from dnm.demand.pending import PendingGroup, text_time
from dnm.model.config import Config
from dnm.model.history import NodeRoom, PodKind
from dnm.model.node import Node
from dnm.model.pod import Pod
from dnm.model.queue_path import is_under
from dnm.model.value import Resources

MOST_KINDS = 100  # of one queue, those with the most pods
MOST_ROOMS = 200  # of nodes with equal room, those that are most

Request = tuple[tuple[str, int], ...]
Kind = tuple[Request, int]  # what one asks for, and of how many its gang is


def count_kinds(
    config: Config,
    pods: Iterable[Pod],
    groups: Iterable[PendingGroup],
    gangs: Iterable[GangApp],
    queue_of: Callable[[Pod], str],
    now: datetime,
    resources: frozenset[str] | None = None,
) -> dict[str, tuple[PodKind, ...]]:
    """Returns the kinds of each monitored queue, everything below it included."""
    since = text_time(now - config.check_interval)
    sizes = {id(pod): _size(app) for app in gangs for pod in app.pods}
    waiting: dict[str, Counter[Kind]] = {}
    running: dict[str, Counter[Kind]] = {}
    came: dict[str, Counter[Kind]] = {}

    def add(sums: dict[str, Counter[Kind]], queue: str, kind: Kind, count: int) -> None:
        sums.setdefault(queue, Counter())[kind] += count

    in_gangs: dict[tuple[str, Request], list[Pod]] = {}
    for pod in pods:
        if pod.is_yunikorn and (pod.node or id(pod) in sizes):
            queue, request = queue_of(pod), _plain(pod.shape.request, resources)
            if not pod.node:
                in_gangs.setdefault((queue, request), []).append(pod)
                continue
            kind = (request, sizes.get(id(pod), 0))
            add(running, queue, kind, 1)
            add(came, queue, kind, int(pod.created > since))
    for group in groups:
        request = _plain(group.shape.request, resources)
        total, new = group.total, group.total - group.count_until(now - config.check_interval)
        for pod in in_gangs.pop((group.queue, request), [])[:total]:
            is_new = pod.created > since
            add(waiting, group.queue, (request, sizes[id(pod)]), 1)
            add(came, group.queue, (request, sizes[id(pod)]), int(is_new))
            total, new = total - 1, new - is_new
        add(waiting, group.queue, (request, 0), total)
        add(came, group.queue, (request, 0), max(new, 0))

    def below(sums: Mapping[str, Counter[Kind]], queue: str) -> Counter[Kind]:
        return sum((one for path, one in sums.items() if is_under(path, queue)), Counter())

    return {
        queue: list_kinds(*(below(sums, queue) for sums in (waiting, running, came)))
        for queue in config.queues
    }


def list_kinds(
    waiting: Counter[Kind], running: Counter[Kind], came: Counter[Kind]
) -> tuple[PodKind, ...]:
    """Returns the kinds, of which there are at most MOST_KINDS, in a steady order."""
    every = waiting + running
    largest = sorted(every, key=lambda kind: (-every[kind], kind))[:MOST_KINDS]
    return tuple(
        PodKind(request=dict(kind[0]), pending=waiting[kind], bound=running[kind],
                came=came[kind], gang=kind[1])
        for kind in sorted(largest)
    )  # fmt: skip


def _size(app: GangApp) -> int:
    """The pods that begin together: those that its annotation promises, else those there are."""
    return sum(max(group.min_member, 0) for group in app.groups) or len(app.pods)


def _plain(request: Resources, resources: frozenset[str] | None) -> Request:
    known = (
        (name, amount)
        for name, amount in request.items()
        if name != "pods" and (resources is None or name in resources)
    )
    return tuple(sorted(known))


def list_rooms(
    config: Config, nodes: Iterable[Node], lent: Iterable[str], pods: Iterable[Pod]
) -> tuple[NodeRoom, ...]:
    """Returns what the permanent nodes have for monitored pods, equal ones together: those that are
    in service for them, less what all other pods have there."""
    lent = frozenset(lent)
    there = {
        node.name: node
        for node in nodes
        if not (node.name in lent or node.mark or node.is_cordoned or node.unreadable)
        and node.is_ready
    }
    taken: dict[str, Counter[str]] = {name: Counter() for name in there}
    ours: set[str] = set()
    for pod in pods:
        if pod.node in there:
            if pod.is_yunikorn and pod.namespace in config.namespaces:
                ours.add(pod.node)
            else:
                taken[pod.node].update(pod.shape.request)
    rooms = Counter(
        tuple(sorted((key, amount - taken[name][key]) for key, amount in node.allocatable.items()))
        for name, node in there.items()
        if name in ours or not any(one.effect != "PreferNoSchedule" for one in node.taints)
    )
    most = sorted(rooms, key=lambda room: (-rooms[room], room))[:MOST_ROOMS]
    return tuple(NodeRoom(free=dict(room), count=rooms[room]) for room in sorted(most))
