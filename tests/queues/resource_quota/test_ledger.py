"""Tests of how dnm knows which lent nodes the limits of a ResourceQuota contain, in single cases
and in random sequences of lends and manifests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from dnm.model.errors import QueueError
from dnm.model.queue_edit import QueueWants
from dnm.model.quota import ResourceQuota, amount_of, resource_of, text_of
from dnm.model.value import Unreadable
from dnm.queues.resource_quota.edit import PlannedQuota, plan_edit, plan_quota
from dnm.queues.resource_quota.ledger import ANSWER, LEDGER, QuotaLedger, ledger_of
from dnm.queues.resource_quota.objects import QuotaFacts
from dnm.queues.resource_quota.system import QuotaQueues

NODE = {"cpu": 64_000, "memory": 256 * 2**30, "pods": 110}
HARD = {"requests.cpu": "80", "requests.memory": "320Gi"}
NEVER = None
NOTHING = QuotaLedger()


def quota(hard: Mapping[str, str] = HARD, **more: Any) -> ResourceQuota:
    return ResourceQuota(namespace="dev", name="q", version="1", hard=hard, **more)


def wants(*names: str, instance: str = "prod", **floors: int) -> QueueWants:
    nodes = {"dev": dict.fromkeys(names, NODE)} if names else {}
    return QueueWants(instance_id=instance, nodes=nodes, floors={"dev": floors} if floors else {})


def written(item: PlannedQuota) -> ResourceQuota:
    """Returns the ResourceQuota as it is after dnm's patch."""
    notes: dict[str, str | None] = {**item.quota.annotations, **item.annotations}
    kept = {key: text for key, text in notes.items() if text is not None}
    return replace(item.quota, hard=item.hard, annotations=kept)


FIRST = plan_quota(quota(), NOTHING, wants("a1"))
TWO = plan_quota(written(FIRST), FIRST.ledger, wants("a1", "a2"))
LENT, LEDGER_1, LEDGER_2 = written(TWO), FIRST.ledger, TWO.ledger
KILLED = plan_quota(LENT, LEDGER_2, wants())
"""The return of both nodes. A run that was killed has saved its record, and has perhaps not written
it."""
WITH_SERVICES = plan_quota(quota({**HARD, "services": "5"}), NOTHING, wants("a1", "a2"))
TEXT_1 = FIRST.annotation


def test_answer_without_a_ledger_gives_the_first_limits_back() -> None:
    """While two nodes are lent, registry and ledger are lost, and an administrator answers that the
    limits contain the nodes."""
    answered = replace(LENT, annotations={ANSWER: "total"})
    planned = plan_quota(answered, NEVER, wants("a1", "a2"))
    assert plan_quota(written(planned), planned.ledger, wants()).hard == HARD


def test_partial_manifest_changes_its_limits() -> None:
    """The manifest, by server-side apply, has only the limit of cpu."""
    changed = replace(LENT, hard={**LENT.hard, "requests.cpu": "300"},
                      manifest={"requests.cpu": "300"})  # fmt: skip
    planned = plan_quota(changed, LEDGER_2, wants("a1", "a2"))
    back = plan_quota(written(planned), planned.ledger, wants())
    assert back.hard == {**HARD, "requests.cpu": "300"}


@pytest.mark.parametrize("text", ["9223372036854775807", "1e30", "9223372036854775"])
def test_limit_beyond_all_amounts_is_kept(text: str) -> None:
    hard = {"requests.cpu": text, "requests.memory": "320Gi"}
    planned = plan_quota(quota(hard), NOTHING, wants("a1"))
    again = plan_quota(written(planned), planned.ledger, wants("a1"))
    assert not again.is_changed
    assert plan_quota(written(again), again.ledger, wants()).hard == hard


def test_question_shortens_a_long_answer() -> None:
    with pytest.raises(QueueError) as error:
        plan_quota(replace(LENT, annotations={ANSWER: "x" * 250_000}), LEDGER_2, wants("a1"))
    assert len(str(error.value)) < 500


def test_limit_grows_by_the_node_and_shrinks_to_the_same_text() -> None:
    assert FIRST.hard == {"requests.cpu": "144", "requests.memory": "576Gi"}
    assert {change.why for change in FIRST.changes} == {"1 node lent"}
    back = plan_quota(LENT, LEDGER_2, wants())
    assert written(back) == quota()
    assert not (back.ledger.instances or back.ledger.raises_limits or back.annotation)


# hard, annotations, recorded -> the expected limits with a1 and a2, or a part of the question
ROWS: dict[str, tuple[ResourceQuota, QuotaLedger | None, str]] = {
    "as-written": (LENT, LEDGER_2, "208"),
    "as-written-and-the-registry-is-lost": (LENT, NEVER, "208"),
    "as-written-by-an-older-run": (written(FIRST), LEDGER_2, "208"),
    "ledger-lost": (replace(LENT, annotations={}), LEDGER_2, "208"),
    "ledger-older": (replace(LENT, annotations={LEDGER: TEXT_1}), LEDGER_2, "208"),
    "ledger-of-another-object": (
        replace(LENT, annotations={LEDGER: TEXT_1.replace("dev/q", "dev/r")}), LEDGER_2, "208",
    ),
    "ledger-broken": (replace(LENT, annotations={LEDGER: "{"}), LEDGER_2, "208"),
    "manifest-applied-again": (replace(LENT, hard=HARD), LEDGER_2, "208"),
    "manifest-replaced": (quota(), LEDGER_2, "208"),
    "manifest-with-one-new-value": (
        replace(LENT, hard={**HARD, "requests.cpu": "100"}), LEDGER_2, "228",
    ),
    "manifest-with-new-values": (
        replace(LENT, hard={"requests.cpu": "100", "requests.memory": "400Gi"},
                manifest={"requests.cpu": "100", "requests.memory": "400Gi"}), LEDGER_2, "228",
    ),
    "administrator-adds-twenty": (
        replace(LENT, hard={**LENT.hard, "requests.cpu": "228"}), LEDGER_2, "228",
    ),
    "limit-that-nodes-do-not-raise-is-edited": (
        replace(written(WITH_SERVICES), hard={**WITH_SERVICES.hard, "services": "9"}),
        WITH_SERVICES.ledger, "208",
    ),
    "key-added": (replace(LENT, hard={**LENT.hard, "pods": "20"}), LEDGER_2, "208"),
    "key-removed": (replace(LENT, hard={"requests.cpu": "208"}), LEDGER_2, "208"),
    "created-anew": (quota({"requests.cpu": "90"}), NOTHING, "218"),
    "first-run-with-nodes": (quota(), NEVER, "no run has recorded"),
    "ledger-lost-and-limits-changed": (
        replace(LENT, annotations={}, hard={**LENT.hard, "requests.cpu": "300"}), LEDGER_2,
        "lost or older",
    ),
    "older-ledger-and-limits-changed": (
        replace(LENT, annotations={LEDGER: TEXT_1}, hard={**LENT.hard, "requests.cpu": "300"}),
        LEDGER_2, "lost or older",
    ),
    "foreign-ledger-of-a-new-object": (
        quota(annotations={LEDGER: TEXT_1.replace("dev/q", "dev/r")}), NOTHING, "another object",
    ),
    "less-than-the-nodes-have": (
        replace(LENT, hard={**LENT.hard, "requests.cpu": "100"}), LEDGER_2, "less than the lent",
    ),
    "answer-total": (
        replace(LENT, annotations={ANSWER: "total"}, hard={**LENT.hard, "requests.cpu": "300"}),
        LEDGER_2, "300",
    ),
    "answer-baseline": (
        replace(LENT, annotations={ANSWER: "baseline"}, hard={**HARD, "requests.cpu": "300"}),
        LEDGER_2, "428",
    ),
    "manifest-of-one-limit": (
        replace(LENT, hard={**LENT.hard, "requests.cpu": "300"}, manifest={"requests.cpu": "300"}),
        LEDGER_2, "428",
    ),
    "manifest-after-a-lost-ledger": (
        quota({"requests.cpu": "300", "requests.memory": "1Ti"},
              manifest={"requests.cpu": "300", "requests.memory": "1Ti"}),
        LEDGER_2, "428",
    ),
    "manifest-with-the-amount-that-dnm-wrote": (
        replace(LENT, hard={"requests.cpu": "208", "requests.memory": "1Ti"},
                manifest={"requests.cpu": "208", "requests.memory": "1Ti"}), LEDGER_2, "336",
    ),
    "manifest-of-another-tool": (
        replace(LENT, hard={**LENT.hard, "requests.cpu": "228"}, manifest={"requests.cpu": "many"}),
        LEDGER_2, "228",
    ),
    "answer-total-without-a-ledger": (
        quota({"requests.cpu": "208", "requests.memory": "832Gi"}, annotations={ANSWER: "total"}),
        NEVER, "208",
    ),
    "killed-before-the-write-and-ledger-lost": (
        replace(LENT, annotations={}), KILLED.record, "208",
    ),
    "killed-before-the-write-and-ledger-lost-and-limits-changed": (
        replace(LENT, annotations={}, hard={**LENT.hard, "requests.cpu": "300"}), KILLED.record,
        "lost or older",
    ),
    "killed-before-the-write-and-manifest-replaced": (
        quota({"requests.cpu": "100", "requests.memory": "320Gi"},
              manifest={"requests.cpu": "100", "requests.memory": "320Gi"}), KILLED.record, "228",
    ),
    "killed-after-the-write-and-manifest-with-the-raised-amount": (
        quota({"requests.cpu": "208", "requests.memory": "832Gi"},
              manifest={"requests.cpu": "208", "requests.memory": "832Gi"}), KILLED.record, "336",
    ),
    "killed-before-the-write-and-answer-total": (
        replace(LENT, annotations={ANSWER: "total"}, hard={**LENT.hard, "requests.cpu": "300"}),
        KILLED.record, "300",
    ),
    "answer-that-is-none": (replace(LENT, annotations={ANSWER: "x"}), LEDGER_2, "does not fit"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_each_case_has_its_limit_or_its_question(name: str) -> None:
    item, recorded, expected = ROWS[name]
    try:
        planned = plan_quota(item, recorded, wants("a1", "a2"))
    except QueueError as error:
        assert expected in str(error), error
        assert f"{ANSWER}=total" in str(error)
    else:
        assert planned.hard["requests.cpu"] == expected
        again = plan_quota(written(planned), planned.ledger, wants("a1", "a2"))
        assert not again.is_changed


@pytest.mark.parametrize(
    ("hard", "expected"),
    [
        ({"cpu": "0"}, {"cpu": "64"}),
        ({"pods": "0", "cpu": "8"}, {"pods": "0", "cpu": "72"}),
        ({"count/pods": "5"}, {"count/pods": "115"}),
        ({"requests.cpu": "10", "limits.cpu": "40"}, {"requests.cpu": "74", "limits.cpu": "296"}),
        ({"limits.cpu": "40"}, {"limits.cpu": "104"}),
        ({"requests.cpu": "0", "limits.cpu": "0"}, {"requests.cpu": "64", "limits.cpu": "64"}),
        ({"memory": "1500m"}, {"memory": "268435458Ki"}),
        ({"requests.nvidia.com/gpu": "4"}, {"requests.nvidia.com/gpu": "4"}),
    ],
    ids=["zero", "no-pods", "count", "in-proportion", "limits-alone", "zeros", "fraction", "gpu"],
)
def test_each_kind_of_limit_grows_by_a_node(hard: dict[str, str], expected: dict[str, str]) -> None:
    planned = plan_quota(quota(hard), NOTHING, wants("a1"))
    if "memory" not in hard:
        assert planned.hard == expected
    assert plan_quota(written(planned), planned.ledger, wants()).hard == hard


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("requests.cpu", "cpu"), ("cpu", "cpu"), ("limits.memory", "memory"),
        ("requests.nvidia.com/gpu", "nvidia.com/gpu"), ("hugepages-2Mi", "hugepages-2Mi"),
        ("requests.storage", ""), ("services.nodeports", ""), ("count/deployments.apps", ""),
        ("gold.storageclass.storage.k8s.io/requests.storage", ""), ("persistentvolumeclaims", ""),
    ],
)  # fmt: skip
def test_resources_that_nodes_lack_are_not_raised(key: str, expected: str) -> None:
    assert resource_of(key) == expected


def test_limit_stays_at_its_use() -> None:
    busy = replace(LENT, used={"requests.cpu": "150"})
    planned = plan_quota(busy, LEDGER_2, wants())
    assert planned.hard == {"requests.cpu": "150", "requests.memory": "320Gi"}
    assert "requests.cpu stays at 150 instead of 80" in planned.held[0]
    assert (
        written(plan_quota(replace(written(planned), used={}), planned.ledger, wants())) == quota()
    )


@pytest.mark.parametrize("hard", [HARD, {"requests.cpu": "100", "requests.memory": "320Gi"}])
def test_other_instance_keeps_its_nodes_after_a_manifest(hard: dict[str, str]) -> None:
    both = plan_quota(LENT, LEDGER_2, wants("m1", instance="test"))
    after = plan_quota(replace(written(both), hard=hard), LEDGER_2, wants("a1", "a2"))
    base = int(hard["requests.cpu"])
    assert after.hard["requests.cpu"] == text_of("cpu", 1000 * (base + 3 * 64))
    assert ledger_of(written(after)) == after.ledger


# --- any sequence ------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lend"), st.sampled_from(["prod", "test"]),
                  st.frozensets(st.sampled_from(["n1", "n2", "n3"]))),
        st.tuples(st.just("apply"), st.just(""), st.frozensets(st.just(""))),
        st.tuples(st.sampled_from(["killed", "killed-after-the-write"]),
                  st.sampled_from(["prod", "test"]),
                  st.frozensets(st.sampled_from(["n1", "n2", "n3"]))),
        st.tuples(st.just("lose"), st.just(""), st.frozensets(st.just(""))),
    ),
    max_size=12,
)  # fmt: skip
QUANTITIES = st.sampled_from(["0", "1", "250m", "80", "1e3", "320Gi", "1500M", "7Ti"])
KEYS = st.sampled_from(["requests.cpu", "cpu", "requests.memory", "pods", "limits.cpu"])


class Machine:
    """A ResourceQuota with the registries of two instances."""

    def __init__(self, hard: dict[str, str]) -> None:
        self.first = self.now = quota(hard)
        self.records: dict[str, QuotaLedger] = {"prod": NOTHING, "test": NOTHING}

    def step(self, action: str, instance: str, nodes: frozenset[str]) -> None:
        if action == "apply":  # a manifest, by the client side: annotations stay
            self.now = replace(self.now, hard=self.first.hard)
        elif action == "lose":
            self.now = replace(self.now, annotations={})
        else:
            names = [f"{instance}-{name}" for name in sorted(nodes)]
            planned = plan_quota(self.now, self.records[instance], wants(*names, instance=instance))
            self.records[instance] = planned.record  # the registry is saved before the write
            if action != "killed":
                self.now = written(planned)
            if action == "lend":
                self.records[instance] = planned.ledger  # and after it


LOST_BEFORE_A_RETURN = [
    ("lend", "prod", frozenset({"n1"})), ("killed", "prod", frozenset()), ("lose", "", frozenset()),
]  # fmt: skip


@given(hard=st.dictionaries(KEYS, QUANTITIES, min_size=1), steps=STEPS)
@example(hard={"requests.cpu": "0"}, steps=LOST_BEFORE_A_RETURN)
def test_write_without_nodes_restores_the_object(
    hard: dict[str, str], steps: list[tuple[str, str, frozenset[str]]]
) -> None:
    """If the ledger was lost, dnm may ask an administrator, but it never writes a wrong limit. In
    such a sequence only one instance lends: another one cannot know what the first has added."""
    if any(action == "lose" for action, _, _ in steps):
        steps = [(action, instance and "prod", nodes) for action, instance, nodes in steps]
    machine = Machine(hard)
    try:
        for step in steps:
            machine.step(*step)
        for instance in ("prod", "test", "prod"):
            machine.step("lend", instance, frozenset())
    except QueueError:
        assert any(action == "lose" for action, _, _ in steps), steps
        return
    assert machine.now == machine.first


def test_limits_that_another_instance_took_for_its_baseline_are_asked_about() -> None:
    """The ledger is lost, and `test` lends before `prod` runs again."""
    lost = replace(written(FIRST), annotations={})
    taken = plan_quota(lost, NOTHING, wants("b1", instance="test"))
    assert taken.hard["requests.cpu"] == "208"
    for own in (wants("a1"), wants()):
        with pytest.raises(QueueError, match="another instance has replaced"):
            plan_quota(written(taken), LEDGER_1, own)
    returned = plan_quota(written(taken), taken.ledger, wants(instance="test"))
    assert plan_quota(written(returned), LEDGER_1, wants()).hard == HARD


CORES = st.sampled_from(["0", "500m", "64", "80", "144", "208"])
MEMORY = st.sampled_from(["0", "320Gi", "1Ti"])
MANIFESTS = st.fixed_dictionaries({"requests.cpu": CORES, "requests.memory": MEMORY})
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("apply"), MANIFESTS),
        st.tuples(st.just("edit"), st.tuples(st.sampled_from(sorted(HARD)), st.integers(1, 5))),
        st.tuples(st.sampled_from(["prod", "test"]),
                  st.frozensets(st.sampled_from(["n1", "n2", "n3"]))),
    ),
    max_size=10,
)  # fmt: skip


@given(changes=CHANGES, keeps_manifest=st.booleans())
def test_limits_follow_manifests_and_edits(
    changes: list[tuple[str, Any]], keeps_manifest: bool
) -> None:
    """Limits of a manifest do not contain lent nodes; an edit adds to limits that do. Two instances
    run after each change. `keeps_manifest` means that the manifest is an annotation, which an edit
    keeps; else the edit is visible in managedFields only."""
    machine, expected = Machine(dict(HARD)), {key: amount_of(key, HARD[key]) for key in HARD}
    nodes: dict[str, frozenset[str]] = {"prod": frozenset(), "test": frozenset()}
    for action, content in [*changes, ("prod", frozenset()), ("test", frozenset())]:
        now = machine.now
        if action == "apply":
            expected = {key: amount_of(key, text) for key, text in content.items()}
            machine.now = replace(now, hard=content, manifest=content)
        elif action == "edit":
            key, more = content
            expected[key] += more
            text = text_of(key, amount_of(key, now.hard[key]) + more)
            manifest = {at: was for at, was in now.manifest.items() if keeps_manifest or at != key}
            machine.now = replace(now, hard={**now.hard, key: text}, manifest=manifest)
        else:
            nodes[action] = content
        for instance in ("prod", "test", "prod"):
            machine.step("lend", instance, nodes[instance])
    assert {key: amount_of(key, text) for key, text in machine.now.hard.items()} == expected


# --- several quotas ----------------------------------------------------------------------------


def queues_of(*quotas: ResourceQuota) -> QuotaQueues:
    return QuotaQueues(facts=QuotaFacts(quotas=quotas), namespaces=frozenset({"dev", "lab"}))


def test_smallest_of_several_quotas_is_the_limit_and_each_is_raised() -> None:
    narrow = replace(quota({"cpu": "40", "pods": "30"}), name="narrow")
    queues, wanted = queues_of(quota(), narrow), replace(wants("a1"), remembered="")
    assert queues.limits["dev"].max == {"cpu": 40_000, "memory": 320 * 2**30, "pods": 30}
    edit = queues.plan(wanted, None)
    assert edit.limits["dev"].max == {"cpu": 104_000, "memory": 576 * 2**30, "pods": 140}
    assert edit.numbers["dev"].lent == NODE
    assert edit.numbers["dev"].baseline == queues.limits["dev"].max


def test_difference_shows_limits_and_ledger() -> None:
    queues = queues_of(quota())
    lines = queues.show_difference(queues.plan(replace(wants("a1"), remembered=""), None)).split(
        "\n"
    )
    assert "-dev/q requests.cpu: 80" in lines and "+dev/q requests.cpu: 144" in lines
    assert any(line.startswith(f"+dev/q {LEDGER}: ") for line in lines)


def test_unclear_quota_blocks_only_its_namespace() -> None:
    unclear = quota(annotations={LEDGER: "{"})
    queues = queues_of(unclear, replace(quota(), namespace="lab"))
    wanted = QueueWants(
        instance_id="prod", nodes={"dev": {"a1": NODE}, "lab": {"a2": NODE}}, remembered=""
    )
    edit = queues.plan(wanted, None)
    assert set(edit.blocked) == set(edit.uncounted) == {"dev"} and edit.refusal is None
    assert edit.limits["lab"].max["cpu"] == 144_000
    assert edit.limits["dev"].max["cpu"] == 80_000
    objections = [queues.growth_objection(wanted, name, [NODE]) for name in ("dev", "lab")]
    assert [bool(item) for item in objections] == [True, False]


def test_question_is_asked_until_it_is_answered() -> None:
    wanted = QueueWants(instance_id="prod", nodes={"dev": {"a1": NODE}}, remembered=None)
    other = replace(quota(), namespace="lab")
    for quotas in ((quota(), other), (other,), (quota(), other), (quota(), other)):
        facts = QuotaFacts(quotas=quotas)
        if len(quotas) == 1:
            why = Unreadable(subject="the ResourceQuotas of dev", error="503")
            facts = replace(facts, unread_queues={"dev": why})
        edit = plan_edit(facts, {"dev", "lab"}, wanted)
        assert ("dev" in edit.refused or "dev" in facts.unread_queues) and not edit.changes
        wanted = replace(wanted, remembered=edit.record)


def test_quota_that_the_first_run_could_not_read_has_no_recorded_ledger() -> None:
    wanted = QueueWants(instance_id="prod", nodes={"dev": {"a1": NODE}}, remembered=None)
    why = Unreadable(subject="the ResourceQuotas of dev", error="503")
    for _ in range(2):
        edit = plan_edit(QuotaFacts(unread_queues={"dev": why}), {"dev"}, wanted)
        wanted = replace(wanted, remembered=edit.record)
    assert "dev" in plan_edit(QuotaFacts(quotas=(quota(),)), {"dev"}, wanted).refused
