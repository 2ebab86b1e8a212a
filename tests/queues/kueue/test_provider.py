"""ClusterQueues whose lent quota is in a CapacityProvider: the edit as a value, and runs of dnm."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml
from hypothesis import given

from dnm.checks.findings import CheckResult
from dnm.kube.capacity import Provider
from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import KubeConflict, KubeError
from dnm.model.kueue import ClusterQueue, Cohort, FlavorQuota, ResourceGroup
from dnm.model.queue_edit import QueueWants
from dnm.queues.kueue.edit import plan_cohorts
from dnm.queues.kueue.facts import KueueFacts
from dnm.queues.kueue.provider import find_provided, status_of
from dnm.queues.kueue.refusals import growth_refusals
from dnm.queues.kueue.system import SYSTEM, KueueQueues
from dnm.queues.kueue.writes import try_writes
from tests.queues.kueue.conftest import QUOTAS, Read, a_kueue_config
from tests.queues.kueue.objects import (
    a_cluster_queue,
    a_group,
    a_pod_set,
    a_provider,
    a_workload,
    provided,
)
from tests.queues.kueue.orchestrator import (
    CONDITION,
    SYNCHRONIZED,
    capacity_of,
    conditions_of,
    with_orchestrator,
)
from tests.queues.kueue.test_checks import RECLAIMING, ROLE, ROOT, findings_of, lend, objection_of
from tests.queues.kueue.test_edit import STEPS, wants
from tests.queues.kueue.test_story import LEAST, NOTHING, admit, finish, run_for, site
from tests.site import Site

__all__ = ["site"]  # a fixture
NOW, LATER = "2026-11-30T08:00:00Z", "2026-11-30T09:00:00Z"
SHARE = {"cpu": "1", "memory": "1"}
SHARED = {**QUOTAS, "lent": SHARE}
PROVIDED = provided(a_cluster_queue("a8", SHARED, cohortName=None))
PROVIDER = a_provider("a8")
NODE = {"cpu": 128_000, "memory": 256 * 10**9}


class World(NamedTuple):
    """A CapacityProvider as the API server has it, and how much of it the queue has."""

    status: dict[str, Any] = {}
    effective: dict[str, int] | None = None
    version: int = 7

    @property
    def facts(self) -> KueueFacts:
        document = {**PROVIDER, "status": self.status}
        document["metadata"] = {**PROVIDER["metadata"], "resourceVersion": str(self.version)}
        provider = msgspec.json.decode(json.dumps(document), type=Provider).as_value()
        queue = ClusterQueue(
            name="a8", groups=(group_of({"cpu": 1000, "memory": 1}),), is_provided=True,
            effective=self.effective if self.effective is None else (group_of(self.effective),),
        )  # fmt: skip
        facts = KueueFacts(paths={"a8": "a8"}, queues=(queue,))
        return find_provided(facts, [provider])

    @property
    def ledger(self) -> str:
        return str(conditions_of({"status": self.status}).get(CONDITION, {}).get("message", ""))

    def with_ledger(self, text: str) -> World:
        kept = [item for item in self.status["conditions"] if item["type"] != CONDITION]
        entry = {"type": CONDITION, "status": "True", "message": text}
        conditions = [*kept, *([entry] if text else [])]
        return self._replace(status={**self.status, "conditions": conditions})


def group_of(amounts: dict[str, int]) -> ResourceGroup:
    quota = FlavorQuota(name="lent", nominal=amounts)
    return ResourceGroup(resources=("cpu", "memory"), flavors=(quota,))


def play(world: World, wanted: QueueWants, **changes: Any) -> tuple[World, str]:
    """Plans and applies; returns the world and the registry's ledger. A second write changes
    nothing."""
    facts = msgspec.structs.replace(world.facts, **changes)
    edit = plan_cohorts(facts, wanted)
    (item,) = edit.planned
    if item.is_changed:
        status = json.loads(json.dumps(status_of(item, NOW)["status"]))
        world = World(status, dict(item.quota), world.version + 1)
    again = msgspec.structs.replace(wanted, remembered=edit.record)
    after = msgspec.structs.replace(world.facts, **changes)
    assert not plan_cohorts(after, again).is_changed
    assert edit.limits == KueueQueues(facts=after).limits
    return world, edit.record or ""


def cores_of(world: World) -> int:
    return int(capacity_of({"status": world.status})["cpu"])


def test_first_write_has_zeros_and_the_condition() -> None:
    """Without them the share of 1 core would be quota."""
    world, _ = play(World(), wants())
    assert capacity_of({"status": world.status}) == NOTHING
    (condition,) = world.status["conditions"]
    assert (condition["type"], condition["status"]) == (SYNCHRONIZED, "True")
    assert world.facts.queues[0].own_quota.nominal == {"cpu": 0, "memory": 0}


def test_write_has_quota_ledger_and_condition_together() -> None:
    world, _ = play(World(), wants())
    (item,) = plan_cohorts(world.facts, wants("n1")).planned
    manifest = status_of(item, LATER)
    assert manifest["metadata"] == {"name": "dnm-a8", "resourceVersion": "8"}
    capacity = {"flavors": [{"name": "lent", "resources": {"cpu": "128", "memory": "256G"}}]}
    assert manifest["status"]["capacity"] == capacity
    times = {entry["type"]: entry["lastTransitionTime"]
             for entry in manifest["status"]["conditions"]}  # fmt: skip
    assert times == {SYNCHRONIZED: NOW, CONDITION: LATER}


@given(steps=STEPS)
def test_quota_is_that_of_the_nodes_whatever_happens_to_the_ledger(
    steps: list[tuple[str, set[str], str]],
) -> None:
    world, records = World(), {"prod": "", "test": ""}
    serving: dict[str, set[str]] = {"prod": set(), "test": set()}
    ledgers = [""]
    for instance, names, event in steps:
        if event and world.status:
            world = world.with_ledger(ledgers[-1] if event == "older" else "")
        ledgers.append(world.ledger)
        serving[instance] = {f"{instance}-{name}" for name in names}
        for name in (instance, "prod", "test"):  # afterwards each instance runs once
            wanted = wants(*serving[name], instance=name, remembered=records[name])
            world, records[name] = play(world, wanted)
        assert cores_of(world) == 128 * sum(map(len, serving.values()))
    for name in ("prod", "test"):
        world, _ = play(world, wants(instance=name, remembered=records[name]))
    assert cores_of(world) == 0 and not world.ledger


def test_quota_never_shrinks_below_its_use() -> None:
    world, record = play(World(), wants("n1", "n2"))
    used = {"a8": {"cpu": 200_000}}
    world, record = play(world, wants("n1", remembered=record), used=used)
    assert cores_of(world) == 200
    world, _ = play(world, wants("n1", remembered=record))
    assert cores_of(world) == 128


def test_condition_that_another_client_removes_is_written_again() -> None:
    world, record = play(World(), wants("n1"))
    for status in ({**world.status, "conditions": []}, {}):
        again, _ = play(world._replace(status=status), wants("n1", remembered=record))
        assert again.status == world.status


@pytest.mark.parametrize(
    "effective", [None, {"cpu": 1000, "memory": 1}], ids=["no-orchestrator", "another-amount"]
)
def test_quota_that_the_queue_does_not_have_is_no_limit(effective: dict[str, int] | None) -> None:
    world, record = play(World(), wants("n1"))
    world = world._replace(effective=effective)
    edit = plan_cohorts(world.facts, wants("n1", remembered=record))
    assert edit.uncounted and not edit.is_changed
    assert edit.limits["a8"].max == {"cpu": 0, "memory": 0}
    (why,) = growth_refusals(world.facts, "a8", ())[1:]
    assert "effective quota" in why


def test_resource_that_the_queue_no_longer_covers_does_not_matter() -> None:
    world, _ = play(World(), wants())
    flavor = world.status["capacity"]["flavors"][0]
    flavor["resources"]["example.com/gpu"] = "0"
    assert world.facts.queues[0].cohort == "CapacityProvider dnm-a8"


def test_ledger_longer_than_a_message_is_refused() -> None:
    world, _ = play(World(), wants())
    nodes = {f"a{number:05}": NODE for number in range(1000)}
    for count, is_refused in ((100, False), (1000, True)):
        few = dict(list(nodes.items())[:count])
        planned = plan_cohorts(
            world.facts, QueueWants(instance_id="prod", nodes={"a8": few}, remembered="")
        ).planned
        items = [(item.queue, item.cohort, item.quota, item.ledger) for item in planned]
        whys = growth_refusals(world.facts, "a8", items)
        assert any("so many lent nodes" in why for why in whys) is is_refused


def test_annotation_takes_effect_when_no_node_is_lent() -> None:
    """A ledger in a Cohort or in the queue keeps lent quota there, and one in a CapacityProvider
    keeps it here."""
    world, _ = play(World(), wants("n1"))
    (own,) = world.facts.cohorts
    raw = msgspec.structs.replace(
        world.facts.queues[0], groups=(group_of({"cpu": 1000, "memory": 1}),)
    )
    queue = ClusterQueue(name="a8", groups=raw.groups)
    (kept,) = find_provided(KueueFacts(queues=(queue,)), [own]).queues
    assert kept.own_cohort == "CapacityProvider dnm-a8"
    lending = Cohort(name="dnm-a8", version="3", ledger='{"cohort": "dnm-a8"}')
    marked = msgspec.structs.replace(queue, is_provided=True)
    facts = KueueFacts(queues=(marked,), cohorts=(lending,))
    (elsewhere,) = find_provided(facts, []).queues
    assert elsewhere.own_cohort == "dnm-a8" and not elsewhere.is_provided
    held = msgspec.structs.replace(marked, held=lending)
    (elsewhere,) = find_provided(KueueFacts(queues=(held,)), []).queues
    assert elsewhere.held and not elsewhere.is_provided


# --- objects of the sandbox ----------------------------------------------------------------------


def provider_of(sandbox: Sandbox) -> Any:
    return sandbox.get("capacityproviders", "dnm-a8")


def test_version_that_was_not_read_is_refused(sandbox: Sandbox, read: Read) -> None:
    facts = read(PROVIDED, PROVIDER)
    (item,) = plan_cohorts(facts, wants("n1")).planned
    sandbox.edit("capacityproviders", "dnm-a8", lambda entry: entry.update(status={}))
    objects = KubeClient.connect(a_kueue_config(sandbox)).kueue_objects
    with pytest.raises(KubeConflict):
        objects.apply_object(status_of(item, NOW), "dnm")
    assert not capacity_of(provider_of(sandbox))


def test_write_creates_no_provider(sandbox: Sandbox, read: Read) -> None:
    read(PROVIDED)
    with pytest.raises(KubeError, match="does not exist"):
        edit = SYSTEM.write(
            a_kueue_config(sandbox), KubeClient.connect(a_kueue_config(sandbox)),
            wants("n1"), None, lambda: None,
        ).edit  # fmt: skip
        raise KubeError(edit.blocked["a8"])
    failed = SYSTEM.exclude_earlier_writes(
        a_kueue_config(sandbox), KubeClient.connect(a_kueue_config(sandbox)), "prod 2", lambda: None
    )
    assert not failed and not sandbox.objects("capacityproviders")
    assert not sandbox.objects("cohorts")


MAY_BORROW = provided(a_cluster_queue("a8", SHARED, cohortName="university"))
LENDS_NOTHING = [a_group(SHARED, lendingLimit="0")]
IN_COHORT = provided(
    a_cluster_queue("a8", SHARED, cohortName="university", resourceGroups=LENDS_NOTHING)
)
REFUSED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no-provider": ([PROVIDED], "does not exist"),
    "another-controller": ([PROVIDED, a_provider("a8", controllerName="example.org/x")],
                           "example.org/x"),
    "flavor-not-listed": ([PROVIDED, a_provider("a8", orchestratedFlavors=[{"name": "gpu"}])],
                          "orchestratedFlavors"),
    "share-of-0": ([provided(a_cluster_queue("a8", QUOTAS, cohortName=None)), PROVIDER],
                   "nominalQuota 1"),
    "in-a-cohort-that-may-borrow": ([MAY_BORROW, PROVIDER], "lendingLimit 0"),
    "reclaim-in-the-cohort": ([IN_COHORT, RECLAIMING, PROVIDER], "preemption"),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "word"), REFUSED.values(), ids=list(REFUSED))
def test_fault_is_refused_by_the_run_and_by_check(
    sandbox: Sandbox, read: Read, objects: list[dict[str, Any]], word: str
) -> None:
    facts = read(*objects)
    failed = [item for item in findings_of(sandbox, facts) if item.result is CheckResult.FAILED]
    assert any(word in f"{item.text} {item.remedy}" for item in failed)
    assert word in objection_of(facts)


@pytest.mark.parametrize("queue", [PROVIDED, IN_COHORT], ids=["in-no-cohort", "lending-limit-0"])
@pytest.mark.parametrize("is_written", [False, True], ids=["new", "written"])
def test_ready_queue_passes(
    sandbox: Sandbox, read: Read, queue: dict[str, Any], is_written: bool
) -> None:
    facts = read(queue, PROVIDER)
    if is_written:
        with_orchestrator(sandbox)
        lend(sandbox)
        config = a_kueue_config(sandbox)
        collected = SYSTEM.collect(config, KubeClient.connect(config))
        assert isinstance(collected, KueueFacts)
        facts = collected
    assert objection_of(facts) == ""
    (finding,) = findings_of(sandbox, facts)
    assert finding.result is CheckResult.OK
    assert "lent nodes raise CapacityProvider dnm-a8 of ClusterQueue a8" in finding.text


def test_queue_without_the_annotation_costs_no_request(sandbox: Sandbox, read: Read) -> None:
    read(PROVIDER)
    assert not [entry for entry in sandbox.requests.all() if "capacityproviders" in entry.path]


def test_server_without_these_objects_is_reported(sandbox: Sandbox, read: Read) -> None:
    read()
    sandbox.delete("clusterqueues", "a8")
    sandbox.create(PROVIDED)
    sandbox.fault("status", path=".*capacityproviders", code=404)
    config = a_kueue_config(sandbox)
    facts = SYSTEM.collect(config, KubeClient.connect(config))
    assert facts.unread and "capacityproviders of Kueue (v1alpha1)" in facts.unread.error


MORE = next(yaml.safe_load_all((ROOT / "etc" / "rbac-kueue-capacity-provider.yaml").read_text()))
RULES = [(verb, kind) for rule in MORE["rules"] for verb in rule["verbs"]
         for kind in rule["resources"]]  # fmt: skip


def act(sandbox: Sandbox, facts: KueueFacts) -> None:
    """Does everything that needs a permission. Raises KubeError."""
    config = a_kueue_config(sandbox)
    kube = KubeClient.connect(config)
    lend(sandbox)
    errors = try_writes(kube.kueue_objects, facts)
    failed = SYSTEM.exclude_earlier_writes(config, kube, "prod 2", lambda: None)
    if texts := [*errors.values(), *failed.values()]:
        raise KubeError("; ".join(texts))


def test_role_of_its_own_suffices(sandbox: Sandbox, read: Read) -> None:
    facts = read(PROVIDED, PROVIDER)
    sandbox.access.restrict_to_manifests([ROLE, MORE])
    config = a_kueue_config(sandbox)
    assert not try_writes(KubeClient.connect(config).kueue_objects, facts)
    lend(sandbox)
    assert not SYSTEM.exclude_earlier_writes(
        config, KubeClient.connect(config), "prod 2", lambda: None
    )


@pytest.mark.parametrize(("verb", "kind"), RULES)
def test_each_verb_of_its_role_is_needed(
    sandbox: Sandbox, read: Read, verb: str, kind: str
) -> None:
    facts = read(PROVIDED, PROVIDER)
    left = [
        {**rule, "verbs": [verb], "resources": [kind]}
        for rule in MORE["rules"]
        for verb in rule["verbs"]
        for kind in rule["resources"]
    ]
    left = [rule for rule in left if (rule["verbs"], rule["resources"]) != ([verb], [kind])]
    sandbox.access.restrict_to_manifests([ROLE, {**MORE, "rules": left}])
    with pytest.raises(KubeError, match=f"{verb} {kind}"):
        act(sandbox, facts)


def test_job_gets_nodes_and_the_quota_is_zero_afterwards(sandbox: Sandbox, site: Site) -> None:
    with_orchestrator(sandbox)
    sandbox.delete("clusterqueues", "a8")
    for item in (PROVIDED, PROVIDER, a_workload("workshop", [a_pod_set(75)])):
        sandbox.create(item)
    sandbox.tick(1)
    run_for(site, 2)
    quota = {"cpu": str(LEAST * 128), "memory": f"{LEAST * 256}G"}
    assert len(site.lent()) == LEAST
    assert capacity_of(provider_of(sandbox)) == quota
    people = admit(sandbox, "workshop", 75)
    run_for(site, 2)
    assert all(site.pods().values())
    assert "640" in site.command("status").stdout
    finish(sandbox, "workshop", people)
    run_for(site, 12)
    assert site.lent() == []
    provider = provider_of(sandbox)
    assert capacity_of(provider) == NOTHING and list(conditions_of(provider)) == [SYNCHRONIZED]
    assert not sandbox.objects("cohorts") and not sandbox.violations


def test_first_run_writes_zeros_without_any_demand(sandbox: Sandbox, site: Site) -> None:
    with_orchestrator(sandbox)
    sandbox.delete("clusterqueues", "a8")
    for item in (PROVIDED, PROVIDER):
        sandbox.create(item)
    shown = site.command("plan").stdout
    run_for(site, 1)
    provider = provider_of(sandbox)
    assert capacity_of(provider) == NOTHING and SYNCHRONIZED in conditions_of(provider), shown
    writes = len(sandbox.requests.writes())
    run_for(site, 1)
    assert capacity_of(provider_of(sandbox)) == NOTHING
    paths = [entry.path for entry in sandbox.requests.writes()[writes:]]
    assert not [path for path in paths if "capacityproviders" in path]
