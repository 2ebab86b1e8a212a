"""Tests of splitting the predecessor's one reservation of all lent nodes, because Slurm before
23.02 can't remove one node from it. Only the conversion that still holds the lock deletes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dnm.converters.conversion import NodeConversion, Sides, StopRequest
from dnm.converters.journal import JournalStore, JournalWriter
from dnm.converters.reservation import release
from dnm.converters.settings import Machines, Settings
from dnm.converters.slurm.commands import IN_ANOTHER, SlurmRefused
from dnm.converters.slurm.text import Reservation
from dnm.model.errors import SlurmError
from tests.converters.nodeset_world import patience
from tests.converters.played import NODE, a_journal

SHARED, TURN = "k8s", "k8s_turn"
ALL = (NODE, "a001", "a002")


class OldSlurm:
    """A Slurm before 23.02. `later` are the lock's nodes once each node has a reservation."""

    def __init__(self, later: tuple[str, ...]) -> None:
        self.kept: dict[str, tuple[str, ...]] = {SHARED: ALL}
        self.later = later

    def read_reservations(self) -> tuple[Reservation, ...]:
        began = datetime(2026, 3, 2, tzinfo=UTC)
        return tuple(
            Reservation(name=name, start=began, end=None, nodes=nodes)
            for name, nodes in self.kept.items()
            if nodes
        )

    def remove_from_reservation(self, name: str, node: str) -> None:
        raise SlurmRefused("update", "Requested operation is not supported")

    def create_reservation(
        self, name: str, node: str, end: timedelta | None = None, flags: str = ""
    ) -> None:
        assert flags == IN_ANOTHER and (end is not None) == (name == TURN)
        self.kept[name] = (node,)
        if node == ALL[-1]:
            self.kept[TURN] = self.later

    def delete_reservation(self, name: str) -> None:
        del self.kept[name]


@pytest.mark.parametrize(
    ("later", "left"),
    [
        pytest.param((NODE,), set(), id="still this instance"),
        pytest.param((), {SHARED}, id="over"),
        pytest.param(("a001",), {SHARED, TURN}, id="another node's"),
    ],
)
def test_only_the_turn_owner_deletes_the_shared_reservation(
    tmp_path: Path, later: tuple[str, ...], left: set[str]
) -> None:
    slurm = OldSlurm(later)
    settings = Settings(
        machines=Machines.OWN, state_dir=tmp_path, hooks_dir=tmp_path, instance="prod", **patience()
    )
    writer = JournalWriter(JournalStore(tmp_path), a_journal(NODE))
    sides = Sides(slurm=lambda _: slurm, kube=lambda _: None)  # type: ignore[arg-type, return-value]
    lines: list[str] = []
    conversion = NodeConversion(settings, writer, StopRequest(), lines.append, sides)
    if SHARED in left:
        with pytest.raises(SlurmError, match="took too long"):
            release(conversion)
    else:
        release(conversion)
    of_other_instances = {f"{SHARED}-{node}" for node in ALL[1:]}
    assert {name for name, nodes in slurm.kept.items() if nodes} == left | of_other_instances
