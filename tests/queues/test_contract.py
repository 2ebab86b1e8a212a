"""Tests of the contract that every queue system keeps, in whatever object it writes its limits.

A new queue system adds its case to `CASES` in harness.py, and its properties beside its checks. If
a property excuses it from a test, the test asserts the different behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module

import pytest

from dnm.checks.queue_checks import QueueProperties, checks_of
from dnm.config.values import QUEUE_SYSTEMS
from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.errors import DnmError, KubeConflict, KubeError, LeaseError
from dnm.model.queue_edit import LimitChange
from tests.queues.harness import (
    CASES,
    SIZE,
    DyingClient,
    Host,
    KilledError,
    QueueCase,
    YunikornCase,
    lent,
)

CORES = SIZE["cpu"]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, sandbox: Sandbox) -> QueueCase:
    return CASES[request.param](sandbox)


def properties_of(case: QueueCase) -> QueueProperties:
    (checks,) = checks_of(case.config)
    return checks.PROPERTIES


def expect_cores(case: QueueCase, expected: int) -> None:
    """Checks the stored limit, if this queue system stores one."""
    assert case.stored_cores() == (expected if properties_of(case).writes_limits else None)


def test_suite_plays_every_queue_system() -> None:
    assert {name.partition(" ")[0] for name in CASES} == set(QUEUE_SYSTEMS)


@pytest.mark.parametrize("name", QUEUE_SYSTEMS)
def test_queue_system_declares_its_properties(name: str) -> None:
    module = import_module(f"dnm.queues.{name}.admin.checks")
    assert isinstance(module.PROPERTIES, QueueProperties)


def test_limit_is_the_baseline_plus_the_serving_nodes(case: QueueCase) -> None:
    host = Host(case)
    for names in (("n1",), ("n1", "n2"), ("n2",), ("n2", "n3", "n4")):
        host.write(lent(*names))
        expect_cores(case, case.baseline + len(names) * CORES)
        is_counted = host.read().is_counted
        assert [is_counted(name, case.queue, "prod") for name in names] == [
            properties_of(case).writes_limits
        ] * len(names)


def test_write_without_nodes_restores_the_stored_object(case: QueueCase) -> None:
    before, host = case.stored(), Host(case)
    host.write(lent("n1", "n2"))
    host.write(lent("n2"))
    host.write({})
    assert case.stored() == before


def test_second_write_of_the_same_nodes_changes_nothing(case: QueueCase) -> None:
    host = Host(case)
    host.write(lent("n1"))
    once = case.stored()
    assert not host.write(lent("n1")).is_written
    assert not host.plan(lent("n1")).is_changed
    assert case.stored() == once


@pytest.mark.parametrize("is_after", [False, True], ids=["before-the-call", "after-the-call"])
def test_next_write_repairs_a_kill_at_any_call(case: QueueCase, is_after: bool) -> None:
    before, kills = case.stored(), 0
    for number in range(1, 30):
        host = Host(case)
        dying = DyingClient(KubeClient.connect(host.config), number, is_after)
        try:
            host.write(lent("n1", "n2"), kube=dying)
        except KilledError:
            kills += 1
        else:
            break
        host.write(lent("n1", "n2"))
        expect_cores(case, case.baseline + 2 * CORES)
        host.write({})
        assert case.stored() == before
    assert dying.calls < 30
    assert bool(kills) is properties_of(case).writes_limits


@pytest.mark.parametrize("is_lasting", [False, True], ids=["one-error", "outage"])
def test_write_before_an_error_is_recorded(case: QueueCase, is_lasting: bool) -> None:
    before, stored, written = case.stored(), case.stored_cores(), 0
    for number in range(1, 30):
        host = Host(case)
        dying = DyingClient(
            KubeClient.connect(host.config), number, False, KubeError("cut off"), is_lasting
        )
        changes: tuple[LimitChange, ...] = ()
        try:
            changes = host.write(lent("n1", "n2"), kube=dying).edit.changes
        except DnmError:
            assert dying.calls >= number
        assert bool(changes) is (case.stored_cores() != stored), number
        written += bool(changes) and dying.calls >= number
        host.write(lent("n1", "n2"))
        expect_cores(case, case.baseline + 2 * CORES)
        host.write({})
        assert case.stored() == before
        if dying.calls < number:
            break
    assert dying.calls < number
    assert written or not properties_of(case).writes_limits or isinstance(case, YunikornCase)


def test_change_by_another_client_beside_the_limit_is_kept(case: QueueCase) -> None:
    host = Host(case)
    host.write(lent("n1"))
    case.change_elsewhere()
    host.write(lent("n1", "n2"))
    expect_cores(case, case.baseline + 2 * CORES)
    host.write({})
    expect_cores(case, case.baseline)
    without_lending = case.stored()
    case.change_elsewhere()
    assert case.stored() == without_lending, "the change was undone"


def test_two_instances_share_a_limit_and_leave_it_as_it_was(case: QueueCase) -> None:
    before, first, second = case.stored(), Host(case), Host(case, "test")
    first.write(lent("n1"))
    second.write(lent("m1", "m2"))
    expect_cores(case, case.baseline + 3 * CORES)
    first.write({})
    expect_cores(case, case.baseline + 2 * CORES)
    lenders = second.read().lenders
    assert lenders == ({"m1": "test", "m2": "test"} if properties_of(case).writes_limits else {})
    second.write({})
    assert case.stored() == before


def test_prepared_write_of_an_earlier_host_is_refused(case: QueueCase) -> None:
    """Another host takes the Lease while this one is suspended just before its write."""
    asleep, awake = Host(case), Host(case)
    before = case.stored_cores()
    asked: list[str] = []

    def keep_lease() -> None:
        if asked:
            raise LeaseError("another host has taken the Lease")
        asked.append("awake")
        awake.system.exclude_earlier_writes(
            awake.config, KubeClient.connect(awake.config), "prod 2", lambda: None
        )

    if properties_of(case).writes_limits:
        with pytest.raises(LeaseError):
            asleep.write(lent("n1"), before_write=keep_lease)
    else:
        asleep.write(lent("n1"), before_write=keep_lease)
        assert not asked
    assert case.stored_cores() == before


def test_refused_write_changes_nothing_and_is_an_error(case: QueueCase, sandbox: Sandbox) -> None:
    before, host = case.stored(), Host(case)
    sandbox.fault("status", path=".*", methods=("PUT", "PATCH", "POST"), code=403)
    if properties_of(case).writes_limits:
        with pytest.raises(DnmError):
            host.write_all(lent("n1"))
    else:
        assert not host.write(lent("n1")).is_written
    sandbox.faults.clear()
    assert case.stored() == before


def test_write_that_always_conflicts_ends_with_an_error(case: QueueCase, sandbox: Sandbox) -> None:
    """Another client changes the objects before each try."""
    before, host = case.stored(), Host(case)
    sandbox.fault("status", path=".*", methods=("PUT", "PATCH", "POST"), code=409)
    if properties_of(case).writes_limits:
        with pytest.raises(DnmError, match="times in a row"):
            host.write_all(lent("n1"))
        failed: Mapping[str, str] = {}
        with suppress(KubeConflict):
            failed = host.system.exclude_earlier_writes(
                host.config, KubeClient.connect(host.config), "prod 2", lambda: None
            )
            assert failed.keys() == {case.queue}
    sandbox.faults.clear()
    assert case.stored() == before


def test_queue_without_a_limit_stays_without(case: QueueCase) -> None:
    host = Host(case)
    assert host.read().limits[case.unlimited].max == {}
    host.write(lent("n1"), queue=case.unlimited)
    assert host.read().limits[case.unlimited].max == {}
    expect_cores(case, case.baseline)
    objection = host.read().growth_objection(host.wants({}), case.unlimited, [SIZE])
    assert (objection is not None) is properties_of(case).every_queue_is_limited


def test_limit_never_shrinks_below_its_use(case: QueueCase) -> None:
    host, used = Host(case), case.baseline + CORES + 4_000
    host.write(lent("n1", "n2"))
    floors = {case.queue: {"cpu": used}}
    host.write(lent("n1"), floors=floors)
    expect_cores(case, used)
    held = host.plan(lent("n1"), floors=floors).held
    assert bool(held.get(case.queue)) is properties_of(case).writes_limits
    host.write(lent("n1"))
    expect_cores(case, case.baseline + CORES)


@pytest.mark.parametrize("kind", ["lost", "older"])
def test_registry_replaces_a_lost_or_older_ledger(case: QueueCase, kind: str) -> None:
    before, host = case.stored(), Host(case)
    host.write(lent("n1"))
    older = case.ledger()
    host.write(lent("n1", "n2"))
    case.replace_ledger(older if kind == "older" else "")
    host.write(lent("n1", "n2", "n3"))
    expect_cores(case, case.baseline + 3 * CORES)
    host.write({})
    assert case.stored() == before


def test_section_of_another_instance_is_not_changed(case: QueueCase) -> None:
    first, second = Host(case), Host(case, "test")
    first.write(lent("n1"))
    second.write(lent("m1"))
    second.write({})
    expect_cores(case, case.baseline + CORES)
    assert (
        first.system.names_instance(
            first.system.collect(first.config, KubeClient.connect(first.config)), "prod"
        )
        is properties_of(case).writes_limits
    )


def test_projected_and_written_limits_are_equal(case: QueueCase) -> None:
    host = Host(case)
    planned = host.plan(lent("n1", "n2"))
    assert not planned.refusal
    assert planned.is_changed is properties_of(case).writes_limits
    host.write(lent("n1", "n2"), planned=planned)
    assert planned.limits == host.read().limits
