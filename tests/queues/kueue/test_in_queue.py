"""ClusterQueues that have their lent quota themselves: the edit as a value, and runs of dnm."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from dnm.checks.findings import CheckResult
from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.lab.sandbox.patches import JSON, apply_patch
from dnm.model.errors import KubeConflict, KubeError
from dnm.model.kueue import LEDGER, ClusterQueue, Cohort, FlavorQuota, ResourceGroup
from dnm.model.quantity import kube_resources
from dnm.model.queue_edit import QueueWants
from dnm.queues.kueue.edit import KueueEdit
from dnm.queues.kueue.facts import KueueFacts
from dnm.queues.kueue.in_queue import patch_of, plan_queues, split_queues
from dnm.queues.kueue.system import SYSTEM, KueueQueues
from dnm.queues.kueue.writes import try_writes
from tests.queue_kit import notes_of
from tests.queues.kueue.conftest import QUOTAS, Read, a_kueue_config
from tests.queues.kueue.objects import (
    a_cluster_queue,
    a_group,
    a_pod_set,
    a_workload,
    in_queue,
    lent_texts,
)
from tests.queues.kueue.test_checks import RECLAIMING, ROLE, ROOT, findings_of, lend, objection_of
from tests.queues.kueue.test_edit import NAMES, wants
from tests.queues.kueue.test_story import LEAST, NOTHING, admit, finish, run_for, site
from tests.site import Site

__all__ = ["site"]  # a fixture
NODE = {"cpu": 128_000, "memory": 256 * 10**9}
DIRECT = in_queue(a_cluster_queue("a8", QUOTAS, cohortName=None))


def facts_of(
    cores: int, ledger: str = "", writer: str = "", parent: str = "", **changes: Any
) -> KueueFacts:
    """Returns the facts about a queue with so many cores, and two gigabytes of memory for each."""
    return split_queues(raw_facts(cores, ledger, writer, parent, **changes), wants())


def raw_facts(
    cores: int, ledger: str = "", writer: str = "", parent: str = "", **changes: Any
) -> KueueFacts:
    memory = changes.pop("memory", 2 * cores * 10**9)
    lent = FlavorQuota(name="lent", nominal={"cpu": 1000 * cores, "memory": memory})
    permanent = FlavorQuota(name="permanent", nominal={"cpu": 1, "memory": 1})
    group = ResourceGroup(resources=("cpu", "memory"), flavors=(permanent, lent))
    held = Cohort(name="a8", version="7", groups=(group,), ledger=ledger, writer=writer,
                  parent=parent)  # fmt: skip
    queue = ClusterQueue(name="a8", cohort=parent, groups=(group,), held=held)
    return KueueFacts(**{"paths": {"a8": "a8"}, "queues": (queue,), **changes})


def held_of(facts: KueueFacts) -> Cohort:
    (held,) = [queue.held for queue in facts.queues]
    assert held is not None
    return held


def cores_of(facts: KueueFacts) -> int:
    return held_of(facts).quota.nominal["cpu"] // 1000


def document_of(facts: KueueFacts) -> dict[str, Any]:
    """Returns the ClusterQueue as the API server has it."""
    held = held_of(facts)
    texts = {name: f"{amount // 1000}" if name == "cpu" else f"{amount}"
             for name, amount in held.quota.nominal.items()}  # fmt: skip
    queue = a_cluster_queue("a8", {"permanent": texts, "lent": texts})
    annotations = {"a/b": "c", **({LEDGER: held.ledger} if held.ledger else {})}
    queue["metadata"] |= {"resourceVersion": held.version, "annotations": annotations}
    return queue


def play(facts: KueueFacts, wanted: QueueWants) -> tuple[KueueFacts, KueueEdit]:
    """Plans and patches; returns the facts afterwards. A second write changes nothing."""
    edit = plan_queues(facts, wanted)
    (item,) = edit.planned
    after = facts
    if item.is_changed:
        patched = apply_patch(JSON, document_of(facts), patch_of(item))
        amounts = kube_resources(lent_texts(patched))
        after = facts_of(
            amounts["cpu"] // 1000, patched["metadata"]["annotations"].get(LEDGER, ""),
            parent=held_of(facts).parent, used=facts.used, memory=amounts["memory"],
        )  # fmt: skip
        assert held_of(after).quota.nominal == amounts
    again = msgspec.structs.replace(wanted, remembered=edit.record)
    assert not plan_queues(after, again).is_changed
    assert edit.limits == KueueQueues(facts=after).limits
    return after, edit


def lent_by(*nodes: str, base: int = 0, instance: str = "prod") -> tuple[str, str]:
    """Returns the annotation and the registry's ledger after a write for these nodes."""
    facts, edit = play(facts_of(base), wants(*nodes, instance=instance))
    return held_of(facts).ledger, edit.record or ""


class Change(NamedTuple):
    """A change by another client while one node of 128 cores is lent on a baseline of 10. `now`:
    the cores afterwards. `baseline`: the cores without lent nodes, or None if that is unclear."""

    now: int
    baseline: int | None
    writer: str = ""
    ledger: str = "kept"
    record: str = "kept"
    reset_by: str = ""


CHANGES = {
    "nothing": Change(138, 10),
    "client-side apply": Change(10, 10, "kubectl-client-side-apply", reset_by="kubectl-client"),
    "replace": Change(10, 10, "kubectl-replace", "lost", reset_by="kubectl-replace"),
    "a forced apply with another baseline": Change(20, 20, "argocd", reset_by="argocd"),
    "a replace with another baseline": Change(20, 20, "helm", "lost", reset_by="helm"),
    "an edited sum": Change(158, 30, "kubectl-edit"),
    "a patched sum": Change(130, 2, "kubectl-patch"),
    "an edit without lent nodes": Change(50, 50, "kubectl-edit", reset_by=""),
    "an edit back to the baseline": Change(10, 10, "kubectl-edit", reset_by="kubectl-edit"),
    "a lost annotation": Change(138, 10, ledger="lost"),
    "an older annotation": Change(138, 10, ledger="older"),
    "an unreadable annotation": Change(138, 10, ledger="{"),
    "an unreadable annotation and the baseline": Change(10, 10, "helm", ledger="{",
                                                        reset_by="helm"),
    "a lost registry": Change(138, 10, record="lost"),
    "a lost registry and a manifest": Change(20, 20, "argocd", record="lost", reset_by="argocd"),
    "a lost annotation and another amount": Change(99, None, ledger="lost"),
    "an unreadable annotation and another amount": Change(99, None, "helm", "{"),
    "another amount by dnm": Change(99, None),
    "an edit beside an older annotation": Change(158, None, "kubectl-edit", "older"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_change_by_another_client_is_kept_and_lent_nodes_are_added_again(change: Change) -> None:
    ledger, record = lent_by("n1", base=10)
    older, _ = lent_by("n0", "n1", base=10)
    texts = {"kept": ledger, "lost": "", "older": older}
    facts = facts_of(change.now, texts.get(change.ledger, change.ledger), change.writer)
    wanted = wants("n1", remembered={"kept": record, "lost": ""}[change.record])
    if change.baseline is None:
        edit = plan_queues(facts, wanted)
        assert not edit.is_changed and "unclear" in edit.blocked["a8"] and edit.uncounted
        assert edit.record == record
        objection = KueueQueues(facts=facts).growth_objection(wanted, "a8", [NODE])
        assert objection and "unclear" in objection.detail
        return
    after, edit = play(facts, wanted)
    assert cores_of(after) == change.baseline + 128
    assert edit.numbers["a8"].baseline["cpu"] == 1000 * change.baseline
    assert edit.reset_by.startswith(change.reset_by) and bool(edit.reset_by) is bool(notes_of(edit))
    restored, _ = play(after, wants(remembered=edit.record))
    assert cores_of(restored) == change.baseline and not held_of(restored).ledger


def test_edited_cores_keep_the_baseline_of_memory() -> None:
    ledger, record = lent_by("n1", base=10)
    facts = facts_of(138, ledger, "kubectl-edit")
    held = held_of(facts)
    group = held.groups[0]
    amounts = {**held.quota.nominal, "cpu": 148_000}
    flavors = (group.flavors[0], msgspec.structs.replace(group.flavors[1], nominal=amounts))
    group = msgspec.structs.replace(group, flavors=flavors)
    held = msgspec.structs.replace(held, groups=(group,))
    queue = msgspec.structs.replace(facts.queues[0], held=held)
    edit = plan_queues(
        msgspec.structs.replace(facts, queues=(queue,)), wants("n1", remembered=record)
    )
    assert edit.numbers["a8"].baseline == {"cpu": 20_000, "memory": 20 * 10**9}


def test_patch_changes_only_digits_and_the_ledger() -> None:
    (item,) = plan_queues(facts_of(10), wants("n1")).planned
    steps = patch_of(item)
    assert steps[0] == {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
    row = "/spec/resourceGroups/0/flavors/1/resources"
    assert steps[1:5] == [
        {"op": "test", "path": f"{row}/0/name", "value": "cpu"},
        {"op": "replace", "path": f"{row}/0/nominalQuota", "value": "138"},
        {"op": "test", "path": f"{row}/1/name", "value": "memory"},
        {"op": "replace", "path": f"{row}/1/nominalQuota", "value": "276G"},
    ]
    assert [step["op"] for step in steps[5:]] == ["add"]
    ledger, record = lent_by("n1", base=10)
    (item,) = plan_queues(facts_of(138, ledger), wants(remembered=record)).planned
    assert patch_of(item)[-1]["op"] == "remove"


EVENTS = st.sampled_from(["", "lost", "older", "killed", "killed-and-lost"])
STEPS = st.lists(st.tuples(st.sampled_from(["prod", "test"]), NAMES, EVENTS), max_size=8)
LOST_BEFORE_A_RETURN = [("prod", {"n1"}, ""), ("prod", set[str](), "killed-and-lost")]


@given(steps=STEPS)
@example(steps=LOST_BEFORE_A_RETURN)
def test_quota_is_the_baseline_and_the_nodes_whatever_happens_to_the_ledger(
    steps: list[tuple[str, set[str], str]],
) -> None:
    facts, records = facts_of(10), {"prod": "", "test": ""}
    serving: dict[str, set[str]] = {"prod": set(), "test": set()}
    ledgers = [""]
    for instance, names, event in steps:
        serving[instance] = {f"{instance}-{name}" for name in names}
        if event.startswith("killed"):  # between the registry and the write
            killed = plan_queues(facts, wants(*serving[instance], instance=instance,
                                              remembered=records[instance]))  # fmt: skip
            records[instance] = killed.record or ""
        if event.endswith(("lost", "older")):
            text = ledgers[-1] if event == "older" else ""
            facts = facts_of(cores_of(facts), text)
        ledgers.append(held_of(facts).ledger)
        # Each instance runs twice: one may have to wait until the other has restored the ledger.
        for name in (instance, "prod", "test", "prod", "test"):
            edit = plan_queues(facts, wants(*serving[name], instance=name,
                                             remembered=records[name]))  # fmt: skip
            if not edit.blocked:
                facts, edit = play(facts, wants(*serving[name], instance=name,
                                                remembered=records[name]))  # fmt: skip
            records[name] = edit.record or ""
        assert cores_of(facts) == 10 + 128 * sum(map(len, serving.values()))
    for name in ("prod", "test"):
        facts, _ = play(facts, wants(instance=name, remembered=records[name]))
    assert cores_of(facts) == 10 and not held_of(facts).ledger


@pytest.mark.parametrize("parent", ["", "university"])
def test_quota_never_shrinks_below_its_use(parent: str) -> None:
    ledger, record = lent_by("n1", "n2", base=10)
    facts = facts_of(266, ledger, parent=parent, used={"a8": {"cpu": 200_000}})
    after, edit = play(facts, wants("n1", remembered=record))
    assert cores_of(after) == 200 and "200" in edit.held["a8"]
    assert edit.changes[0].before == "266" and edit.changes[0].after == "200"
    after = msgspec.structs.replace(after, used={})
    after, _ = play(after, wants("n1", remembered=edit.record))
    assert cores_of(after) == 138


def test_annotation_takes_effect_when_no_node_is_lent() -> None:
    """A ledger in a Cohort keeps lent quota there, and a ledger in the queue keeps it here."""
    lending = Cohort(name="dnm-a8", version="3", ledger='{"cohort": "dnm-a8"}')
    (queue,) = split_queues(raw_facts(0, cohorts=(lending,)), wants()).queues
    assert queue.held is None and queue.own_cohort == "dnm-a8"
    ledger, _ = lent_by("n1")
    (queue,) = split_queues(raw_facts(128, ledger, cohorts=(lending,)), wants()).queues
    assert queue.held and queue.own_cohort == "ClusterQueue a8"


# --- objects of the sandbox ----------------------------------------------------------------------


def test_manifest_that_is_applied_again_is_repaired(sandbox: Sandbox, read: Read) -> None:
    read(DIRECT)
    lend(sandbox)
    quota = {"cpu": "128", "memory": "256G"}
    assert lent_texts(sandbox.get("clusterqueues", "a8") or {}) == quota
    for text in ("kept", ""):
        sandbox.edit("clusterqueues", "a8", lambda item: item.update(spec=DIRECT["spec"]))
        if not text:
            sandbox.edit(
                "clusterqueues", "a8", lambda item: item["metadata"]["annotations"].pop(LEDGER)
            )
        lend(sandbox)
        assert lent_texts(sandbox.get("clusterqueues", "a8") or {}) == quota
    assert not sandbox.objects("cohorts")


def test_version_that_was_not_read_is_refused(sandbox: Sandbox, read: Read) -> None:
    facts = read(DIRECT)
    (item,) = plan_queues(facts, wants("n1")).planned
    sandbox.edit("clusterqueues", "a8", lambda item: item["spec"].update(stopPolicy="None"))
    objects = KubeClient.connect(a_kueue_config(sandbox)).kueue_objects
    with pytest.raises(KubeConflict):
        objects.change_object("ClusterQueue", "a8", patch_of(item))
    assert lent_texts(sandbox.get("clusterqueues", "a8") or {}) == NOTHING


SHARED = [a_group(QUOTAS, lendingLimit="0")]
REFUSED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "in-a-cohort-that-may-borrow": (
        [in_queue(a_cluster_queue("a8", QUOTAS, cohortName="university"))], "lendingLimit 0"),
    "reclaim-in-the-cohort": (
        [in_queue(a_cluster_queue("a8", QUOTAS, cohortName="university", resourceGroups=SHARED)),
         RECLAIMING], "preemption"),
    "flavor-not-listed": (
        [in_queue(a_cluster_queue("a8", {"permanent": NOTHING}, cohortName=None))],
        "does not list"),
    "no-cohort-and-no-annotation": (
        [a_cluster_queue("a8", QUOTAS, cohortName=None)], "lent-quota-in: cluster-queue"),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "word"), REFUSED.values(), ids=list(REFUSED))
def test_fault_is_refused_by_the_run_and_by_check(
    sandbox: Sandbox, read: Read, objects: list[dict[str, Any]], word: str
) -> None:
    facts = read(*objects)
    failed = [item for item in findings_of(sandbox, facts) if item.result is CheckResult.FAILED]
    assert any(word in f"{item.text} {item.remedy}" for item in failed)
    assert word in objection_of(facts)


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([DIRECT], id="in-no-cohort"),
        pytest.param([DIRECT, RECLAIMING], id="reclaim-elsewhere"),
        pytest.param(
            [in_queue(a_cluster_queue("a8", QUOTAS, cohortName="university",
                                      resourceGroups=SHARED))], id="lending-limit-0",
        ),
    ],
)  # fmt: skip
def test_ready_queue_passes(sandbox: Sandbox, read: Read, objects: list[dict[str, Any]]) -> None:
    facts = read(*objects)
    assert objection_of(facts) == ""
    (finding,) = findings_of(sandbox, facts)
    assert finding.result is CheckResult.OK and "lent nodes raise ClusterQueue a8" in finding.text


MORE = next(yaml.safe_load_all((ROOT / "etc" / "rbac-kueue-cluster-queue.yaml").read_text()))


def test_role_of_its_own_is_needed_and_suffices(sandbox: Sandbox, read: Read) -> None:
    facts = read(DIRECT, a_workload("w", [a_pod_set(75)]))
    assert not facts.write_errors
    sandbox.access.restrict_to_manifests([ROLE])
    with pytest.raises(KubeError, match="patch clusterqueues"):
        lend(sandbox)
    objects = KubeClient.connect(a_kueue_config(sandbox)).kueue_objects
    assert "patch clusterqueues" in try_writes(objects, facts)["a8"]
    sandbox.access.restrict_to_manifests([ROLE, MORE])
    lend(sandbox)
    sandbox.access.used.clear()
    SYSTEM.exclude_earlier_writes(
        a_kueue_config(sandbox), KubeClient.connect(a_kueue_config(sandbox)), "prod 2", lambda: None
    )
    asked = {(item.verb, item.resource, item.name) for item in sandbox.access.used}
    granted = {(verb, kind, name) for rule in MORE["rules"] for verb in rule["verbs"]
               for kind in rule["resources"] for name in rule["resourceNames"]}  # fmt: skip
    assert {item for item in asked if item[0] != "list"} == granted


def test_job_gets_nodes_and_the_queue_is_as_before(sandbox: Sandbox, site: Site) -> None:
    sandbox.delete("clusterqueues", "a8")
    sandbox.create(DIRECT)
    sandbox.create(a_workload("workshop", [a_pod_set(75)]))
    sandbox.tick(1)
    run_for(site, 2)
    quota = {"cpu": str(LEAST * 128), "memory": f"{LEAST * 256}G"}
    assert len(site.lent()) == LEAST
    assert lent_texts(sandbox.get("clusterqueues", "a8") or {}) == quota
    people = admit(sandbox, "workshop", 75)
    sandbox.edit("clusterqueues", "a8", lambda item: item.update(spec=DIRECT["spec"]))
    shown = site.command("plan").stdout
    assert f"ClusterQueue a8: lent: cpu {LEAST * 128}" in shown, shown
    run_for(site, 2)
    assert all(site.pods().values())
    assert lent_texts(sandbox.get("clusterqueues", "a8") or {}) == quota
    assert "640" in site.command("status").stdout
    finish(sandbox, "workshop", people)
    run_for(site, 12)
    assert site.lent() == []
    queue = sandbox.get("clusterqueues", "a8") or {}
    assert queue["spec"] == DIRECT["spec"] and LEDGER not in queue["metadata"]["annotations"]
    assert not sandbox.objects("cohorts") and not sandbox.violations
