"""Tests of charging lent nodes to a Slurm account: when it is done, that no other claim can take
the node meanwhile, and nodes that can't be charged. The model is nodeset-convert's, in which a
reservation can have an account."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.converters.conversion import StopRequest
from dnm.converters.settings import Machines
from dnm.converters.slurm.commands import SlurmOutcomeUnknown, SlurmRefused
from dnm.converters.slurm.text import Reservation, SlurmNode
from dnm.model.errors import SlurmError
from tests.converters import nodeset_world
from tests.converters.nodeset_world import BOOTED, LABEL, Killed, KubeSide, Machine
from tests.converters.played import NODE, PlayedProgram
from tests.converters.played import tmp_path as tmp_path
from tests.converters.test_nodeset import assert_batch, assert_lent

OWN = f"k8s-{NODE}"
NO_ACCOUNT = "Invalid account or account/partition combination specified"
OVERLAPS = "Requested reservation overlaps with another reservation"


class World(nodeset_world.World):
    """The model. `charged` has the account of each reservation that is charged. `open` has each
    moment at which a charged node was not drained, so that another claim could have taken it."""

    def __init__(self, seed: int = 0, machines: int = 1) -> None:
        self.charged: dict[str, str] = {}
        self.accounts = {"root", "proj"}
        self.has_slurmdbd = True
        self.open: list[int] = []
        self.trouble: list[Exception] = []  # of the next changes of a charge
        super().__init__(seed, machines)

    def step(self) -> None:
        super().step()
        for name in self.charged:
            node, _ = self.reservations[name]
            if "DRAIN" not in self.machines[node].flags:
                self.open.append(self.calls)


class SlurmSide(nodeset_world.SlurmSide):
    world: World

    def _node(self, machine: Machine) -> SlurmNode:
        node = super()._node(machine)
        if f"k8s-{machine.name}" not in self.world.charged:
            return node
        flags = node.state.flags | {"MAINTENANCE"}
        return msgspec.structs.replace(node, state=msgspec.structs.replace(node.state, flags=flags))

    def read_reservations(self) -> tuple[Reservation, ...]:
        charged = self.world.charged
        return tuple(
            msgspec.structs.replace(
                reservation, flags=("MAINT",) if reservation.name in charged else (),
                accounts=charged.get(reservation.name, ""), start=BOOTED,
            )
            for reservation in super().read_reservations()
        )  # fmt: skip

    def delete_reservation(self, name: str) -> None:
        super().delete_reservation(name)
        self.world.charged.pop(name, None)

    def keeps_accounts(self) -> bool:
        return self.world.call("read config", lambda: self.world.has_slurmdbd)

    def charge_reservation(self, name: str, account: str) -> None:
        self._change("charge", lambda: self._charge(name, account))

    def _charge(self, name: str, account: str) -> None:
        if account not in self.world.accounts:
            raise SlurmRefused("update", NO_ACCOUNT)
        self.world.charged[name] = account

    def uncharge_reservation(self, name: str, *, keeps_flag: bool) -> None:
        self._change("uncharge", lambda: self._uncharge(name, keeps_flag))

    def _uncharge(self, name: str, keeps_flag: bool) -> None:
        node, _ = self.world.reservations[name]
        other = [
            reservation
            for reservation, (held, _) in self.world.reservations.items()
            if held == node
        ]
        if len(other) > 1 and not keeps_flag:
            raise SlurmRefused("update", OVERLAPS)
        if keeps_flag:
            self.world.charged[name] = ""
        else:
            del self.world.charged[name]

    def _change(self, what: str, act: Any) -> None:
        def change() -> None:
            trouble = self.world.trouble.pop(0) if self.world.trouble else None
            if trouble is None or isinstance(trouble, SlurmOutcomeUnknown):  # carried out
                act()
            if trouble is not None:
                raise trouble

        self.world.call(what, change)


def no_wait() -> StopRequest:
    """Returns a stop request, in which waits take no time."""
    control = StopRequest()
    control.stop.wait = lambda timeout=None: control.stop.is_set()  # type: ignore[method-assign]
    return control


class Program(PlayedProgram[World]):
    machines = Machines.PODS
    keys = {"nodeset_label": LABEL}
    slurm, kube = SlurmSide, KubeSide
    control = staticmethod(no_wait)


def program(directory: Path, account: str = "proj", **settings: Any) -> Program:
    return Program(directory, World(), account=account, **settings)


def note_of(made: Program) -> str:
    """Returns what the journal notes about the last claim."""
    journal = made.store.load(NODE)
    assert journal is not None
    return [line.note for line in journal.lines if line.stage == "verify"][-1]


@pytest.mark.parametrize(
    ("account", "charged"), [("proj", {OWN: "proj"}), ("-", {OWN: "root"}), ("", {})]
)
def test_lent_node_is_charged_until_its_return(
    tmp_path: Path, account: str, charged: dict[str, str]
) -> None:
    made = program(tmp_path, account)
    assert made.lend().result == "ok"
    assert_lent(made.world)
    assert made.world.charged == charged
    assert note_of(made) == "no job got in" + (f"; charged to {account}" if account else "")
    # slurmdbd keeps only the first record of a second, so dnm repeats the change in the next one.
    assert made.world.log.count("charge") == 2 * bool(account)
    assert made.bring_back().result == "ok"
    assert_batch(made.world)
    assert not made.world.charged and not made.world.open
    assert ("uncharge" in made.world.log) is bool(account)


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("no slurmdbd", "this Slurm has no slurmdbd (AccountingStorageType)"),
        ("no account", NO_ACCOUNT),
        ("booked", "the reservation class holds it too, and its time would count twice"),
        ("refused", "Access denied"),
    ],
)
def test_node_is_lent_if_it_can_not_be_charged(tmp_path: Path, case: str, said: str) -> None:
    made = program(tmp_path, "nosuch" if case == "no account" else "proj")
    world = made.world
    world.has_slurmdbd = case != "no slurmdbd"
    if case == "booked":
        world.reservations["class"] = (NODE, False)
    if case == "refused":
        world.trouble = [SlurmRefused("it was refused: Access denied", "Access denied")]
    assert made.lend().result == "ok"
    assert note_of(made).partition("; not charged to ")[2].endswith(f": {said}")
    assert [line for line in made.said if "not charged to" in line]
    assert not world.charged
    world.reservations.pop("class", None)
    assert made.bring_back().result == "ok"
    assert_batch(world)


def test_lost_answer_of_a_charge_is_read_back(tmp_path: Path) -> None:
    made = program(tmp_path)
    made.world.trouble = [SlurmOutcomeUnknown("timed out")]
    assert made.lend().result == "ok"
    assert made.world.charged == {OWN: "proj"} and note_of(made).endswith("charged to proj")
    made.world.trouble = [SlurmOutcomeUnknown("timed out"), SlurmError("away")]
    assert made.bring_back().result == "ok"
    assert_batch(made.world)


def test_overlapping_reservation_does_not_stop_a_return(
    tmp_path: Path,
) -> None:
    """Slurm allows a reservation over one that is only for accounting. dnm then can't have the node
    alone again, but the return succeeds."""
    made = program(tmp_path)
    world = made.world
    made.lend()
    world.reservations["class"] = (NODE, False)
    log = len(world.log)
    assert made.bring_back().result == "ok"
    assert world.log[log:].count("uncharge") == 2
    assert world.reservations == {"class": (NODE, False)} and not world.charged
    assert [line for line in made.said if OVERLAPS in line]


def test_charged_node_is_not_claimed_twice(tmp_path: Path) -> None:
    """Slurm would let another instance reserve a charged node, but dnm's drain prevents that."""

    class Dies(SlurmSide):
        def charge_reservation(self, name: str, account: str) -> None:
            super().charge_reservation(name, account)
            if self.world.log.count("charge") == 2:
                raise Killed

    made = program(tmp_path / "ours")
    made.slurm = Dies
    with pytest.raises(Killed):
        made.lend()
    other = Program(tmp_path / "other", made.world, instance="other", res_name="x")
    result = other.lend()
    assert (result.result, "it is IDLE+DRAIN" in result.error) == ("skipped", True), result.error
    assert made.world.charged == {OWN: "proj"} and list(made.world.reservations) == [OWN]
    made.slurm = SlurmSide
    assert [node_result.result for node_result in made.resume()] == ["ok"]
    assert_batch(made.world)
    assert not (made.world.charged or made.world.open)


@pytest.mark.parametrize("kill_after", [False, True])
def test_kill_at_any_call_leaves_no_lend_uncharged(tmp_path: Path, kill_after: bool) -> None:
    """Kills a lend or a return at each call in turn, then repeats it."""
    calls = 0
    for kill_at in range(5, 400):
        made = program(tmp_path / f"{kill_at}", boot_timeout_seconds=timedelta(minutes=5))
        world = made.world
        world.kill_at, world.kill_after = world.calls + kill_at, kill_after
        ways = (made.lend, made.bring_back)
        is_over = True
        for way in ways:
            try:
                way()
            except Killed:
                is_over = False
                assert way().result in ("ok", "skipped")
            if way == made.lend:
                assert_lent(world)
                assert world.charged == {OWN: "proj"}, kill_at
        assert_batch(world)
        assert not (world.charged or world.open), kill_at
        calls += 1
        if is_over:
            break
    assert calls > 40
