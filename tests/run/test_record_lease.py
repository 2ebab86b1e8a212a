"""The lease of an instance: taken before a run acts, and by one registry alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from dnm.host import place
from dnm.host.place import this_place
from dnm.model.cluster import ConfigMap
from dnm.model.errors import KubeConflict, KubeError, LeaseError
from dnm.model.lease import Place
from dnm.model.registry import Registry
from dnm.plan.record_lease import read_lease
from dnm.run import record_lease as edge
from dnm.run.record_lease import new_lease, put_lease, take_lease
from tests.builders import NOW, a_config
from tests.plan.worlds import queue_map

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
MACHINE_ID = "0123456789abcdef0123456789abcdef"


class Maps:
    """The queue document's ConfigMap on an API server with its clock, under optimistic locking."""

    def __init__(self) -> None:
        self.stored: ConfigMap | None = queue_map()
        self.now: datetime | None = NOW
        self.writes = self.reads = 0
        self.meanwhile: Callable[[], object] = lambda: None  # done by another before a write
        self.loses_answer = False

    def read_config_map(self, namespace: str, name: str) -> ConfigMap | None:
        self.reads += 1
        return self.stored and msgspec.structs.replace(self.stored, read_at=self.now)

    def write_config_map(self, config_map: ConfigMap) -> ConfigMap:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        assert self.stored is not None
        if config_map.resource_version != self.stored.resource_version:
            raise KubeConflict("it was changed")
        version = str(int(config_map.resource_version) + 1)
        self.stored = msgspec.structs.replace(config_map, resource_version=version)
        self.writes += 1
        if self.loses_answer:
            raise KubeError("the answer was lost")
        return self.stored

    def replace(self) -> None:
        """`kubectl replace` with the manifest."""
        assert self.stored is not None
        version = str(int(self.stored.resource_version) + 1)
        self.stored = msgspec.structs.replace(queue_map(), resource_version=version)


class Host:
    """A host with a registry of its own, which is saved as the record is."""

    def __init__(self, maps: Maps, name: str, registry: Registry | None = None) -> None:
        self.maps, self.disk = maps, registry or Registry()
        self.config = a_config(Path("/var/lib") / name)
        self.skew = timedelta(0)

    def save(self, registry: Registry) -> None:
        self.disk = registry

    def act(self) -> None:
        """Takes the lease and ends as a run does, with the record saved."""
        now = (self.maps.now or NOW) + self.skew
        self.disk = take_lease(self.config, self.maps, self.disk, self.save, now)

    def is_refused(self) -> bool:
        try:
            self.act()
        except LeaseError as error:
            assert "dnm takeover" in str(error) and this_place(self.config).holder in str(error)
            return True
        return False


@pytest.fixture(autouse=True)
def machine_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "machine-id"
    path.write_text(f"{MACHINE_ID}\n")
    monkeypatch.setattr(place, "_MACHINE_ID", path)
    return path


@pytest.fixture
def maps() -> Maps:
    return Maps()


def test_the_first_to_act_holds_it_and_rest_costs_no_write(maps: Maps) -> None:
    east, west = Host(maps, "east"), Host(maps, "west")
    for _ in range(60):
        east.act()
        maps.now = (maps.now or NOW) + MINUTE
    assert maps.writes == 1 and len(east.disk.leases) == 1
    maps.now = NOW + timedelta(hours=29)
    assert west.is_refused() and maps.writes == 1
    maps.now = NOW + timedelta(hours=31)
    assert not west.is_refused()
    assert east.is_refused()


def test_who_follows_a_run_that_may_be_asleep_writes_anew_and_that_one_writes_no_more(
    maps: Maps,
) -> None:
    """They share a registry; the sleeper was about to write itself there, over the follower's."""
    west, east = Host(maps, "west"), Host(maps, "east")
    west.act()
    now = NOW + MINUTE

    def follow() -> None:
        west.disk = take_lease(west.config, maps, east.disk, west.save, now, follows=True)

    east.disk, maps.meanwhile = west.disk, follow
    with pytest.raises(LeaseError, match="another dnm acts"):
        take_lease(east.config, maps, east.disk, east.save, now)
    stored = read_lease(maps.stored.annotations if maps.stored else {}, west.config.instance_id)
    assert stored is not None and [stored] == list(west.disk.leases)


def test_of_two_at_the_same_moment_the_api_server_refuses_one(maps: Maps) -> None:
    east, west = Host(maps, "east"), Host(maps, "west")
    maps.meanwhile = west.act
    assert east.is_refused()
    assert east.disk.leases == () and east.disk.others_lease == west.disk.leases[0]
    assert not west.is_refused()


def test_who_was_refused_stays_so_where_the_mark_is_taken_off_each_time(maps: Maps) -> None:
    """A tool that replaces the whole ConfigMap neither stops dnm nor lets two act."""
    east, west = Host(maps, "east"), Host(maps, "west")
    east.act()
    assert west.is_refused()
    for minute in range(90):
        maps.now = NOW + minute * MINUTE
        maps.replace()
        assert west.is_refused()
        maps.meanwhile = maps.replace  # also between reading and writing
        assert not east.is_refused()


def test_a_place_is_a_host_a_path_and_a_boot_and_no_pod(
    tmp_path: Path, machine_id: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "state")
    here = this_place(a_config(tmp_path / "state"), machine_id)
    assert here.holder == f"{os.uname().nodename}:{tmp_path}/state/converted_nodes.json"
    assert this_place(a_config(tmp_path / "link"), machine_id).home == here.home
    assert this_place(a_config(tmp_path / "other"), machine_id).home != here.home
    assert MACHINE_ID not in str(here) and len(here.boot) == 36 and here.up_for > timedelta(0)
    far = this_place(a_config(tmp_path / ("x" * 200 + "/") / ("y" * 200) / "\udcff"), machine_id)
    assert len(far.holder) == 300 and far.holder.isprintable() and far.home
    machine_id.write_text(MACHINE_ID[::-1])
    assert this_place(a_config(tmp_path / "state"), machine_id).home not in ("", here.home)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    assert this_place(a_config(tmp_path / "state"), machine_id).home == ""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    machine_id.unlink()
    os.mkfifo(machine_id)
    assert this_place(a_config(tmp_path / "state"), machine_id).home == ""


def test_a_clone_of_the_host_and_the_host_never_both_act(
    maps: Maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is the same, but for the boot."""
    host, clone = Host(maps, "east"), Host(maps, "east")
    places = {
        host: Place(holder="mgmt", home="h", boot="b1", up_for=timedelta(days=9)),
        clone: Place(holder="mgmt", home="h", boot="b2", up_for=timedelta(minutes=1)),
    }

    def is_refused(which: Host) -> bool:
        monkeypatch.setattr(edge, "this_place", lambda config: places[which])
        try:
            which.act()
        except LeaseError:
            return True
        return False

    assert not is_refused(host)
    clone.disk = host.disk
    maps.now = NOW + 7 * HOUR
    assert not is_refused(host)
    maps.now += 10 * MINUTE
    first = is_refused(clone)
    maps.now += MINUTE
    assert is_refused(host) is not first
    assert is_refused(clone) is first


@pytest.mark.parametrize("is_written", [False, True])
def test_a_kill_around_the_write_leaves_it_ours(maps: Maps, is_written: bool) -> None:
    east = Host(maps, "east")
    east.act()
    maps.now = NOW + 7 * HOUR
    if is_written:
        maps.loses_answer = True  # and the run with it
        with pytest.raises(KubeError):
            east.act()
        maps.loses_answer = False
    else:
        maps.meanwhile = _dies
        with pytest.raises(KeyboardInterrupt):
            east.act()
    assert len(east.disk.leases) == 2
    assert not Host(maps, "elsewhere", east.disk).is_refused()  # by the token, not by the place


def _dies() -> None:
    raise KeyboardInterrupt


def test_somebody_else_s_change_meanwhile_is_no_loss(maps: Maps) -> None:
    east = Host(maps, "east")
    east.act()

    def edit() -> None:
        assert maps.stored is not None
        maps.stored = msgspec.structs.replace(maps.stored, resource_version="77")

    maps.meanwhile = edit
    maps.now = NOW + 7 * HOUR
    east.act()
    assert maps.stored is not None and maps.stored.resource_version == "78"
    assert (read_lease(maps.stored.annotations, "prod"),) == east.disk.leases


def test_others_who_write_all_the_time_are_said(maps: Maps) -> None:
    east = Host(maps, "east")

    def edit() -> None:
        maps.replace()
        maps.meanwhile = edit

    maps.meanwhile = edit
    with pytest.raises(KubeConflict, match="5 times in a row"):
        east.act()
    maps.meanwhile = edit
    with pytest.raises(KubeConflict, match="5 times in a row"):
        put_lease(east.config, maps, new_lease(east.config, NOW))


@pytest.mark.parametrize("what", ["absent", "immutable"])
def test_where_nobody_can_change_a_limit_nobody_is_asked(maps: Maps, what: str) -> None:
    maps.stored = msgspec.structs.replace(queue_map(), immutable=True)
    if what == "absent":
        maps.stored = None
    for name in ("east", "west"):
        assert not Host(maps, name).is_refused()
    assert maps.writes == 0
