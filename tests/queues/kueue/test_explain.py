"""Tests of what `dnm explain` answers about a waiting Workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.queues.kueue.admin.explain import explain_workload
from tests.queues.kueue.conftest import QUOTAS, Read, a_kueue_config
from tests.queues.kueue.objects import a_cluster_queue, a_local_queue, a_pod_set, a_workload

STOPPED = {"type": "Active", "status": "False", "reason": "Stopped", "message": "is stopped"}


class Case(NamedTuple):
    """A Workload with so many pods, further objects, and the answer."""

    answer: str
    pods: int = 75
    objects: tuple[Mapping[str, Any], ...] = ()
    spec: Mapping[str, Any] = {}
    incomplete: Mapping[str, str] = {}


CASES = {
    "needs nodes": Case("75 of its pods need lent nodes"),
    "fits": Case("it fits the free quota of permanent nodes", pods=2),
    "too large": Case("lent nodes do not help it", pods=999),
    "incomplete": Case(
        "it gets no node, since Kueue admits it as a whole: it needs 5 nodes",
        incomplete={"dev/w": "needs 5 nodes"},
    ),
    "inactive": Case("its spec.active is false", spec={"active": False}),
    "no LocalQueue": Case("no ClusterQueue belongs to its LocalQueue x", spec={"queueName": "x"}),
    "another ClusterQueue": Case(
        "dnm does not serve ClusterQueue b8",
        objects=(a_cluster_queue("b8", QUOTAS), a_local_queue("b8")),
    ),
    "stopped ClusterQueue": Case(
        "ClusterQueue a8 is inactive: is stopped",
        objects=({**a_cluster_queue("a8", QUOTAS), "status": {"conditions": [STOPPED]}},),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_waiting_workload_has_the_reason_of_its_case(
    sandbox: Sandbox, read: Read, name: str
) -> None:
    case = CASES[name]
    facts = read(*case.objects, a_workload("w", [a_pod_set(case.pods)], spec=dict(case.spec)))
    requests = KubeClient.connect(a_kueue_config(sandbox)).requests
    shown = explain_workload(requests, facts, ("dev", "w"), case.incomplete)
    assert shown is not None and shown["is_waiting"]
    assert shown["obstacles"][0].startswith(case.answer)
