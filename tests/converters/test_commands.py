"""Tests of the Slurm client with replaced commands: environment, time-outs, refusals, names."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dnm.config.events import event_name
from dnm.converters.slurm.commands import (
    IGNORE_JOBS,
    IN_ANOTHER,
    SlurmClient,
    SlurmOutcomeUnknown,
    SlurmRefused,
    drain_command,
    reserve_command,
    resume_command,
    slurm_environment,
)
from dnm.model.calendar import occurrence_name
from dnm.model.errors import SlurmError


def client_with(directory: Path, timeout: float = 5, **scripts: str) -> SlurmClient:
    """Returns a Slurm client that finds these shell scripts first in its PATH."""
    for name, text in scripts.items():
        path = directory / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    path_of = f"{directory}:{os.environ['PATH']}"
    return SlurmClient({"PATH": path_of, "HOME": "/"}, timedelta(seconds=timeout))


def test_commands_inherit_only_harmless_variables(tmp_path: Path) -> None:
    environ = {
        "PATH": "/bin", "HOME": "/root", "SLURM_CONF": "/x/slurm.conf", "TZ": "Asia/Tokyo",
        "SQUEUE_STATES": "PENDING", "SQUEUE_USERS": "x", "SLURM_CLUSTERS": "other", "LANG": "de",
        "SLURM_TIME_FORMAT": "relative", "SINFO_FORMAT": "%x", "SLURM_BITSTR_LEN": "1",
    }  # fmt: skip
    environment = slurm_environment(environ)
    assert environment.pop("PATH").startswith("/bin:")
    assert environment == {
        "HOME": "/root", "SLURM_CONF": "/x/slurm.conf", "TZ": "UTC", "LC_ALL": "C",
        "SLURM_TIME_FORMAT": "%s",
    }  # fmt: skip


def test_missing_controller_is_one_message(tmp_path: Path) -> None:
    scontrol = "echo scontrol: error: no config >&2; echo scontrol: fatal: no source >&2; exit 1"
    with pytest.raises(SlurmError) as caught:
        client_with(tmp_path, scontrol=scontrol).check_controller()
    assert "fatal: no source): nothing is done; check slurmctld" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_commands_are_lists_of_one_node() -> None:
    end = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
    with_end = reserve_command("k8s-a001", "a001", end)
    assert with_end[-3:] == ["StartTime=now", "EndTime=2026-11-20T12:00:00", "Users=root"]
    assert drain_command("a001", "dnm:x why; rm -rf", {"comment": "m"})[3:] == [
        "state=drain", "reason=dnm:x why; rm -rf", "comment=m",
    ]  # fmt: skip
    assert resume_command("a001", {"extra": ""})[2:] == ["nodename=a001", "state=resume", "extra="]


def test_reservation_fails_if_jobs_or_other_reservations_have_the_node(tmp_path: Path) -> None:
    """Checks the flags: without any, Slurm refuses a node with jobs or another reservation."""
    client = client_with(tmp_path, scontrol=f"echo $* >>{tmp_path}/told")
    client.create_reservation("k8s-a001", "a001")
    client.create_reservation("k8s-a001", "a001", flags=IGNORE_JOBS)
    client.create_reservation("k8s-a001", "a001", flags=IN_ANOTHER)
    client.create_reservation("k8s_turn", "a001", timedelta(minutes=1), IN_ANOTHER)
    begins = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
    client.create_reservation("b-a001", "a001", begins + timedelta(hours=1), start=begins)
    client.move_reservation("b-a001", begins, begins + timedelta(hours=2))
    times = "StartTime=2026-11-20T12:00:00 EndTime=2026-11-20T1"
    create, name = "create reservation", "ReservationName=k8s-a001 Nodes=a001 StartTime=now"
    assert (tmp_path / "told").read_text().splitlines() == [
        f"{create} {name} Duration=UNLIMITED Users=root",
        f"{create} {name} Duration=UNLIMITED Users=root Flags=IGNORE_JOBS",
        f"{create} {name} Duration=UNLIMITED Users=root Flags=IGNORE_JOBS,OVERLAP",
        f"{create} ReservationName=k8s_turn Nodes=a001 StartTime=now Duration=1 Users=root "
        "Flags=IGNORE_JOBS,OVERLAP",
        f"{create} ReservationName=b-a001 Nodes=a001 {times}3:00:00 Users=root",
        f"update ReservationName=b-a001 {times}4:00:00",
    ]


def test_charging_and_uncharging_take_one_command_each(tmp_path: Path) -> None:
    client = client_with(tmp_path, scontrol=f"echo $* >>{tmp_path}/told")
    client.charge_reservation("k8s-a001", "proj")
    client.uncharge_reservation("k8s-a001", keeps_flag=False)
    client.uncharge_reservation("k8s-a001", keeps_flag=True)
    update = "update ReservationName=k8s-a001"
    assert (tmp_path / "told").read_text().splitlines() == [
        f"{update} Flags+=MAINT Flags-=IGNORE_JOBS Accounts=proj Users=",
        f"{update} Flags-=MAINT Users=root Accounts=",
        f"{update} Users=root Accounts=",
    ]
    for account in ("", "a,b", "a b", "-"):
        with pytest.raises(SlurmError):
            client.charge_reservation("k8s-a001", account)


@pytest.mark.parametrize("name", ["", "-x", "a,b", "a b", "a=b", "a[1-2]", "a\nb", "x" * 200])
def test_refuses_names_that_could_be_options_or_lists(name: str, tmp_path: Path) -> None:
    client = client_with(tmp_path, scontrol="echo called >>called", squeue="echo called >>called")
    for call in (
        lambda: client.read_node(name),
        lambda: client.read_jobs_on(name),
        lambda: client.drain(name, "r", {}),
        lambda: client.resume(name, {}),
        lambda: client.create_reservation("r", name),
        lambda: client.create_reservation(name, "a"),
        lambda: client.delete_reservation(name),
        lambda: client.remove_from_reservation("r", name),
        lambda: client.requeue_job(name),
        lambda: client.cancel_job(name),
    ):
        with pytest.raises(SlurmError, match=r"not a (valid name|job)"):
            call()


def test_longest_event_name_fits_longest_host_name(tmp_path: Path) -> None:
    client = client_with(tmp_path, scontrol='echo "$@" >"$(dirname "$0")/called"')
    begins, node = datetime(2026, 11, 20, 12, 0, tzinfo=UTC), "n" * 64
    name = f"{occurrence_name(event_name('e' * 52), begins, 'prod')}-{node}"
    client.create_reservation(name, node, begins + timedelta(hours=1), start=begins)
    client.delete_reservation(name)
    assert (tmp_path / "called").read_text() == f"delete ReservationName={name}\n"


def test_unknown_node_is_reported(tmp_path: Path) -> None:
    """In a Slurm with dynamic nodes, scontrol may print that there are no nodes at all."""
    client = client_with(tmp_path, scontrol="echo No nodes in the system")
    with pytest.raises(SlurmRefused, match="knows no node a001"):
        client.read_node("a001")


def test_hanging_command_has_an_unknown_outcome(tmp_path: Path) -> None:
    client = client_with(tmp_path, timeout=0.3, scontrol="exec sleep 60")
    with pytest.raises(SlurmOutcomeUnknown, match="did not answer within"):
        client.drain("a001", "r", {})
    with pytest.raises(SlurmError) as read:
        client.read_nodes()
    assert not isinstance(read.value, SlurmOutcomeUnknown)


@pytest.mark.parametrize(
    "said",
    [
        "slurm_update error: Unable to contact slurm controller (connect failure)",
        "Error creating the reservation: Unexpected message received",
        "slurm_update error: Socket timed out on send/recv operation",
        "slurm_update error: Connection reset by peer",
        "Error creating the reservation: Message receive failure",
        "Error creating the reservation: Communication connection failure",
        "slurm_update error: Rate limit exceeded, please retry momentarily",
        "slurm_update error: Slurm backup controller in standby mode",
    ],
)
def test_controller_that_stops_answering_leaves_the_outcome_unknown(
    said: str, tmp_path: Path
) -> None:
    client = client_with(tmp_path, scontrol=f"echo '{said}' >&2; exit 1")
    with pytest.raises(SlurmOutcomeUnknown):
        client.create_reservation("k8s-a001", "a001")


def test_command_ended_by_a_signal_has_an_unknown_outcome(tmp_path: Path) -> None:
    """SIGPIPE ends scontrol of 26.05 if slurmctld breaks the connection."""
    client = client_with(tmp_path, scontrol="kill -PIPE $$", squeue="kill -PIPE $$")
    with pytest.raises(SlurmOutcomeUnknown, match="without a message"):
        client.create_reservation("k8s-a001", "a001")
    with pytest.raises(SlurmError) as read:
        client.read_jobs()
    assert not isinstance(read.value, SlurmRefused)


def test_refusal_contains_the_message_of_slurm(tmp_path: Path) -> None:
    message = "Error creating the reservation: Requested nodes are busy"
    client = client_with(tmp_path, scontrol=f"echo Note: x; echo '{message}' >&2; exit 1")
    with pytest.raises(SlurmRefused, match="Requested nodes are busy") as refused:
        client.create_reservation("k8s-a001", "a001")
    assert refused.value.answer.startswith(message)


@pytest.mark.parametrize(
    ("scontrol", "message"),
    [
        ('echo "Slurmctld(primary) at x is DOWN"; exit 1', "does not answer .*is DOWN"),
        # 20.11 ends with 0 all the same.
        ('echo "Slurmctld(primary) at x is DOWN"', "does not answer"),
        ("exit 3", "does not answer .*nothing"),
    ],
)
def test_stopped_controller_is_refused(scontrol: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SlurmError, match=message):
        client_with(tmp_path, scontrol=scontrol).check_controller()


def test_backup_controller_is_enough(tmp_path: Path) -> None:
    client_with(
        tmp_path,
        scontrol='echo "Slurmctld(primary) at x is DOWN"; echo "Slurmctld(backup) at y is UP"',
    ).check_controller()


def test_missing_programs_are_reported(tmp_path: Path) -> None:
    client = SlurmClient({"PATH": str(tmp_path)})
    client.environment["PATH"] = str(tmp_path)
    with pytest.raises(SlurmError, match="scontrol is not installed"):
        client.check_controller()


def test_forged_record_is_not_an_unknown_node(tmp_path: Path) -> None:
    """An unclear answer must not mean "unknown node", because dnm forgets unknown nodes."""
    forged = "NodeName={} CPUAlloc=0 AllocMem=0 State=IDLE Partitions=main"
    both = "; ".join(f"echo '{forged.format(name)}'" for name in ("a001", "a002"))
    for script in (both, both.replace("a001", "a003")):
        with pytest.raises(SlurmError, match="more than the record of a001") as caught:
            client_with(tmp_path, scontrol=script).read_node("a001")
        assert not isinstance(caught.value, SlurmRefused)
