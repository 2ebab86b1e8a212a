"""Whom what is lent is charged to, and what its pods asked for, as the record remembers it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.calendar import CalendarEvent
from dnm.model.lent import Charge, Phase, Use
from dnm.model.orders import LendOrder
from dnm.model.plan import Plan, StartConversion
from dnm.model.pod import Pod
from dnm.model.registry import Registry
from dnm.plan.rule import rules_of
from dnm.record.transitions import Cause, list_transitions
from tests.builders import NOW, a_batch_node, a_config, a_lent_node
from tests.plan.worlds import SMALL, UNREAD, World, namespace_policy, pods, serving, wanting

HOUR = timedelta(hours=1)
LECTURE = CalendarEvent(
    name="lecture", namespace="dev", begins=NOW.replace(tzinfo=None) - HOUR,
    ends=NOW.replace(tzinfo=None) + 8 * HOUR, nodes=2, charge_account="course",
)  # fmt: skip
ORDER = LendOrder(
    id="lend-1", node_type="a", namespace="dev", count=1, since=NOW, until=NOW + HOUR,
)  # fmt: skip


def plan_of(world: World, charges: bool = True) -> Plan:
    return world.knowing(charges=charges).plan()


def accounts(plan: Plan) -> list[str]:
    """Of the requests, as the record and as the converter are told them."""
    told = [one.request.account for one in plan.actions if isinstance(one, StartConversion)]
    assert told == [one.account for one in plan.registry.requests]
    return told


@pytest.mark.parametrize(
    ("of_all", "of_namespace", "event", "order", "account"),
    [
        ("", "", False, None, ""),
        ("all", "", False, None, "all"),
        ("all", "ns", False, None, "ns"),
        ("-", "", False, None, "-"),
        ("all", "ns", True, None, "course"),
        ("", "", True, None, "course"),
        ("all", "", True, "", "all"),
        ("all", "ns", False, "mine", "mine"),
        ("", "", False, "-", "-"),
    ],
)
def test_the_nearest_word_says_whom_a_request_is_charged_to(
    of_all: str, of_namespace: str, event: bool, order: str | None, account: str
) -> None:
    """An order is a person's own: the event that goes on meanwhile does not pay for it."""
    world = World() if event or order is not None else wanting()
    policies = namespace_policy(world.config, charge_account=of_namespace)
    world.configured(charge_account=of_all, namespaces=policies)
    if event:
        world.recorded(events={"lecture": LECTURE})
    if order is not None:
        world.recorded(orders=(msgspec.structs.replace(ORDER, account=order),))
    plan = plan_of(world)
    assert accounts(plan)[:1] == [account] and not plan.errors


def test_what_the_converter_can_not_be_told_is_said_once() -> None:
    world = wanting().configured(charge_account="all")
    plan = plan_of(world, charges=False)
    assert accounts(plan) == [""]
    (note,) = [one for one in plan.notes if "is not charged to all" in one]
    assert "--account" in note
    world.set(registry=plan.registry).knowing(taken_at=NOW + timedelta(minutes=1))
    assert not [one for one in world.plan().notes if "is not charged" in one]


def test_off_it_is_not_there() -> None:
    config = a_config()
    nodes = {"a001": a_lent_node()}
    assert rules_of(config, Registry(nodes=nodes)) == ()
    charged = a_lent_node(charge=Charge(account="x", since=NOW))
    assert len(rules_of(config, Registry(nodes={"a001": charged}))) == 1
    assert len(rules_of(a_config(charge_account="-"), Registry())) == 1


def charged(**changes: Any) -> World:
    charge = Charge(account="proj", since=NOW - HOUR, **changes)
    return serving(charge=charge, was_used=True)


def test_what_pods_ask_for_is_added_up_when_it_changes() -> None:
    world = charged(rate={"vcore": 3000}, used={"vcore": 5.0, "memory": 7.0})
    world.with_pods(*pods(2, SMALL, node="a001", running=True))
    world.with_pods(*pods(1, SMALL, node="k1", running=True))
    found = plan_of(world).registry.nodes["a001"].charge
    assert found == Charge(
        account="proj", since=NOW, rate={"vcore": 2000, "memory": 2 * 10**9},
        used={"vcore": 5.0 + 3000 * 3600, "memory": 7.0},
    )  # fmt: skip


def test_while_pods_stay_the_same_nothing_is_written() -> None:
    world = charged(rate={"vcore": 1000, "memory": 10**9})
    world.with_pods(*pods(1, SMALL, node="a001", running=True))
    assert plan_of(world).registry.nodes["a001"] == world.registry.nodes["a001"]


def test_pods_that_can_not_be_read_are_not_none() -> None:
    world = charged(rate={"vcore": 1000}).set(pods=wanting().pods)
    before = world.registry.nodes["a001"].charge
    plan = plan_of(world.set(pods=UNREAD))
    assert plan.registry.nodes["a001"].charge == before


def test_the_history_says_whom_a_stay_was_charged_to_and_what_it_used() -> None:
    charge = Charge(account="proj", since=NOW - HOUR, rate={"vcore": 2000}, used={"memory": 4.0})
    entry = a_lent_node(Phase.RETURNING, charge=charge)
    cause = Cause(now=NOW, run="r", instance="prod")
    (line,) = list_transitions(Registry(nodes={"a001": entry}), Registry(), cause)
    assert line.numbers == {"account": "proj", "used": {"vcore": 7_200_000, "memory": 4}}
    plain = a_lent_node(Phase.RETURNING)
    (line,) = list_transitions(Registry(nodes={"a001": plain}), Registry(), cause)
    assert line.numbers == {}


def test_what_comes_of_a_request_is_charged_to_its_account() -> None:
    world = wanting().configured(charge_account="proj")
    asked = plan_of(world).registry
    (request,) = asked.requests
    came = msgspec.structs.replace(request, names=("a050",), ended=True)
    world.recorded(requests=(came,)).node("a050", mark=None, labels={"dev": "true"})
    world.set(batch={"a050": a_batch_node("a050", in_service=False)})
    assert world.knowing().plan().registry.nodes["a050"].account == "proj"


# --- by user ------------------------------------------------------------------------------------


def own(user: str, count: int = 1, **changes: Any) -> tuple[Pod, ...]:
    """Pods of one vcore each on the charged node."""
    values = {"node": "a001", "running": True, "user": user, **changes}
    return tuple(
        msgspec.structs.replace(pod, name=f"{user}-{pod.name}")
        for pod in pods(count, SMALL, **values)
    )


def charge_after(world: World, *wanted: Pod, minutes: int = 0) -> Charge:
    """What the next run remembers, with these pods; `world` remembers it too."""
    world.set(pods=wanted).knowing(charges=True, taken_at=NOW + timedelta(minutes=minutes))
    world.registry = world.plan().registry
    found = world.registry.nodes["a001"].charge
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("wanted", "rates"),
    [
        pytest.param((*own("ada"), *own("bob", 2)), {"ada": 1000, "bob": 2000}, id="two"),
        pytest.param((*own("ada"), *own("", 2)), {"ada": 1000}, id="some-without"),
        pytest.param(own("", 3), {}, id="no-label"),
        pytest.param(own("ada", is_daemonset=True), {}, id="daemonset"),
        pytest.param(own("ada", node="k1"), {}, id="elsewhere"),
    ],
)
def test_of_what_pods_ask_for_each_user_s_is_known(
    wanted: tuple[Pod, ...], rates: dict[str, int]
) -> None:
    found = charge_after(charged(), *wanted)
    assert {user: use.rate["vcore"] for user, use in found.users.items()} == rates
    nobodys = sum(one.shape.request["vcore"] for one in wanted if not one.user)
    assert found.rate.get("vcore", 0) == sum(rates.values()) + nobodys


def test_each_user_pays_for_the_time_that_was_hers() -> None:
    """Ada for half an hour, then Bob for an hour, beside him nobody for ten minutes."""
    world = charged()
    charge_after(world, *own("ada"))
    charge_after(world, *own("bob", 2), minutes=30)
    before = charge_after(world, *own("bob", 2), *own(""), minutes=80)
    found = charge_after(world, minutes=90)
    used = {user: use.used["vcore"] for user, use in found.users.items()}
    assert used == {"ada": 1000 * 1800, "bob": 2000 * 3600}
    assert found.used["vcore"] == sum(used.values()) + 1000 * 600
    assert before.users["ada"] == found.users["ada"], "she is gone: hers stays as it is"


def test_while_users_stay_the_same_nothing_is_written() -> None:
    world = charged()
    charge_after(world, *own("ada"), *own("bob"))
    entry = world.registry.nodes["a001"]
    charge_after(world, *own("bob"), *own("ada"), minutes=5)
    assert world.registry.nodes["a001"] == entry


def test_users_who_change_places_are_seen_though_the_sum_stays() -> None:
    world = charged()
    first = charge_after(world, *own("ada"))
    found = charge_after(world, *own("bob"), minutes=1)
    assert found.rate == first.rate and found.since == first.since
    assert found.users["ada"].used_until(NOW + HOUR)["vcore"] == 60_000
    assert found.users["bob"].rate["vcore"] == 1000


def test_a_thousand_users_are_twenty_and_others() -> None:
    """Those who ask for most when they come; whoever comes later is among the others."""
    world = charged()
    crowd = [pod for n in range(1000) for pod in own(f"u{n}", 1)]
    found = charge_after(world, *crowd, *own("zoe", 3))
    assert len(found.users) == 21 and found.users["zoe"].rate["vcore"] == 3000
    assert found.users["(others)"].rate["vcore"] == (1000 - 19) * 1000
    for minutes in range(1, 4):
        new = [pod for n in range(1000) for pod in own(f"v{minutes}-{n}", 1)]
        found = charge_after(world, *new, minutes=minutes)
        assert len(found.users) == 21
    assert len(msgspec.json.encode(found)) < 4000, "it is written with each run"
    told = sum(use.used_until(NOW + HOUR)["vcore"] for use in found.users.values())
    assert told == found.used_until(NOW + HOUR)["vcore"]


def test_the_history_says_what_each_user_used() -> None:
    use = Use(since=NOW - HOUR, rate={"vcore": 1000}, used={"memory": 4.4})
    entry = a_lent_node(Phase.RETURNING, charge=Charge(account="p", since=NOW, users={"ada": use}))
    cause = Cause(now=NOW, run="r", instance="prod")
    (line,) = list_transitions(Registry(nodes={"a001": entry}), Registry(), cause)
    assert line.numbers == {"account": "p", "users": {"ada": {"memory": 4, "vcore": 3_600_000}}}
