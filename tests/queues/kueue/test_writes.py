"""Writes of several Cohorts, of which some fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config, NamespacePolicy
from dnm.model.errors import KubeError, LeaseLostError
from dnm.model.queue_edit import QueueOutcome, QueueWants
from dnm.queues.kueue.system import Kueue
from tests.builders import a_config
from tests.queues.harness import SIZE, DyingClient
from tests.queues.kueue.objects import a_cluster_queue, a_flavor
from tests.server_side_apply import with_apply

NAMES = ("art", "biology", "chemistry")
FREE = {"cpu": "80", "memory": "320G"}


@pytest.fixture
def config(sandbox: Sandbox) -> Config:
    with_apply(sandbox)
    sandbox.create(a_flavor())
    for name in NAMES:
        sandbox.create(a_cluster_queue(name, {"permanent": FREE, "lent": FREE}))
    policies = {
        name: NamespacePolicy(name=name, queue=name, node_types=("a",), queue_system="kueue")
        for name in NAMES
    }
    return a_config(namespaces=policies, kubeconfig_path=sandbox.kubeconfig)


def write(
    config: Config, kube: Any = None, before_write: Callable[[], None] = lambda: None
) -> QueueOutcome:
    wants = QueueWants(
        instance_id="prod", nodes={name: {f"{name}-1": SIZE} for name in NAMES}, remembered=""
    )
    return Kueue().write(config, kube or KubeClient.connect(config), wants, None, before_write)


def written(sandbox: Sandbox) -> set[str]:
    cohorts: list[Any] = [sandbox.get("cohorts", f"dnm-{name}") or {} for name in NAMES]
    specs = zip(NAMES, cohorts, strict=True)
    return {name for name, item in specs if (item.get("spec") or {}).get("resourceGroups")}


@pytest.mark.parametrize("is_lasting", [False, True], ids=["one-error", "outage"])
@pytest.mark.parametrize("number", range(1, 30))
def test_written_cohorts_are_recorded_whatever_call_fails(
    sandbox: Sandbox, config: Config, number: int, is_lasting: bool
) -> None:
    error = KubeError("cut off")
    dying = DyingClient(KubeClient.connect(config), number, False, error, is_lasting)
    try:
        outcome = write(config, dying)
    except KubeError:
        assert not written(sandbox)
    else:
        changed = {change.queue for change in outcome.edit.changes}
        assert changed == written(sandbox)
        assert changed.isdisjoint(outcome.failed) and changed | {*outcome.failed} == {*NAMES}
        assert outcome.is_written is bool(changed)
    write(config)
    assert written(sandbox) == {*NAMES}


def test_lease_that_can_not_be_renewed_stops_later_writes_only(
    sandbox: Sandbox, config: Config
) -> None:
    write(config, DyingClient(KubeClient.connect(config)))
    calls: list[str] = []

    def renew() -> None:
        calls.append("")
        if len(calls) > 4:
            raise KubeError("can't read the Lease")

    for name in NAMES:
        sandbox.delete("cohorts", f"dnm-{name}")
    outcome = write(config, before_write=renew)
    changed = {change.queue for change in outcome.edit.changes}
    assert changed == written(sandbox) == {"art"}
    assert {*outcome.failed} == {"biology", "chemistry"}
    assert all("Lease" in why for why in outcome.failed.values())


def test_lost_lease_stops_all_writes(sandbox: Sandbox, config: Config) -> None:
    def renew() -> None:
        raise LeaseLostError("another run acts")

    with pytest.raises(LeaseLostError):
        write(config, before_write=renew)
    assert not written(sandbox)
