"""Tests of the Lease of an instance: a run takes it before it acts; only one registry holds it."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dnm.host import place
from dnm.host.place import this_place
from dnm.model.cluster import ConfigMap
from dnm.model.errors import KubeConflict, KubeError, LeaseError, LockedError
from dnm.model.lease import Place
from dnm.model.registry import Registry
from dnm.run.exclusion import exclude_earlier_writes
from dnm.run.lease import take_lease
from dnm.run.registry import save_registry
from dnm.run.state import FileState
from tests.builders import NOW, a_config
from tests.plan.worlds import queue_map
from tests.run.edges import Kube, Leases

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
MACHINE_ID = "0123456789abcdef0123456789abcdef"


class Host:
    """A host with its own registry file."""

    def __init__(self, leases: Leases, directory: Path, name: str) -> None:
        self.leases, self.kube = leases, Kube()
        (directory / name).mkdir(exist_ok=True)
        self.config = a_config(directory / name)
        self.disk = Registry()
        self.skew, self.seconds = timedelta(0), 0.0
        self.place: Place | None = None

    def start(self) -> FileState:
        state = FileState(self.config, clock=lambda: self.seconds)
        state.attach(self.leases, self.place or this_place(self.config))
        return state

    def act(self) -> FileState:
        """Plays a run of this host: takes the Lease, saves the registry, and ends."""
        state = self.start()
        now = self.leases.now + self.skew
        try:
            taken = take_lease(self.config, state, self.disk, self.kube, now)
        finally:
            self.load()
        self.disk = taken
        save_registry(self.config, taken, state)
        state.end()
        return state

    def load(self) -> None:
        from dnm.run.registry import load_registry

        self.disk = load_registry(self.config, NOW)

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
    tmp_path.chmod(0o755)
    return path


@pytest.fixture
def leases() -> Leases:
    return Leases()


@pytest.fixture
def make_host(leases: Leases, tmp_path: Path) -> Callable[[str], Host]:
    return lambda name: Host(leases, tmp_path, name)


MakeHost = Callable[[str], Host]


def test_first_registry_to_act_holds_the_lease_for_a_day(
    leases: Leases, make_host: MakeHost
) -> None:
    east, west = make_host("east"), make_host("west")
    east.act()
    written = leases.writes
    leases.now = NOW + timedelta(hours=23)
    assert west.is_refused() and leases.writes == written == 2
    leases.now = NOW + timedelta(hours=24)
    assert not west.is_refused()
    assert east.is_refused() and leases.stored.number == 2


def test_api_server_refuses_the_second_of_two_simultaneous_registries(
    leases: Leases, make_host: MakeHost
) -> None:
    east, west = make_host("east"), make_host("west")
    leases.meanwhile = west.act
    with pytest.raises(LockedError, match="another run has just begun"):
        east.act()
    assert east.is_refused() and not west.is_refused()


def test_registry_on_shared_storage_is_accepted_and_a_copy_is_refused(
    leases: Leases, make_host: MakeHost
) -> None:
    east, west = make_host("east"), make_host("west")
    east.act()
    west.disk = east.disk  # a copy, or the same file
    assert not west.is_refused()
    assert east.is_refused(), "the copy acted first and exchanged the word"
    east.disk = west.disk  # the same file knows the word
    assert not east.is_refused()


@pytest.mark.parametrize("is_written", [False, True])
def test_kill_around_the_lease_write_keeps_the_lease_for_this_registry(
    leases: Leases, make_host: MakeHost, tmp_path: Path, is_written: bool
) -> None:
    east = make_host("east")
    east.act()
    east.place = Place(holder="moved", home="x", boot="y")  # so that the word is exchanged
    leases.loses_answer = is_written
    leases.meanwhile = (lambda: None) if is_written else _interrupt
    with pytest.raises(KubeError if is_written else KeyboardInterrupt):
        east.act()
    leases.loses_answer = False
    assert len(east.disk.lease_words) == 2
    elsewhere = make_host("elsewhere")
    elsewhere.disk = east.disk  # identified by its word
    if is_written:  # to another host the dead run looks active
        elsewhere.leases.stored = replace(leases.stored, holder="")
    assert not elsewhere.is_refused()


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_cloned_host_and_its_original_never_both_act(leases: Leases, make_host: MakeHost) -> None:
    """The clone has the same host name and files as the original, but another boot id."""
    host, clone = make_host("east"), make_host("clone")
    places = {
        host: Place(holder="mgmt", home="h", boot="b1", up_for=timedelta(days=9)),
        clone: Place(holder="mgmt", home="h", boot="b2", up_for=timedelta(minutes=1)),
    }

    def is_refused(which: Host) -> bool:
        which.place = places[which]
        try:
            which.act()
        except LeaseError:
            return True
        return False

    assert not is_refused(host)
    clone.disk = host.disk
    leases.now = NOW + 7 * HOUR
    assert not is_refused(host)
    leases.now += 10 * MINUTE
    first = is_refused(clone)
    leases.now += MINUTE
    assert is_refused(host) is not first
    assert is_refused(clone) is first


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["east", "west"]),
        st.sampled_from(["acts", "dies before the write", "loses the answer", "is asleep",
                         "wakes up", "wipes its disk"]),
        st.integers(0, 30),
        st.integers(-48, 48),
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=30)
@given(STEPS)
@example(
    [("east", "dies before the write", 0, 0), ("east", "acts", 0, 0),
     ("east", "wipes its disk", 0, 0), ("west", "acts", 24, 0), ("east", "acts", 0, 0)]
)  # fmt: skip
def test_two_registries_never_both_act_within_a_day(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int, int]]
) -> None:
    """Random histories have kills at each step, lost answers, sleep, wiped disks, wrong clocks."""
    leases, directory = Leases(), tmp_path_factory.mktemp("hosts")
    directory.chmod(0o755)
    hosts = {name: Host(leases, directory, name) for name in ("east", "west")}
    for number, host in enumerate(hosts.values()):
        host.place = Place(holder=f"h{number}:/dnm", home=f"h{number}", boot="b", up_for=HOUR)
    asleep: dict[str, FileState] = {}
    last: tuple[str, object] | None = None
    for name, text, hours, skew in steps:
        host, other = hosts[name], hosts["west" if name == "east" else "east"]
        leases.now += timedelta(hours=hours)
        for item in hosts.values():
            item.seconds += hours * 3600 + 1
        host.skew = timedelta(hours=skew)
        try:
            if text == "wakes up":
                if name in asleep:
                    sleeper, number = asleep.pop(name), leases.stored.number
                    is_held = sleeper.number == number
                    try:
                        sleeper.keep(anew=True)
                    except (LockedError, KubeError, Exception) as error:
                        assert not is_held, error
                    else:
                        assert is_held
                    sleeper.end()
                continue
            if text == "wipes its disk":
                for file in host.config.state_dir.glob("converted_nodes.json*"):
                    file.unlink()
                host.disk = Registry()
                continue
            leases.meanwhile = _interrupt if text == "dies before the write" else (lambda: None)
            leases.loses_answer = text == "loses the answer"
            if text == "is asleep":
                state = host.start()
                host.disk = take_lease(host.config, state, host.disk, host.kube,
                                       leases.now + host.skew)  # fmt: skip
                save_registry(host.config, host.disk, state)
                asleep[name] = state
            else:
                host.act()
        except (LeaseError, LockedError, KubeError, KeyboardInterrupt):
            continue
        finally:
            leases.meanwhile, leases.loses_answer = (lambda: None), False
        if last is not None and last[0] == other.config.state_dir.name:
            assert leases.now - last[1] >= timedelta(days=1), "two registries act"  # type: ignore[operator]
        last = (name, leases.now)


def test_write_of_a_possibly_suspended_run_is_fenced_off(
    leases: Leases, make_host: MakeHost
) -> None:
    east = make_host("east")
    asleep = east.start()
    east.disk = take_lease(east.config, asleep, east.disk, east.kube, NOW)
    planned = east.kube.queues
    east.act()  # the next run on the same host
    assert planned is not None and east.kube.queues is not None
    assert planned.resource_version != east.kube.queues.resource_version
    assert leases.stored.holder == ""


def test_failed_fencing_of_a_suspended_run_keeps_the_lease(
    leases: Leases, make_host: MakeHost
) -> None:
    """dnm could not exclude writes of the suspended run, so no other registry may act yet."""
    east = make_host("east")
    east.disk = take_lease(east.config, east.start(), east.disk, east.kube, NOW)
    east.kube.refuses.add("write queues")
    state = east.start()
    with pytest.raises(KubeError, match="write queues"):
        take_lease(east.config, state, east.disk, east.kube, NOW)
    state.end()
    assert leases.stored.holder
    east.kube.refuses.clear()
    east.act()
    assert leases.stored.holder == ""


def test_clients_that_write_continuously_are_reported(make_host: MakeHost) -> None:
    class Busy(Kube):
        def write_config_map(self, config_map: ConfigMap, *, dry_run: bool = False) -> ConfigMap:
            raise KubeConflict("it was changed")

    east = make_host("east")
    with pytest.raises(KubeConflict, match="5 times in a row"):
        exclude_earlier_writes(east.config, Busy(), east.start())


@pytest.mark.parametrize("case", ["absent", "immutable"])
def test_unchangeable_queue_document_needs_no_fencing(make_host: MakeHost, case: str) -> None:
    east = make_host("east")
    stored = replace(queue_map(), immutable=True) if case == "immutable" else None
    east.kube.queues = stored
    exclude_earlier_writes(east.config, east.kube, east.start())
    assert east.kube.queues == stored


def test_place_is_host_path_and_boot_but_empty_in_a_pod(
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
