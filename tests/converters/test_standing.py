"""Tests of the converters for machines that always have a Node (bridge-convert, nodeset-convert),
each on its model: whole rounds with jobs, kills at each call, ownership of cordons, permissions.
Each converter has a test file of its own for the rest."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dnm.model.errors import KubeError
from dnm.model.node import Mark
from tests.converters import test_bridge, test_nodeset, test_nodeset_stateful
from tests.converters.bridge_world import LABEL as BRIDGED
from tests.converters.nodeset_world import LABEL, Killed
from tests.converters.played import NODE
from tests.converters.played import tmp_path as tmp_path
from tests.night import sample_by_day

SOON, LONG = timedelta(seconds=0.05), timedelta(minutes=1)


class Kind(NamedTuple):
    """A converter under test. `traps` are the model's settings for rounds, `at_kills` for kills.
    `never` are the model's lists of errors. `right` is a call that must be permitted, or it can't
    lend. `ended` is the least number of jobs that end in fifty rounds."""

    program: Callable[..., Any]
    assert_lent: Callable[[Any], None]
    assert_back: Callable[[Any], None]
    label: str
    right: str
    traps: dict[str, Any]
    at_kills: dict[str, Any]
    never: tuple[str, ...]
    stuck: tuple[str, str]  # what is missing there, and back, while the operator does nothing
    job_chance: float = 0.3
    ended: int = 30


KINDS = {
    "pods of a DaemonSet": Kind(
        test_nodeset.program, test_nodeset.assert_lent, test_nodeset.assert_batch, LABEL[0],
        "remove_label", {"fails_open": True, "lifts_drains": True}, {"fails_open": True},
        ("lost", "shared", "deleted"), ("is still there", "no pod of slurmd is on a000 yet"),
        ended=50,
    ),
    "pods of a StatefulSet": Kind(
        test_nodeset_stateful.program, test_nodeset.assert_lent,
        test_nodeset_stateful.assert_all_in_slurm, LABEL[0], "scale", {"flickers": 0.02},
        {"fails_open": True}, ("lost", "shared"),
        ("is still there", "no pod of slurmd is on a000 yet"), job_chance=0.2, ended=20,
    ),
    "slurm-bridge": Kind(
        test_bridge.program, test_bridge.assert_lent, test_bridge.assert_batch, BRIDGED, "change",
        {"recreates": True, "tenant_chance": 0.3}, {}, ("lost", "shared", "evicted", "flaps"),
        ("Slurm has it IDLE+DRAIN+EXTERNAL yet", "slurm-bridge has not put it into Slurm yet"),
    ),
}  # fmt: skip
of_each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def assert_in_peace(kind: Kind, world: Any, note: str = "") -> None:
    """Asserts that no job or pod was lost, that no machine accepted both at once, and that
    everything is as before."""
    assert not [name for name in kind.never if getattr(world, name)], note
    kind.assert_back(world)


@of_each_kind
def test_node_is_lent_and_returned(tmp_path: Path, kind: Kind) -> None:
    """A pod is still on the fenced node: dnm evicts it before it returns the node."""
    made = kind.program(tmp_path)
    assert made.lend().result == "ok"
    kind.assert_lent(made.world)
    item, log = made.world.machines[NODE], made.world.log
    item.tenants.append("last")
    item.mark = Mark(instance="prod", node_type="a", namespace="dev", queue="q", fenced=True)
    item.is_cordoned = True
    log.clear()
    assert made.bring_back().result == "ok"
    assert log.index("change") < log.index("evict") < len(log) - 1 - log[::-1].index("change")
    assert_in_peace(kind, made.world)
    assert not item.tenants and item.mark is None
    assert made.bring_back().result == "skipped"


@pytest.mark.parametrize("seed", range(3))
@of_each_kind
def test_concurrent_writes_of_the_node_fail_no_conversion(
    tmp_path: Path, kind: Kind, seed: int
) -> None:
    """Another client writes the Node all the time, so that most of dnm's changes are refused."""
    made = kind.program(tmp_path, seed)
    made.world.second_writer = 0.8
    result = made.lend()
    assert result.result == "ok", result.error
    kind.assert_lent(made.world)
    result = made.bring_back()
    assert result.result == "ok", result.error
    assert_in_peace(kind, made.world)
    assert made.world.conflicts


@of_each_kind
def test_permanent_conflict_fails_after_the_time_out(tmp_path: Path, kind: Kind) -> None:
    made = kind.program(tmp_path)
    assert made.lend().result == "ok"
    made.world.second_writer = 1.0
    made.change_settings(stage_timeout_seconds=SOON)
    result = made.bring_back()
    assert result.result == "failed" and "has changed meanwhile" in result.error
    made.world.second_writer = 0.0
    made.change_settings(stage_timeout_seconds=LONG)
    assert made.bring_back().result == "ok"
    assert_in_peace(kind, made.world)


@of_each_kind
def test_another_host_can_return_a_node_and_another_instance_cannot(
    tmp_path: Path, kind: Kind
) -> None:
    """Without the journal of the lend, marks in Slurm and on the Node show the owner."""
    made = kind.program(tmp_path / "one")
    made.lend()
    other = type(made)(tmp_path / "other", made.world, instance="test")
    result = other.bring_back()
    assert result.result == "failed" and "lent by instance 'prod'" in result.error
    kind.assert_lent(made.world)
    made.world.machines[NODE].mark = Mark(
        instance="prod", node_type="a", namespace="dev", queue="q"
    )
    assert type(made)(tmp_path / "other host", made.world).bring_back().result == "ok"
    assert_in_peace(kind, made.world)


@of_each_kind
def test_idle_operator_is_waited_for_and_reported(tmp_path: Path, kind: Kind) -> None:
    made = kind.program(tmp_path, drain_timeout_seconds=SOON, boot_timeout_seconds=SOON)
    made.world.is_stuck = True
    result = made.lend()
    assert result.result == "failed" and kind.stuck[0] in result.error
    made.world.is_stuck = False
    made.change_settings(drain_timeout_seconds=LONG, boot_timeout_seconds=LONG)
    assert made.bring_back().result in ("ok", "skipped")
    assert_in_peace(kind, made.world)
    assert made.lend().result == "ok"
    made.world.is_stuck = True
    made.change_settings(boot_timeout_seconds=SOON)
    result = made.bring_back()
    assert result.result == "failed" and kind.stuck[1] in result.error
    made.world.is_stuck = False
    made.change_settings(boot_timeout_seconds=LONG)
    assert made.bring_back().result == "ok"
    assert_in_peace(kind, made.world)


@pytest.mark.parametrize("seed", sample_by_day(2, range(2)))
@of_each_kind
def test_no_job_is_lost_in_fifty_rounds(tmp_path: Path, kind: Kind, seed: int) -> None:
    """Jobs start whenever Slurm allows it, and all harmful behaviour of Slinky is switched on."""
    made = kind.program(tmp_path, seed, drain_timeout_seconds=SOON)
    world, rounds = made.world, 0
    for name, value in {**kind.traps, "job_chance": kind.job_chance}.items():
        setattr(world, name, value)
    for _ in range(3000):
        if rounds == 50:
            break
        node = world.random.choice(sorted(world.machines))
        if made.lend(node).result != "ok":
            while made.resume():
                pass
            continue
        rounds += 1
        while made.bring_back(node).result == "failed":
            pass
    for name in (*kind.traps, "job_chance"):
        setattr(world, name, 0)
    for _ in range(20):
        world.step()
    assert rounds == 50 and world.ended >= kind.ended
    assert_in_peace(kind, world)


def play(made: Any, continues: bool) -> None:
    made.lend()
    if not continues:
        made.bring_back()


@pytest.mark.parametrize(
    ("continues", "is_after"), sample_by_day(2, product([False, True], [False, True])),
    ids=["comes-back-before", "comes-back-after", "goes-on-before", "goes-on-after"],
)  # fmt: skip
@of_each_kind
def test_repetition_after_a_kill_at_any_call_succeeds(
    tmp_path: Path, kind: Kind, continues: bool, is_after: bool
) -> None:
    """Kills a lend or a return at each call in turn; the next call inspects the state first."""
    full = kind.program(tmp_path / "whole")
    play(full, continues)
    for at in range(1, full.world.calls + 1):
        made = kind.program(tmp_path / str(at))
        world, note = made.world, f"killed at {at}"
        for name, value in {**kind.at_kills, "kill_at": at, "kill_after": is_after}.items():
            setattr(world, name, value)
        with pytest.raises(Killed):
            play(made, continues)
        world.kill_at = -1
        if continues:
            result = made.lend()
            assert result.result == "ok", f"{note}: {result.error}"
            kind.assert_lent(world)
        world.job_chance = 0.5
        made.resume()
        result = made.bring_back()
        assert result.result in ("ok", "skipped"), f"{note}: {result.error}"
        world.job_chance = 0
        for _ in range(15):
            world.step()
        assert_in_peace(kind, world, note)


@pytest.mark.parametrize("name", ["pods of a DaemonSet", "slurm-bridge"])
def test_faulty_node_stays_drained_until_resumed(tmp_path: Path, name: str) -> None:
    """Slinky lifts only its own drain, so dnm's drain replaces it. Slurm never has the node in
    service, even after a kill at any call of the return."""
    kind = KINDS[name]
    made = kind.program(tmp_path / "whole", leave_drained="Healthy:False")
    made.lend()
    lent_by = made.world.calls
    made.bring_back()
    for at in (0, *range(lent_by + 1, made.world.calls + 1)):
        made = kind.program(tmp_path / str(at), leave_drained="Healthy:False")
        world, item = made.world, made.world.machines[NODE]
        made.lend()
        world.kill_at, world.job_chance = at, 1
        with suppress(Killed):
            made.bring_back()
        world.kill_at = -1
        assert made.bring_back().result in ("ok", "skipped"), made.said
        for _ in range(6):
            world.step()
        assert (item.base, item.flags, item.extra) == ("IDLE", {"DRAIN"}, ""), f"killed at {at}"
        assert item.reason == "faulty in Kubernetes: Healthy:False"
        assert item.is_open is False if name == "slurm-bridge" else item.pod
        assert not world.reservations and not world.jobs and not world.shared


@of_each_kind
def test_second_lend_of_a_lent_node_is_skipped(tmp_path: Path, kind: Kind) -> None:
    """If two callers chose the same node, the later one skips it and rolls nothing back."""
    made = kind.program(tmp_path)
    made.lend()
    assert made.lend().result == "skipped"
    kind.assert_lent(made.world)
    assert made.bring_back().result == "ok"
    assert_in_peace(kind, made.world)


@of_each_kind
def test_administrators_cordon_is_not_lifted(tmp_path: Path, kind: Kind) -> None:
    made = kind.program(tmp_path)
    made.lend()
    machine = made.world.machines[NODE]
    machine.is_cordoned = True
    result = made.bring_back()
    assert result.result == "failed" and "cordoned by an administrator" in result.error
    assert machine.is_cordoned and kind.label not in machine.labels
    machine.is_cordoned = False
    assert made.bring_back().result == "ok"
    assert_in_peace(kind, made.world)


@of_each_kind
def test_missing_permissions_cause_a_rollback(tmp_path: Path, kind: Kind) -> None:
    made = kind.program(tmp_path, drain_timeout_seconds=timedelta(seconds=0.3))

    def refuse(*_: Any, **__: Any) -> None:
        raise KubeError("nodes 'a000' is forbidden: grant patch on nodes")

    allowed, made.kube = made.kube, type("NoRights", (made.kube,), {kind.right: refuse})
    result = made.lend()
    assert result.result == "failed" and "is forbidden" in result.error
    assert kind.label in made.world.machines[NODE].labels
    made.kube = allowed
    assert made.bring_back().result in ("ok", "skipped")
    assert_in_peace(kind, made.world)
