"""Tests of claims (nodes that the converter holds in Slurm) of which no converter runs any more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.batch import BatchClaim, BatchNode
from dnm.model.config import NamespacePolicy
from dnm.model.lent import ClaimedNode, ConversionRequest, Ended, LentNode, Phase
from dnm.model.observed import Backoff, Breaker
from dnm.model.orders import LendOrder, Pause
from dnm.model.plan import MarkNode, Plan, ReturnNode, SetQueueLimits, StartConversion
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.model.verdict import Verdict
from dnm.plan.facts import Facts
from dnm.plan.requests import advance_request, advance_requests, record_claims
from dnm.sizing.caps import lent_in
from tests.builders import (
    MARK,
    NOW,
    QUEUE,
    a_batch_node,
    a_config,
    a_lent_node,
    a_node,
    a_request,
    facts,
)
from tests.plan.worlds import CONVERTER, LONG_AGO, UNREAD, World, pods


def claim(direction: str = "k8s", **changes: Any) -> BatchClaim:
    values: dict[str, Any] = {"instance": "prod", "namespace": "dev", "node_type": "a"}
    return BatchClaim(direction=direction, **{**values, **changes})


def claimed(name: str = "a001", own: BatchClaim | None = None, **changes: Any) -> BatchNode:
    state = "IDLE+DRAIN+RESERVED"
    changes = {"in_service": False, "state": state, **changes}
    return a_batch_node(name, claim=own or claim(), reports_claim=True, **changes)


def rows_with_claims(*names: str) -> list[BatchNode]:
    return [a_batch_node(name, reports_claim=True) for name in names]


def take(recorded: Facts, *requests: ConversionRequest, **nodes: LentNode) -> tuple[Any, Any, Any]:
    """Returns the nodes that dnm adopts, the claims that fill its caps, and the errors."""
    result = record_claims(a_config(), Registry(nodes=nodes), nodes, requests, recorded)
    return result.nodes, result.claimed, (*result.errors, *result.node_errors)


@pytest.mark.parametrize(
    ("row", "node", "phase", "word"),
    [
        pytest.param(claimed(), None, None, "interrupted", id="being-lent"),
        pytest.param(claimed(own=claim("batch")), None, Phase.RETURNING, "", id="returning"),
        pytest.param(claimed(own=claim("batch", error="it did not boot")), None, Phase.RETURNING,
            "", id="its-return-failed"),
        pytest.param(claimed(own=claim("")), a_node("a001", mark=None), Phase.JOINING, "",
                     id="lent-manually"),
        pytest.param(claimed(own=claim("")), None, Phase.JOINING, "", id="lent-and-not-there-yet"),
        pytest.param(claimed(own=claim(error="no image")), None, Phase.FAILED,
            "no image; fix that", id="it-failed-and-was-kept"),
        pytest.param(claimed(own=BatchClaim(instance="prod", error="the journal can't be read")),
            None, Phase.FAILED, "the journal can't be read", id="unreadable-journal"),
        pytest.param(claimed(own=claim(is_at_work=True)), None, None, "no run of dnm has started",
            id="a-person-s-converter-is-at-work"),
        pytest.param(claimed(in_service=True), None, None, "dnm does not change it", id="has-work"),
        pytest.param(claimed(in_service=None), None, None, "can't report", id="slurm-can't-say"),
        pytest.param(claimed(own=claim(namespace="gone")), None, Phase.RETURNING, "",
            id="for-a-removed-namespace"),
        pytest.param(claimed(own=BatchClaim(instance="prod", since=NOW)), None, None,
            "another host's", id="possibly-of-another-host"),
        pytest.param(claimed(own=BatchClaim(instance="prod", since=LONG_AGO)), None, Phase.FAILED,
            "kubeconfig_path still names", id="old-claim-of-another-host"),
        pytest.param(claimed(own=claim("", namespace="gone")), a_node("a001", mark=None), None,
            "--set batch --node-name a001", id="lent-for-a-removed-namespace"),
    ],
)  # fmt: skip
def test_stranded_claim_is_continued_returned_or_reported(
    row: BatchNode, node: Any, phase: Phase | None, word: str
) -> None:
    recorded = facts(nodes=[node] if node else [], batch=[row])
    nodes, counted, errors = take(recorded)
    if phase is None:
        assert not nodes and word in counted["a001"].why
    else:
        assert nodes["a001"].phase is phase and not counted
        assert word in nodes["a001"].error
    is_for_a_person = phase is Phase.FAILED or "has-work" in word or "does not change" in word
    assert bool(errors) is (is_for_a_person or "--set batch" in word)


@pytest.mark.parametrize(
    ("row", "requests", "nodes"),
    [
        pytest.param(claimed(own=claim(instance="west")), (), {}, id="of-another-instance"),
        pytest.param(claimed(own=claim(instance="")), (), {}, id="unowned"),
        pytest.param(
            claimed(own=claim(request="r1")), (a_request(converter=CONVERTER),), {},
            id="its-request-is-at-work",
        ),
        pytest.param(
            claimed(), (a_request(converter=CONVERTER, node="a001"),), {}, id="it-is-continued"
        ),
        pytest.param(
            claimed(own=claim("", request="r1")), (a_request(ended=True),), {},
            id="its-request-waits-for-it",
        ),
        pytest.param(claimed(), (), {"a001": a_lent_node(Phase.SERVING)}, id="it-is-recorded"),
    ],
)  # fmt: skip
def test_claim_of_other_instance_or_live_converter_is_not_stranded(
    row: BatchNode, requests: Any, nodes: Any
) -> None:
    recorded = facts(batch=[row], running=frozenset((CONVERTER,)))
    assert take(recorded, *requests, **nodes) == ({}, {}, ())


def test_unreadable_journal_is_ignored_while_slurm_has_its_node() -> None:
    row = claimed(own=BatchClaim(instance="prod", error="a001.json can't be read"), in_service=True)
    result = record_claims(a_config(), Registry(), {}, (), facts(batch=[row]))
    assert not (result.nodes or result.claimed or result.errors)
    assert "a001.json can't be read" in result.notes[0]


def test_unreadable_batch_side_keeps_all_recorded_claims() -> None:
    before = Registry(claimed={"a001": ClaimedNode(node_type="a", namespace="dev")})
    for batch in (UNREAD, None):
        plan = World().set(batch=batch).recorded(claimed=before.claimed).plan()
        assert plan.registry.claimed == before.claimed
    assert lent_in(before) == [("a", "dev")]


# --- requests whose converter died ---------------------------------------------------------------


def test_request_of_dead_converter_leaves_its_claims() -> None:
    """The converter's host died when it had lent one of three nodes and claimed another."""
    request = a_request(count=3, converter=CONVERTER, names=("a001",))
    rows = [claimed("a001", claim("", request="r1")), claimed("a002", claim(request="r1"))]
    arrived = a_node("a001", mark=None, labels={"dev": "true"})
    ended = {"r1": Ended(names=("a001",))}
    recorded = facts(nodes=[arrived], batch=[*rows, *rows_with_claims("a003")], ended=ended)
    after = advance_requests(a_config(), Registry(requests=(request,)), recorded)
    assert list(after.nodes) == ["a001"] and not after.requests
    error = after.request_errors["r1"]
    assert "died before it had ended" in error and "had claimed a002" in error
    assert [failure.error for failure in after.failures] == [error]
    nodes, counted, _ = take(recorded, *after.requests, **after.nodes)
    assert not nodes and list(counted) == ["a002"]


def test_converter_that_died_after_its_work_is_no_error() -> None:
    request = a_request(converter=CONVERTER, names=("a001",))
    recorded = facts(nodes=[a_node("a001", mark=None, labels={"dev": "true"})],
                  batch=[claimed(own=claim("", request="r1"))], ended={"r1": Ended()})  # fmt: skip
    after = advance_request(a_config(), request, frozenset(), recorded)
    assert list(after.joined) == ["a001"] and after.request is None
    assert not after.note and not after.conversion_failed


def test_run_killed_before_its_converter_started_is_no_failure() -> None:
    recorded = facts(batch=rows_with_claims("a001"), ended={"r1": Ended()})
    after = advance_request(a_config(), a_request(), frozenset(), recorded)
    assert after.request is None and not after.conversion_failed
    assert "was not started" in after.note


def test_claims_of_dead_converter_are_not_decided_without_slurm() -> None:
    request = a_request(converter=CONVERTER)
    recorded = msgspec.structs.replace(facts(ended={"r1": Ended()}), batch=None)
    after = advance_request(a_config(), request, frozenset(), recorded)
    assert after.request == request and not after.note


def test_nodes_of_a_dead_site_converter_are_reported_and_counted() -> None:
    """A site's own converter reports no claims. dnm names each node that left Slurm, and counts it
    until it is back."""
    config = a_config()
    request = a_request(count=2, converter=CONVERTER, out_before=("a009",))
    rows = [a_batch_node(name, in_service=False) for name in ("a001", "a002", "a009")]
    recorded = facts(batch=[*rows, a_batch_node("a003")], ended={"r1": Ended()})
    after = advance_request(config, request, frozenset(), recorded)
    assert after.request is not None and after.request.end and after.conversion_failed
    assert "a001, a002 in service any more" in after.note and "--set batch" in after.note
    assert "a009" not in after.note and after.request.error in after.note

    later = msgspec.structs.replace(recorded, now=NOW + config.join_timeout + timedelta(seconds=1))
    after = advance_request(config, after.request, frozenset(), later)
    assert after.request is None and sorted(after.left_behind) == ["a001", "a002"]
    assert after.left_behind["a002"].why.endswith(
        "--set batch --node-name a002' returns it; if it has another owner, `dnm forget a002`"
    )
    registry = Registry(claimed=dict(after.left_behind))
    kept = record_claims(config, registry, {}, (), later)
    assert kept.claimed == after.left_behind
    back = facts(batch=[a_batch_node("a001"), *rows[1:]])
    assert list(record_claims(config, registry, {}, (), back).claimed) == ["a002"]


def test_joining_node_of_dead_converter_becomes_a_claim() -> None:
    """The host died after the converter had printed the node's name, so no Node will join."""
    world = World().lent("a001", Phase.JOINING, since=NOW, converter=CONVERTER)
    world.batch = {"a001": claimed("a001", claim(namespace="")), **world.batch}
    plan = world.plan()
    assert plan.registry.nodes["a001"].phase is Phase.RETURNING  # no pod needs it
    assert plan.registry.nodes["a001"].queue == QUEUE
    assert not plan.actions


# --- forwards and backwards -----------------------------------------------------------------------


def stranded(*names: str, **config: Any) -> World:
    """Builds a world in which a dead converter has left claims of these nodes for `dev`."""
    world = World().configured(**config)
    rows = {name: claimed(name) for name in names}
    other = {
        name: msgspec.structs.replace(row, reports_claim=True) for name, row in world.batch.items()
    }
    return world.set(batch={**rows, **other})


def requested_nodes(plan: Plan) -> list[tuple[str, int]]:
    return [
        (action.request.node, action.request.count)
        for action in plan.actions
        if isinstance(action, StartConversion)
    ]


def test_wanted_claims_are_continued_and_surplus_claims_are_returned() -> None:
    plan = stranded("a001", "a002").with_pods(*pods(1)).plan()
    assert requested_nodes(plan) == [("a001", 1)]
    assert plan.registry.nodes["a002"].phase is Phase.RETURNING and not plan.registry.claimed
    document = {node.node: node for node in plan.nodes}
    assert {verdict.reason for verdict in document.values()} == {Reason.CLAIMED}
    assert document["a001"].verdict is Verdict.CONVERT and "resumes" in document["a001"].sentence
    assert (
        document["a002"].verdict is Verdict.REVERT
        and "no queue needs it" in document["a002"].sentence
    )


def test_unwanted_claim_is_returned_in_the_next_run() -> None:
    world = stranded("a001")
    first = world.plan()
    assert not first.actions and first.registry.nodes["a001"].phase is Phase.RETURNING
    second = world.set(registry=first.registry).plan()
    assert second.actions == (ReturnNode(node="a001"),)


def test_hold_keeps_an_interrupted_node_unchanged() -> None:
    """The node is neither lent nor returned, even if its queue needs one. It counts as lent."""
    for count in (0, 1):
        plan = stranded("a001").with_pods(*pods(count)).recorded(held=("a001",)).plan()
        assert "a001" in plan.registry.claimed and "a001" not in plan.registry.nodes
        assert requested_nodes(plan) == [("a050", 1)] * count
        assert "interrupted: dnm unhold a001" in plan.nodes[0].sentence


def test_claims_fill_the_caps_and_may_still_be_continued() -> None:
    """The cap is three, and three nodes are claimed. dnm lends these, and no fourth one."""
    world = stranded("a001", "a002", "a003", max_converted_nodes=3, max_conversions_per_run=9)
    plan = world.with_pods(*pods(5)).plan()
    assert requested_nodes(plan) == [("a001", 1), ("a002", 1), ("a003", 1)]
    assert len(lent_in(plan.registry)) == 3


@pytest.mark.parametrize(
    ("world", "is_running"),
    [
        pytest.param(
            lambda: stranded("a001").recorded(
                backoffs={"a": Backoff(failures=2, until=NOW + timedelta(minutes=1),
                                       ask_at_most=1)},
            ), False, id="which waits for the back-off of that very interruption",
        ),
        pytest.param(
            lambda: stranded("a001", max_converted_nodes=1), True,
            id="which waits for the cap that it fills",
        ),
    ],
)  # fmt: skip
def test_claim_that_an_order_waits_for_is_not_returned(
    world: Callable[[], World], is_running: bool
) -> None:
    order = LendOrder(
        id="lend-1", node_type="a", namespace="dev", count=1, since=LONG_AGO,
        until=NOW + timedelta(hours=4),
    )  # fmt: skip
    plan = world().recorded(orders=(order,)).plan()
    assert "a001" not in plan.registry.nodes
    assert requested_nodes(plan) == [("a001", 1)] * is_running, plan.registry.orders


def test_claim_for_another_namespace_uses_up_the_cap() -> None:
    world = World().configured(max_converted_nodes=1)
    theirs = claim(is_at_work=True)
    world.batch = {"a001": claimed("a001", theirs), **world.batch}
    plan = world.with_pods(*pods(1)).plan()
    assert not plan.actions and list(plan.registry.claimed) == ["a001"]
    assert plan.queues[0].reason is Reason.CAPPED
    assert plan.nodes[0].detail == plan.registry.claimed["a001"].why


def test_new_nodes_are_requested_beside_continued_claims() -> None:
    world = stranded("a001", max_conversions_per_run=9).with_pods(*pods(3))
    assert requested_nodes(world.plan()) == [("a001", 1), ("", 2)]


@pytest.mark.parametrize(
    ("brake", "is_returned"),
    [
        pytest.param({"pause": Pause(since=LONG_AGO)}, False, id="paused"),
        pytest.param({"last_conversion": NOW - timedelta(seconds=5)}, False, id="cooldown"),
        pytest.param(
            {"backoffs": {"a": Backoff(failures=2, until=NOW + timedelta(minutes=1),
                                       ask_at_most=1)}},
            False, id="back-off",
        ),
        pytest.param(
            {"breakers": {QUEUE: Breaker(unused=3)}},
            True, id="breaker",
        ),
    ],
)  # fmt: skip
def test_restrictions_keep_wanted_claims_and_an_open_breaker_returns_them(
    brake: dict[str, Any], is_returned: bool
) -> None:
    plan = stranded("a001").with_pods(*pods(1)).recorded(**brake).plan()
    assert not requested_nodes(plan)
    assert ("a001" in plan.registry.claimed) is not is_returned
    assert ("a001" in plan.registry.nodes) is is_returned


def test_claims_are_not_decided_while_pods_are_unreadable() -> None:
    plan = stranded("a001").set(pods=UNREAD).plan()
    assert list(plan.registry.claimed) == ["a001"] and not plan.actions


def test_mark_written_by_a_kubelet_does_not_decide_a_claim() -> None:
    """A kubelet can write any mark on its Node, so a mark does not show who claimed the node."""
    world = stranded("a001").node("a001", labels={"dev": "true"})
    plan = world.plan()
    assert plan.registry.nodes["a001"].phase in (Phase.SERVING, Phase.JOINING)


TWO = {
    "dev": a_config().namespaces["dev"],
    "ops": NamespacePolicy(name="ops", queue="root.ops", node_types=("a",)),
}
FOR_OPS = msgspec.structs.replace(MARK, namespace="ops")
SERVED = {
    "as lent": ({}, Phase.JOINING, "dev"),
    "not labelled yet": ({"labels": {}}, Phase.JOINING, "dev"),
    "moved, its mark lost": ({"labels": {"ops": "true"}}, Phase.JOINING, "ops"),
    "of both": ({"labels": {"ops": "true", "dev": "true"}}, Phase.JOINING, "dev"),
    "moved to one that is gone": (
        {"labels": {}, "mark": msgspec.structs.replace(MARK, namespace="gone")}, None, "gone",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("node", "phase", "namespace"), SERVED.values(), ids=SERVED)
def test_moved_node_is_recorded_for_the_namespace_that_it_serves(
    node: dict[str, Any], phase: Phase | None, namespace: str
) -> None:
    """The registry is lost, and the converter's journal has only the lend's first namespace."""
    there = a_node("a001", **{"mark": None, **node})
    recorded = facts(nodes=[there], batch=[claimed(own=claim(""))])
    result = record_claims(a_config(namespaces=TWO), Registry(), {}, (), recorded)
    item = result.nodes.get("a001") or result.claimed["a001"]
    assert (getattr(item, "phase", None), item.namespace) == (phase, namespace)
    if phase:
        assert result.nodes["a001"].queue == TWO[namespace].queue


@pytest.mark.parametrize(
    "worn",
    [
        {"mark": msgspec.structs.replace(MARK, namespace="gone")},
        {"mark": None, "labels": {"ops": "true"}},
    ],
    ids=["mark", "label"],
)
def test_kubelet_labels_do_not_change_an_unfinished_lend(
    worn: dict[str, Any],
) -> None:
    recorded = facts(nodes=[a_node("a001", **worn)], batch=[claimed(own=claim("k8s"))])
    result = record_claims(a_config(namespaces=TWO), Registry(), {}, (), recorded)
    assert result.claimed["a001"].namespace == "dev" and result.claimed["a001"].can_resume
    assert not result.errors


def test_claimed_node_is_recorded_for_the_namespace_of_its_mark() -> None:
    world = World().configured(namespaces=TWO).node("a001", mark=FOR_OPS, labels={"ops": "true"})
    world.batch["a001"] = claimed(own=claim(""))
    assert world.plan().registry.nodes["a001"].namespace == "ops"


@pytest.mark.parametrize("is_listed", [False, True], ids=["slurm-forgot-it", "still-in-slurm"])
@pytest.mark.parametrize("is_recorded", [False, True], ids=["named", "taken-up-before"])
def test_node_that_the_converter_abandoned_is_not_lent(is_listed: bool, is_recorded: bool) -> None:
    """bridge-convert abandons a node that an administrator takes out of Slurm meanwhile. It is
    Ready and open to all pods. It must not raise the limit or get a mark."""
    world = World().recorded(requests=(a_request(names=("a001",), ended=True, error="exit 1"),))
    if is_recorded:
        joining = a_lent_node(phase=Phase.JOINING, since=NOW, counted={}, converter=CONVERTER)
        world = World().recorded(nodes={"a001": joining})
    world.node("a001", mark=None, labels={})
    world.batch = {
        node.name: node
        for node in rows_with_claims(*world.batch)
        if node.name != "a001" or is_listed
    }
    for _ in range(2):
        plan = world.plan()
        assert not plan.registry.nodes
        assert not [
            action for action in plan.actions if isinstance(action, MarkNode | SetQueueLimits)
        ]
        world.registry = plan.registry


def test_claimed_node_is_awaited_until_it_has_its_label() -> None:
    joining = a_lent_node(phase=Phase.JOINING, since=NOW, counted={})
    world = World().recorded(nodes={"a001": joining}).node("a001", mark=None, labels={})
    world.batch = {node.name: node for node in rows_with_claims(*world.batch)}
    world.batch["a001"] = claimed(own=claim(""))
    assert "a001" in world.plan().registry.nodes


@pytest.mark.parametrize(("named", "back"), [("a002", ["a001"]), ("a009", ["a001", "a002"])])
def test_order_of_named_nodes_keeps_only_the_named_claims(named: str, back: list[str]) -> None:
    backoff = Backoff(failures=2, until=NOW + timedelta(minutes=1), ask_at_most=1)
    order = LendOrder(
        id="lend-1", node_type="a", namespace="dev", count=1, since=LONG_AGO, nodes=(named,),
        until=NOW + timedelta(hours=4),
    )  # fmt: skip
    world = stranded("a001", "a002").recorded(backoffs={"a": backoff}, orders=(order,))
    assert sorted(world.plan().registry.nodes) == back
