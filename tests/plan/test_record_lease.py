"""Who may act for an instance: the holder of its lease, and after a day anybody."""

from __future__ import annotations

import re
from datetime import timedelta

import msgspec
import pytest

from dnm.model.batch import BatchClaim
from dnm.model.cluster import ConfigMap
from dnm.model.lease import Place, RecordLease
from dnm.model.registry import Registry
from dnm.plan.record_lease import (
    Actor,
    acts_elsewhere,
    after_refusal,
    judge_lease,
    lease_annotation,
    read_lease,
    with_lease,
)
from dnm.queues.source import resolve_document, with_document
from tests.builders import NOW, a_batch_node
from tests.plan.worlds import queue_map, wanting

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
HERE = Place(holder="mgmt1:/dnm", home="h1", boot="b1", up_for=10 * DAY)
ELSEWHERE = Place(holder="mgmt2:/dnm", home="h2", boot="b2", up_for=10 * DAY)
MINE, THEIRS = "aaaa", "bbbb"


def lease(token: str = MINE, place: Place = HERE, ago: timedelta = HOUR) -> RecordLease:
    return RecordLease(
        holder=place.holder, token=token, at=NOW - ago, home=place.home, boot=place.boot
    )  # fmt: skip


def stands(one: RecordLease | None) -> ConfigMap:
    found = queue_map() if one is None else with_lease(queue_map(), "prod", one)
    return msgspec.structs.replace(found, read_at=NOW)


def knows(*leases: RecordLease, others: RecordLease | None = None) -> Registry:
    return Registry(leases=leases, others_lease=others)


OURS = knows(lease())


def actor(registry: Registry = OURS, place: Place = HERE, **changes: object) -> Actor:
    who = Actor(instance="prod", place=place, registry=registry, now=NOW)
    return msgspec.structs.replace(who, **changes)


REBOOTED = msgspec.structs.replace(HERE, boot="b9", up_for=10 * 60 * timedelta(seconds=1))
RENAMED = msgspec.structs.replace(HERE, holder="mgmt9:/dnm", home="h9")
NAMELESS = msgspec.structs.replace(HERE, home="")
FOREIGN = lease(THEIRS, ELSEWHERE)
LATE = lease(THEIRS, ELSEWHERE, 29 * HOUR)

MAY, WRITES, REFUSED = "may", "writes", "refused"


@pytest.mark.parametrize(
    ("standing", "who", "expected"),
    [
        pytest.param(None, actor(knows()), WRITES, id="nobody has acted"),
        pytest.param(lease(), actor(), MAY, id="ours, not long ago"),
        pytest.param(lease(ago=7 * HOUR), actor(), WRITES, id="ours, to be renewed"),
        pytest.param(lease(ago=9 * DAY), actor(), WRITES, id="ours, long ago"),
        pytest.param(lease(ago=-HOUR), actor(), WRITES, id="ours, from a time to come"),
        pytest.param(lease("cc"), actor(knows(lease(), lease("cc"))), MAY, id="ours, not told so"),
        pytest.param(lease(), actor(place=REBOOTED), WRITES, id="ours, after a restart"),
        pytest.param(lease(), actor(place=RENAMED), WRITES, id="ours, on another host"),
        pytest.param(lease(), actor(place=ELSEWHERE), WRITES, id="shared storage, or a copy"),
        pytest.param(lease("m", NAMELESS), actor(knows(lease("m")), NAMELESS), WRITES,
                     id="ours, in a container"),
        pytest.param(None, actor(knows(others=lease(THEIRS))), WRITES,
                     id="what was seen of another is of this place"),
        pytest.param(None, actor(knows(others=lease(THEIRS)), REBOOTED), WRITES,
                     id="and from before it was restarted"),
        pytest.param(FOREIGN, actor(), REFUSED, id="another's"),
        pytest.param(FOREIGN, actor(knows()), REFUSED, id="another's, and we are new"),
        pytest.param(LATE, actor(), REFUSED, id="another's, who may have acted a day ago"),
        pytest.param(lease(THEIRS, ELSEWHERE, 30 * HOUR), actor(), WRITES, id="another's, gone"),
        pytest.param(lease(THEIRS, ELSEWHERE, -DAY), actor(), REFUSED, id="from a time to come"),
        pytest.param(lease(THEIRS), actor(knows()), WRITES, id="ours, the registry is lost"),
        pytest.param(lease(THEIRS), actor(knows(lease())), WRITES, id="an older one restored"),
        pytest.param(lease(THEIRS, ago=HOUR), actor(knows(), REBOOTED), WRITES,
                     id="lost, and restarted since"),
        pytest.param(lease(THEIRS, ago=timedelta(minutes=5)), actor(place=REBOOTED), REFUSED,
                     id="a clone acts, younger than this boot"),
        pytest.param(lease(THEIRS, REBOOTED), actor(), REFUSED, id="the clone's original"),
        pytest.param(lease(THEIRS, NAMELESS), actor(knows(), NAMELESS), REFUSED,
                     id="lost, on a host without a machine id"),
        pytest.param(FOREIGN, actor(instance="test"), WRITES, id="of another instance"),
        pytest.param(None, actor(knows(others=FOREIGN)), REFUSED, id="seen, and taken off since"),
        pytest.param(None, actor(knows(others=lease(THEIRS, ELSEWHERE, 31 * HOUR))), WRITES,
                     id="seen long ago, and taken off since"),
        pytest.param(lease(), actor(knows(lease(), others=FOREIGN)), MAY, id="ours after theirs"),
    ],
)  # fmt: skip
def test_who_may_act(standing: RecordLease | None, who: Actor, expected: str) -> None:
    judged = judge_lease(stands(standing), who)
    found = REFUSED if judged.refusal else WRITES if judged.is_due else MAY
    assert found == expected


@pytest.mark.parametrize("skew", [-DAY, DAY, -400 * DAY, 400 * DAY], ids=str)
def test_a_wrong_clock_of_a_host_changes_nothing(skew: timedelta) -> None:
    """What counts is the API server's, which is told with the ConfigMap."""
    for standing in (FOREIGN, lease(), None, lease(THEIRS, ELSEWHERE, 31 * HOUR)):
        right, wrong = (
            judge_lease(stands(standing), actor(now=NOW + shift)) for shift in (skew * 0, skew)
        )
        assert right == wrong and right.now == NOW


def test_where_the_server_tells_no_time_the_host_s_own_counts() -> None:
    silent = msgspec.structs.replace(stands(FOREIGN), read_at=None)
    assert judge_lease(silent, actor()).refusal
    assert not judge_lease(silent, actor(now=NOW + 2 * DAY)).refusal


def test_a_refusal_has_both_names_and_the_way_out() -> None:
    refusal = judge_lease(stands(FOREIGN), actor()).refusal
    for word in ("mgmt1:/dnm", "mgmt2:/dnm", "instance prod", "`dnm takeover`", "instance_id"):
        assert word in refusal
    gone = judge_lease(stands(None), actor(knows(others=FOREIGN))).refusal
    assert "mgmt2:/dnm" in gone and "taken off" in gone
    twin = msgspec.structs.replace(REBOOTED, up_for=10 * DAY)
    assert "same name" in judge_lease(stands(lease(THEIRS)), actor(place=twin)).refusal
    spoilt = lease(THEIRS, msgspec.structs.replace(ELSEWHERE, holder="\x1b[2J" + "x" * 2000))
    refusal = judge_lease(stands(spoilt), actor()).refusal
    assert refusal.isprintable() and len(refusal) < 1000


GOOD = '{"holder":"h","token":"t","at":"2026-03-02T12:00:00Z"}'


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "1", "yes", GOOD + " " * 5000, GOOD.replace("Z", ""), GOOD.replace('"t"', "1"),
     GOOD.replace('"token":"t",', ""), "[" * 3000,
     GOOD.replace("2026-03-02T12:00:00Z", "9999-12-31T23:00:00-14:00")],
    ids=["no JSON", "a list", "a number", "a word", "too long", "without a time zone",
         "a token that is none", "without a token", "too deep", "beyond time"],
)  # fmt: skip
def test_what_can_not_be_read_lets_nobody_act(text: str) -> None:
    spoilt = msgspec.structs.replace(queue_map(), annotations={lease_annotation("prod"): text})
    judged = judge_lease(spoilt, actor())
    assert "can't be read" in judged.refusal and "`dnm takeover`" in judged.refusal
    assert "(None)" not in judged.refusal, "it is said why"
    assert judged.refusal.isprintable()
    assert after_refusal(knows(lease()), judged) == knows(lease())
    assert not judge_lease(spoilt, actor(instance="test")).refusal


def test_what_a_later_dnm_adds_can_be_read() -> None:
    text = GOOD.replace("{", '{"fence":7,')
    found = read_lease({lease_annotation("prod"): text}, "prod")
    assert found is not None and found.token == "t"


def test_who_is_refused_remembers_by_whom_and_holds_nothing() -> None:
    judged = judge_lease(stands(FOREIGN), actor())
    registry = after_refusal(knows(lease()), judged)
    assert registry == knows(others=FOREIGN)
    assert acts_elsewhere(registry, NOW) == FOREIGN
    assert acts_elsewhere(registry, NOW + 2 * DAY) is None


def test_of_a_plan_that_is_refused_nothing_is_done() -> None:
    world = wanting().set(maps=(stands(FOREIGN), None))
    plan = world.plan()
    assert plan.is_refused and not plan.actions and "mgmt2:/dnm" in plan.errors[0]
    registry = msgspec.structs.replace(world.registry, others_lease=FOREIGN)
    assert plan.registry == registry, "the record stays as it was, but for who acts"


def test_a_plan_that_is_refused_says_nothing_of_what_the_other_has_lent() -> None:
    """It told to return a node by hand that served the other's pods."""
    claim = BatchClaim(instance="prod", namespace="theirs", node_type="a")
    theirs = a_batch_node("a009", in_service=False, claim=claim, tells_claim=True)
    world = wanting().set(batch={"a009": theirs})
    assert any("a009" in one for one in world.plan().errors)
    plan = world.set(maps=(stands(FOREIGN), None)).plan()
    assert plan.is_refused and not any("a009" in one for one in plan.errors)


def test_that_somebody_takes_it_off_is_said_by_who_wrote_it() -> None:
    assert lease_annotation("prod") in judge_lease(stands(None), actor()).note
    assert not judge_lease(stands(None), actor(knows())).note
    assert not judge_lease(stands(lease()), actor()).note


@pytest.mark.parametrize("instance", ["a", "prod", "A.b_c-9", "x" * 57, "x" * 58, "x" * 63])
def test_every_instance_has_an_annotation_that_kubernetes_takes(instance: str) -> None:
    """IsQualifiedName, k8s.io/apimachinery/pkg/util/validation."""
    prefix, _, name = lease_annotation(instance).partition("/")
    assert prefix == "dynamic-node-manager" and len(name) <= 63
    assert re.fullmatch(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", name)


def test_long_names_that_begin_alike_have_leases_of_their_own() -> None:
    names = {lease_annotation("x" * 60 + end) for end in ("a", "b", "c")}
    assert len(names) == 3


def test_an_edit_of_the_document_keeps_it_and_it_keeps_the_document() -> None:
    """An older dnm, which writes none, keeps it too: it wrote back every annotation it had read."""
    before = with_lease(queue_map({"a001": {"vcore": 1000}}), "test", FOREIGN)
    both = with_lease(before, "prod", lease())
    assert (both.data, both.resource_version) == (before.data, before.resource_version)
    assert {**before.annotations, lease_annotation("prod"): both.annotations[
        lease_annotation("prod")]} == both.annotations  # fmt: skip
    edited = with_document(resolve_document(both, None), "partitions: []", "")
    assert read_lease(edited.annotations, "prod") == lease()
    assert read_lease(edited.annotations, "test") == FOREIGN
