"""A fixture that stores objects of Kueue in a cluster and returns what dnm reads of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config, NamespacePolicy
from dnm.model.node_type import NodeType
from dnm.queues import system_of
from dnm.queues.kueue.facts import KueueFacts
from tests.builders import SIZE, a_config
from tests.queues.kueue.objects import LABEL, a_cluster_queue, a_flavor, a_local_queue
from tests.server_side_apply import with_apply

QUOTAS = {"permanent": {"cpu": "80", "memory": "320G"}, "lent": {"cpu": "0", "memory": "0"}}
Read = Callable[..., KueueFacts]


def a_kueue_config(sandbox: Sandbox, **changes: Any) -> Config:
    policy = NamespacePolicy(name="dev", queue="a8", node_types=("a",), queue_system="kueue")
    values: Mapping[str, Any] = {
        "namespaces": {"dev": policy},
        "node_types": {"a": NodeType(name="a", size=SIZE, labels={LABEL: "true"})},
        "kubeconfig_path": sandbox.kubeconfig,
        "max_converted_nodes": 6,
    }
    return a_config(**{**values, **changes})


@pytest.fixture
def read(sandbox: Sandbox) -> Read:
    """Returns a function that stores these objects, and the usual queue and flavors if they are
    missing. It returns what dnm reads."""

    def store_and_read(*objects: dict[str, Any], **changes: Any) -> KueueFacts:
        usual = (a_cluster_queue("a8", QUOTAS), a_flavor(), a_flavor("permanent"),
                 a_local_queue("a8"))  # fmt: skip
        with_apply(sandbox)
        sandbox.add_namespace("dev")
        sandbox.add_namespace("other")
        own = {(item["kind"], item["metadata"]["name"]) for item in objects}
        for item in usual:
            if (item["kind"], item["metadata"]["name"]) not in own:
                sandbox.create(item)
        for item in objects:
            sandbox.create(item)
        config = a_kueue_config(sandbox, **changes)
        facts = system_of(config).collect(config, KubeClient.connect(config))
        assert isinstance(facts, KueueFacts) and facts.unread is None
        return facts

    return store_and_read
