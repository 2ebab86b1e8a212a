"""Tests of nodes that a site excludes from lending: by which rules, how dnm passes them to the
converter, and what happens to an excluded node that joins nevertheless."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.batch import BatchClaim
from dnm.model.departure import Leaving
from dnm.model.lent import Phase
from dnm.model.observed import Backoff
from dnm.model.orders import Keeping, Pause, Way
from dnm.model.plan import Fence, MarkNode, StartConversion
from dnm.model.pod import PodList
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import Verdict
from dnm.plan.hooks import Exclusion, Rule
from dnm.plan.inputs import needs_batch_side
from dnm.plan.rule import excluded_nodes, nodes_to_return
from dnm.plan.rules.exclusions import exclusions
from dnm.record.transitions import Cause, list_transitions
from tests.builders import FENCED, NOW, QUEUE, a_batch_node, a_config, a_request, facts
from tests.plan.worlds import UNREAD, World, pods, wanting

LATER = NOW + timedelta(hours=1)
ROW: dict[str, Any] = {
    "partitions": ("batch", "gpu"),
    "features": ("amd", "never-lend"),
    "reservations": ("grant",),
}


def out(config: dict[str, Any], registry: dict[str, Any], **row: Any) -> dict[str, str]:
    batch = {"a001": a_batch_node("a001", **{**ROW, **row}), "a002": a_batch_node("a002", **ROW)}
    out = exclusions(a_config(**config), Registry(**registry), batch, NOW)
    return {name: exclusion.why for name, exclusion in out.items()}


@pytest.mark.parametrize(
    ("config", "registry", "row", "why"),
    [
        pytest.param({"exclude_nodes": frozenset({"a001"})}, {}, {}, "exclude_nodes names it",
                     id="by-name"),
        pytest.param({"exclude_partitions": ("gpu", "none")}, {}, {"partitions": ("gpu",)},
                     "exclude_nodes names partition gpu", id="partition"),
        pytest.param({"exclude_features": ("amd",)}, {}, {}, "exclude_nodes names feature amd",
                     id="feature"),
        pytest.param({"exclude_reservations": ("grant",)}, {}, {},
                     "exclude_nodes names reservation grant", id="reservation"),
        pytest.param({"exclude_partitions": ("none",)}, {}, {"partitions": ()},
                     "exclude_nodes names a partition, and the converter does not report them",
                     id="partition-untold"),
        pytest.param({"exclude_features": ("none",)}, {}, {"features": None},
                     "exclude_nodes names a feature, and the converter does not report them",
                     id="feature-untold"),
        pytest.param({"exclude_reservations": ("none",)}, {}, {"reservations": None},
                     "exclude_nodes names a reservation, "
                     "and the converter does not report them",
                     id="reservation-untold"),
        pytest.param({"exclude_features": ("none",)}, {}, {}, None, id="another-feature"),
        pytest.param({}, {}, {"partitions": (), "features": None, "reservations": None}, None,
                     id="untold-and-not-asked-for"),
        pytest.param({}, {"held": ("a001",)}, {}, "an administrator holds it: dnm unhold a001",
                     id="held"),
        pytest.param({}, {"held": ("a001",), "holds": {"a001": Keeping(since=NOW, until=LATER)}},
                     {}, "an administrator holds it until 2026-03-02 13:00 UTC: dnm unhold a001",
                     id="held-for-a-time"),
        pytest.param({}, {"held": ("a001",), "holds": {"a001": Keeping(since=NOW, until=NOW)}},
                     {}, None, id="its-hold-is-over"),
        pytest.param({}, {"excluded": {
            "a001": Keeping(since=NOW, requester="kim", reason="theirs")}},
                     {}, "kim excluded it (theirs): dnm unexclude a001", id="excluded"),
        pytest.param({}, {"excluded": {"a001": Keeping(since=NOW, until=LATER)}}, {},
                     "an administrator excluded it until 2026-03-02 13:00 UTC: dnm unexclude a001",
                     id="excluded-for-a-time"),
        pytest.param({}, {"excluded": {"a001": Keeping(since=NOW, until=NOW)}}, {}, None,
                     id="its-time-is-over"),
    ],
)  # fmt: skip
def test_exclusion_of_a_node_reports_its_rule(
    config: dict[str, Any], registry: dict[str, Any], row: dict[str, Any], why: str | None
) -> None:
    assert out(config, registry, **row).get("a001") == why


def excluding(world: World, *names: str) -> World:
    return world.configured(exclude_nodes=frozenset(names))


def calls(world: World) -> list[tuple[int, str, str]]:
    return [
        (request.count, request.node, request.leave_out) for request in world.converted().requests
    ]


TEN = [f"a{n:03}" for n in range(50, 60)]


@pytest.mark.parametrize(
    ("names", "listed", "named"),
    [
        pytest.param([], [(2, "", "")], [(2, "", "")], id="nothing-is-kept-out"),
        pytest.param(["b001"], [(2, "", "")], [(2, "", "")], id="of-another-type"),
        pytest.param(["a050", "a001"], [(2, "", "a[001,050]")], [(1, "a051", ""), (1, "a052", "")],
                     id="some"),
        pytest.param(TEN[:9], [(1, "", "a[050-058]")], [(1, "a059", "")], id="one-is-left"),
        pytest.param(TEN, [], [], id="none-is-left"),
    ],
)  # fmt: skip
def test_exclusions_reach_the_converter_as_list_or_by_naming_nodes(
    names: list[str], listed: list[tuple[int, str, str]], named: list[tuple[int, str, str]]
) -> None:
    assert calls(excluding(wanting(2).with_facts(leaves_out=True), *names)) == listed
    assert calls(excluding(wanting(2), *names)) == named


def test_exclusion_list_too_long_for_an_argument_becomes_node_names() -> None:
    world = excluding(wanting(1), *(f"a{2 * n:07}" for n in range(9_000)))
    assert calls(world.with_facts(leaves_out=True)) == [(1, "a050", "")]


def test_named_nodes_are_free_in_kubernetes_and_unrequested() -> None:
    world = excluding(wanting(3), "a050").node("a051", mark=None)
    world.recorded(requests=(a_request(id="r0", node="a052", nodes_before=("a051",)),))
    assert [node for _, node, _ in calls(world)] == ["a053"]


def test_node_that_always_fails_does_not_keep_other_nodes_from_being_named() -> None:
    asked = []
    for failures in range(11):
        backoff = Backoff(failures=failures, until=NOW, ask_at_most=1)
        world = excluding(wanting(1), "a050").recorded(backoffs={"a": backoff})
        asked += [node for _, node, _ in calls(world)]
    assert asked == [*TEN[1:], *TEN[1:3]]


def test_queue_reports_that_no_batch_node_is_available() -> None:
    verdict = excluding(wanting(1), *TEN).converted().verdicts[QUEUE]
    assert (verdict.verdict, verdict.reason) == (Verdict.WAIT, Reason.NO_BATCH_NODE)


def arrived(**changes: Any) -> World:
    """Builds an excluded node that a converter has lent nevertheless."""
    request = a_request(**{"names": ("a050",), "ended": True, **changes})
    world = World().node("a050", mark=None).recorded(requests=(request,))
    world.batch = {**world.batch, "a050": a_batch_node("a050", in_service=False)}
    return world


def test_excluded_node_that_arrives_leaves_at_once_and_counts_as_failure() -> None:
    """The node does not raise its queue's limit. Its node type backs off as after a failure."""
    plan = excluding(arrived(leave_out="a050"), "a050").plan()
    entry = plan.registry.nodes["a050"]
    assert (entry.phase, entry.leaves, entry.counted) == (Phase.RELEASING, Leaving.EXCLUDED, {})
    (error,) = plan.errors
    assert error.startswith("a050 was lent although it is excluded (exclude_nodes names it)")
    assert [type(action) for action in plan.actions] == [MarkNode, Fence]
    backoff = plan.registry.backoffs["a"]
    assert (backoff.failures, backoff.last_error) == (1, error)


def test_type_with_two_rejected_nodes_backs_off() -> None:
    world = excluding(arrived(leave_out="a050"), "a050").with_pods(*wanting(1).pods)
    world.recorded(backoffs={"a": Backoff(failures=1, until=NOW, ask_at_most=1)})
    for _ in range(2):
        converted = world.converted()
        assert (converted.requests, converted.verdicts[QUEUE].reason) == ((), Reason.BACKOFF)
        world.registry = converted.registry


@pytest.mark.parametrize(
    ("request_", "is_blamed"),
    [
        pytest.param({"leave_out": "a[049-051]"}, True, id="excluded-in-the-call"),
        pytest.param({"node": "a051"}, True, id="another-node-named"),
        pytest.param({"leave_out": "a051"}, False, id="excluded-since"),
        pytest.param({"node": "a050"}, False, id="asked-for"),
        pytest.param({}, False, id="nothing-excluded-in-the-call"),
    ],
)
def test_converter_that_ignores_its_exclusions_is_blamed(
    request_: dict[str, Any], is_blamed: bool
) -> None:
    advanced = excluding(arrived(**request_), "a050").advanced()
    assert advanced.registry.nodes["a050"].leaves == Leaving.EXCLUDED
    lines = (*advanced.errors, *advanced.notes)
    assert [("obeys exclusions" in name) for name in lines] == [is_blamed]
    assert bool(advanced.errors) is bool(advanced.registry.backoffs) is is_blamed


def test_node_excluded_while_joining_is_returned_without_back_off() -> None:
    """An administrator excluded the node while it was joining, so nothing failed. The same run
    requests another node."""
    excluded = {"a050": Keeping(since=NOW, requester="kim")}
    world = arrived().recorded(excluded=excluded).with_pods(*wanting(1).pods)
    plan = world.plan()
    assert plan.registry.nodes["a050"].leaves == Leaving.EXCLUDED
    assert not (plan.errors or plan.registry.backoffs)
    (note,) = (note for note in plan.notes if note.startswith("a050 is returned"))
    assert "excluded while it was joining (kim excluded it: dnm unexclude a050)" in note
    assert [
        action.request.count for action in plan.actions if isinstance(action, StartConversion)
    ] == [1]


def ended_claim() -> World:
    """Builds a node that joined after its request had expired."""
    batch_claim = BatchClaim(instance="prod", direction="", namespace="dev", node_type="a")
    row = a_batch_node(
        "a050", in_service=False, claim=batch_claim, reports_claim=True, verdict="SKIP"
    )
    return World().node("a050", mark=None).set(batch={"a050": row})


def marked() -> World:
    """Builds a Node with dnm's mark that the registry does not contain."""
    return World().node("a050").set(batch={"a050": a_batch_node("a050", in_service=False)})


@pytest.mark.parametrize("world", [arrived, ended_claim, marked])
def test_excluded_node_leaves_however_it_was_lent(world: Any) -> None:
    welcome = world().advanced()
    assert welcome.registry.nodes["a050"].leaves is None and not welcome.errors
    advanced = excluding(world(), "a050").advanced()
    assert advanced.registry.nodes["a050"].leaves == Leaving.EXCLUDED
    assert advanced.errors or advanced.notes


def test_interrupted_lend_of_excluded_node_is_returned_despite_its_pod() -> None:
    world = excluding(ended_claim(), "a050").with_pods(*pods(1, node="a050"))
    claim = BatchClaim(instance="prod", direction="k8s", namespace="dev", node_type="a")
    world.batch["a050"] = msgspec.structs.replace(world.batch["a050"], claim=claim)
    advanced = world.advanced()
    assert advanced.registry.nodes["a050"].leaves == Leaving.EXCLUDED
    assert "is excluded (exclude_nodes names it): it is returned" in advanced.notes[0]


def test_excluded_node_that_joins_late_leaves_once_it_is_ready() -> None:
    world = World().lent("a050", Phase.FAILED, leaves=Leaving.EXCLUDED, error="late")
    world = excluding(world.node("a050"), "a050")
    world.batch = {"a050": a_batch_node("a050", in_service=False)}
    assert world.advanced().registry.nodes["a050"].phase is Phase.RELEASING


def test_node_excluded_while_lent_keeps_serving() -> None:
    world = excluding(World().lent("a001").node("a001"), "a001")
    advanced = world.advanced()
    assert advanced.registry.nodes["a001"].leaves is None and not advanced.errors


def test_held_node_is_not_returned_for_an_exclusion() -> None:
    advanced = arrived().recorded(held=("a050",)).advanced()
    assert advanced.registry.nodes["a050"].leaves is None and not advanced.errors


OUT = {"in_service": False}
BY_NAME, GPUS = {"exclude_nodes": frozenset({"a001"})}, {"exclude_partitions": ("gpu",)}
RULES: list[dict[str, Any]] = [
    {"exclude_partitions": ("batch",)},
    {"exclude_features": ("batch",)},
    {"exclude_reservations": ("batch",)},
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: next(iter(rule)))
@pytest.mark.parametrize(
    "unread",
    [
        pytest.param(None, id="not-asked"),
        pytest.param(UNREAD, id="unreadable"),
        pytest.param({"a051": a_batch_node("a051")}, id="not-in-the-list"),
        pytest.param({"a050": a_batch_node("a050", **OUT)}, id="list-without-the-fact"),
    ],
)
def test_exclusion_with_unknown_facts_is_judged_later(rule: dict[str, Any], unread: Any) -> None:
    """Unless dnm knows partitions and features of a node, it keeps the node and judges it later."""
    world = arrived(names=("a050",)).configured(**rule).set(batch=unread)
    world.registry = world.advanced().registry
    entry = world.registry.nodes["a050"]
    assert (entry.leaves, entry.is_unjudged) == (None, True)
    assert needs_batch_side(world.config, world.registry, world.nodes, PodList(pods=()))
    for word, leaves in (("batch", Leaving.EXCLUDED), ("other", None)):
        document: dict[str, Any] = dict.fromkeys(
            ("partitions", "features", "reservations"), (word,)
        )
        world.batch = {"a050": a_batch_node("a050", **OUT, **document)}
        entry = world.advanced().registry.nodes["a050"]
        assert (entry.leaves, entry.is_unjudged) == (leaves, False)


@pytest.mark.parametrize(
    ("config", "batch", "leaves"),
    [
        pytest.param(BY_NAME, {}, Leaving.EXCLUDED, id="still-kept-out"),
        pytest.param({}, {"a001": a_batch_node("a001", **OUT)}, None, id="no-more"),
        pytest.param({}, None, Leaving.EXCLUDED, id="not-known"),
        pytest.param({}, {"a050": a_batch_node()}, None, id="no-rule-asks-for-its-row"),
        pytest.param(GPUS, {"a050": a_batch_node(partitions=("batch",))}, Leaving.EXCLUDED,
            id="its-row-is-missing"),
        pytest.param(GPUS, {"a001": a_batch_node()}, Leaving.EXCLUDED, id="not-in-its-row"),
        pytest.param(GPUS, {"a001": a_batch_node(partitions=("gpu",))}, Leaving.EXCLUDED,
            id="of-that-partition"),
        pytest.param(GPUS, {"a001": a_batch_node(partitions=("batch",))}, None, id="of-another"),
    ],
)  # fmt: skip
def test_excluded_node_keeps_leaving_while_it_is_excluded(
    config: dict[str, Any], batch: Any, leaves: str | None
) -> None:
    world = World().lent("a001", Phase.SERVING, leaves=Leaving.EXCLUDED, was_used=True)
    world = world.node("a001").configured(**config).set(batch=batch)
    assert world.decisions().registry.nodes["a001"].leaves is leaves


def test_expired_hold_or_exclusion_is_removed_and_reported_once() -> None:
    """A hold ends at its end time, even if its node is not lent."""
    over, lasting = Keeping(since=NOW, until=NOW), Keeping(since=NOW, until=LATER)
    world = World().recorded(
        held=("a050", "a051", "a052"),
        holds={"a050": over, "a051": lasting},
        excluded={"a053": over, "a054": lasting},
    )
    registry = world.plan().registry
    assert registry.held == ("a051", "a052") and [*registry.holds] == ["a051"]
    assert [*registry.excluded] == ["a054"]
    lines = list_transitions(world.registry, registry, Cause(now=NOW, run="r", instance="prod"))
    rows = [(line.kind, line.event, line.object) for line in lines if line.event == "over"]
    assert rows == [("hold", "over", "a050"), ("exclusion", "over", "a053")]
    assert not [transition for transition in list_transitions(registry, registry, Cause(
        now=NOW, run="r", instance="prod")) if transition.event == "over"]  # fmt: skip


@pytest.mark.parametrize(
    ("half", "lends", "returns"),
    [
        pytest.param(None, False, False, id="both"),
        pytest.param(Way.LENDING, False, True, id="lending"),
        pytest.param(Way.RETURNING, True, False, id="returning"),
    ],
)
def test_pause_may_stop_lending_or_returning_alone(
    half: Way | None, lends: bool, returns: bool
) -> None:
    pause = Pause(since=NOW, half=half, reason="the switch")
    converted = wanting(1).recorded(pause=pause).converted()
    assert bool(converted.requests) is lends
    if half is Way.LENDING:
        assert converted.verdicts[QUEUE].sentence == "dnm is paused: lending alone: the switch"
    idle = World().lent("a001", idle_since=NOW - timedelta(hours=9), was_used=True).node("a001")
    registry = idle.recorded(pause=pause).decisions().registry
    assert (registry.nodes["a001"].phase is Phase.RELEASING) is returns
    away = World().lent("a001", Phase.RELEASING, was_used=True)
    away.node("a001", is_cordoned=True, mark=FENCED)
    away.set(batch={"a001": a_batch_node(in_service=False)}).recorded(pause=pause)
    assert bool(away.decisions().returned) is returns
    spent = World().lent("a001", lent_since=NOW - timedelta(days=9), was_used=True).node("a001")
    spent.configured(options={"max_lend_hours": timedelta(hours=1)}).recorded(pause=pause)
    assert bool(spent.decisions().registry.nodes["a001"].leaves) is returns


def test_first_of_two_exclusion_rules_names_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rule_with(*names: str, why: str) -> Rule:
        out = dict.fromkeys(names, Exclusion(why=why, must_return=True))
        return Rule(excludes=lambda *_: out)

    rules = (rule_with("a001", why="first"), rule_with("a001", "a002", why="second"))
    monkeypatch.setattr("dnm.plan.rule.rules_of", lambda *_: rules)
    config, document = a_config(), {"a001": "first", "a002": "second"}
    assert excluded_nodes(config, Registry(), None, NOW) == document
    assert nodes_to_return(config, Registry(), facts()) == document
