"""`dnm explain` of a workload with pods that a ResourceQuota refuses."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dnm.kube.requests import ApiRequests
from dnm.model.cluster import QueueFacts, RefusedPods
from dnm.model.pod import Pod, PodShape
from dnm.queues.resource_quota.admin.explain import explain_workload

UNUSED = cast(ApiRequests, None)
MISSING = Pod("dev", "", PodShape(request={}))
OWNERS = {"web-7d4b9c6f5": 3, "web-proxy-7d4b9c6f5": 1, "train": 2}
ASKED = {
    "the ReplicaSet": ("web-7d4b9c6f5", "web-7d4b9c6f5"),
    "its Deployment": ("web", "web-7d4b9c6f5"),
    "a Deployment with a longer name": ("web-proxy", "web-proxy-7d4b9c6f5"),
    "a Job": ("train", "train"),
    "a part of a name": ("tra", None),
    "a pattern": ("we.", None),
}


def explain(namespace: str, name: str) -> dict[str, Any] | None:
    facts = QueueFacts(
        refused=tuple(
            RefusedPods(pod=MISSING, count=count, owner=owner) for owner, count in OWNERS.items()
        )
    )
    return explain_workload(UNUSED, facts, (namespace, name), {})


@pytest.mark.parametrize(("asked", "owner"), ASKED.values(), ids=ASKED)
def test_explain_shows_a_workload_or_its_deployment(asked: str, owner: str | None) -> None:
    shown = explain("dev", asked)
    assert (shown and shown["workload"]) == (owner and f"dev/{owner}")
    assert not shown or shown["state"].startswith(f"lacks {OWNERS[owner or asked]} pod")


def test_explain_shows_no_workload_of_another_namespace() -> None:
    assert explain("notebook", "train") is None
