"""Tests that an unreadable or unwritable queue affects no queue of another system or namespace. It
gets no nodes, keeps the lent ones, and reports the reason.

Each row of `TROUBLES` is played on two equal sites, of which only one has the trouble."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.lent import Phase
from dnm.model.node import Mark
from dnm.model.queue_edit import QueueWants
from dnm.model.quota import ResourceQuota
from dnm.model.value import Unreadable
from dnm.queues.resource_quota.edit import plan_quota
from dnm.queues.resource_quota.ledger import LEDGER, QuotaLedger
from dnm.queues.resource_quota.objects import QuotaFacts
from tests.builders import SIZE, a_policy
from tests.plan.worlds import BIG, SMALL, World, pods
from tests.queues.mixed import TROUBLES, MixedSite, Trouble


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the pauses short in which dnm waits for an API server that refuses."""
    monkeypatch.setattr("dnm.kube.session._FIRST_PAUSE", 0.01)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Sandbox, Sandbox]]:
    clusters = [Sandbox(tmp_path / name).start() for name in ("troubled", "quiet")]
    yield clusters[0], clusters[1]
    for cluster in clusters:
        cluster.stop()


def calm_nodes(mixed: MixedSite) -> tuple[list[str], object]:
    """Returns the phases of the nodes and the limit of the namespace without trouble."""
    return sorted(p.value for p in mixed.nodes(mixed.calm).values()), mixed.calm.limit()


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_trouble_of_a_queue_changes_no_other_queue(
    pair: tuple[Sandbox, Sandbox], tmp_path: Path, trouble: Trouble
) -> None:
    troubled, quiet = (MixedSite(sandbox, sandbox.directory, trouble) for sandbox in pair)
    for mixed in (troubled, quiet):
        mixed.dev.request(2)
        mixed.calm.request(1)
        mixed.run(3)
        assert [*mixed.nodes(mixed.dev).values()] == [Phase.SERVING] * 2, mixed.run()
        assert [*mixed.nodes(mixed.calm).values()] == [Phase.SERVING]
    kept, limit = troubled.nodes(troubled.dev), troubled.dev.limit()
    if trouble.is_of_writes:
        troubled.dev.request(1)
        troubled.run()
        quiet.run()
    end = trouble.begin(troubled.dev)
    for mixed in (troubled, quiet):
        mixed.dev.request(2)
        mixed.calm.request(2)
    errors = check_equal(troubled, quiet, 4)
    assert len(troubled.nodes(troubled.calm)) == 3
    assert len(troubled.nodes(troubled.dev)) == len(kept) + trouble.is_of_writes
    assert any(trouble.names in error for error in errors), errors
    for mixed in (troubled, quiet):
        mixed.dev.end()
        mixed.calm.end()
    check_equal(troubled, quiet, 12)
    assert troubled.nodes(troubled.calm) == {} and quiet.nodes(quiet.dev) == {}
    assert kept.keys() <= troubled.nodes(troubled.dev).keys()
    assert all(map(troubled.is_open, kept))
    end()
    assert troubled.dev.limit() == limit
    troubled.run(12)
    assert troubled.nodes(troubled.dev) == {} and troubled.dev.limit() == quiet.dev.limit()
    assert not pair[0].violations


HARD = {"requests.cpu": "100", "requests.memory": "300G"}


def lent_quota(namespace: str, **more: Any) -> ResourceQuota:
    """Returns a quota as dnm writes it while the lent node `a001` serves its namespace."""
    quota = ResourceQuota(namespace=namespace, name="q", version="1", hard=HARD, **more)
    wanted = QueueWants(instance_id="prod", nodes={namespace: {"a001": SIZE}})
    item = plan_quota(quota, QuotaLedger(), wanted)
    return msgspec.structs.replace(quota, hard=item.hard, annotations={LEDGER: item.annotation})


@pytest.mark.parametrize("trouble", ["none", "unread", "invalid-ledger"])
def test_used_quota_is_recorded_beside_a_namespace_in_trouble(trouble: str) -> None:
    """The pods of `notebook` use the quota of its node, but run on another node."""
    policies = [a_policy(name=name, queue=name, queue_system="resource_quota")
                for name in ("dev", "notebook")]  # fmt: skip
    world = World().lent("a001", namespace="notebook", queue="notebook").node(
        "a001", mark=Mark(instance="prod", node_type="a", namespace="notebook", queue="notebook"),
        labels={"notebook": "true"},
    )  # fmt: skip
    world.configured(namespaces={policy.name: policy for policy in policies})
    quotas, unread = [lent_quota("notebook")], {}
    if trouble == "unread":
        unread = {"dev": Unreadable(subject="the ResourceQuotas of dev", error="503")}
    elif trouble == "invalid-ledger":
        quotas.append(ResourceQuota(namespace="dev", name="q", version="1", hard=HARD,
                                    annotations={LEDGER: "{"}))  # fmt: skip
    pod = pods(1, BIG, namespace="notebook", queue="notebook", node="k1")
    facts = QuotaFacts(quotas=tuple(quotas), unread_queues=unread)
    world.with_pods(*pod, *pods(1, SMALL, namespace="notebook", queue="notebook", node="k1"))
    plan = world.with_facts(queue_facts=facts).plan()
    assert plan.registry.nodes["a001"].was_used


WRITES = {name: trouble for name, trouble in TROUBLES.items() if trouble.is_of_writes}


@pytest.mark.parametrize(
    "keys", [{"max_conversions_per_run": 1}, {"max_converted_nodes": 3}], ids=" ".join
)
@pytest.mark.parametrize("trouble", WRITES.values(), ids=WRITES)
def test_queue_with_refused_writes_leaves_nodes_to_a_calm_queue(
    sandbox: Sandbox, tmp_path: Path, trouble: Trouble, keys: dict[str, int]
) -> None:
    mixed = MixedSite(sandbox, tmp_path, trouble, "\n[namespace:dev]\npriority = 10\n", **keys)
    mixed.dev.request(1)
    mixed.run(3)
    mixed.dev.request(1)
    mixed.run()
    end = trouble.begin(mixed.dev)
    mixed.dev.request(2)
    mixed.calm.request(1)
    errors = mixed.run(4)
    assert len(mixed.nodes(mixed.dev)) == 2 and len(mixed.nodes(mixed.calm)) == 1, errors
    assert mixed.site.registry.last_run.unwritten == (mixed.dev.queue,)
    end()
    mixed.run(4)
    assert not mixed.site.registry.last_run.unwritten
    assert len(mixed.nodes(mixed.dev)) == keys.get("max_converted_nodes", 5) - 1


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_trouble_after_a_killed_run_changes_no_other_queue(
    pair: tuple[Sandbox, Sandbox], tmp_path: Path, trouble: Trouble
) -> None:
    """The killed run may only be suspended. dnm cannot refuse its late write for the queue with the
    trouble, which therefore waits."""
    troubled, quiet = (MixedSite(sandbox, sandbox.directory, trouble) for sandbox in pair)
    for mixed in (troubled, quiet):
        mixed.dev.request(1)
        mixed.calm.request(1)
        mixed.run(3)
    kept = troubled.nodes(troubled.dev)
    assert [*kept.values()] == [Phase.SERVING]
    end = trouble.begin(troubled.dev)
    for mixed in (troubled, quiet):
        mixed.leave_lease()
        mixed.dev.end()
        mixed.calm.request(1)
        mixed.dev.request(2)
    errors = check_equal(troubled, quiet, 1)
    is_excluded = not troubled.is_lease_held
    errors += check_equal(troubled, quiet, 3)
    assert len(troubled.nodes(troubled.calm)) == 2 and not quiet.is_lease_held, errors
    if not is_excluded:
        assert troubled.is_lease_held and troubled.nodes(troubled.dev) == kept, errors
        assert any(trouble.names in error for error in errors), errors
    end()
    troubled.run(4)
    assert not troubled.is_lease_held and len(troubled.nodes(troubled.dev)) == 2
    assert not pair[0].violations


def check_equal(troubled: MixedSite, quiet: MixedSite, runs: int) -> list[str]:
    """Plays runs on both sites, of which the calm namespaces must agree. Returns the errors."""
    errors: list[str] = []
    for number in range(runs):
        errors += troubled.run()
        quiet.run()
        assert calm_nodes(troubled) == calm_nodes(quiet), (number, errors)
    return errors
