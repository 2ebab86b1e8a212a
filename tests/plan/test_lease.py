"""Tests of which registry may act for an instance: that in the Lease, or any after a day."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from dnm.model.batch import BatchClaim
from dnm.model.lease import ActingElsewhere, Lease, Place
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.plan.lease import Actor, acts_elsewhere, judge_lease
from tests.builders import NOW, a_batch_node
from tests.plan.worlds import wanting

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
HERE = Place(holder="mgmt1:/dnm", home="h1", boot="b1", up_for=10 * DAY)
ELSEWHERE = Place(holder="mgmt2:/dnm", home="h2", boot="b2", up_for=10 * DAY)
MINE, THEIRS = "aaaa", "bbbb"
SECRET = "Secret dnm/dnm-prod"


def lease(word: str = MINE, place: Place = HERE, ago: timedelta = HOUR) -> Lease:
    return Lease(
        version="7", number=3, registry=word, last=place.holder, home=place.home, boot=place.boot,
        acted=NOW - ago, read_at=NOW,
    )  # fmt: skip


def record(*words: str, elsewhere: ActingElsewhere | None = None) -> Registry:
    return Registry(lease_words=words, elsewhere=elsewhere)


def actor(registry: Registry = record(MINE), place: Place = HERE, **changes: object) -> Actor:  # noqa: B008
    return replace(Actor(instance="prod", place=place, registry=registry, now=NOW), **changes)


NONE = Lease(read_at=NOW)
REBOOTED = replace(HERE, boot="b9", up_for=timedelta(minutes=10))
RENAMED = replace(HERE, holder="mgmt9:/dnm", home="h9")
NAMELESS = replace(HERE, home="")
FOREIGN = lease(THEIRS, ELSEWHERE)
SEEN = ActingElsewhere(holder="mgmt2:/dnm", at=NOW - HOUR)
AS_SECRET = actor(record(), secret=SECRET)

MAY, WRITES, REFUSED = "may", "writes", "refused"


@pytest.mark.parametrize(
    ("lease", "actor", "expected"),
    [
        pytest.param(NONE, actor(record()), WRITES, id="no registry has acted"),
        pytest.param(lease(), actor(), MAY, id="this one"),
        pytest.param(lease(ago=9 * DAY), actor(), MAY, id="this one, long ago"),
        pytest.param(lease("cc"), actor(record(MINE, "cc")), MAY, id="this one, killed in between"),
        pytest.param(lease(), actor(place=REBOOTED), WRITES, id="this one, after a restart"),
        pytest.param(lease(), actor(place=RENAMED), WRITES, id="this one, on another host"),
        pytest.param(lease(), actor(place=ELSEWHERE), WRITES, id="shared storage, or a copy"),
        pytest.param(lease("m", NAMELESS), actor(record("m"), NAMELESS), WRITES,
                     id="this one, in a container"),
        pytest.param(FOREIGN, actor(), REFUSED, id="another one"),
        pytest.param(FOREIGN, actor(record()), REFUSED, id="another one, and this one is new"),
        pytest.param(lease(THEIRS, ELSEWHERE, 23 * HOUR), actor(), REFUSED, id="within a day"),
        pytest.param(lease(THEIRS, ELSEWHERE, 24 * HOUR), actor(), WRITES, id="after a day"),
        pytest.param(lease(THEIRS, ELSEWHERE, -DAY), actor(), REFUSED, id="from the future"),
        pytest.param(replace(FOREIGN, acted=None), actor(now=NOW + 9 * DAY), REFUSED,
                     id="without a time"),
        pytest.param(lease(THEIRS), actor(record()), WRITES, id="this place, registry lost"),
        pytest.param(lease(THEIRS), actor(), WRITES, id="this place, older copy restored"),
        pytest.param(lease(THEIRS), actor(record(), REBOOTED), WRITES, id="lost, and restarted"),
        pytest.param(lease(THEIRS, ago=timedelta(minutes=5)), actor(place=REBOOTED), REFUSED,
                     id="a clone acts, younger than this boot"),
        pytest.param(lease(THEIRS, REBOOTED), actor(), REFUSED, id="the original of the clone"),
        pytest.param(lease(THEIRS, NAMELESS), actor(record(), NAMELESS), REFUSED,
                     id="lost, on a host without a machine id"),
        pytest.param(NONE, actor(record(elsewhere=SEEN)), REFUSED, id="seen, and deleted since"),
        pytest.param(NONE, actor(record(elsewhere=replace(SEEN, at=NOW - DAY))), WRITES,
                     id="seen a day ago, and deleted since"),
        pytest.param(lease(), actor(record(MINE, elsewhere=SEEN)), MAY, id="this one again"),
        pytest.param(lease(SECRET, ELSEWHERE), AS_SECRET, WRITES, id="the Secret, another host"),
        pytest.param(lease(SECRET), AS_SECRET, MAY, id="the Secret"),
        pytest.param(FOREIGN, AS_SECRET, REFUSED, id="a file of another host"),
        pytest.param(lease("Secret x/dnm-prod", ELSEWHERE), AS_SECRET, REFUSED,
                     id="a Secret of another namespace"),
        pytest.param(lease(SECRET, ELSEWHERE), actor(), REFUSED, id="a Secret, and this is a file"),
        pytest.param(lease(SECRET), actor(record(SECRET)), WRITES, id="moved from a Secret"),
        pytest.param(Unreadable(subject="x", error="403"), actor(), REFUSED, id="unreadable"),
    ],
)  # fmt: skip
def test_lease_decides_which_registry_may_act(
    lease: Lease | Unreadable, actor: Actor, expected: str
) -> None:
    judged = judge_lease(lease, actor)
    assert expected == (REFUSED if judged.refusal else WRITES if judged.needs_word else MAY)


@pytest.mark.parametrize("skew", [-DAY, DAY, -400 * DAY, 400 * DAY], ids=str)
def test_wrong_clock_of_a_host_does_not_change_the_lease_decision(skew: timedelta) -> None:
    for result in (FOREIGN, lease(), NONE, lease(THEIRS, ELSEWHERE, 31 * HOUR)):
        assert judge_lease(result, actor(now=NOW + skew)) == judge_lease(result, actor())


def test_lease_refusal_names_both_places_and_the_next_step() -> None:
    refusal = judge_lease(FOREIGN, actor()).refusal
    for word in ("mgmt1:/dnm", "mgmt2:/dnm", "instance prod", "`dnm takeover`", "instance_id"):
        assert word in refusal
    assert "deleted" in judge_lease(NONE, actor(record(elsewhere=SEEN))).refusal
    twin = replace(REBOOTED, up_for=10 * DAY)
    assert "same name" in judge_lease(lease(THEIRS), actor(place=twin)).refusal
    assert "set registry = kubernetes" in judge_lease(lease(SECRET, ELSEWHERE), actor()).refusal
    assert "`dnm registry move --to kubernetes` there" in judge_lease(FOREIGN, AS_SECRET).refusal
    unreadable = judge_lease(Unreadable(subject="x", error="can't read it"), actor()).refusal
    assert "can't read it" in unreadable and "`dnm check`" in unreadable
    spoilt = replace(FOREIGN, last="\x1b[2J" + "x" * 2000)
    refusal = judge_lease(spoilt, actor()).refusal
    assert refusal.isprintable() and len(refusal) < 1000


def test_refused_registry_remembers_the_other_registry_for_a_day() -> None:
    elsewhere = judge_lease(FOREIGN, actor()).elsewhere
    registry = record(MINE, elsewhere=elsewhere)
    assert acts_elsewhere(registry, NOW) == elsewhere == SEEN
    assert acts_elsewhere(registry, NOW + 2 * DAY) is None


def test_refused_plan_has_no_actions() -> None:
    world = wanting().with_facts(lease=FOREIGN)
    plan = world.plan()
    assert plan.is_refused and not plan.actions and "mgmt2:/dnm" in plan.errors[0]
    assert plan.registry == replace(world.registry, elsewhere=SEEN), "it stays as it was otherwise"


def test_refused_plan_reports_no_nodes_of_the_other_registry() -> None:
    claim = BatchClaim(instance="prod", namespace="theirs", node_type="a")
    theirs = a_batch_node("a009", in_service=False, claim=claim, reports_claim=True)
    world = wanting().set(batch={"a009": theirs})
    assert any("a009" in error for error in world.plan().errors)
    plan = world.with_facts(lease=FOREIGN).plan()
    assert plan.is_refused and not any("a009" in error for error in plan.errors)
