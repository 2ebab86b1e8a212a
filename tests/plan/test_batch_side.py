"""Tests of when a run has to query Slurm through the converter, and when it need not."""

from __future__ import annotations

from typing import Any

import pytest

from dnm.model.lent import Phase
from dnm.model.pod import PodList
from dnm.model.registry import QueueStatus, Registry, RunRecord
from dnm.model.value import Unreadable
from dnm.plan.inputs import needs_batch_side
from tests.builders import QUEUE, a_config, a_lent_node, a_node, a_request
from tests.plan.worlds import namespace_policy, pods

NO_PODS = PodList(pods=())
SERVES = Registry(nodes={"a001": a_lent_node()})


def registry_with_verdict(verdict: str) -> Registry:
    status = QueueStatus(
        limit={}, baseline={}, lent={}, used={}, pending={}, pending_pods=0, reason="",
        verdict=verdict,
    )  # fmt: skip
    return Registry(last_run=RunRecord(queues={QUEUE: status}))


@pytest.mark.parametrize(
    ("registry", "nodes", "some", "needed"),
    [
        pytest.param(Registry(), [], NO_PODS, False, id="nothing"),
        pytest.param(SERVES, [a_node()], NO_PODS, False, id="serves"),
        pytest.param(SERVES, [], NO_PODS, True, id="missing-node"),
        pytest.param(SERVES, [a_node(mark=None)], NO_PODS, True, id="serves-unmarked"),
        pytest.param(Registry(), [a_node()], NO_PODS, True, id="marked-and-not-recorded"),
        pytest.param(
            Registry(nodes={"a001": a_lent_node(Phase.RELEASING)}), [a_node()], NO_PODS, True,
            id="leaves",
        ),
        pytest.param(Registry(requests=(a_request(),)), [], NO_PODS, True, id="under-way"),
        pytest.param(registry_with_verdict("keep"), [], NO_PODS, False, id="had-enough"),
        pytest.param(registry_with_verdict("wait"), [], NO_PODS, True, id="waited"),
        pytest.param(registry_with_verdict("convert"), [], NO_PODS, True, id="wanted-nodes"),
        pytest.param(registry_with_verdict(""), [], NO_PODS, True, id="was-not-judged"),
        pytest.param(Registry(), [], PodList(pods=pods(1)), True, id="pods-wait"),
        pytest.param(Registry(), [], PodList(pods=pods(1, node="k1")), False, id="pods-run"),
        pytest.param(
            Registry(), [], PodList(pods=pods(1, namespace="other")), False, id="of-no-concern"
        ),
        pytest.param(
            Registry(), [], PodList(pods=pods(1, is_managed=False)), False, id="not-yunikorn's"
        ),
        pytest.param(Registry(), [], Unreadable(subject="x", error="y"), False, id="pods-unread"),
    ],
)  # fmt: skip
def test_run_reads_slurm_only_if_a_decision_depends_on_it(
    registry: Registry, nodes: list[Any], some: PodList | Unreadable, needed: bool
) -> None:
    assert needs_batch_side(a_config(), registry, nodes, some) is needed


def test_min_nodes_always_needs_the_batch_side() -> None:
    config = a_config(namespaces=namespace_policy(a_config(), min_nodes=1))
    assert needs_batch_side(config, Registry(), [], NO_PODS)
