"""Tests of `readiness_checks`: dnm keeps a joining node closed to pods until all checks of its type
pass. They cover each check, its report, its action, and a node that never passes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.config.node_checks import parse_readiness_checks
from dnm.model.close_look import CLOSED, CloseLook, DaemonPods, ImageUsers, OwnPod
from dnm.model.departure import Leaving
from dnm.model.lent import LentNode, Phase
from dnm.model.node_type import NodeType, Taint
from dnm.model.observed import Breaker
from dnm.model.opening import Opening, PodOrder, full_name
from dnm.model.plan import DropPods, Fence, HoldClosed, Plan, ReturnNode, SetQueueLimits, StartPod
from dnm.model.pod import PodShape, Toleration
from dnm.model.reason import Reason
from dnm.model.registry import Registry
from dnm.plan.breaker import allowed_at_once, judge_breaker
from dnm.plan.rules.opening import NOT_OPENED, OPENING, list_looks
from dnm.verbs.lending import return_nodes
from tests.builders import FENCED, NOW, SIZE, a_batch_node, a_lent_node, a_node, a_request
from tests.plan.worlds import UNREAD, World, pods

EVERYWHERE = (Toleration(operator="Exists"),)
PLAIN = PodShape(request={}, tolerations=EVERYWHERE)
GPU = PodShape(request={}, tolerations=EVERYWHERE, node_selector=(("gpu", "true"),))
ASKED = NOW - timedelta(minutes=12)
PULLER, PROBE = "dev/dnm-images-a001", "site/dnm-probe-a001"


def joining(text: str, look: Any = None, held: int = 5, **changes: Any) -> World:
    """Builds a joining node that has dnm's taint and has been Ready for `held` minutes."""
    since = NOW - timedelta(minutes=held)
    opening = Opening(held={"node": since - timedelta(minutes=1), "ready": since})
    entry: dict[str, Any] = {"opening": opening, "asked_at": ASKED, **changes}
    kind = NodeType(name="a", size=SIZE, readiness_checks=parse_readiness_checks(text))
    world = World().configured(node_types={"a": kind})
    world.lent("a001", Phase.JOINING, **entry).node("a001", taints=(CLOSED,))
    return world.with_facts(close={"a001": CloseLook() if look is None else look})


def entry_of(plan: Plan) -> LentNode:
    return plan.registry.nodes["a001"]


def opening_of(plan: Plan) -> Opening:
    opening = entry_of(plan).opening
    assert opening is not None
    return opening


def actions(plan: Plan, *kinds: type) -> list[Any]:
    return [action for action in plan.actions if isinstance(action, kinds)]


def with_daemons(*daemons: DaemonPods) -> CloseLook:
    return CloseLook(daemons=daemons)


READY = DaemonPods(name="net/cni", shape=PLAIN, is_ready=True)
LATE = DaemonPods(name="gpu/driver", shape=PLAIN, why="is not Ready there: CrashLoopBackOff")
STRICT = DaemonPods(name="log/agent", shape=PodShape(request={}))
TENANTS = DaemonPods(name="dev/agent", shape=PLAIN)
ELSEWHERE = DaemonPods(name="gpu/elsewhere", shape=GPU)
WAITS = ImageUsers(shape=PLAIN, images=("busybox:1", "site.example/big:2"), secrets=("pull",))
PULLED = frozenset(map(full_name, WAITS.images))

STEPS: Sequence[Any] = [
    pytest.param("condition NetUp=True", CloseLook(conditions={"NetUp": "True"}), "", id="yes"),
    pytest.param(
        "condition NetUp=True", CloseLook(conditions={"NetUp": "False"}), "NetUp is False", id="not"
    ),
    pytest.param("condition NetUp=True", CloseLook(), "NetUp is not there", id="no-condition"),
    pytest.param("condition Bad=False", CloseLook(conditions={"Bad": "False"}), "", id="not-bad"),
    pytest.param("daemonsets", with_daemons(READY), "", id="all-ready"),
    pytest.param("daemonsets", with_daemons(READY, ELSEWHERE), "", id="not-selected"),
    pytest.param("daemonsets", with_daemons(READY, LATE), "gpu/driver is not Ready", id="one-late"),
    pytest.param("daemonsets", with_daemons(STRICT), "does not tolerate", id="not-tolerated"),
    pytest.param("daemonsets", with_daemons(READY, TENANTS), "", id="of-a-monitored-namespace"),
    pytest.param("daemonset dev/agent", with_daemons(READY, TENANTS), "dev/agent has no pod there",
                 id="of-a-monitored-namespace-and-named"),
    pytest.param("daemonset net/cni", with_daemons(READY, LATE), "", id="the-named-one"),
    pytest.param("daemonset net/x", with_daemons(READY), "no DaemonSet net/x", id="no-such"),
    pytest.param("taint a/b", CloseLook(), "", id="no-taint"),
    pytest.param("image busybox", CloseLook(), "image busybox is not on it yet", id="no-image"),
    pytest.param(
        "image busybox", CloseLook(images=frozenset({full_name("busybox")})), "", id="an-image"
    ),
    pytest.param("images", CloseLook(), "", id="no-pod-waits"),
    pytest.param("images", CloseLook(waiting=(WAITS,)), "busybox:1, and 1 more,", id="none-there"),
    pytest.param("images", CloseLook(waiting=(WAITS,), images=PULLED), "", id="all-there"),
    pytest.param(
        "images", CloseLook(waiting=(ImageUsers(shape=GPU, images=("x",)),)), "", id="of-other-pods"
    ),
    pytest.param("probe site/check", CloseLook(), "has not run yet", id="no-probe-yet"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "look", "lacks"), STEPS)
def test_node_serves_once_all_readiness_checks_hold(text: str, look: CloseLook, lacks: str) -> None:
    plan = joining(text, look).plan()
    entry = entry_of(plan)
    if not lacks:
        assert entry.phase is Phase.SERVING and opening_of(plan).is_open
        assert opening_of(plan).took(ASKED) == {"boot": 360, "join": 60, text: 300}
        order = actions(plan, SetQueueLimits, HoldClosed)
        assert [type(item) for item in order] == [SetQueueLimits, HoldClosed]
        assert order[1] == HoldClosed(node="a001", is_closed=False)
        return
    assert entry.phase is Phase.JOINING and not entry.counted
    assert lacks in opening_of(plan).why
    assert plan.nodes[0].reason is OPENING and lacks in plan.nodes[0].sentence
    assert not actions(plan, SetQueueLimits, HoldClosed)


def test_foreign_readiness_taint_is_awaited() -> None:
    world = joining("taint readiness.k8s.io/net")
    taint = Taint(key="readiness.k8s.io/net", effect="NoSchedule")
    world.nodes[-1] = msgspec.structs.replace(world.nodes[-1], taints=(CLOSED, taint))
    assert "it still has the taint readiness.k8s.io/net" in opening_of(world.plan()).why


@pytest.mark.parametrize("look", [None, UNREAD], ids=["not-looked-at-yet", "unreadable"])
def test_unknown_readiness_check_neither_opens_nor_fails_a_node(look: Any) -> None:
    world = joining("images within 1m", held=30)
    plan = world.with_facts(close={"a001": look} if look else {}).plan()
    assert entry_of(plan).phase is Phase.JOINING
    assert not actions(plan, SetQueueLimits)


@pytest.mark.parametrize(
    ("text", "look", "why", "failures", "trips"),  # failures of the type, trips of the queue
    [
        pytest.param(
            "images within 4m",
            CloseLook(waiting=(WAITS,)),
            "images: image",
            0,
            1,
            id="an-image-that-its-pods-name-is-their-queue-s",
        ),
        pytest.param("image me/x within 4m", CloseLook(), "image me/x: image", 1, 0, id="late"),
        pytest.param(
            "probe site/check within 9m",
            CloseLook(pods={PROBE: OwnPod(phase="Failed", why="exit 3")}),
            "the probe site/check has failed: exit 3",
            1,
            0,
            id="a-probe-that-failed-is-not-waited-for",
        ),
    ],
)
def test_late_readiness_check_returns_the_node(
    text: str, look: CloseLook, why: str, failures: int, trips: int
) -> None:
    plan = joining(text, look).plan()
    entry = entry_of(plan)
    assert (entry.phase, entry.leaves) == (Phase.RELEASING, Leaving.NOT_OPENED)
    assert plan.nodes[0].reason is NOT_OPENED and why in plan.nodes[0].sentence
    assert [backoff.failures for backoff in plan.registry.backoffs.values()] == [1] * failures
    assert [breaker.trips for breaker in plan.registry.breakers.values()] == [1] * trips
    assert any(why in error for error in plan.errors) and not entry.counted
    assert not actions(plan, SetQueueLimits, HoldClosed), "it stays closed"


def test_image_that_cannot_be_pulled_is_retried_later_with_a_single_node() -> None:
    """The queue waits, then gets one node as a test. Two nodes that fail in a run count once."""
    world = joining("images within 4m", look := CloseLook(waiting=(WAITS,)))
    (entry,) = world.registry.nodes.values()
    world.lent("a002", Phase.JOINING, asked_at=ASKED, opening=entry.opening)
    world.node("a002", taints=(CLOSED,)).with_facts(close={"a001": look, "a002": look})
    registry = world.plan().registry
    assert {node.leaves for node in registry.nodes.values()} == {Leaving.NOT_OPENED}
    (queue,) = registry.breakers

    def waits(trips: int, minutes: int) -> bool:
        breaker = msgspec.structs.replace(registry.breakers[queue], trips=trips)
        result = msgspec.structs.replace(registry, breakers={queue: breaker})
        now = NOW + timedelta(minutes=minutes)
        return judge_breaker(world.config, result, queue, "the same pods", now) is not None

    first = registry.breakers[queue]
    assert first.trips == 1 and allowed_at_once(first, 8) == 1
    assert not waits(1, 0) and waits(2, 0) and not waits(2, 10) and waits(9, 59)
    assert not waits(9, 60), "an hour at most"
    again = joining("images within 4m", look).recorded(breakers=registry.breakers).plan()
    assert again.registry.breakers == registry.breakers, "nodes of one conversion count once"
    unused = {queue: Breaker(unused=3, tripped_at=ASKED, demand="x", trips=1)}
    forced = joining("images within 4m", look).recorded(breakers=unused).plan()
    assert forced.registry.breakers == {queue: Breaker(unused=4, tripped_at=NOW, trips=2)}


def test_failed_image_holds_its_queue_back_while_pods_are_unreadable() -> None:
    world = joining("images within 4m", CloseLook(waiting=(WAITS,))).set(pods=UNREAD)
    plan = world.plan()
    assert entry_of(plan).leaves == Leaving.NOT_OPENED
    assert [breaker.trips for breaker in plan.registry.breakers.values()] == [1]


def test_unopened_node_is_returned_despite_demand() -> None:
    world = joining("images", opening=Opening(pods=(PULLER,)))
    entry: dict[str, Any] = {
        "phase": Phase.RELEASING,
        "leaves": Leaving.NOT_OPENED,
        "opening": Opening(pods=(PULLER,)),
    }
    world.lent("a001", **entry, counted={}).with_facts()
    world.nodes[-1] = msgspec.structs.replace(world.nodes[-1], is_cordoned=True, mark=FENCED)
    world.batch["a001"] = msgspec.structs.replace(
        world.batch["a050"], name="a001", in_service=False
    )
    plan = world.plan()
    assert actions(plan, ReturnNode) == [ReturnNode(node="a001")]
    assert actions(plan, DropPods) == [DropPods(node="a001")]


def test_readiness_times_of_a_fast_clock_are_reset_to_now() -> None:
    """A time in the future would make the deadline of a check unreachable."""
    plan = joining("condition Healthy=True", CloseLook(conditions={}), held=-600_000).plan()
    assert set(opening_of(plan).held.values()) == {NOW}


def test_declared_resources_are_a_readiness_check() -> None:
    world = joining("images", opening=None, since=NOW - timedelta(hours=1))
    world.nodes[-1] = msgspec.structs.replace(world.nodes[-1], allocatable={"memory": 1})
    plan = world.plan()
    assert entry_of(plan).leaves == Leaving.NOT_OPENED
    assert "resources: it offers no cpu" in plan.nodes[0].sentence


def test_held_node_has_no_readiness_deadline() -> None:
    world = joining("images within 1m", CloseLook(waiting=(WAITS,)), held=99)
    assert entry_of(world.recorded(held=("a001",)).plan()).phase is Phase.JOINING


def test_readiness_check_that_stops_holding_is_awaited_again() -> None:
    before = Opening(held={"node": ASKED, "ready": ASKED, "condition NetUp=True": ASKED})
    text = "condition NetUp=True within 1h, image x"
    flipped = joining(text, CloseLook(conditions={"NetUp": "False"}), opening=before)
    assert "condition NetUp=True" not in opening_of(flipped.plan()).held
    current = joining(text, CloseLook(conditions={"NetUp": "True"}), opening=before)
    assert opening_of(current.plan()).held["condition NetUp=True"] == ASKED


# --- what is done at the door ---------------------------------------------------------------------


def test_joining_node_without_the_taint_is_closed_at_once() -> None:
    world = joining("images", opening=None)
    world.nodes[-1] = msgspec.structs.replace(world.nodes[-1], taints=(), is_ready=False)
    plan = world.with_facts().plan()
    assert actions(plan, HoldClosed) == [HoldClosed(node="a001", is_closed=True)]
    assert set(opening_of(plan).held) == {"node"}


def test_images_are_pulled_by_a_pod_with_the_secrets_of_waiting_pods() -> None:
    look = CloseLook(waiting=(WAITS,), images=frozenset({full_name("busybox:1")}))
    plan = joining("images", look).plan()
    assert opening_of(plan).pods == (PULLER,)
    assert opening_of(plan).images == WAITS.images
    order = PodOrder(
        namespace="dev", name="dnm-images-a001", images=(WAITS.images[1],), secrets=("pull",)
    )
    assert actions(plan, StartPod) == [StartPod(node="a001", pod=order)]


PULLS = Opening(held={"node": ASKED, "ready": ASKED}, images=WAITS.images, pods=(PULLER,))


@pytest.mark.parametrize(
    ("pod", "refused", "progress"),
    [
        pytest.param(OwnPod(phase="Pending"), {}, "is not on it yet", id="under-way"),
        pytest.param(OwnPod(why="ErrImagePull: 404"), {}, "on it: ErrImagePull: 404", id="404"),
        pytest.param(None, {PULLER: "forbidden"}, "dnm may not pull it: forbidden", id="no-right"),
        pytest.param(OwnPod(phase="Failed", pulled=PULLED), {}, "", id="pulled-is-enough"),
    ],
)  # fmt: skip
def test_progress_of_the_image_pull_is_reported(
    pod: OwnPod | None, refused: dict[str, str], progress: str
) -> None:
    look = CloseLook(waiting=(WAITS,), pods={PULLER: pod} if pod else {})
    opening = msgspec.structs.replace(PULLS, refused=refused)
    plan = joining("images within 1h", look, opening=opening).plan()
    assert progress in opening_of(plan).why
    assert not actions(plan, StartPod), "one is enough, and a refused one is not asked for again"
    assert (entry_of(plan).phase is Phase.SERVING) is (not progress)
    assert bool(actions(plan, DropPods)) is (not progress)


def test_images_to_await_do_not_grow_with_later_pods() -> None:
    late = ImageUsers(shape=PLAIN, images=("late",))
    look = CloseLook(waiting=(WAITS, late), images=PULLED)
    assert entry_of(joining("images", look, opening=PULLS).plan()).phase is Phase.SERVING


@pytest.mark.parametrize("up", ["True", "False"])
def test_probe_starts_after_all_other_readiness_checks(up: str) -> None:
    look = CloseLook(conditions={"NetUp": up})
    plan = joining("probe site/check, condition NetUp=True", look).plan()
    order = PodOrder(namespace="site", name="dnm-probe-a001", template="check")
    expected = [StartPod(node="a001", pod=order)] if up == "True" else []
    assert actions(plan, StartPod) == expected


def test_successful_probe_opens_the_node() -> None:
    look = CloseLook(pods={PROBE: OwnPod(phase="Succeeded")})
    plan = joining("probe site/check", look, opening=Opening(pods=(PROBE,))).plan()
    assert entry_of(plan).phase is Phase.SERVING
    assert actions(plan, DropPods) == [DropPods(node="a001")]


# --- who is looked at, and who is not -------------------------------------------------------------


def test_only_joining_nodes_are_observed_for_readiness() -> None:
    world = joining("images, daemonset a/b")
    world.lent("a002").lent("a003", Phase.FAILED).lent("a004", Phase.JOINING, owner="other")
    asked = list(list_looks(world.config, world.registry, ()))
    assert [request.node for request in asked] == ["a001", "a003"]
    assert asked[0].kinds == {"images", "daemonset"}
    arrived = [a_node("a005", mark=None), a_node("a006", mark=None, labels={}), a_node("a007")]
    world.recorded(requests=(a_request(nodes_before=("a007",)),))
    (new,) = (
        asked_look
        for asked_look in list_looks(world.config, world.registry, arrived)
        if asked_look not in asked
    )
    assert (new.node, new.namespace) == ("a005", "dev"), "no run passes before its images are there"
    assert not list(
        list_looks(World().config, Registry(nodes={"a001": a_lent_node(Phase.JOINING)}), ())
    )


def test_node_serving_before_readiness_checks_existed_keeps_serving() -> None:
    world = joining("images").lent("a001", Phase.SERVING)
    assert entry_of(world.plan()).phase is Phase.SERVING


def test_removed_readiness_checks_leave_no_node_closed() -> None:
    world = joining("images", CloseLook(waiting=(WAITS,)))
    plan = world.configured(node_types={"a": NodeType(name="a", size=SIZE)}).plan()
    assert entry_of(plan).phase is Phase.SERVING
    assert actions(plan, HoldClosed) == [HoldClosed(node="a001", is_closed=False)]


def test_no_node_is_requested_while_an_opening_node_is_enough() -> None:
    for look in (CloseLook(waiting=(WAITS,)), CloseLook()):
        world = joining("images", look).with_pods(*pods(1))
        assert not world.plan().registry.requests


def test_opening_node_counts_as_joining_and_the_shortfall_is_requested() -> None:
    """Pods need not tolerate the taints of a joining node that dnm removes or waits for, so the
    node counts for them."""
    net = Taint(key="readiness.k8s.io/net", effect="NoSchedule")
    for count, reason in ((1, Reason.ON_THE_WAY), (2, Reason.LACKS_NODES)):
        world = joining("taint readiness.k8s.io/net").with_pods(*pods(count))
        world.nodes[-1] = msgspec.structs.replace(world.nodes[-1], taints=(CLOSED, net))
        plan = world.plan()
        assert plan.queues[0].reason is reason and "tolerate" not in plan.queues[0].sentence
        assert sum(request.count for request in plan.registry.requests) == count - 1


NAMES = [
    ("busybox", "docker.io/library/busybox:latest"),
    ("busybox:1", "docker.io/library/busybox:1"),
    ("team/app", "docker.io/team/app:latest"),
    ("docker.io/busybox", "docker.io/library/busybox:latest"),
    ("site.example:5000/app", "site.example:5000/app:latest"),
    ("site.example/app@sha256:ab", "site.example/app@sha256:ab"),
    ("localhost/app:2", "localhost/app:2"),
]


@pytest.mark.parametrize(("written", "listed"), NAMES)
def test_image_is_compared_by_its_full_name(written: str, listed: str) -> None:
    assert full_name(written) == full_name(listed) == listed


@pytest.mark.parametrize("has_list", [True, False])
def test_hold_does_not_open_a_node_that_its_readiness_checks_keep_closed(has_list: bool) -> None:
    step = parse_readiness_checks("condition X=True") if has_list else ()
    world = World().lent(
        "a001", Phase.RELEASING, counted={}, leaves=Leaving.NOT_OPENED,
        opening=Opening(held={"node": NOW, "ready": NOW - timedelta(hours=1)}),
    )  # fmt: skip
    world.node("a001", is_cordoned=True, mark=FENCED, taints=(CLOSED,))
    world.configured(node_types={"a": NodeType(name="a", size=SIZE, readiness_checks=step)})
    world.batch["a001"] = a_batch_node("a001", in_service=False)
    world.with_facts(close={"a001": CloseLook(conditions={"X": "False"})})
    plan = world.recorded(held=("a001",)).plan()
    assert (HoldClosed(node="a001", is_closed=False) in plan.actions) is not has_list


def test_node_returned_manually_does_not_wait_for_readiness_checks() -> None:
    world = joining("condition X=True within 3h")
    registry = return_nodes(world.config, world.registry, "a001", NOW)
    assert isinstance(registry, Registry)
    plan = world.set(registry=registry).plan()
    assert entry_of(plan).phase is Phase.RELEASING and actions(plan, Fence)
    assert not actions(plan, SetQueueLimits) and not plan.registry.backoffs
