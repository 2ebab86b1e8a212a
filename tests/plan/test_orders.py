"""Tests of orders (nodes that an administrator requests by `dnm lend`): how many are requested,
what `--force` overrides, which nodes stay and for how long. Tests of nodes lent manually."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.batch import BatchClaim
from dnm.model.departure import Leaving
from dnm.model.lent import ClaimedNode, Phase, RequestEnd
from dnm.model.observed import Backoff, Breaker
from dnm.model.orders import Keeping, LendOrder, Pause, Way
from dnm.model.plan import Fence
from dnm.model.reason import Reason
from dnm.model.share import Floor
from dnm.model.verdict import Verdict
from dnm.plan.counting import count_missing
from dnm.plan.inputs import needs_batch_side
from dnm.record.transitions import Cause, list_transitions
from tests.builders import FENCED, NOW, QUEUE, a_batch_node, a_policy, a_request
from tests.plan.worlds import UNREAD, World, queue_map, wanting

LATER, EARLIER = NOW + timedelta(hours=1), NOW - timedelta(hours=1)


def an_order(**changes: Any) -> LendOrder:
    values: dict[str, Any] = {
        "id": "o1", "node_type": "a", "namespace": "dev", "count": 2, "since": EARLIER,
        "until": LATER, "requester": "kim on adm1", "reason": "a course",
    }  # fmt: skip
    return LendOrder(**{**values, **changes})


def ordered(world: World | None = None, **changes: Any) -> World:
    return (world or World()).recorded(orders=(an_order(**changes),))


def requested_nodes(world: World) -> list[tuple[int, str]]:
    return [
        (request.count, request.node) for request in world.converted().requests if request.order
    ]


def why(world: World) -> str:
    return world.converted().registry.orders[0].waiting_reason


def serving(world: World, *names: str, **changes: Any) -> World:
    for name in names:
        world.lent(name, order="o1", stays_until=LATER, was_used=True, **changes).node(name)
    return world


@pytest.mark.parametrize(
    ("world", "requests"),
    [
        pytest.param(ordered(), [(2, "")], id="nothing-joined"),
        pytest.param(ordered(serving(World(), "a001")), [(1, "")], id="one-serves"),
        pytest.param(ordered(serving(World(), "a001", "a002")), [], id="both-serve"),
        pytest.param(ordered(serving(World(), "a001", phase=Phase.FAILED)), [(2, "")],
                     id="one-has-failed"),
        pytest.param(
            ordered(serving(World(), "a001", leaves=Leaving.EXCLUDED))
            .configured(exclude_nodes=frozenset({"a001"})),
            [(1, "a050"), (1, "a051")],
            id="one-leaves"),
        pytest.param(ordered(World().recorded(requests=(a_request(order="o1"),))), [(1, "")],
                     id="one-is-coming"),
        pytest.param(
            ordered(World().recorded(requests=(a_request(order="o1", is_abandoned=True,
                                                         ended=True, since=NOW),))),
            [(2, "")], id="one-was-given-up"),
        pytest.param(ordered(until=NOW), [], id="its-time-is-over"),
        pytest.param(ordered(namespace="gone"), [], id="namespace-gone"),
        pytest.param(ordered(node_type="q"), [], id="type-removed"),
        pytest.param(ordered(nodes=("a055", "a051")), [(1, "a055"), (1, "a051")], id="named"),
        pytest.param(ordered(nodes=("a055", "a099")), [(1, "a055")], id="one-is-not-there"),
        pytest.param(ordered().configured(exclude_nodes=frozenset({"a050"})),
                     [(1, "a051"), (1, "a052")], id="other-nodes-are-excluded"),
        pytest.param(ordered(nodes=("a050", "a051"), world=None).recorded(held=("a050",)),
                     [(1, "a051")], id="one-is-held"),
        pytest.param(ordered(World().recorded(claimed={"a001": ClaimedNode(
            node_type="a", namespace="dev", can_resume=True)})), [(1, "a001"), (1, "")],
            id="one-was-interrupted"),
        pytest.param(ordered(World().recorded(claimed={"a001": ClaimedNode(
            node_type="a", namespace="dev", can_resume=True)}), nodes=("a055", "a051")),
            [(1, "a055"), (1, "a051")], id="named-and-another-was-interrupted"),
    ],
)  # fmt: skip
def test_missing_nodes_of_an_order_are_requested(
    world: World, requests: list[tuple[int, str]]
) -> None:
    assert requested_nodes(world) == requests


TRIPPED = {QUEUE: Breaker(unused=3, tripped_at=EARLIER, demand="x", trips=1)}
BACKED_OFF = {"a": Backoff(failures=2, until=LATER, ask_at_most=1)}


def test_queue_reports_that_it_waits_behind_an_order() -> None:
    world = ordered(wanting(9), count=1).configured(max_conversions_per_run=1)
    assert requested_nodes(world) == [(1, "")]
    verdict = world.converted().verdicts[QUEUE]
    assert (verdict.verdict, verdict.detail) == (Verdict.WAIT, "max_conversions_per_run = 1")


def test_repeatedly_failing_image_delays_forced_and_unforced_orders() -> None:
    """While an image can't be pulled, each node for an order would be power-cycled for nothing."""
    world = ordered(is_forced=True, count=1)
    failed = Breaker(unused=1, tripped_at=NOW - timedelta(minutes=1), trips=2)
    world.recorded(breakers={QUEUE: failed})
    assert not requested_nodes(world) and why(world).endswith(
        "it is tried after 2026-03-02 12:01:00 UTC"
    )
    before = msgspec.structs.replace(failed, tripped_at=EARLIER - timedelta(seconds=1), trips=9)
    assert requested_nodes(ordered(world, is_forced=True).recorded(breakers={QUEUE: before}))
    due = msgspec.structs.replace(failed, trips=1)
    for is_forced in (True, False):
        after = ordered(world, is_forced=is_forced).recorded(breakers={QUEUE: due}).converted()
        assert after.requests and after.registry.breakers == {QUEUE: Breaker(unused=2, trips=1)}


@pytest.mark.parametrize(
    ("world", "sentence", "is_passed"),
    [
        pytest.param(ordered().recorded(last_conversion=NOW), "the cooldown", True, id="cooldown"),
        pytest.param(ordered().recorded(backoffs=BACKED_OFF), "back-off", True,
                     id="back-off"),
        pytest.param(ordered().recorded(breakers=TRIPPED), "--force` ignores it", True,
                     id="breaker"),
        pytest.param(ordered().recorded(pause=Pause(since=NOW)), "dnm is paused", False,
                     id="pause"),
        pytest.param(ordered().recorded(pause=Pause(since=NOW, half=Way.LENDING)),
                     "lending alone", False, id="pause-of-lending"),
        pytest.param(ordered().configured(max_converted_nodes=0), "max_converted_nodes is used up",
                     False, id="cap"),
        pytest.param(ordered().configured(max_conversions_per_run=0),
                     "max_conversions_per_run is used up", False, id="per-run"),
        pytest.param(ordered().configured(batch_floor=Floor(nodes=10)), "batch_floor",
                     False, id="floor"),
        pytest.param(ordered().set(batch=UNREAD), "did not answer", False, id="slurm-unread"),
        pytest.param(ordered().set(batch=None), "has not been read yet", False, id="not-asked"),
        pytest.param(ordered().set(batch={}), "no batch node", False, id="none-idle"),
        pytest.param(ordered(nodes=("a050", "a051")).recorded(excluded={
            "a050": Keeping(since=NOW, requester="lee"), "a051": Keeping(since=NOW)}),
            "a050: excluded: lee excluded it", False, id="excluded"),
        pytest.param(ordered(nodes=("a050",), count=1).set(batch={"a050": a_batch_node(
            "a050", verdict="SKIP", reason="job 7 is running")}), "a050: job 7 is running", False,
            id="a-node-with-work"),
        pytest.param(ordered(nodes=("a099",), count=1), "a099: Slurm does not know it", False,
                     id="not-known"),
        pytest.param(ordered(namespace="gone"), "no namespace gone", False, id="namespace-gone"),
        pytest.param(ordered().configured(namespaces={"dev": a_policy(queue="root.nope")}),
                     "the queue system has no queue root.nope", False, id="queue-gone"),
    ],
)  # fmt: skip
def test_force_overrides_restrictions_and_never_caps(
    world: World, sentence: str, is_passed: bool
) -> None:
    assert requested_nodes(world) == [] and sentence in why(world)
    (order,) = world.registry.orders
    forced = world.recorded(orders=(msgspec.structs.replace(order, is_forced=True),))
    assert bool(requested_nodes(forced)) is is_passed
    assert (why(forced) == "") is is_passed


@pytest.mark.parametrize(
    ("failed_at", "cooldown", "is_passed"),
    [
        pytest.param(EARLIER - timedelta(minutes=5), 0, True, id="before-the-order"),
        pytest.param(NOW - timedelta(minutes=5), 0, False, id="since"),
        pytest.param(NOW + timedelta(days=1), 0, True, id="by-a-clock-ahead"),
        pytest.param(EARLIER - timedelta(minutes=5), 9, True, id="before-and-cooling-down"),
        pytest.param(NOW - timedelta(minutes=5), 9, False, id="since-and-cooling-down"),
    ],
)
def test_force_does_not_override_a_back_off_that_the_order_caused(
    failed_at: datetime, cooldown: int, is_passed: bool
) -> None:
    """`--force` overrides an earlier back-off only, or each run would call a failing converter."""
    backoff = msgspec.structs.replace(BACKED_OFF["a"], since=failed_at)
    forced = ordered(is_forced=True).recorded(
        backoffs={"a": backoff}, last_conversion=NOW - timedelta(minutes=5)
    )
    forced = forced.configured(global_cooldown=timedelta(minutes=cooldown))
    assert bool(requested_nodes(forced)) is is_passed
    assert is_passed or "back-off" in why(forced)


@pytest.mark.parametrize("change", [{"pods": UNREAD}, {"nodes": UNREAD}, {"maps": UNREAD}])
def test_unreadable_facts_start_no_order(change: dict[str, Any]) -> None:
    assert requested_nodes(ordered(is_forced=True).set(**change)) == []


def test_order_gets_the_available_nodes_and_reports_the_limit() -> None:
    world = ordered(count=5).configured(max_converted_nodes=3)
    assert requested_nodes(world) == [(3, "")] and why(world) == "max_converted_nodes is used up"


def test_waiting_pods_count_the_nodes_of_an_order() -> None:
    """The pods need two nodes, and an administrator has ordered two: no third is requested."""
    world = ordered(wanting(2))
    assert [(request.count, request.order) for request in world.converted().requests] == [(2, "o1")]
    more = ordered(wanting(3))
    assert [(request.count, request.order) for request in more.converted().requests] == [
        (2, "o1"),
        (1, ""),
    ]


def test_orders_and_queues_share_available_nodes_and_the_run_limit() -> None:
    world = ordered(wanting(5)).configured(max_conversions_per_run=3)
    assert [(request.count, request.order) for request in world.converted().requests] == [
        (2, "o1"),
        (1, ""),
    ]
    few = ordered(wanting(5)).set(batch={n: a_batch_node(n) for n in ("a050", "a051", "a052")})
    assert sum(request.count for request in few.converted().requests) == 3


def test_node_of_an_order_records_its_end_operator_and_comment() -> None:
    registry = ordered().converted().registry
    (request,) = registry.requests
    assert (request.order, request.stays_until) == ("o1", LATER)
    world = World().node("a050", mark=None).recorded(
        requests=(msgspec.structs.replace(request, names=("a050",), end=RequestEnd()),)
    )  # fmt: skip
    entry = world.advanced().registry.nodes["a050"]
    assert (entry.order, entry.stays_until) == ("o1", LATER)
    lines = list_transitions(World().registry, registry,
                             Cause(now=NOW, run="r", instance="prod"))  # fmt: skip
    (line,) = [line for line in lines if line.event == "requested"]
    assert (line.code, line.reason) == ("ASKED_FOR", "kim on adm1 requested it: a course")
    over = list_transitions(registry, World().registry, Cause(now=NOW, run="r", instance="prod"))
    assert [(line.kind, line.object) for line in over if line.kind == "order"] == [("order", "o1")]


IDLE: dict[str, Any] = {"idle_since": NOW - timedelta(hours=9), "was_used": True}
MINUTE_AT_MOST = {"options": {"max_lend_hours": timedelta(minutes=1)}}


@pytest.mark.parametrize(
    ("changes", "config", "phase", "leaves"),
    [
        pytest.param({"stays_until": LATER}, {}, Phase.SERVING, None, id="idle-and-kept"),
        pytest.param({"stays_until": NOW}, {}, Phase.RELEASING, None, id="its-time-is-over"),
        pytest.param({"stays_until": LATER, "lent_since": EARLIER},
            MINUTE_AT_MOST, Phase.SERVING, None, id="overdue"),
        pytest.param({"stays_until": LATER, "leaves": "overdue", "lent_since": EARLIER},
            MINUTE_AT_MOST, Phase.SERVING, None, id="extended-when-overdue"),
        pytest.param({"leaves": Leaving.MANUAL}, {}, Phase.RELEASING, Leaving.MANUAL,
            id="returned"),
        pytest.param({"leaves": Leaving.MANUAL, "stays_until": LATER}, {}, Phase.RELEASING,
            Leaving.MANUAL, id="returned-before-its-time"),
    ],
)  # fmt: skip
def test_ordered_node_stays_until_its_time(
    changes: dict[str, Any], config: dict[str, Any], phase: Phase, leaves: str | None
) -> None:
    world = World().lent("a001", **{**IDLE, **changes}).node("a001").configured(**config)
    entry = world.decisions().registry.nodes["a001"]
    assert (entry.phase, entry.leaves) == (phase, leaves)


def test_ordered_node_reports_until_when_it_stays() -> None:
    world = World().lent("a001", stays_until=LATER, **IDLE).node("a001")
    verdict = world.decisions().verdicts["a001"]
    assert (verdict.verdict, verdict.reason) == (Verdict.KEEP, Reason.ASKED_FOR)
    assert verdict.detail == "until 2026-03-02 13:00:00 UTC"


def test_extended_node_is_unfenced() -> None:
    world = World().lent("a001", Phase.RELEASING, stays_until=LATER, was_used=True)
    world.node("a001", is_cordoned=True, mark=FENCED)
    assert world.decisions().registry.nodes["a001"].phase is Phase.SERVING


def test_manually_returned_node_is_fenced_while_its_pods_run() -> None:
    world = World().lent("a001", leaves=Leaving.MANUAL, was_used=True).node("a001")
    world.with_pods(*(msgspec.structs.replace(pod, node="a001")
                      for pod in wanting(1).pods))  # fmt: skip
    plan = world.plan()
    assert Fence(node="a001") in plan.actions
    (verdict,) = plan.nodes
    assert verdict.sentence.endswith("an administrator returns it")


def test_unused_nodes_of_an_order_do_not_trip_the_breaker() -> None:
    """Three nodes of an order were unused; the breaker counts them neither now nor later."""
    world = wanting(1)
    for number in range(3):
        world.lent(f"a00{number}", stays_until=EARLIER, since=EARLIER)
        world.node(f"a00{number}", is_cordoned=True)
    assert world.converted().verdicts[QUEUE].reason is not Reason.BREAKER
    removed = World().lent("a001", Phase.RETURNING, stays_until=EARLIER)
    removed.set(batch={"a001": a_batch_node("a001")})
    assert removed.advanced().registry.nodes == {} and not removed.advanced().registry.breakers


@pytest.mark.parametrize(
    ("world", "asks"),
    [
        pytest.param(ordered(), True, id="missing"),
        pytest.param(ordered(serving(World(), "a001", "a002")), False, id="complete"),
    ],
)
def test_slurm_is_read_for_an_incomplete_order(world: World, asks: bool) -> None:
    nodes = list(world.nodes)
    assert needs_batch_side(world.config, world.registry, nodes, world.snapshot().pods) is asks


def test_complete_order_causes_no_action() -> None:
    world = ordered(serving(World(), "a001", "a002"))
    plan = world.plan()
    assert plan.registry.orders == world.registry.orders and not plan.actions
    assert count_missing(plan.registry.orders[0], plan.registry) == 0


# --- manually --------------------------------------------------------------------------------

OUT = {"a070": a_batch_node("a070", in_service=False)}
THEIRS = BatchClaim(instance="other", namespace="dev")


@pytest.mark.parametrize(
    ("world", "names"),
    [
        pytest.param(World().node("a070", mark=None).set(batch=OUT), ("a070",), id="found"),
        pytest.param(World().node("k070", mark=None).set(batch=OUT), (), id="no-type"),
        pytest.param(World().node("a070", mark=None), (), id="unknown-to-slurm"),
        pytest.param(World().node("a070", mark=None).set(batch={"a070": a_batch_node("a070")}), (),
            id="in-service"),
        pytest.param(World().node("a070", mark=None).set(batch={"a070": a_batch_node("a070",
                in_service=False, claim=THEIRS)}), (), id="another-instance's"),
        pytest.param(World().node("a070", mark=None).set(batch=OUT,
                maps=(queue_map({"a070": {"cpu": 128_000}}), None)), (), id="counted"),
        pytest.param(
            World().node("a070", mark=None).set(batch=OUT).recorded(requests=(a_request(),)), (),
            id="may-be-coming"),
        pytest.param(World().lent("a070").node("a070").set(batch=OUT), (), id="recorded"),
        pytest.param(World().node("a070", mark=None).set(batch=None).recorded(manual=("a070",)),
            ("a070",), id="recorded-and-not-requested"),
        pytest.param(World().node("a070", mark=None).set(batch=None), (), id="not-asked"),
        pytest.param(World().set(batch=None).recorded(manual=("a070",)), (), id="gone"),
    ],
)  # fmt: skip
def test_manually_converted_nodes_are_reported_for_adoption(
    world: World, names: tuple[str, ...]
) -> None:
    advanced = world.advanced()
    assert advanced.registry.manual == names
    for name in names:
        verdict = advanced.verdicts[name]
        assert verdict.reason is Reason.MANUAL and "`dnm adopt a070 --namespace dev`" in (
            verdict.detail
        )
        assert name not in advanced.registry.nodes
