"""Tests of how each observed fact changes a lent node's record in each phase, and the reason."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from dnm.model.batch import BatchClaim
from dnm.model.departure import Leaving
from dnm.model.lent import MAX_ATTEMPTS, Phase
from dnm.model.lent_state import ConverterProcess
from dnm.model.node import Mark
from dnm.model.node_type import NodeType
from dnm.model.reason import Reason, ReasonText
from dnm.model.verdict import Verdict
from dnm.plan.facts import Facts
from tests.builders import (
    FENCED,
    NOW,
    SIZE,
    a_batch_node,
    a_config,
    a_lent_node,
    a_node,
    facts,
)
from tests.plan.whole import advance_node
from tests.plan.worlds import CONVERTER, LONG_AGO

AWAY = a_batch_node(in_service=False)
BACK = a_batch_node(in_service=True)
UNKNOWN = a_batch_node(in_service=None)
OTHER_CLAIM = a_batch_node(in_service=False, claim=BatchClaim(instance="other"))
OTHER_MARK = Mark(instance="other", node_type="a", namespace="dev", queue="q")
GONE_PHASE = None


def case(
    phase: Phase, seen: Facts, reason: ReasonText, after: Phase | None, name: str, **entry: Any
) -> Any:
    described = f"{phase.value}-{name}"
    return pytest.param(a_lent_node(phase, **entry), seen, reason, after, id=described)


CASES = [
    case(Phase.JOINING, facts([a_node()]), Reason.JOINED, Phase.SERVING, "ready"),
    case(Phase.JOINING, facts([a_node(is_ready=False)]), Reason.JOINING, Phase.JOINING,
        "not ready"),
    case(Phase.JOINING, facts(), Reason.JOINING, Phase.JOINING, "not yet there"),
    case(Phase.JOINING, facts([a_node(allocatable={"cpu": 1000})]), Reason.JOINING, Phase.JOINING,
        "promised resource missing"),
    case(Phase.JOINING, facts(batch=[BACK]), Reason.LEFT, GONE_PHASE, "rolled back"),
    case(Phase.JOINING, facts(batch=[BACK], running=frozenset([CONVERTER])), Reason.JOINING,
        Phase.JOINING, "converter still at work", converter=CONVERTER),
    case(Phase.JOINING, facts(batch=[a_batch_node(state="IDLE+RESERVED")]), Reason.JOINING,
        Phase.JOINING, "held by the reservation alone"),
    case(Phase.JOINING, facts(batch=[a_batch_node(state="IDLE+RESERVED", reports_claim=True)]),
        Reason.LEFT, GONE_PHASE, "rolled back under an event reservation"),
    case(Phase.JOINING, facts([a_node(labels={})], [a_batch_node(in_service=False,
            reports_claim=True)]), Reason.LEFT, GONE_PHASE, "abandoned", converter=CONVERTER),
    case(Phase.SERVING, facts([a_node()], working_pods={"a001": 2}), Reason.IN_USE, Phase.SERVING,
        "in use"),
    case(Phase.SERVING, facts([a_node()]), Reason.IDLE, Phase.SERVING, "just idle"),
    case(Phase.SERVING, facts([a_node(unreadable="its allocatable")]), Reason.UNKNOWN,
        Phase.SERVING, "idle for long, but its Node can't be read", idle_since=LONG_AGO),
    case(Phase.RELEASING,
        facts([a_node(mark=FENCED, is_cordoned=True, unreadable="its allocatable")]),
        Reason.UNKNOWN, Phase.RELEASING, "fenced, but its Node can't be read"),
    case(Phase.JOINING, facts([a_node(unreadable="its allocatable")]), Reason.JOINING,
        Phase.JOINING, "its Node can't be read"),
    case(Phase.SERVING, facts([a_node()]), Reason.IDLE_LONG_ENOUGH, Phase.SERVING,
        "idle long enough", idle_since=LONG_AGO),
    case(Phase.SERVING, facts([a_node()]), Reason.LEAVING, Phase.SERVING, "empty, to leave",
        leaves=Leaving.MANUAL),
    case(Phase.SERVING, facts([a_node(is_cordoned=True)]), Reason.HELD_BY_ADMIN, Phase.SERVING,
        "cordoned by an administrator", idle_since=LONG_AGO),
    case(Phase.SERVING, facts(batch=[BACK]), Reason.LEFT, GONE_PHASE, "returned manually"),
    case(Phase.SERVING, facts([a_node(mark=None)], [OTHER_CLAIM]), Reason.FOREIGN, GONE_PHASE,
        "returned manually, and lent by another since"),
    *(case(phase, facts([], [OTHER_CLAIM]), Reason.FOREIGN, GONE_PHASE,
        "returned manually, and the other's machine boots", error="x")
        for phase in Phase if phase is not Phase.MOVING),
    *(case(Phase.RETURNING, facts(nodes, [OTHER_CLAIM], lenders={"a001": "other"},
            running=frozenset([CONVERTER])),
        Reason.RETURNING, Phase.RETURNING, f"lent by another, and our call hangs, {number}",
        converter=CONVERTER)
        for number, nodes in enumerate(([], [a_node(mark=None)], [a_node(mark=OTHER_MARK)]))),
    case(Phase.SERVING, facts([a_node()], [OTHER_CLAIM]), Reason.IDLE, Phase.SERVING,
        "claimed for the name that this instance had"),
    case(Phase.SERVING, facts(batch=[AWAY]), Reason.LEFT, Phase.FAILED, "Node deleted manually"),
    case(Phase.SERVING, facts(batch=[UNKNOWN]), Reason.LEFT, Phase.FAILED, "gone, Slurm mute"),
    case(Phase.RELEASING, facts([a_node(is_cordoned=True, mark=FENCED)]), Reason.FENCED,
        Phase.RELEASING, "fenced"),
    case(Phase.RELEASING, facts([a_node()]), Reason.FENCED, Phase.RELEASING, "killed before fence"),
    case(Phase.RELEASING, facts([a_node(mark=FENCED)]), Reason.DEMAND_RETURNED, Phase.SERVING,
        "uncordoned by an administrator"),
    case(Phase.RELEASING, facts([a_node(is_cordoned=True, mark=FENCED)], working_pods={"a001": 1}),
        Reason.DEMAND_RETURNED, Phase.SERVING, "a pod landed"),
    case(Phase.RELEASING, facts([a_node(is_cordoned=True)]), Reason.HELD_BY_ADMIN, Phase.SERVING,
        "an administrator was first"),
    case(Phase.RELEASING, facts(batch=[BACK]), Reason.LEFT, GONE_PHASE, "returned manually"),
    case(Phase.RELEASING, facts([a_node(is_cordoned=True, mark=FENCED)], [UNKNOWN]),
        Reason.GAVE_UP, Phase.FAILED, "fenced for long, and Slurm can't say", since=LONG_AGO),
    case(Phase.RETURNING, facts([a_node(is_cordoned=True)], batch=[AWAY]), Reason.HELD_BY_ADMIN,
        Phase.RETURNING, "cordoned by an administrator"),
    case(Phase.RETURNING, facts(batch=[BACK]), Reason.RETURNED, GONE_PHASE, "back"),
    case(Phase.RETURNING, facts([a_node()], batch=[BACK]), Reason.GAVE_UP, Phase.FAILED,
        "offered to both"),
    case(Phase.RETURNING, facts(batch=[BACK], running=frozenset([CONVERTER])), Reason.RETURNING,
        Phase.RETURNING, "converter at work", converter=CONVERTER),
    case(Phase.RETURNING, facts(batch=[AWAY]), Reason.RETRY, Phase.RETURNING, "tried again"),
    case(Phase.RETURNING, facts([a_node(mark=FENCED)], batch=[AWAY]), Reason.RETRY, Phase.RELEASING,
        "uncordoned since, so it is fenced first"),
    case(Phase.RETURNING, facts(batch=[UNKNOWN]), Reason.UNKNOWN, Phase.RETURNING, "Slurm is mute"),
    case(Phase.RETURNING, facts([a_node()], batch=[AWAY], working_pods={"a001": 1}),
        Reason.DEMAND_RETURNED, Phase.SERVING, "a pod runs on it"),
    case(Phase.FAILED, facts(batch=[BACK]), Reason.RETURNED, GONE_PHASE, "fixed manually"),
    case(Phase.FAILED, facts([a_node()], batch=[AWAY]), Reason.JOINED, Phase.SERVING, "came late"),
    case(Phase.FAILED, facts([a_node()]), Reason.GAVE_UP, Phase.FAILED, "Slurm is mute"),
    case(Phase.FAILED, facts([a_node(is_ready=False)], batch=[AWAY]), Reason.GAVE_UP, Phase.FAILED,
        "there but not Ready"),
    case(Phase.FAILED, facts(batch=[AWAY]), Reason.GAVE_UP, Phase.FAILED, "still waits"),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "seen", "reason", "after"), CASES)
def test_fact_and_phase_determine_the_next_phase_and_reason(
    entry: Any, seen: Facts, reason: ReasonText, after: Phase | None
) -> None:
    step = advance_node(a_config(), "a001", entry, seen)
    assert step.verdict.reason is reason
    assert (step.entry.phase if step.entry else None) is after
    is_kept = step.entry is not None or reason is Reason.FOREIGN
    assert is_kept or step.verdict.verdict is not Verdict.KEEP  # a forgotten node is not kept
    if step.entry and after is Phase.FAILED and entry.phase is not Phase.FAILED:
        assert "a001" in step.entry.error


def test_converter_on_another_host_is_reported() -> None:
    process = ConverterProcess(pid=77, start_ticks=5, host="east")
    entry = a_lent_node(Phase.RETURNING, converter=process)
    for elsewhere, message in ((frozenset([process]), "work on east"), (frozenset(), "at work")):
        seen = facts(batch=[BACK], running=frozenset([process]), elsewhere=elsewhere)
        assert advance_node(a_config(), "a001", entry, seen).verdict.sentence.endswith(message)


@pytest.mark.parametrize("phase", list(Phase))
def test_unreadable_nodes_change_no_phase(phase: Phase) -> None:
    entry = a_lent_node(phase, idle_since=LONG_AGO if phase is Phase.SERVING else None)
    seen = Facts(now=NOW, nodes=None, batch=None, working_pods=None, running=frozenset())
    step = advance_node(a_config(), "a001", entry, seen)
    assert step.entry is not None and step.entry.phase is phase
    assert step.verdict.reason is Reason.UNKNOWN
    assert not step.wants_release and not step.wants_return


def test_node_is_not_idle_for_waiting_pods_while_yunikorn_is_away() -> None:
    seen = facts([a_node()], unscheduled=frozenset([a_lent_node().queue]))
    step = advance_node(a_config(), "a001", a_lent_node(idle_since=LONG_AGO), seen)
    assert step.entry is not None and step.entry.idle_since is None
    assert (
        not step.wants_release and "wait for their scheduler or controller" in step.verdict.sentence
    )
    other = facts([a_node()], unscheduled=frozenset(["root.other"]))
    assert advance_node(a_config(), "a001", a_lent_node(idle_since=LONG_AGO), other).wants_release


def test_idle_node_reports_that_it_may_be_returned() -> None:
    entry = a_lent_node(idle_since=NOW - timedelta(seconds=1))
    node_verdict = advance_node(a_config(), "a001", entry, facts([a_node()])).verdict
    assert node_verdict.reason is Reason.IDLE and "may be returned after " in node_verdict.detail


def test_unreadable_pods_restart_the_idle_clock() -> None:
    seen = Facts(
        now=NOW, nodes={"a001": a_node()}, batch={}, working_pods=None, running=frozenset()
    )
    step = advance_node(a_config(), "a001", a_lent_node(idle_since=LONG_AGO), seen)
    assert step.entry is not None and step.entry.idle_since is None


def test_notready_node_with_pods_is_kept_and_reported() -> None:
    dead = facts([a_node(is_ready=False)], working_pods={"a001": 1})
    step = advance_node(a_config(), "a001", a_lent_node(), dead)
    assert step.verdict.reason is Reason.IN_USE and "NotReady" in step.verdict.detail


GPU, HALF = "nvidia.com/gpu", {name: amount // 2 for name, amount in SIZE.items()}


@pytest.mark.parametrize(
    ("counted", "seen", "after"),
    [
        pytest.param(SIZE, SIZE, SIZE, id="the-same"),
        pytest.param(SIZE, {**SIZE, GPU: 4}, {**SIZE, GPU: 4}, id="registers-late"),
        pytest.param({**SIZE, GPU: 2}, {**SIZE, GPU: 4}, {**SIZE, GPU: 4}, id="grows"),
        pytest.param({**SIZE, GPU: 4}, {**SIZE, GPU: 2}, {**SIZE, GPU: 4}, id="loses-two"),
        pytest.param({**SIZE, GPU: 4}, {**SIZE, GPU: 0}, {**SIZE, GPU: 4}, id="shows-none"),
        pytest.param({**SIZE, GPU: 4}, SIZE, {**SIZE, GPU: 4}, id="restarts"),
        pytest.param(SIZE, {**SIZE, GPU: 0}, SIZE, id="has-none-yet"),
        pytest.param(SIZE, HALF, SIZE, id="all-shrink"),
    ],
)
@pytest.mark.parametrize("is_ready", [True, False], ids=["ready", "not-ready"])
def test_counted_size_of_a_node_only_grows(
    counted: dict[str, int], seen: dict[str, int], after: dict[str, int], is_ready: bool
) -> None:
    """A restarting device plugin reports less for a moment. The queue's limit must not follow."""
    node = a_node(allocatable=seen, is_ready=is_ready)
    node_transition = advance_node(
        a_config(node_types={"a": NodeType(name="a", size={**SIZE, GPU: 4})}),
        "a001",
        a_lent_node(counted=counted),
        facts([node]),
    )
    assert node_transition.entry is not None and node_transition.entry.counted == (
        after if is_ready else counted
    )


@pytest.mark.parametrize("phase", list(Phase))
def test_no_fact_returns_a_node_with_work(phase: Phase) -> None:
    """dnm never returns a node that has or accepts pods, or that Slurm has or may have in service.
    It forgets a node only if Slurm has it and Kubernetes has no such Node."""
    marks, both = (a_node().mark, FENCED, None), (False, True)
    ages = (timedelta(hours=-1), timedelta(), timedelta(hours=2))
    for present, cordoned, mark, in_service, pods, attempts, age in product(
        both, both, marks, (True, False, None), (None, 0, 3), (0, 2, 3, 5), ages
    ):
        node = a_node(is_cordoned=cordoned, mark=mark)
        seen = Facts(
            now=NOW,
            nodes={"a001": node} if present else {},
            batch={"a001": a_batch_node(in_service=in_service)},
            working_pods=None if pods is None else {"a001": pods},
            running=frozenset(),
        )
        since = NOW - age
        calls = {"attempts": attempts} if phase is Phase.RETURNING else {}
        entry = a_lent_node(phase, since=since, idle_since=since, **calls)
        step = advance_node(a_config(), "a001", entry, seen)
        if step.entry is None:
            assert in_service and not present
        if step.wants_return and phase is Phase.RETURNING:
            assert in_service is False
        if step.wants_return:
            assert cordoned or not present
        if step.wants_return or step.wants_release:
            assert not (present and pods) and not (present and pods is None)


@pytest.mark.parametrize("node_type", ["a", "a type that is not configured any more"])
def test_deleted_joining_node_is_reported_as_deleted(node_type: str) -> None:
    late = a_lent_node(Phase.JOINING, since=LONG_AGO, node_type=node_type)
    step = advance_node(a_config(), "a001", late, facts([a_node(is_deleting=True)]))
    assert step.entry is not None and step.entry.phase is Phase.FAILED
    assert "is being deleted from Kubernetes" in step.entry.error


DRAINED = a_batch_node(in_service=False, state="IDLE+DRAIN")


@pytest.mark.parametrize(
    ("entry", "seen", "after"),
    [
        pytest.param({"is_handed_over": True}, facts(batch=[DRAINED]), Phase.FAILED, id="drained"),
        pytest.param({}, facts(batch=[DRAINED]), Phase.RETURNING, id="the converter failed"),
        pytest.param(
            {"is_handed_over": True}, facts(batch=[AWAY]), Phase.RETURNING, id="did not boot"
        ),
        pytest.param(
            {"is_handed_over": True},
            facts([a_node(mark=FENCED, is_cordoned=True)], batch=[DRAINED]),
            Phase.RETURNING,
            id="the converter lied",
        ),
    ],
)
def test_drain_set_after_the_return_belongs_to_slurm(
    entry: dict[str, Any], seen: Facts, after: Phase
) -> None:
    """A health check drains a node that has just booted. A site's own converter would power-cycle
    it again and lift the drain."""
    returned = a_lent_node(Phase.RETURNING, attempts=1, retry_after=LONG_AGO, **entry)
    step = advance_node(a_config(), "a001", returned, seen)
    assert step.entry is not None and step.entry.phase is after
    assert step.wants_return == (after is Phase.RETURNING)


def test_idle_clock_in_the_future_is_set_to_now() -> None:
    ahead = a_lent_node(idle_since=NOW + timedelta(days=1))
    after = advance_node(a_config(), "a001", ahead, facts([a_node()]))
    assert after.entry is not None and after.entry.idle_since == NOW


@pytest.mark.parametrize(
    ("seconds", "phase"),
    [
        pytest.param(900, Phase.JOINING, id="at-its-deadline"),
        pytest.param(901, Phase.FAILED, id="after-it"),
    ],
)
def test_joining_node_fails_only_after_the_full_join_timeout(seconds: int, phase: Phase) -> None:
    entry = a_lent_node(Phase.JOINING, since=NOW - timedelta(seconds=seconds))
    after = advance_node(a_config(), "a001", entry, facts())
    assert after.entry is not None and after.entry.phase is phase


@pytest.mark.parametrize(
    ("node", "why"),
    [
        pytest.param(a_node(is_ready=False), "is in Kubernetes but not Ready", id="not-ready"),
        pytest.param(
            a_node(allocatable={"cpu": 0}), "is Ready but offers no cpu, memory", id="nothing"
        ),
        pytest.param(None, "is not in Kubernetes", id="not-there"),
    ],
)
def test_late_joining_node_reports_the_missing_condition(node: Any, why: str) -> None:
    late = a_lent_node(Phase.JOINING, since=LONG_AGO)
    after = advance_node(a_config(), "a001", late, facts([node] if node else []))
    assert f"a001 {why} since 2026-03-02 10:00:00 UTC" in after.verdict.detail


SOON = NOW + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("entry", "detail"),
    [
        pytest.param({"retry_after": SOON}, "until 2026-03-02 12:01:00 UTC",
            id="waits"),
        pytest.param({"attempts": 1, "error": "no power", "retry_after": SOON},
            "1 of 3 attempts failed: no power; the next one is at 2026-03-02 12:01:00 UTC",
            id="waits-after-an-error"),
        pytest.param({"attempts": 2, "is_handed_over": True},
            "2 of 3 attempts failed: the node has not come back", id="did-not-boot"),
        pytest.param({"attempts": MAX_ATTEMPTS, "error": "no power", "retry_after": SOON},
            "a001 is not back in Slurm: 3 of 3 attempts failed: no power; check it, then "
                "`dnm reset a001` to try again, or `dnm forget a001` once it is back",
            id="the-last-attempt-failed"),
        pytest.param({"attempts": MAX_ATTEMPTS},
            "a001 is not back in Slurm: 3 of 3 attempts failed: the node has not come back; check "
                "it, then `dnm reset a001` to try again, or `dnm forget a001` once it is back",
            id="the-last-attempt-brought-nothing"),
    ],
)  # fmt: skip
def test_long_return_reports_retry_time_and_cause(entry: dict[str, Any], detail: str) -> None:
    after = advance_node(
        a_config(), "a001", a_lent_node(Phase.RETURNING, **entry), facts(batch=[AWAY])
    )
    assert after.verdict.detail == detail
