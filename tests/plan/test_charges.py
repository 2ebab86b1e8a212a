"""Tests of the Slurm account that pays for lent nodes, and of the recorded requests of pods."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dnm.model.charge import Charge
from dnm.model.lent import Phase, RequestEnd
from dnm.model.orders import LendOrder
from dnm.model.plan import Plan, StartConversion
from dnm.model.registry import Registry
from dnm.plan.rule import rules_of
from dnm.record.transitions import Cause, list_transitions
from tests.builders import NOW, a_batch_node, a_config, a_lent_node
from tests.plan.worlds import SMALL, UNREAD, World, namespace_policy, pods, serving, wanting

HOUR = timedelta(hours=1)
ORDER = LendOrder(
    id="lend-1", node_type="a", namespace="dev", count=1, since=NOW, until=NOW + HOUR,
)  # fmt: skip


def plan_of(world: World, charges: bool = True) -> Plan:
    return world.with_facts(charges=charges).plan()


def accounts(plan: Plan) -> list[str]:
    """Returns the account of each lend request; the registry and the converter get the same."""
    lines = [
        action.request.account for action in plan.actions if isinstance(action, StartConversion)
    ]
    assert lines == [request.account for request in plan.registry.requests]
    return lines


@pytest.mark.parametrize(
    ("of_namespace", "order", "account"),
    [
        ("", None, ""),
        ("ns", None, "ns"),
        ("-", None, "-"),
        ("ns", "", "ns"),
        ("ns", "mine", "mine"),
        ("", "-", "-"),
    ],
)
def test_account_of_an_order_precedes_that_of_its_namespace(
    of_namespace: str, order: str | None, account: str
) -> None:
    world = World() if order is not None else wanting()
    charge(world, of_namespace)
    if order is not None:
        world.recorded(orders=(msgspec.structs.replace(ORDER, account=order),))
    plan = plan_of(world)
    assert accounts(plan)[:1] == [account] and not plan.errors


def charge(world: World, account: str) -> World:
    """Configures the Slurm account that pays for the namespace's lends."""
    return world.configured(namespaces=namespace_policy(world.config, charge_account=account))


def test_converter_without_account_option_is_reported_once() -> None:
    world = charge(wanting(), "all")
    plan = plan_of(world, charges=False)
    assert accounts(plan) == [""]
    (note,) = [note for note in plan.notes if "is not charged to all" in note]
    assert "--account" in note
    world.set(registry=plan.registry).with_facts(taken_at=NOW + timedelta(minutes=1))
    assert not [note for note in world.plan().notes if "is not charged" in note]


def test_charges_rule_is_absent_without_accounts() -> None:
    config = a_config()
    nodes = {"a001": a_lent_node()}
    assert rules_of(config, Registry(nodes=nodes)) == ()
    charged = a_lent_node(charge=Charge(account="x", since=NOW))
    assert len(rules_of(config, Registry(nodes={"a001": charged}))) == 1
    assert len(rules_of(charge(World(), "-").config, Registry())) == 1


def charged(**changes: Any) -> World:
    charge = Charge(account="proj", since=NOW - HOUR, **changes)
    return serving(charge=charge, was_used=True)


def test_requests_of_pods_are_summed_when_they_change() -> None:
    world = charged(rate={"cpu": 3000}, used={"cpu": 5.0, "memory": 7.0})
    world.with_pods(*pods(2, SMALL, node="a001"))
    world.with_pods(*pods(1, SMALL, node="k1"))
    result = plan_of(world).registry.nodes["a001"].charge
    assert result == Charge(
        account="proj", since=NOW, rate={"cpu": 2000, "memory": 2 * 10**9},
        used={"cpu": 5.0 + 3000 * 3600, "memory": 7.0},
    )  # fmt: skip


def test_unchanged_pods_leave_the_charge_unchanged() -> None:
    world = charged(rate={"cpu": 1000, "memory": 10**9})
    world.with_pods(*pods(1, SMALL, node="a001"))
    assert plan_of(world).registry.nodes["a001"] == world.registry.nodes["a001"]


def test_unreadable_pods_leave_the_charge_unchanged() -> None:
    world = charged(rate={"cpu": 1000}).set(pods=wanting().pods)
    before = world.registry.nodes["a001"].charge
    plan = plan_of(world.set(pods=UNREAD))
    assert plan.registry.nodes["a001"].charge == before


def test_history_records_account_and_usage_of_a_lend() -> None:
    charge = Charge(account="proj", since=NOW - HOUR, rate={"cpu": 2000}, used={"memory": 4.0})
    entry = a_lent_node(Phase.RETURNING, charge=charge)
    cause = Cause(now=NOW, run="r", instance="prod")
    (line,) = list_transitions(Registry(nodes={"a001": entry}), Registry(), cause)
    assert line.numbers == {"account": "proj", "used": {"cpu": 7_200_000, "memory": 4}}
    plain = a_lent_node(Phase.RETURNING)
    (line,) = list_transitions(Registry(nodes={"a001": plain}), Registry(), cause)
    assert line.numbers == {}


def test_node_of_a_request_is_charged_to_the_request_account() -> None:
    world = charge(wanting(), "proj")
    asked = plan_of(world).registry
    (request,) = asked.requests
    arrived = msgspec.structs.replace(request, names=("a050",), end=RequestEnd())
    world.recorded(requests=(arrived,)).node("a050", mark=None, labels={"dev": "true"})
    world.set(batch={"a050": a_batch_node("a050", in_service=False)})
    assert world.with_facts().plan().registry.nodes["a050"].account == "proj"
