"""Namespaces whose requests are not answered, and the time that they cost a run."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config, NamespacePolicy
from dnm.model.errors import KubeError
from dnm.model.pod import PodList
from dnm.model.turns import in_turn
from dnm.queues.resource_quota.objects import read_facts
from tests.builders import a_config

NAMES = tuple(f"course-{number}" for number in range(8))
TIMEOUT = 0.4  # seconds of a request


@pytest.fixture
def config(sandbox: Sandbox) -> Config:
    for name in NAMES:
        sandbox.add_namespace(name)
        sandbox.create({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "q", "namespace": name}, "spec": {"hard": {"requests.cpu": "8"}},
        })  # fmt: skip
    policies = {
        name: NamespacePolicy(
            name=name, queue=name, node_types=("a",), queue_system="resource_quota"
        )
        for name in NAMES
    }
    return a_config(
        namespaces=policies, kubeconfig_path=sandbox.kubeconfig,
        request_timeout=timedelta(seconds=TIMEOUT),
    )  # fmt: skip


def silence(sandbox: Sandbox, names: tuple[str, ...], plural: str) -> None:
    path = f"namespaces/({'|'.join(names)})/{plural}"
    sandbox.fault("slow", path=path, methods=("GET",), seconds=3 * TIMEOUT)


def timed(config: Config, kube: KubeClient) -> tuple[Any, float]:
    began = time.monotonic()
    facts = read_facts(config, kube.typed_objects)
    return facts, time.monotonic() - began


def test_silent_namespaces_cost_a_run_a_few_time_outs(sandbox: Sandbox, config: Config) -> None:
    silence(sandbox, NAMES[1:], "resourcequotas")
    kube = KubeClient.connect(config)
    facts, seconds = timed(config, kube)
    assert seconds < 3.5 * TIMEOUT
    assert set(NAMES[1:]) <= facts.unread_queues.keys() == facts.unread_ledgers
    errors = [item.error for item in facts.unread_queues.values()]
    assert sum("was not read in this run" in error for error in errors) >= 5
    with pytest.raises(KubeError, match=r"^a list of the whole cluster was not read in this run"):
        kube.typed_objects.read_priority_classes()
    again, seconds = timed(config, kube)
    assert seconds < TIMEOUT and again.unread_queues.keys() == facts.unread_queues.keys()


def test_silent_namespace_hides_no_namespace_that_answered(
    sandbox: Sandbox, config: Config
) -> None:
    kube = KubeClient.connect(config)
    assert not timed(config, kube)[0].unread_queues
    silence(sandbox, NAMES[:3], "resourcequotas")
    for _ in range(2):
        facts, _ = timed(config, kube)
        assert [*facts.unread_queues] == [*NAMES[:3]]
        assert [quota.namespace for quota in facts.quotas] == [*NAMES[3:]]
    silence(sandbox, NAMES, "resourcequotas")
    facts, seconds = timed(config, kube)
    assert seconds < 2.5 * TIMEOUT and {*facts.unread_queues} == {*NAMES}


def test_refusals_are_no_silence(sandbox: Sandbox, config: Config) -> None:
    sandbox.fault("status", path=f"namespaces/({'|'.join(NAMES[1:])})/resourcequotas", code=403)
    facts, _ = timed(config, KubeClient.connect(config))
    assert {*facts.unread_queues} == {*NAMES[1:]}
    assert all("403" in item.error for item in facts.unread_queues.values())


def test_pods_of_silent_namespaces_cost_a_run_a_few_time_outs(
    sandbox: Sandbox, config: Config
) -> None:
    sandbox.add_pods(1, NAMES[0])
    sandbox.access.restrict({("list", "pods", name) for name in NAMES})
    silence(sandbox, NAMES[1:], "pods")
    began = time.monotonic()
    pods = KubeClient.connect(config).read_pods(NAMES)
    assert time.monotonic() - began < 3.5 * TIMEOUT
    assert isinstance(pods, PodList) and set(NAMES[1:]) <= pods.unreadable.keys()
    assert [*pods.unreadable] == sorted(pods.unreadable)
    assert {pod.namespace for pod in pods.pods} | pods.unreadable.keys() == {*NAMES}


def test_each_namespace_has_its_turn_beside_silent_ones() -> None:
    silent = {*NAMES[:6]}
    read: set[str] = set()
    for minute in range(30):
        order = in_turn(reversed(NAMES), minute)
        assert sorted(order) == [*NAMES] and order == in_turn(NAMES, minute)
        waits = [position for position, name in enumerate(order) if name in silent]
        read |= {*order[: waits[1]]} - silent
    assert read == {*NAMES} - silent
