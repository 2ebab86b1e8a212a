"""Tests of the registry in a Secret: the same document as in a file, and one acting run at a time.
They use the real client over HTTP and the sandbox's optimistic locking."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dnm.kube.client import KubeClient
from dnm.lab.sandbox.cluster import Sandbox
from dnm.model.config import Config
from dnm.model.errors import (
    KubeError,
    LeaseLostError,
    LockedError,
    RegistryError,
    StateError,
)
from dnm.model.lease import Lease, Place
from dnm.model.orders import Pause
from dnm.model.registry import Registry
from dnm.model.value import Unreadable
from dnm.run.kube_state import KubeState, pack, unpack
from dnm.run.lease_holder import find_holder
from dnm.run.lease_view import lease_seconds
from dnm.run.registry import encode_registry, save_registry
from tests.builders import NOW
from tests.site import Site

NAME = "dnm-prod"
OBJECTS = {"secrets": "dnm", "leases": "dnm"}
NUMBER = "dynamic-node-manager/number"
ONE, TWO, THREE = (
    encode_registry(Registry(pause=Pause(since=NOW, reason=word))) for word in ("1", "2", "3")
)


class Host:
    """A host with a clock that counts since its boot, and an identity in the Lease."""

    def __init__(self, sandbox: Sandbox, directory: Path, name: str) -> None:
        self.site = Site(
            sandbox, directory / name, registry="kubernetes", request_timeout_seconds=1
        )
        self.config = self.site.config
        self.place = Place(holder=f"{name}:/dnm", home=name, boot=f"boot of {name}")
        self.seconds = 1000.0

    def run(self) -> KubeState:
        patient = msgspec.structs.replace(self.config, request_timeout=timedelta(minutes=5))
        objects = KubeClient.connect(patient).state_objects("dnm", "dnm", NAME)
        return KubeState(self.config, objects, self.place, lambda: self.seconds, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def sandbox(sandbox: Sandbox) -> Sandbox:
    sandbox.add_namespace("dnm")
    return sandbox


@pytest.fixture
def east(sandbox: Sandbox, tmp_path: Path) -> Host:
    return Host(sandbox, tmp_path, "east")


@pytest.fixture
def west(sandbox: Sandbox, tmp_path: Path) -> Host:
    return Host(sandbox, tmp_path, "west")


def writes(sandbox: Sandbox) -> int:
    return len(sandbox.requests.writes())


def wrote(host: Host, content: bytes) -> KubeState:
    """Plays a run of the host that writes this registry."""
    state = host.run()
    state.write(content)
    state.end()
    return state


def test_new_site_starts_with_an_empty_registry_and_writes_nothing(
    sandbox: Sandbox, east: Host
) -> None:
    state = east.run()
    assert state.read() is None and state.missing_error() is None
    state.stand_by()
    state.end()
    assert writes(sandbox) == 0


def test_written_registry_is_read_by_another_host_and_the_previous_is_kept(
    sandbox: Sandbox, east: Host, west: Host
) -> None:
    wrote(east, ONE)
    wrote(west, TWO)
    assert east.run().read() == TWO
    data = (sandbox.get("secrets", NAME, "dnm") or {})["data"]
    assert (unpack(data, "registry.json"), unpack(data, "previous.json")) == (TWO, ONE)


def test_second_of_two_simultaneous_runs_is_refused(east: Host, west: Host) -> None:
    first, second = east.run(), west.run()
    for state in (first, second):
        state.read()
    first.begin()
    with pytest.raises(LockedError, match="another run has just"):
        second.begin()


def test_run_that_planned_on_an_outdated_registry_writes_nothing(east: Host, west: Host) -> None:
    """Another host's run has begun and ended since this one read the registry."""
    wrote(west, ONE)
    late = east.run()
    late.read()
    wrote(west, TWO)
    with pytest.raises(LockedError):
        late.write(THREE)
    assert west.run().read() == TWO


def test_killed_run_is_followed_at_once_on_the_same_host(east: Host, west: Host) -> None:
    east.run().write(ONE)  # and the run is killed
    after = east.run()
    seen = after.observe()
    assert not isinstance(seen, Unreadable) and seen.holder
    after.stand_by()
    after.write(TWO)
    assert after.needs_exclusion, "a write of the dead run may still be on its way"
    after.needs_exclusion = False
    after.end()
    left = west.run().observe()
    assert not isinstance(left, Unreadable) and not left.holder
    assert west.run().read() == TWO


def test_run_of_a_dead_host_is_followed_after_an_unchanged_lease_time(
    east: Host, west: Host
) -> None:
    east.run().write(ONE)
    seconds = lease_seconds(east.config)
    for later in (0, seconds / 2, seconds - 1):
        west.seconds = 1000 + later
        with pytest.raises(LockedError):
            west.run().stand_by()
    west.seconds = 1000 + seconds
    state = west.run()
    state.stand_by()
    assert state.write(TWO) and state.needs_exclusion


def test_foreign_writes_to_the_lease_do_not_extend_a_dead_run(
    sandbox: Sandbox, east: Host, west: Host
) -> None:
    def label(item: dict[str, Any]) -> None:
        item["metadata"]["labels"] = {"seen-at": str(west.seconds)}

    east.run().write(ONE)
    seconds = lease_seconds(east.config)
    for _ in range(3):
        with pytest.raises(LockedError):
            west.run().stand_by()
        west.seconds += seconds / 3 + 1
        sandbox.edit("leases", NAME, label, "dnm")
    assert west.run().write(TWO)


def test_converter_start_renews_the_lease_whatever_the_clock_shows(
    sandbox: Sandbox, east: Host, west: Host
) -> None:
    """While a virtual machine is frozen, its clock stops too, so it cannot show a lost Lease."""
    frozen = east.run()
    frozen.write(ONE)
    with pytest.raises(LockedError):
        west.run().stand_by()
    west.seconds += lease_seconds(west.config)
    west.run().begin()
    frozen.keep()
    with pytest.raises(LeaseLostError):
        frozen.keep(anew=True)


def a_pod(sandbox: Sandbox, directory: Path, name: str) -> Host:
    """Builds a host that is a pod: it loses its files at its end."""
    pod = Host(sandbox, directory, name)
    pod.place = Place(holder=f"{name}:/dev/shm/dnm", boot="of the machine")
    return pod


def test_pod_after_a_dead_pod_waits_for_the_lease_time(sandbox: Sandbox, tmp_path: Path) -> None:
    a_pod(sandbox, tmp_path, "first").run().write(ONE)  # and its node fails
    second = a_pod(sandbox, tmp_path, "second")
    state, began = second.run(), second.seconds
    state.stand_by()
    assert second.seconds - began >= lease_seconds(second.config)
    assert state.write(TWO) and state.needs_exclusion


def test_pod_waiting_for_a_lease_ends_when_the_holder_renews_it(
    sandbox: Sandbox, east: Host, tmp_path: Path
) -> None:
    at_work = east.run()
    at_work.write(ONE)
    pod = a_pod(sandbox, tmp_path, "pod")

    def sleep(seconds: float) -> None:
        pod.seconds += seconds
        east.seconds += lease_seconds(east.config) / 2
        at_work.keep()

    pod.sleep = sleep  # type: ignore[method-assign]
    with pytest.raises(LockedError, match="east:/dnm is at work"):
        pod.run().stand_by()
    assert pod.seconds < 1000 + lease_seconds(east.config)


def test_only_observations_since_boot_count_for_the_lease_time(east: Host, west: Host) -> None:
    """A host waits by its own clock since it first observed the Lease, and since its own boot."""
    at_work = east.run()
    at_work.write(ONE)
    with pytest.raises(LockedError):
        west.run().stand_by()
    west.seconds += 10_000
    east.seconds += 7
    at_work.keep()  # renewed meanwhile
    with pytest.raises(LockedError):
        west.run().stand_by()
    west.place = msgspec.structs.replace(west.place, boot="the next one")
    west.seconds = 20_000
    with pytest.raises(LockedError):
        west.run().stand_by()


def test_damaged_observation_file_is_ignored_and_rewritten(east: Host, west: Host) -> None:
    """The file is never synced, so a power cut may leave anything in it."""
    east.run().write(ONE)
    seen = west.config.lock_path.with_suffix(".seen")
    for content in (b'{"stamp":"\xff","boot":"","at":1}', b"\x00" * 80, b"[" * 1_000):
        seen.write_bytes(content)
        with pytest.raises(LockedError, match="unchanged here for 0 s"):
            west.run().stand_by()
        assert seen.read_bytes() != content


def test_suspended_run_writes_nothing_after_another_run_began(east: Host, west: Host) -> None:
    """Even a run that has only begun prevents writes of an earlier, suspended one."""
    asleep = east.run()
    asleep.write(ONE)
    with pytest.raises(LockedError):
        west.run().stand_by()
    west.seconds += lease_seconds(west.config)
    follower = west.run()
    follower.begin()
    follower.write(ONE)  # the same document still gets a new number
    with pytest.raises(LeaseLostError, match="its number 1 is no longer valid"):
        asleep.write(THREE)
    east.seconds += lease_seconds(east.config)
    with pytest.raises(LeaseLostError):
        asleep.keep()
    asleep.end()
    follower.keep()
    assert follower.write(TWO) and west.run().read() == TWO


def test_suspended_run_continues_if_no_other_run_began(east: Host) -> None:
    asleep = east.run()
    asleep.write(ONE)
    east.seconds += 10 * lease_seconds(east.config)
    asleep.keep()
    assert asleep.write(TWO)


def test_lease_is_renewed_once_per_quarter_of_its_time(sandbox: Sandbox, east: Host) -> None:
    state = east.run()
    state.begin()
    before = writes(sandbox)
    for _ in range(8):
        east.seconds += lease_seconds(east.config) / 8
        state.keep()
    assert writes(sandbox) == before + 4
    assert state.until is not None and state.until > east.seconds


def test_registry_numbers_grow_even_after_the_lease_was_deleted(
    sandbox: Sandbox, east: Host
) -> None:
    for content in (ONE, TWO, ONE):
        wrote(east, content)
    sandbox.delete("leases", NAME, "dnm")
    wrote(east, TWO)
    secret, lease = (sandbox.get(kind, NAME, where) or {} for kind, where in OBJECTS.items())
    assert secret["metadata"]["annotations"]["dynamic-node-manager/number"] == "4"
    assert lease["spec"]["leaseTransitions"] == 4


def test_foreign_fields_of_secret_and_lease_are_kept(
    sandbox: Sandbox, east: Host, west: Host
) -> None:
    wrote(east, ONE)
    for kind, where in OBJECTS.items():
        sandbox.edit(kind, NAME, _add_metadata, where)
    sandbox.edit("secrets", NAME, lambda item: item["data"].update(theirs="eA=="), "dnm")
    wrote(west, TWO)
    wrote(east, ONE)
    for kind, where in OBJECTS.items():
        results = sandbox.get(kind, NAME, where) or {}
        assert results["metadata"]["labels"] == {"team": "hpc"}
        assert results["metadata"]["annotations"]["backup.example.org/at"] == "night"
        if kind == "secrets":
            assert (
                results["data"]["theirs"] == "eA=="
                and unpack(results["data"], "registry.json") == ONE
            )
    assert east.run().read() == ONE


def _add_metadata(item: dict[str, Any]) -> None:
    item["metadata"]["labels"] = {"team": "hpc"}
    item["metadata"]["annotations"]["backup.example.org/at"] = "night"


def annotated(number: str | None) -> Callable[[dict[str, Any]], None]:
    def edit(item: dict[str, Any]) -> None:
        item["metadata"]["annotations"] = {} if number is None else {NUMBER: number}

    return edit


def test_first_write_to_a_secret_without_number_takes_the_lease_too(
    sandbox: Sandbox, east: Host, west: Host
) -> None:
    wrote(west, ONE)
    sandbox.edit("secrets", NAME, annotated(None), "dnm")
    state = east.run()
    state.write(TWO)
    lease = sandbox.get("leases", NAME, "dnm") or {}
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("east:/dnm", 2)
    with pytest.raises(LockedError):
        west.run().write(THREE)


@pytest.mark.parametrize("number", ["", "x", "-2", "1" * 5000, str(2**31 - 1), "9" * 11, "²"])
def test_malformed_registry_number_is_reported(sandbox: Sandbox, east: Host, number: str) -> None:
    wrote(east, ONE)
    sandbox.edit("secrets", NAME, annotated(number), "dnm")
    with pytest.raises(KubeError, match="not the number of a run: remove the annotation"):
        east.run().read()


def test_lease_with_the_highest_number_is_reported(sandbox: Sandbox, east: Host) -> None:
    wrote(east, ONE)
    spec = {"leaseTransitions": 2**31 - 1}
    sandbox.edit("leases", NAME, lambda item: item["spec"].update(spec), "dnm")
    with pytest.raises(RegistryError, match="delete the Lease"):
        east.run().write(TWO)
    sandbox.delete("leases", NAME, "dnm")
    assert east.run().write(TWO)


@pytest.mark.parametrize(
    "claim",
    [
        {"leaseDurationSeconds": 2**31 - 1},
        {"leaseDurationSeconds": 1},
        {"acquireTime": "9999-12-31T23:59:59.000000Z", "renewTime": "9999-12-31T23:59:59.000000Z"},
        {"holderIdentity": "x" * 100_000},
        {"run": "x" * 100_000},
    ],
    ids=["for years", "for a second", "until the end of time", "a long name", "a long run"],
)
def test_lease_values_are_bounded_by_the_local_configuration(
    sandbox: Sandbox, east: Host, west: Host, claim: dict[str, Any]
) -> None:
    def edit(item: dict[str, Any]) -> None:
        run = claim.get("run", "y")
        item["metadata"]["annotations"]["dynamic-node-manager/run"] = run
        item["spec"].update({key: value for key, value in claim.items() if key != "run"})

    east.run().write(ONE)
    sandbox.edit("leases", NAME, edit, "dnm")
    seconds = lease_seconds(west.config)
    for later in (0, seconds - 1):
        west.seconds = 1000 + later
        with pytest.raises(LockedError) as reported:
            west.run().stand_by()
        assert len(str(reported.value)) < 1000
    west.seconds = 1000 + seconds
    assert west.run().write(TWO)


def test_running_holder_is_shown_with_its_time_without_a_write(
    sandbox: Sandbox, east: Host, west: Host
) -> None:
    assert west.run().holder == ""
    at_work = east.run()
    at_work.write(ONE)
    before = writes(sandbox)
    assert at_work.holder == "" and "east:/dnm is at work for instance prod since 20" in (
        west.run().holder
    )
    assert writes(sandbox) == before and not west.config.lock_path.with_suffix(".seen").exists()
    at_work.end()
    assert west.run().holder == ""


def test_takeover_lets_a_vanished_run_write_no_more(east: Host, west: Host) -> None:
    removed = east.run()
    removed.write(ONE)
    west.run().seize("w")
    assert west.run().write(TWO)
    with pytest.raises(LeaseLostError):
        removed.write(THREE)


@pytest.mark.parametrize("lost", ["leases", "secrets"])
def test_write_with_a_lost_answer_is_recognized(sandbox: Sandbox, east: Host, lost: str) -> None:
    state = east.run()
    state.write(ONE)
    sandbox.fault("lost", path=lost, methods=("PATCH",), times=1)
    if lost == "secrets":
        assert state.write(TWO)
    else:
        east.seconds += lease_seconds(east.config) / 2
        with pytest.raises(KubeError):
            state.keep()
        state.keep()
    assert state.write(THREE) and east.run().read() == THREE


def test_first_write_with_a_lost_answer_is_recognized(
    sandbox: Sandbox, east: Host, west: Host
) -> None:
    """The answer to the first write of Secret or Lease is lost; the next write succeeds."""
    for lost in ("secrets", "leases"):
        state = east.run()
        sandbox.fault("lost", path=lost, methods=("POST",), times=1)
        with pytest.raises(KubeError):
            state.begin()
        assert state.write(ONE) == (lost == "secrets")
        state.end()
        sandbox.delete("leases", NAME, "dnm")
    assert west.run().read() == ONE


def test_failed_write_is_reported_and_keeps_the_previous_registry(
    sandbox: Sandbox, east: Host
) -> None:
    state = east.run()
    state.write(ONE)
    sandbox.fault("status", path="secrets", methods=("PATCH",), code=500)
    with pytest.raises(StateError, match="nothing further is done"):
        state.write(TWO)
    assert east.run().read() == ONE


def test_manually_created_secret_is_no_registry(sandbox: Sandbox, east: Host) -> None:
    sandbox.create({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME, "namespace": "dnm"},
    })  # fmt: skip
    with pytest.raises(RegistryError, match=r"it has no registry\.json"):
        east.run().read()
    sandbox.edit("secrets", NAME, lambda item: item.update(data=pack(ONE, "registry.json")), "dnm")
    wrote(east, TWO)
    assert east.run().read() == TWO


def test_deleted_secret_is_not_an_empty_registry(sandbox: Sandbox, east: Host) -> None:
    wrote(east, ONE)
    sandbox.delete("secrets", NAME, "dnm")
    state = east.run()
    why = str(state.missing_error())
    assert state.read() is None and "Restore it from a backup" in why
    assert "dnm resume" in why
    with pytest.raises(RegistryError, match="dnm resume"):
        state.begin()
    sandbox.delete("leases", NAME, "dnm")
    assert east.run().missing_error() is None


def test_kubernetes_state_before_the_move_is_refused_without_a_write(
    sandbox: Sandbox, east: Host, west: Host
) -> None:
    """Once, dnm began a second registry there before the move, and then refused both."""
    before = msgspec.structs.replace(east.config, registry_storage="file")
    save_registry(before, Registry())
    state = east.run()
    for refused in (state.begin, lambda: state.write(TWO)):
        with pytest.raises(RegistryError, match="dnm registry move --to kubernetes` here"):
            refused()
    assert writes(sandbox) == 0
    assert west.run().missing_error() is None, "a new site of another host"


@pytest.mark.parametrize("point", ["kube.write_state:before", "kube.write_state:after"])
def test_first_run_killed_before_its_write_stays_a_first_run(
    sandbox: Sandbox, east: Host, point: str
) -> None:
    state = east.run()
    if point.endswith("after"):
        state.begin()
    assert east.run().read() is None and east.run().missing_error() is None
    wrote(east, ONE)
    assert east.run().read() == ONE


def edit_of_data(
    change: Callable[[dict[str, str]], object],
) -> Callable[[dict[str, dict[str, str]]], None]:
    def edit(item: dict[str, dict[str, str]]) -> None:
        change(item["data"])

    return edit


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: data.update({"registry.json": "%"}), id="no base64"),
        pytest.param(lambda data: data.clear(), id="empty"),
        pytest.param(
            lambda data: data.update({"registry.json.gz": data.pop("registry.json")}), id="no gzip"
        ),
    ],
)
def test_unreadable_secret_stops_the_run(
    sandbox: Sandbox, east: Host, change: Callable[[dict[str, str]], object]
) -> None:
    wrote(east, ONE)
    sandbox.edit("secrets", NAME, edit_of_data(change), "dnm")
    with pytest.raises(RegistryError, match=r"previous\.json in Secret dnm/dnm-prod"):
        east.run().read()


def test_previous_registry_is_left_out_if_both_exceed_a_secret(
    sandbox: Sandbox, east: Host
) -> None:
    wrote(east, ONE)
    large = [random.Random(seed).randbytes(600_000) for seed in (1, 2)]
    for content in large:
        wrote(east, content)
        assert east.run().read() == content
    assert list((sandbox.get("secrets", NAME, "dnm") or {})["data"]) == ["registry.json.gz"]


def test_registry_larger_than_a_secret_is_refused_with_its_size(east: Host) -> None:
    wrote(east, ONE)
    with pytest.raises(RegistryError, match=r"1200000 bytes.*dnm registry move --to file"):
        east.run().write(random.Random(1).randbytes(1_200_000))
    assert east.run().read() == ONE


@pytest.mark.parametrize("size", [0, 10, 256 * 1024, 256 * 1024 + 1, 3_000_000])
def test_large_registries_are_compressed_and_restored(size: int) -> None:
    content = bytes(number % 251 for number in range(size))
    packed = pack(content, "registry.json")
    assert list(packed) == ["registry.json" if size <= 256 * 1024 else "registry.json.gz"]
    assert unpack(packed, "registry.json") == content


def test_truncated_gzip_is_rejected() -> None:
    packed = pack(bytes(300_000), "registry.json")
    cut = {key: value[: len(value) // 8 * 4] for key, value in packed.items()}
    with pytest.raises(ValueError, match="cut off"):
        unpack(cut, "registry.json")


@pytest.mark.parametrize(
    ("instance", "name"),
    [("prod", "dnm-prod"), ("a", "dnm-a"), ("A.b_c-9", r"dnm-a-b-c-9-[0-9a-f]{10}"),
     ("x" * 63, r"dnm-x{40}-[0-9a-f]{10}"), ("...", r"dnm--[0-9a-f]{10}")],
)  # fmt: skip
def test_each_instance_has_a_valid_kubernetes_object_name(instance: str, name: str) -> None:
    path = Path("x")
    text = Config(path=path, namespaces={}, node_types={}, instance_id=instance).object_name
    assert re.fullmatch(name, text) and len(text) <= 63
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", text)  # RFC 1123


HERE = Place(holder="here", home="h", boot="b")


@pytest.mark.parametrize(
    ("lease", "place", "seen", "holder"),
    [
        (Lease(), HERE, 0.0, ""),
        (Lease(holder="x", home="y", boot="b"), HERE, 7.9, "x"),
        (Lease(holder="x", home="y", boot="b"), HERE, 8.0, ""),
        (Lease(holder="here", home="h", boot="b"), HERE, 0.0, ""),
        (Lease(holder="here", home="h", boot="c"), HERE, 0.0, "here"),
        (Lease(holder="here", home="", boot="b"),
         Place(holder="here", home="", boot="b"), 0.0, "here"),
    ],
    ids=["nobody", "another", "another, over", "this place", "a clone, or before a restart",
         "in a container"],
)  # fmt: skip
def test_lease_holder_counts_as_running_for_its_lease_time(
    lease: Lease, place: Place, seen: float, holder: str
) -> None:
    assert find_holder(lease, place, seen, 8) == holder
