"""The use of queues that a queue system reports itself, besides the sum of bound pods. Pure."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from dnm.demand.demand import Demand
from dnm.demand.refused import list_refused
from dnm.model.cluster import QueueFacts
from dnm.model.quantity import add_to


def with_reported_use(demand: Demand, facts: QueueFacts, now: datetime) -> Demand:
    """Returns the demand with at least the use that the queue system reports for each queue. A
    quota also counts pods that dnm does not, e.g. gated ones. Pending pods in the report are
    subtracted, so that they count once. A complete report replaces the sum of bound pods. This also
    adds the Workloads with pods that must be admitted together."""
    queues, refused = dict(demand.queues), list(list_refused(facts.refused, now))
    for queue in facts.used.keys() & queues.keys():
        if facts.is_use_complete:
            queues[queue] = replace(queues[queue], used=dict(facts.used[queue]))
            continue
        in_groups: dict[str, int] = {}
        for group in demand.groups:
            if group.queue == queue:
                add_to(in_groups, group.shape.request, group.total)
        for pod, count, why in refused:
            if pod.namespace == queue and why is None:
                add_to(in_groups, pod.shape.request, -count)
        used = dict(queues[queue].used)
        for name, amount in facts.used[queue].items():
            used[name] = max(used.get(name, 0), amount - max(in_groups.get(name, 0), 0))
        queues[queue] = replace(queues[queue], used=used)
    together = tuple(pods for pods in facts.refused if pods.workload)
    return replace(demand, queues=queues, workloads=together)
