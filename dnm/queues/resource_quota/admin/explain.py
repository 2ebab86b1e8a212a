"""The explanation, for `dnm explain`, of a workload whose pods a ResourceQuota refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dnm.kube.requests import ApiRequests
from dnm.model.cluster import QueueFacts, RefusedPods
from dnm.model.printable import count_of, printable

_OF_DEPLOYMENT = r"-[a-z0-9]{6,10}"  # the end of the names of its ReplicaSets
_LONGEST_NAME = 160


def explain_workload(
    api: ApiRequests, facts: QueueFacts, asked: tuple[str, str], incomplete: Mapping[str, str]
) -> dict[str, Any] | None:
    """Returns why pods of a Job, StatefulSet, ReplicaSet or Deployment are missing, or None if no
    quota refuses its pods. `asked`: the workload's namespace and name."""
    namespace, name = asked
    here = [pods for pods in facts.refused if pods.pod.namespace == namespace]
    pattern = re.compile(re.escape(name) + _OF_DEPLOYMENT)
    own = [pods for pods in here if pods.owner == name]
    own = own or [pods for pods in here if pattern.fullmatch(pods.owner)]
    if not own:
        return None
    count = sum(pods.count for pods in own)
    return {
        "workload": f"{namespace}/{printable(own[0].owner, _LONGEST_NAME)}",
        "state": f"lacks {count_of(count, 'pod')}, which the API server has refused",
        "obstacles": [_find_obstacle(pods) for pods in own],
        "is_waiting": True,
    }


def _find_obstacle(pods: RefusedPods) -> str:
    """Returns why these pods of a workload have not been created yet."""
    if pods.is_invalid:
        return (
            f"{pods.count} would be refused by any quota: a container has no amount that the quota "
            "requires, a LimitRange forbids it, or its PriorityClass is missing"
        )
    if pods.is_unhelped:
        return (
            f"{pods.count} are refused by a ResourceQuota that counts only some pods, so no node "
            "raises it"
        )
    if pods.retry_until:
        return (
            f"{pods.count} fit the quota now: their controller creates them in its next try, until "
            f"{pods.retry_until}"
        )
    return f"{pods.count} exceed the free part of the quota"
