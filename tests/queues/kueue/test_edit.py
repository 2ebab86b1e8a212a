"""Tests of the manifest of the Cohort that dnm writes: quota, ledger, and other writers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.kueue import KUEUE_API, LEDGER, ClusterQueue, Cohort, FlavorQuota, ResourceGroup
from dnm.model.quantity import kube_resources
from dnm.model.queue_edit import QueueWants
from dnm.model.value import Resources
from dnm.queues.kueue.edit import plan_cohorts
from dnm.queues.kueue.facts import KueueFacts
from dnm.queues.kueue.ledger import encode_record
from dnm.queues.kueue.system import KueueQueues
from dnm.queues.kueue.writes import manifest_of
from tests.queues.harness import Host, lent
from tests.queues.kueue.case import KueueCase

SIZE = kube_resources({"cpu": "128", "memory": "256G", "pods": "110"})
CPU = next(iter(kube_resources({"cpu": "1"})))


def a_queue(**changes: Any) -> ClusterQueue:
    lent = FlavorQuota(name="lent", nominal=kube_resources({"cpu": "0", "memory": "0"}))
    group = ResourceGroup(resources=("cpu", "memory"), flavors=(lent,))
    return ClusterQueue(**{"name": "a8", "cohort": "dnm-a8", "groups": (group,), **changes})


def some_facts(cohort: Cohort | None = None, **changes: Any) -> KueueFacts:
    cohorts = (cohort,) if cohort else ()
    return KueueFacts(**{"paths": {"a8": "a8"}, "queues": (a_queue(),), "cohorts": cohorts,
                         **changes})  # fmt: skip


def wants(
    *nodes: str, instance: str = "prod", remembered: str | None = "", **more: Any
) -> QueueWants:
    lent = {"a8": dict.fromkeys(nodes, SIZE)} if nodes else {}
    return QueueWants(instance_id=instance, nodes=lent, remembered=remembered, **more)


def written(facts: KueueFacts, manifest: dict[str, Any]) -> KueueFacts:
    """Returns Kueue's objects as dnm reads them after it applied a manifest."""
    (group,) = manifest["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]

    def amounts(field: str) -> dict[str, int]:
        rows = {row["name"]: row[field] for row in flavor["resources"] if field in row}
        return kube_resources(rows)

    quota = FlavorQuota(
        name="lent", nominal=amounts("nominalQuota"), lending=amounts("lendingLimit")
    )
    old = facts.cohorts[0] if facts.cohorts else Cohort(name="dnm-a8")
    cohort = msgspec.structs.replace(
        old,
        version=str(int(old.version or "0") + 1),
        groups=(ResourceGroup(resources=tuple(group["coveredResources"]), flavors=(quota,)),),
        ledger=(manifest["metadata"].get("annotations") or {}).get(LEDGER, ""),
    )
    return msgspec.structs.replace(facts, cohorts=(cohort,))


def play(facts: KueueFacts, wanted: QueueWants) -> tuple[KueueFacts, str | None]:
    """Plans an edit and applies it; returns the new objects and the ledger for the registry."""
    edit = plan_cohorts(facts, wanted)
    (item,) = edit.planned
    after = written(facts, manifest_of(item)) if item.is_changed else facts
    assert not plan_cohorts(after, wanted).is_changed, "a second write changes something"
    assert edit.limits == KueueQueues(facts=after).limits, "the projected limits are others"
    return after, edit.record


def lent_cores(facts: KueueFacts) -> int:
    return sum(cohort.quota.nominal.get(CPU, 0) for cohort in facts.cohorts)


NAMES = st.sets(st.sampled_from([f"n{number}" for number in range(6)]))
STEPS = st.lists(
    st.tuples(st.sampled_from(["prod", "test"]), NAMES, st.sampled_from(["", "lost", "older"])),
    max_size=8,
)


@given(steps=STEPS)
def test_quota_is_that_of_the_nodes_whatever_happens_to_the_ledger(
    steps: list[tuple[str, set[str], str]],
) -> None:
    facts, records = some_facts(), {"prod": "", "test": ""}
    serving: dict[str, set[str]] = {"prod": set(), "test": set()}
    ledgers = [""]
    for instance, names, event in steps:
        own = {f"{instance}-{name}" for name in names}
        if facts.cohorts and event:
            text = ledgers[-1] if event == "older" else ""
            cohort = msgspec.structs.replace(facts.cohorts[0], ledger=text)
            facts = msgspec.structs.replace(facts, cohorts=(cohort,))
        if facts.cohorts:
            ledgers.append(facts.cohorts[0].ledger)
        serving[instance] = own
        for name in (instance, "prod", "test"):  # afterwards each instance runs once
            wanted = wants(*serving[name], instance=name, remembered=records[name])
            facts, noted = play(facts, wanted)
            records[name] = noted or ""
        assert lent_cores(facts) == 128_000 * sum(map(len, serving.values()))
    for name in ("prod", "test"):
        facts, _ = play(facts, wants(instance=name, remembered=records[name]))
    assert lent_cores(facts) == 0
    assert all(not cohort.ledger for cohort in facts.cohorts)


@given(used=st.integers(0, 900), before=st.integers(0, 5), after=st.integers(0, 5))
def test_quota_never_shrinks_below_its_use_and_never_grows_for_it(
    used: int, before: int, after: int
) -> None:
    facts, record = play(some_facts(), wants(*(f"n{number}" for number in range(before))))
    facts = msgspec.structs.replace(facts, used={"a8": {CPU: used * 1000}})
    names = [f"n{number}" for number in range(after)]
    facts, _ = play(facts, wants(*names, remembered=record))
    nodes, current = 128 * after, 128 * before
    assert lent_cores(facts) == 1000 * max(nodes, min(current, used))


def test_lent_quota_stays_in_its_queue_below_a_parent() -> None:
    cohort = Cohort(name="dnm-a8", version="7", parent="university")
    (item,) = plan_cohorts(some_facts(cohort), wants("n1")).planned
    (group,) = manifest_of(item)["spec"]["resourceGroups"]
    assert [row["lendingLimit"] for row in group["flavors"][0]["resources"]] == ["0", "0"]
    assert manifest_of(item)["metadata"]["resourceVersion"] == "7"


def test_parent_that_was_added_later_closes_the_lent_quota() -> None:
    facts, record = play(some_facts(), wants("n1"))
    cohort = msgspec.structs.replace(facts.cohorts[0], parent="university")
    edit = plan_cohorts(
        msgspec.structs.replace(facts, cohorts=(cohort,)), wants("n1", remembered=record)
    )
    assert edit.is_changed and not edit.changes


def test_quotas_of_another_writer_are_not_replaced() -> None:
    facts, record = play(some_facts(), wants("n1"))
    cohort = msgspec.structs.replace(facts.cohorts[0], writer="argocd")
    facts = msgspec.structs.replace(facts, cohorts=(cohort,))
    edit = plan_cohorts(facts, wants("n1", "n2", remembered=record))
    assert not edit.is_changed
    assert "argocd" in edit.blocked["a8"] and "a8" in edit.uncounted
    assert edit.record == record


def test_queue_that_left_its_cohort_counts_no_lent_node() -> None:
    facts, record = play(some_facts(), wants("n1"))
    facts = msgspec.structs.replace(facts, queues=(a_queue(cohort=""),))
    edit = plan_cohorts(facts, wants("n1", remembered=record))
    assert edit.limits["a8"].max[CPU] == 0
    assert "a8" in edit.uncounted and not edit.is_changed
    facts, _ = play(facts, wants(remembered=record))
    assert lent_cores(facts) == 0


@pytest.mark.parametrize("text", ["{", '{"cohort": "dnm-b"}', '{"version": 2}', "[]"])
def test_node_may_be_counted_by_an_unreadable_or_foreign_ledger(
    sandbox: Sandbox, text: str
) -> None:
    case = KueueCase(sandbox)
    host = Host(case)
    host.write(lent("n1"))
    metadata = {"name": "dnm-old", "annotations": {LEDGER: text}}
    sandbox.create({"apiVersion": KUEUE_API, "kind": "Cohort", "metadata": metadata, "spec": {}})
    assert host.read().lenders == {"n1": "prod"} and not host.read().is_counted("n2", "a8", "prod")
    case.replace_ledger(text)
    queues = host.read()
    assert queues.lenders == {} and queues.is_counted("n1", "a8", "prod")
    assert not queues.is_counted("n1", "free", "prod")
    facts = host.system.collect(host.config, KubeClient.connect(host.config))
    assert facts.unread_ledgers == {"a8", "dnm-old"}
    host.write({})
    assert not host.read().is_counted("n1", "a8", "prod"), "the write replaces the ledger"


def test_record_of_another_queue_system_is_ignored() -> None:
    for text in ("checksum 1", "[]", None, encode_record({})):
        assert lent_cores(play(some_facts(), wants("n1", remembered=text))[0]) == 128_000


def test_quantities_are_compared_as_amounts() -> None:
    facts, record = play(some_facts(), wants("n1"))
    other: Resources = kube_resources({"cpu": "128000m", "memory": "256000M"})
    group = ResourceGroup(
        resources=("cpu", "memory"), flavors=(FlavorQuota(name="lent", nominal=other),)
    )
    cohort = msgspec.structs.replace(facts.cohorts[0], groups=(group,))
    facts = msgspec.structs.replace(facts, cohorts=(cohort,))
    assert not plan_cohorts(facts, wants("n1", remembered=record)).is_changed
